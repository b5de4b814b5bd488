"""Definitions of the methods in `posenc_jax.encodings.absolute`."""

import math

import numpy as np

from posenc_jax.lab.definitions.shared import (
    dots,
    embeds_by,
    embeds_by_rows,
    sine_code,
    table_rows,
    within,
)


def _bit_rows(length):
    """The bits of the numbers 0 .. length - 1, lowest first, [length, bits]."""
    bits = len(f"{length - 1:b}")
    return np.array([[i // 2**k % 2 for k in range(bits)] for i in range(length)])


def _bump_code(o, params, pos_T, n, width):
    """The code of `rbf`, one bump at a time."""
    centres = np.linspace(0, o.length - 1, width)
    s = o.bump or (o.length - 1) / max(width - 1, 1)
    at = [within(o.length, o.beyond, t, n) for t in pos_T]
    return np.array([[np.exp(-((t - g) ** 2) / (2 * s**2)) for g in centres] for t in at])


def _fourier_code(o, params, pos_T, n, width):
    """The code of `fourier`, by algorithm 1 of the paper."""
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    turned_TF = np.outer(pos_T, params["freq"])
    r_TF = np.concatenate([np.cos(turned_TF), np.sin(turned_TF)], axis=1) / np.sqrt(o.features)
    return gelu(r_TF @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]


def _rows_and_columns(o, params, pos_T2, n, width):
    """The code of `learned_2d`: the column's half first."""
    column = table_rows(params["column"], o.beyond, pos_T2[:, 1], n)
    row = table_rows(params["row"], o.beyond, pos_T2[:, 0], n)
    if o.join == "sum":
        return row + column
    return np.concatenate([column, row], axis=1)


def _grid_code(o, params, pos_T2, n, width):
    """The code of `sinusoidal_2d`: the sines of each axis, side by side."""
    if o.normalized:
        pos_T2 = 2 * np.pi * (pos_T2 + 1) / (np.max(pos_T2, axis=0) + 1 + 1e-6)
    row = sine_code(pos_T2[:, 0], width // 2, o.base, o.pairing, "paper")
    column = sine_code(pos_T2[:, 1], width - width // 2, o.base, o.pairing, "paper")
    return np.concatenate([row, column], axis=1)


def _fourier_2d_code(o, params, pos_T2, n, width):
    """The code of `fourier_2d`, one entry at a time."""
    code_TW, pairs = np.zeros((len(pos_T2), width)), width // 2
    for i, (row, column) in enumerate(pos_T2):
        for k, (f, g) in enumerate(params["freq_2F"].T):
            angle = f * (row + 0.5 - o.rows / 2) + g * (column + 0.5 - o.columns / 2)
            code_TW[i, k], code_TW[i, pairs + k] = np.sin(angle), np.cos(angle)
    return code_TW


SCORES = {
    "nope": lambda o, params, q_THC, k_THC, pos_T, n: dots(q_THC, k_THC),
}


def _sinusoidal_code(o, params, pos_T, n, width):
    pos_T = (np.asarray(pos_T, float) + o.start) * (width / o.series if o.series else 1)
    code_TW = sine_code(pos_T, width, o.base, o.pairing, o.spacing, o.first)
    return code_TW if o.scale is None else code_TW * params["scale"]


EMBEDS = {
    "index": embeds_by(lambda o, params, pos_T, n, width: np.asarray(pos_T, float)[:, None]),
    "normalized": embeds_by(
        lambda o, params, pos_T, n, width: np.array([[t / max(n - 1, 1)] for t in pos_T])
    ),
    "binary": embeds_by_rows(lambda o, params: _bit_rows(o.length)),
    "one_hot": embeds_by_rows(lambda o, params: np.eye(o.length)),
    "sinusoidal": embeds_by(_sinusoidal_code),
    "learned": embeds_by_rows(lambda o, params: params["table"]),
    "rbf": embeds_by(_bump_code),
    "fourier": embeds_by(_fourier_code),
    "learned_2d": embeds_by(_rows_and_columns),
    "sinusoidal_2d": embeds_by(_grid_code),
    "fourier_2d": embeds_by(_fourier_2d_code),
}
