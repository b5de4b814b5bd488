"""Definitions of the methods in `posenc_jax.encodings.position_vectors`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, clipped_row, table_rows


def _shaw_scores(o, params, q_THC, k_THC, pos_T, n):
    def score(h, i, j):
        row = clipped_row(pos_T[i] - pos_T[j], o.distance, o.ahead)
        key_C = k_THC[j, h] + params["keys"][h, row]
        return np.dot(q_THC[i, h], key_C) / np.sqrt(len(key_C))

    return by_pair(score, q_THC)


def _transformer_xl_scores(o, params, q_THC, k_THC, pos_T, n):
    width = params["w"].shape[0]

    def score(h, i, j):
        angles = [(pos_T[i] - pos_T[j]) / 10000.0 ** (f / width) for f in range(0, width, 2)]
        r_D = np.concatenate([np.sin(angles), np.cos(angles)])
        content = np.dot(q_THC[i, h] + params["u"][h], k_THC[j, h])
        position = np.dot(q_THC[i, h] + params["v"][h], r_D @ params["w"][:, h])
        return (content + position) / np.sqrt(q_THC.shape[-1])

    return by_pair(score, q_THC)


def _deberta_scores(o, params, q_THC, k_THC, pos_T, n):
    half = o.buckets // 2

    def delta(d):
        if not o.buckets:  # the paper's equation (3)
            return 0 if d <= -o.distance else min(d + o.distance, 2 * o.distance - 1)
        bucket = d
        if abs(d) > half:
            log = np.log(abs(d) / half) / np.log((o.distance - 1) / half)
            bucket = np.sign(d) * (np.ceil(log * (half - 1)) + half)
        return int(np.clip(bucket + o.buckets, 0, 2 * o.buckets - 1))

    def score(h, i, j):
        ahead, behind = delta(pos_T[i] - pos_T[j]), delta(pos_T[j] - pos_T[i])
        content = np.dot(q_THC[i, h], k_THC[j, h])
        to_position = np.dot(q_THC[i, h], params["keys"][ahead, h])
        to_content = np.dot(k_THC[j, h], params["queries"][behind if o.flipped else ahead, h])
        return (content + to_position + to_content) / np.sqrt(3 * q_THC.shape[-1])

    return by_pair(score, q_THC)


def _tupe_scores(o, params, q_THC, k_THC, pos_T, n):
    p_TD = table_rows(params["table"], o.beyond, pos_T, n)

    def score(h, i, j):
        content = np.dot(q_THC[i, h], k_THC[j, h])
        position = np.dot(p_TD[i] @ params["queries"][:, h], p_TD[j] @ params["keys"][:, h])
        return (content + position) / np.sqrt(2 * q_THC.shape[-1])

    return by_pair(score, q_THC)


SCORES = {
    "shaw": _shaw_scores,
    "transformer_xl": _transformer_xl_scores,
    "deberta": _deberta_scores,
    "tupe": _tupe_scores,
}
