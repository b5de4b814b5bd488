"""Absolute methods over grids: positions are (row, column), [B, T, 2].

Rows and columns may be fractions. A table made for one resolution reads another if positions are
given in the table's units (row * table rows / image rows).
"""

import jax.numpy as jnp

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import Count, Edge, Positive, method
from posenc_jax.encodings.input_codes import How
from posenc_jax.encodings.rotation import Pairing


@method(
    kind="input",
    formula="c(row, column) = (E_column[column], E_row[row]), two learned tables of `length` rows",
    paper="Carion et al. 2020 (DETR), arXiv 2005.12872",
    axes=2,
    **codes.TABLE,
    vary={"length": 2, "width": 8},
    reference="transformers",
)
def learned_2d(
    length: Count = 50, beyond: Edge = "error", how: How = "add", width: Count | None = None
) -> Encoding:
    """A learned vector for each column and one for each row, side by side.

    Positions are (row, column), but the column's half of the channels comes first, as in DETR's
    code. If the width is odd, the row's half is one channel wider. There is no `interpolate`,
    because a layout has the number of tokens in a grid, not the number of rows.
    """

    def code(params, pos_BT2, width):
        read = lambda name, axis: codes.read(
            lambda i: params[name][i], pos_BT2[..., axis], length, beyond
        )
        return jnp.concatenate([read("column", 1), read("row", 0)], axis=-1)

    def init(key, width):
        table = codes.normal(key, (length, width))
        return {"column": table[:, : width // 2], "row": table[:, width // 2 :]}

    return codes.coded(how, width, code, init, axes=2)


@method(
    kind="input",
    formula="c = (sin w_k row, cos w_k row, sin w_k column, cos w_k column), w_k = base^(-4k/W)",
    paper="Dosovitskiy et al. 2020, arXiv 2010.11929; Chen et al. 2021 (MoCo v3), arXiv 2104.02057",
    axes=2,
    vary={"width": 8},
    reference="positional-encodings, transformers",
)
def sinusoidal_2d(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Sines of the row, then sines of the column, each in half of the channels.

    The row comes first, as in MoCo v3's code, though the names in that code say the opposite. Its
    widths are multiples of 4. For other widths each half is as in `sinusoidal`, and the column's
    half is wider if the width is odd.

    Args:
      pairing: within each half, "half": all sines, then all cosines (MoCo v3); "interleaved": sine
        and cosine of a pair side by side.
      width: the code's own width; None is the model's.
    """

    def code(params, pos_BT2, width):
        row_BTW = codes.sines(pos_BT2[..., 0], width // 2, base, pairing, "paper")
        column_BTW = codes.sines(pos_BT2[..., 1], width - width // 2, base, pairing, "paper")
        return jnp.concatenate([row_BTW, column_BTW], axis=-1)

    return codes.coded(how, width, code, axes=2)
