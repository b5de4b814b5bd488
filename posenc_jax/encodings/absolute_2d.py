"""Absolute methods over grids: positions are (row, column), [B, T, 2].

Rows and columns may be fractions, so a table made for one resolution reads another when the layout
gives positions in the table's own units (row * table rows / image rows).
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import (
    Channels,
    How,
    bounded,
    coded,
    joined,
    normal,
    one_of,
    read,
    require,
    sine_code,
    sines,
    table_rows,
)

Edge = Literal["clamp", "error"]


@method(
    kind="input",
    formula="c(row, column) = (E_column[column], E_row[row]), two learned tables of `length` rows",
    paper="Carion et al. 2020 (DETR), arXiv 2005.12872",
    beyond="option",
    axes=2,
    embeds=lambda o, params, x_TD, pos_T, n: joined(
        o,
        params,
        x_TD,
        np.concatenate(
            [
                table_rows(params["column"], o.beyond, pos_T[:, 1], n),
                table_rows(params["row"], o.beyond, pos_T[:, 0], n),
            ],
            axis=1,
        ),
    ),
    example={"length": 64, "beyond": "clamp"},
    vary={"length": 2, "width": 8},
    reference="transformers",
)
def learned_2d(
    length: int = 50, beyond: Edge = "error", how: How = "add", width: int | None = None
) -> Encoding:
    """A learned vector for each column and one for each row, side by side.

    Positions are (row, column), yet the column's half of the channels comes first, as in DETR's
    code; where the width is odd the row's half is one wider. There is no `interpolate`: a token
    knows how many tokens its grid has, not how many rows.

    ValueError: length or width is not positive.
    """
    require(length > 0, "length", length, "must be positive")
    one_of("beyond", beyond, Edge)

    def code(params, pos_BT2, width):
        halves = [
            read(lambda i: params["column"][i], pos_BT2[..., 1], length, beyond),
            read(lambda i: params["row"][i], pos_BT2[..., 0], length, beyond),
        ]
        return jnp.concatenate(halves, axis=-1)

    def init(key, width):
        table = normal(key, (length, width))
        return {"column": table[:, : width // 2], "row": table[:, width // 2 :]}

    return coded(how, width, code, init, axes=2, **bounded(length, beyond))


@method(
    kind="input",
    formula="c = (sin w_k row, cos w_k row, sin w_k column, cos w_k column), w_k = base^(-4k/W)",
    paper="Dosovitskiy et al. 2020, arXiv 2010.11929; Chen et al. 2021 (MoCo v3), arXiv 2104.02057",
    axes=2,
    embeds=lambda o, params, x_TD, pos_T, n: joined(
        o, params, x_TD, grid_code(o, pos_T, o.width or x_TD.shape[1])
    ),
    vary={"width": 8},
    reference="positional-encodings, transformers",
)
def sinusoidal_2d(
    base: float = 10_000.0, layout: Channels = "halves", how: How = "add", width: int | None = None
) -> Encoding:
    """Sines of the row, then sines of the column, each in half of the channels.

    The order is that of MoCo v3's code, whose names say column first but whose grid is made with
    the row along the first axis. Its widths are multiples of 4; at others each half is as in
    `sinusoidal`, and the column's is the wider.

    Args:
      layout: within a half, all sines, then all cosines (MoCo v3), or a pair side by side.
      width: the code's own width; None is the model's.

    ValueError: base or width is not positive.
    """
    require(0 < base < np.inf, "base", base, "must be positive and finite")
    one_of("layout", layout, Channels)

    def code(params, pos_BT2, width):
        row_BTW = sines(pos_BT2[..., 0], width // 2, base, layout, "paper")
        column_BTW = sines(pos_BT2[..., 1], width - width // 2, base, layout, "paper")
        return jnp.concatenate([row_BTW, column_BTW], axis=-1)

    return coded(how, width, code, axes=2)


def grid_code(o, pos_T2, width):
    """Definition of `sinusoidal_2d`: the table of one axis, twice."""
    row = sine_code(pos_T2[:, 0], width // 2, o.base, o.layout, "paper")
    column = sine_code(pos_T2[:, 1], width - width // 2, o.base, o.layout, "paper")
    return np.concatenate([row, column], axis=1)
