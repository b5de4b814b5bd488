"""Definitions of the methods in `posenc_jax.encodings.positions`."""

import jax
import numpy as np


def _randomized_places(o, pos_T, n):
    """The positions of `randomized`: the n smallest of `limit` random numbers, or the mean of such
    draws.
    """
    if n > o.limit:
        return np.full(len(pos_T), np.nan)
    if o.evaluate == "plain":
        return np.asarray(pos_T, np.float64)
    if o.evaluate == "spread":
        return np.array([(int(p) + 1) * (o.limit + 1) // (n + 1) - 1 for p in pos_T], np.float64)
    key = jax.random.fold_in(jax.random.key(o.seed), n)
    bits_L = np.asarray(jax.random.bits(key, (1, o.limit), np.uint32))[0]
    chosen = sorted(np.argsort(bits_L, kind="stable")[:n])
    return np.array([chosen[int(p)] for p in pos_T], np.float64)


PLACES = {
    "randomized": _randomized_places,
    "interpolated": lambda o, pos_T, n: np.array(
        [t * o.length / n if n > o.length else t for t in pos_T]
    ),
    "clamped": lambda o, pos_T, n: np.array([min(t, o.length - 1) for t in pos_T]),
}
