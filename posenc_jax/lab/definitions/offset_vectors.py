"""Definitions of the methods in `posenc_jax.encodings.offset_vectors`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, clipped_row


def _content_bias_scores(o, params, q_THC, k_THC, pos_T, n):
    x_TD = q_THC.reshape(len(q_THC), -1)

    def score(h, i, j):
        dot = np.dot(q_THC[i, h], k_THC[j, h]) / np.sqrt(q_THC.shape[-1])
        away = int(pos_T[i] - pos_T[j])
        if not 0 <= away < o.distance:
            return dot
        weight_N = x_TD[i] @ params["weight"][:, h] + params["weight_bias"][h]
        return dot + weight_N @ params["curves"][:, away]

    return by_pair(score, q_THC)


def _decomposed_scores(o, params, q_THC, k_THC, pos_T, n):
    last = np.array([o.window, o.columns or o.window]) - 1

    def score(h, i, j):
        d = pos_T[i] - pos_T[j]
        if o.beyond == "error" and np.any(abs(d) > last):
            return np.nan
        row, column = map(clipped_row, d, last)
        position = q_THC[i, h] @ (params["rows"][row] + params["columns"][column])
        return np.dot(q_THC[i, h], k_THC[j, h]) / np.sqrt(q_THC.shape[-1]) + position

    return by_pair(score, q_THC)


def _irpe_scores(o, params, q_THC, k_THC, pos_T, n):
    alpha, beta, gamma = o.ratio, 2 * o.ratio, 8 * o.ratio

    def piecewise(x):
        if abs(x) <= alpha:
            return int(x)
        y = np.round(alpha + np.log(abs(x) / alpha) / np.log(gamma / alpha) * (beta - alpha))
        return int(np.sign(x) * np.minimum(y, beta))

    def score(h, i, j):
        row, column = (piecewise(x) + int(beta) for x in pos_T[i] - pos_T[j])
        key_C = k_THC[j, h] + params["keys"][row * (2 * int(beta) + 1) + column]
        return np.dot(q_THC[i, h], key_C) / np.sqrt(len(key_C))

    return by_pair(score, q_THC)


SCORES = {
    "content_bias": _content_bias_scores,
    "decomposed": _decomposed_scores,
    "irpe": _irpe_scores,
}
