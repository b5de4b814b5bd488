"""Definitions of the methods in `posenc_jax.encodings.temperature`."""

import numpy as np

from posenc_jax.lab.definitions.shared import dots


def _seen(pos_T):
    """How many keys each query of a causal sequence sees, [T, 1]."""
    return np.arange(1, len(pos_T) + 1)[:, None]


SCORES = {
    "ssmax": lambda o, params, q, k, pos, n: (
        params["s"][:, None, None] * np.log(_seen(pos)) * dots(q, k)
    ),
    "logn": lambda o, params, q, k, pos, n: (
        np.maximum(1, np.log(_seen(pos)) / np.log(o.length)) * dots(q, k)
    ),
}
