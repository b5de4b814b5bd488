"""Rotary methods of vision models, besides those of rotary_axes: DINOv3, MHRoPE, VideoRoPE."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Count, Factor, Positive, Whole, method, require, three
from posenc_jax.encodings.positions_augmented import each, sequence_keys
from posenc_jax.encodings.rotary_axes import (
    angles_by_axis,
    check_quarters,
    pairs_by_axis,
    shares,
    split_axes,
    split_three,
)
from posenc_jax.encodings.rotation import TURN, Pairing, angles, ladder, rotary, turns


@method(
    kind="rotary",
    formula="as axial, at 2 pi times the patch's centre x in [-1, 1]; in training s m x, "
    "|ln m| <= ln jitter for each axis, |ln s| <= ln rescale",
    paper="Simeoni et al. 2025 (DINOv3), arXiv 2508.10104 and its released code",
    axes=2,
    example={"rows": 4, "columns": 6, "jitter": 1.5},
    reference="transformers",
)
def dinov3(
    rows: Count = 14,
    columns: Count = 14,
    base: Positive = 100.0,
    pairing: Pairing = "half",
    jitter: Factor = 1.0,
    rescale: Factor = 2.0,
) -> Encoding:
    """DINOv3's rotary: an image goes from -1 to 1 along each axis, whatever its number of patches.

    Positions are [B, T, 2], (row, column), counted in patches. A token of the whole image, which
    DINOv3 does not turn, stands in its middle, ((rows - 1) / 2, (columns - 1) / 2). In training
    coordinates are stretched, each axis by its own m, and both by s; these are drawn for each
    image, their logarithms uniformly. The released code draws once for a batch. It can also shift
    all patches of an image, which changes no score among them and is left out.

    Args:
      rows, columns: patches of an image. Weights of one size serve all.
      base, pairing: as in `axial`.
      jitter, rescale: the largest m and s; 1 for none. The defaults are Hugging Face's.

    FieldError, later: a width of a head that 4 does not divide.
    """
    sizes = rows, columns

    def frequencies(head):
        check_quarters(head)
        return np.tile(TURN * ladder(head // 2, base), 2)

    def place(key, layout):
        pos_A = split_axes(layout.pos_BT, 2)
        if key is None:
            return pos_A, None
        uniform = lambda k: jax.random.uniform(k, (), float, -1.0, 1.0)
        stretch = lambda k, most: jnp.exp(np.log(most) * each(uniform, sequence_keys(k, layout)))
        *own, both = jax.random.split(key, 3)
        centre = lambda pos_BT, size: (2 * pos_BT.astype(float) + 1) / size - 1
        drawn = zip(pos_A, sizes, own, strict=True)
        moved_A = [stretch(k, jitter) * centre(pos_BT, size) for pos_BT, size, k in drawn]
        return pos_A, [stretch(both, rescale) * moved_BT for moved_BT in moved_A]

    def table(params, placed, dims):
        pos_A, moved_A = placed
        freq_F, axis_F = frequencies(dims.head), np.repeat((0, 1), dims.head // 4)
        if moved_A is not None:
            return turns(angles_by_axis(moved_A, freq_F, axis_F))
        size_F = np.array(sizes)[axis_F]
        angle = angles_by_axis(pos_A, 2 / size_F * freq_F, axis_F)  # exact for whole positions
        first_F = (1 / size_F - 1) * freq_F
        return turns(angle + first_F[None, None, None].astype(angle.dtype))

    return rotary(pairing, table, frequencies, place=place)


@method(
    kind="rotary",
    formula="as rope, a head turning by time, height or width",
    paper="Huang et al. 2025, arXiv 2510.23095",
    axes=3,
    vary={"heads": (1, 1, 1)},
)
def mhrope(
    base: Positive = 1_000_000.0, pairing: Pairing = "half", heads: tuple[int, ...] = ()
) -> Encoding:
    """Multi-Head RoPE: each head turns by one axis, with all frequencies of rope.

    Positions are [B, T, 3], (time, row, column). The paper makes them with rows and columns that
    begin at 0 in each image, `multimodal_ids.ids(parts, reset=True)`.

    Args:
      base, pairing: as in `rope`.
      heads: numbers of heads for time, height and width, in this order; heads that are left over do
        not turn. () for shares of 2:3:3.

    FieldError: heads that are not three numbers; later, more heads than the model has.
    """
    three("heads", heads, of="heads")

    def table(params, placed, dims):
        number_A = heads or shares(dims.heads)
        left = dims.heads - sum(number_A)
        require(left >= 0, "heads", heads, f"are more than the model's {dims.heads}")
        freq_1F = ladder(dims.head, base)[None]
        by_axis = zip(placed, number_A, strict=True)
        found = [jnp.repeat(angles(pos_BT, freq_1F), number, 2) for pos_BT, number in by_axis]
        still = jnp.zeros((*found[0].shape[:2], left, freq_1F.shape[1]), found[0].dtype)
        return turns(jnp.concatenate([*found, still], axis=2))

    return rotary(pairing, table, place=split_three)


@method(
    kind="rotary",
    formula="as rope, the slowest pairs turning by time, the others by height and width in turn",
    paper="Wei et al. 2025 (VideoRoPE), arXiv 2502.05173",
    axes=3,
    vary={"time": 2},
)
def video_rope(
    base: Positive = 1_000_000.0, pairing: Pairing = "half", time: Whole | None = None
) -> Encoding:
    """VideoRoPE: time turns the slowest pairs, so that far frames are told apart without repeats.

    Positions are [B, T, 3], (time, row, column). The paper places frames on a diagonal,
    `multimodal_ids.diagonal_ids`. `mrope` gives time the fastest pairs instead.

    Args:
      base, pairing: as in `rope`.
      time: pairs for time; None: a quarter of them. Of the others, even ones turn by the row.

    FieldError, later: more pairs than a head has.
    """

    def axis_of(pairs):
        space = pairs - (max(pairs // 4, 1) if time is None else time)
        require(space >= 0, "time", time, f"is more than the {pairs} pairs of a head")
        pair_F = np.arange(pairs)
        return np.where(pair_F < space, 1 + pair_F % 2, 0)

    return pairs_by_axis(axis_of, base, pairing)
