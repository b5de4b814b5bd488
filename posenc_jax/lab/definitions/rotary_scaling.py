"""Definitions of the methods in `posenc_jax.encodings.rotary_scaling`."""

import numpy as np

from posenc_jax.lab.definitions.shared import powers, ramped, scores_of


def _dynamic_theta(o, width, n):
    stretch = o.alpha * max(n, o.length) / o.length - (o.alpha - 1)
    return powers(o.base * stretch ** (width / (width - 2)), width)


def by_parts_theta(o, width, n):
    """Section 3.2 of the paper; for the other ramps, its code."""
    theta = powers(o.base, width)
    if o.ramp == "turns":
        return ramped(theta, o.factor, o.length, o.beta_slow, o.beta_fast)
    # The pair that makes so many turns within the trained length.
    where = lambda turns: width * np.log(o.length / (turns * 2 * np.pi)) / (2 * np.log(o.base))
    low, high = where(o.beta_fast), where(o.beta_slow)
    if o.ramp == "pairs_truncated":
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    gamma = 1 - np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return (1 - gamma) * theta / o.factor + gamma * theta


def _yarn_scores(o, *given):
    log = np.log(o.factor)
    root = (0.1 * o.mscale * log + 1) / (0.1 * o.mscale_all_dim * log + 1)
    return root**2 * scores_of(by_parts_theta)(o, *given)


SCORES = {
    "pi": scores_of(lambda o, width, n: powers(o.base, width) / o.factor),
    "ntk": scores_of(lambda o, width, n: powers(o.base * o.factor ** (width / (width - 2)), width)),
    "dynamic_ntk": scores_of(_dynamic_theta),
    "ntk_by_parts": scores_of(by_parts_theta),
    "yarn": _yarn_scores,
}
