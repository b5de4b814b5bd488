"""Definitions of the methods in `posenc_jax.encodings.rotary_by_distance`."""

from collections.abc import Callable

import numpy as np

from posenc_jax.lab.definitions.shared import powers, turned_scores


def _scores_at(distance: Callable) -> Callable:
    """An entry of SCORES: rope at distance(o, i, j), given for keys at or behind the query."""

    def scores(o, params, q_THC, k_THC, pos_T, n):
        signed = lambda i, j: distance(o, i, j) if i >= j else -distance(o, j, i)
        far_QK = np.array([[signed(float(i), float(j)) for j in pos_T] for i in pos_T])
        angle_QKHF = far_QK[:, :, None, None] * powers(o.base, q_THC.shape[-1])
        return turned_scores(q_THC, k_THC, angle_QKHF, o.pairing)

    return scores


def _self_extend_distance(o, i, j):
    if i - j < o.window:
        return i - j
    return i // o.group - j // o.group + o.window - o.window // o.group


def _dual_chunk_distance(o, i, j):
    apart = i // o.chunk - j // o.chunk
    if apart == 0:
        return i - j
    reads_as = min(i % o.chunk + o.chunk, o.most) if apart == 1 else o.most
    return reads_as - j % o.chunk


_capped_scores = _scores_at(lambda o, i, j: min(i - j, o.window))


def _rerope_scores(o, params, q_THC, k_THC, pos_T, n):
    s_HTT = _capped_scores(o, params, q_THC, k_THC, pos_T, n)
    if o.first is not None:
        for i, j in np.ndindex(s_HTT.shape[1:]):
            if abs(pos_T[i] - pos_T[j]) >= o.window and pos_T[j] >= o.first:
                s_HTT[:, i, j] = -np.inf
    return s_HTT


SCORES = {
    "rerope": _rerope_scores,
    "leaky_rerope": _scores_at(
        lambda o, i, j: min(i - j, o.window) + max(i - j - o.window, 0) / o.factor
    ),
    "self_extend": _scores_at(_self_extend_distance),
    "dual_chunk": _scores_at(_dual_chunk_distance),
}
