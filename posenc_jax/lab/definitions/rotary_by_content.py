"""Definitions of the methods in `posenc_jax.encodings.rotary_by_content`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, powers, sigmoid, turned_scores


def _repo_scores(o, params, q_THC, k_THC, pos_T, n):
    x_TD = q_THC.reshape(len(q_THC), -1)
    gate_TM = x_TD @ params["gate"]
    z_TH = (gate_TM * sigmoid(gate_TM) * (x_TD @ params["content"])) @ params["position"]
    apart_QKH1 = (z_TH[:, None] - z_TH[None])[..., None]
    return turned_scores(q_THC, k_THC, apart_QKH1 * powers(o.base, q_THC.shape[-1]), o.pairing)


def _tapa_scores(o, params, q_THC, k_THC, pos_T, n):
    width = q_THC.shape[-1]
    cut = int(o.share * width)

    def score(h, i, j):
        amplitude = np.dot(q_THC[i, h, :cut], k_THC[j, h, :cut]) / np.sqrt(cut)
        phase = np.dot(q_THC[i, h, cut:], k_THC[j, h, cut:]) / np.sqrt(width - cut)
        return amplitude * np.cos(2 * np.pi * abs(pos_T[i] - pos_T[j]) ** o.power * phase)

    return by_pair(score, q_THC)


SCORES = {
    "repo": _repo_scores,
    "tapa": _tapa_scores,
}
