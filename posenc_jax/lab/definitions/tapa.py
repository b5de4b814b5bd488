"""Definitions of the methods in `posenc_jax.encodings.tapa`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair


def _tapa_scores(o, params, q_THC, k_THC, pos_T, n):
    width = q_THC.shape[-1]
    cut = int(o.share * width)

    def score(h, i, j):
        amplitude = np.dot(q_THC[i, h, :cut], k_THC[j, h, :cut]) / np.sqrt(cut)
        phase = np.dot(q_THC[i, h, cut:], k_THC[j, h, cut:]) / np.sqrt(width - cut)
        return amplitude * np.cos(2 * np.pi * abs(pos_T[i] - pos_T[j]) ** o.power * phase)

    return by_pair(score, q_THC)


SCORES = {
    "tapa": _tapa_scores,
}
