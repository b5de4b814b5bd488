"""Definitions of the methods in `posenc_jax.encodings.path`."""

import numpy as np

from posenc_jax.lab.definitions.shared import sigmoid


def _path_scores(o, params, q_THC, k_THC, pos_T, n):
    time, heads, head = q_THC.shape
    x_TD = q_THC.reshape(time, -1)
    if o.beta is None:
        beta_TH = 2 * sigmoid(x_TD @ params["beta"] + params["beta_bias"])
    else:
        beta_TH = np.full((time, heads), o.beta)
    s_HTT = np.zeros((heads, time, time))
    for h in range(heads):
        w_TC = x_TD @ params["down"] @ params["up"][:, h]
        w_TC = w_TC / np.sqrt((w_TC**2).sum(axis=1, keepdims=True) + 1e-6)
        turn_TCC = [np.eye(head) - beta_TH[t, h] * np.outer(w_TC[t], w_TC[t]) for t in range(time)]
        for i in range(time):
            for j in range(i + 1):
                between = np.eye(head)
                for s in range(j + 1, i + 1):
                    between = between @ turn_TCC[s]
                s_HTT[h, i, j] = k_THC[j, h] @ between @ q_THC[i, h] / np.sqrt(head)
    return s_HTT


SCORES = {
    "path": _path_scores,
}
