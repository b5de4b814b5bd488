"""Definitions of the methods in `posenc_jax.encodings.wall`."""

import numpy as np

from posenc_jax.lab.definitions.shared import sigmoid


def _wall_scores(o, params, q_THC, k_THC, pos_T, n):
    time, heads, head = q_THC.shape
    x_TD = q_THC.reshape(time, -1)
    s_HTT = np.zeros((heads, time, time))
    for h, i, j in np.ndindex(s_HTT.shape):
        gate_TC = sigmoid(x_TD @ params["gate"][:, h] + params["gate_bias"][h])
        kept_C = np.prod(gate_TC[j + 1 : i + 1], axis=0)
        s_HTT[h, i, j] = np.sum(q_THC[i, h] * k_THC[j, h] * kept_C) / np.sqrt(head)
    return s_HTT


SCORES = {
    "wall": _wall_scores,
}
