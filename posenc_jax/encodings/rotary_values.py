"""Rotary methods that turn values too, so that a query reads them as they look from its place."""

import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least
from posenc_jax.encodings.rotary_axes import angles_by_axis, check_quarters, split_axes
from posenc_jax.encodings.rotation import TURN, Pairing, rotary, turns


@method(
    kind="rotary",
    formula="q, k and v turn by 2 pi t / size 2^(n - N), n = 1 .. N, of row and column; "
    "a query's output turns back",
    paper="Miyato et al. 2024 (GTA), arXiv 2310.10375",
    axes=2,
    example={"size": 6},
)
def gta(size: int = 16, pairing: Pairing = "interleaved") -> Encoding:
    """Geometric transform attention for pictures: values turn too, relative to the query.

    Positions are [B, T, 2], (row, column). A query reads keys and values as they look from its own
    place. This is the paper's SO(2) part; parts for cameras are left out.

    Args:
      size: patches along a side of an image; the fastest pairs make one turn over it.
      pairing: as in `rope`; the authors' code pairs "interleaved".

    FieldError: size below 1; later, a width of a head that 4 does not divide, positions of another
    shape.
    """
    at_least(1, size=size)

    def frequencies(head):
        check_quarters(head)
        count = head // 4
        return np.repeat(TURN / size * 2.0 ** (np.arange(1, count + 1) - count), 2)

    def table(params, pos_BTA, dims):
        axis_F = np.tile((0, 1), dims.head // 4)
        return turns(angles_by_axis(split_axes(pos_BTA, 2), frequencies(dims.head), axis_F))

    return rotary(frequencies, pairing, table, turns_values=True)
