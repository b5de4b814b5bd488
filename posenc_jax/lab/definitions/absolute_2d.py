"""Definitions of the methods in `posenc_jax.encodings.absolute_2d`."""

import numpy as np

from posenc_jax.lab.definitions.shared import embeds_by, sine_code, table_rows


def _rows_and_columns(o, params, pos_T2, n, width):
    column = table_rows(params["column"], o.beyond, pos_T2[:, 1], n)
    row = table_rows(params["row"], o.beyond, pos_T2[:, 0], n)
    return np.concatenate([column, row], axis=1)


def _grid_code(o, params, pos_T2, n, width):
    """The table of each axis, side by side."""
    row = sine_code(pos_T2[:, 0], width // 2, o.base, o.pairing, "paper")
    column = sine_code(pos_T2[:, 1], width - width // 2, o.base, o.pairing, "paper")
    return np.concatenate([row, column], axis=1)


EMBEDS = {
    "learned_2d": embeds_by(_rows_and_columns),
    "sinusoidal_2d": embeds_by(_grid_code),
}
