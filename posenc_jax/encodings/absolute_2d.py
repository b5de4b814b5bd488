"""Absolute methods over grids: positions are (row, column), [B, T, 2].

Rows and columns may be fractions. A table made for one resolution reads another if positions are
given in the table's units (row * table rows / image rows).
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import Edge, method
from posenc_jax.encodings.checks import at_least, one_of, positive
from posenc_jax.encodings.input_codes import How
from posenc_jax.encodings.rotation import Pairing


def _rows_and_columns(o, params, pos_T2, n, width):
    column = codes.table_rows(params["column"], o.beyond, pos_T2[:, 1], n)
    row = codes.table_rows(params["row"], o.beyond, pos_T2[:, 0], n)
    return np.concatenate([column, row], axis=1)


@method(
    kind="input",
    formula="c(row, column) = (E_column[column], E_row[row]), two learned tables of `length` rows",
    paper="Carion et al. 2020 (DETR), arXiv 2005.12872",
    beyond="option",
    axes=2,
    reads=codes.table_reads,
    embeds=codes.embeds_by(_rows_and_columns),
    example={"length": 64, "beyond": "clamp"},
    vary={"length": 2, "width": 8},
    reference="transformers",
)
def learned_2d(
    length: int = 50, beyond: Edge = "error", how: How = "add", width: int | None = None
) -> Encoding:
    """A learned vector for each column and one for each row, side by side.

    Positions are (row, column), but the column's half of the channels comes first, as in DETR's
    code. If the width is odd, the row's half is one channel wider. There is no `interpolate`,
    because a layout has the number of tokens in a grid, not the number of rows.

    FieldError: length or width is not positive.
    """
    at_least(1, length=length)
    one_of("beyond", beyond, Edge)

    def code(params, pos_BT2, width):
        halves = [
            codes.read(lambda i: params["column"][i], pos_BT2[..., 1], length, beyond),
            codes.read(lambda i: params["row"][i], pos_BT2[..., 0], length, beyond),
        ]
        return jnp.concatenate(halves, axis=-1)

    def init(key, width):
        table = codes.normal(key, (length, width))
        return {"column": table[:, : width // 2], "row": table[:, width // 2 :]}

    return codes.coded(how, width, code, init, axes=2)


def _grid_code(o, params, pos_T2, n, width):
    """Definition: the table of each axis, side by side."""
    row = codes.sine_code(pos_T2[:, 0], width // 2, o.base, o.pairing, "paper")
    column = codes.sine_code(pos_T2[:, 1], width - width // 2, o.base, o.pairing, "paper")
    return np.concatenate([row, column], axis=1)


@method(
    kind="input",
    formula="c = (sin w_k row, cos w_k row, sin w_k column, cos w_k column), w_k = base^(-4k/W)",
    paper="Dosovitskiy et al. 2020, arXiv 2010.11929; Chen et al. 2021 (MoCo v3), arXiv 2104.02057",
    axes=2,
    embeds=codes.embeds_by(_grid_code),
    vary={"width": 8},
    reference="positional-encodings, transformers",
)
def sinusoidal_2d(
    base: float = 10_000.0, pairing: Pairing = "half", how: How = "add", width: int | None = None
) -> Encoding:
    """Sines of the row, then sines of the column, each in half of the channels.

    The row comes first, as in MoCo v3's code, though the names in that code say the opposite. Its
    widths are multiples of 4. For other widths each half is as in `sinusoidal`, and the column's
    half is wider if the width is odd.

    Args:
      pairing: within each half, "half": all sines, then all cosines (MoCo v3); "interleaved": sine
        and cosine of a pair side by side.
      width: the code's own width; None is the model's.

    FieldError: base or width is not positive, or an unknown pairing.
    """
    positive(base=base)
    one_of("pairing", pairing, Pairing)

    def code(params, pos_BT2, width):
        row_BTW = codes.sines(pos_BT2[..., 0], width // 2, base, pairing, "paper")
        column_BTW = codes.sines(pos_BT2[..., 1], width - width // 2, base, pairing, "paper")
        return jnp.concatenate([row_BTW, column_BTW], axis=-1)

    return codes.coded(how, width, code, axes=2)
