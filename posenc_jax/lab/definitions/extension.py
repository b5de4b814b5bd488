"""Definitions of the methods in `posenc_jax.encodings.extension`."""

import numpy as np

from posenc_jax.lab.definitions.rotary_scaling import by_parts_theta
from posenc_jax.lab.definitions.shared import dots, powers, ramped, rotary_scores, turned_scores


def _longrope_scores(o, params, q, k, pos, n):
    pos_T1, theta_F = np.asarray(pos, np.float64)[:, None], powers(o.base, q.shape[-1])
    divisors = (o.long or o.factor) if n > o.length else (o.short or 1.0)
    # start=0 is no bound: it switches this off, also for negative positions.
    unscaled_T1 = (pos_T1 < o.start) & (o.start > 0)
    angle_TF = pos_T1 * theta_F / np.where(unscaled_T1, 1.0, divisors)
    angle_QKHF = (angle_TF[:, None] - angle_TF[None])[:, :, None]
    temperature = 1 + np.log(o.factor) / np.log(o.length)
    return temperature * turned_scores(q, k, angle_QKHF, o.pairing)


def _resonance_theta(o, width, n):
    return 2 * np.pi / np.round(2 * np.pi / by_parts_theta(o, width, n))


def _seen(pos_T):
    """The number of keys that each query of a causal sequence sees, [T, 1]."""
    return np.arange(1, len(pos_T) + 1)[:, None]


SCORES = {
    "llama3": rotary_scores(
        lambda o, width, n: ramped(powers(o.base, width), o.factor, o.length, o.low, o.high)
    ),
    "longrope": _longrope_scores,
    "resonance": lambda o, *inputs: (
        (0.1 * np.log(o.factor) + 1) ** 2 * rotary_scores(_resonance_theta)(o, *inputs)
    ),
    "drope": lambda o, params, q, k, pos, n: (
        (1 + o.temperature * np.log(max(1.0, n / o.length))) * dots(q, k)
    ),
    "ssmax": lambda o, params, q, k, pos, n: (
        params["s"][:, None, None] * np.log(_seen(pos)) * dots(q, k)
    ),
    "logn": lambda o, params, q, k, pos, n: (
        np.maximum(1, np.log(_seen(pos)) / np.log(o.length)) * dots(q, k)
    ),
}
