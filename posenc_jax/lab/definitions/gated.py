"""Definitions of the methods in `posenc_jax.encodings.gated`."""

import numpy as np

from posenc_jax.lab.definitions.shared import dots, sigmoid


def _cope_scores(o, params, q_THC, k_THC, pos_T, n):
    s_HTT, e_PC = dots(q_THC, k_THC), params["table"]
    out_HTT = s_HTT.copy()
    scale = np.sqrt(q_THC.shape[-1]) if o.scaled else 1
    for h, i, j in np.ndindex(s_HTT.shape):
        p = min(sum(sigmoid(s_HTT[h, i, l]) for l in range(j, i + 1)), o.length - 1)
        low, high = int(np.floor(p)), int(np.ceil(p))
        at_low, at_high = (np.dot(q_THC[i, h], e_PC[row]) for row in (low, high))
        out_HTT[h, i, j] += ((p - low) * at_high + (1 - p + low) * at_low) / scale
    return out_HTT


def _fox_scores(o, params, q_THC, k_THC, pos_T, n):
    s_HTT, x_TD = dots(q_THC, k_THC), q_THC.reshape(len(q_THC), -1)
    f_TH = sigmoid(x_TD @ params["gate"] + params["gate_bias"])
    for h, i, j in np.ndindex(s_HTT.shape):
        s_HTT[h, i, j] += sum(np.log(f_TH[l, h]) for l in range(j + 1, i + 1))
    return s_HTT


def _fox_rows_scores(o, params, q_THC, k_THC, pos_T, n):
    s_HTT, x_TD = dots(q_THC, k_THC), q_THC.reshape(len(q_THC), -1)
    for h, i, j in np.ndindex(s_HTT.shape):
        reader_W = x_TD[i] @ params["readers"][:, h]
        for l in range(j, i):
            gate = reader_W @ (x_TD[l] @ params["keepers"][:, h]) / np.sqrt(o.width)
            s_HTT[h, i, j] += np.log(sigmoid(gate))
    return s_HTT


def _stick_breaking_scores(o, params, q_THC, k_THC, pos_T, n):
    s_HTT = dots(q_THC, k_THC)
    out_HTT = np.full(s_HTT.shape, -np.inf)
    for h, i, j in np.ndindex(s_HTT.shape):
        newest = i if o.own else i - 1
        if j <= newest:
            remainder = np.prod([1 - sigmoid(s_HTT[h, i, l]) for l in range(j + 1, newest + 1)])
            out_HTT[h, i, j] = np.log(sigmoid(s_HTT[h, i, j]) * remainder)
    return out_HTT


def _wall_scores(o, params, q_THC, k_THC, pos_T, n):
    time, heads, head = q_THC.shape
    x_TD = q_THC.reshape(time, -1)
    s_HTT = np.zeros((heads, time, time))
    for h, i, j in np.ndindex(s_HTT.shape):
        gate_TC = sigmoid(x_TD @ params["gate"][:, h] + params["gate_bias"][h])
        decay_C = np.prod(gate_TC[j + 1 : i + 1], axis=0)
        s_HTT[h, i, j] = np.sum(q_THC[i, h] * k_THC[j, h] * decay_C) / np.sqrt(head)
    return s_HTT


SCORES = {
    "cope": _cope_scores,
    "fox": _fox_scores,
    "fox_rows": _fox_rows_scores,
    "stick_breaking": _stick_breaking_scores,
    "wall": _wall_scores,
}
