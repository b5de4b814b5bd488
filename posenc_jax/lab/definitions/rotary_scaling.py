"""Definitions of the methods in `posenc_jax.encodings.rotary_scaling`."""

import numpy as np

from posenc_jax.lab.definitions.shared import (
    offsets,
    powers,
    ramped,
    rotary_scores,
    sigmoid,
    turned_scores,
)


def _dynamic_theta(o, width, n):
    stretch = o.alpha * max(n, o.length) / o.length - (o.alpha - 1)
    return powers(o.base * stretch ** (width / (width - 2)), width)


def _clex_scores(o, params, q, k, pos, n):
    """The logits of `clex`, by the equation as in the authors' code, in steps a quarter as long as
    theirs.
    """
    width = q.shape[-1]
    exponent_F = 2 * np.arange(width // 2) / (width - 2)

    def slope(log_theta_F, s):
        log_ntk_F = np.log(powers(o.base * (2 * s - 1) ** (width / (width - 2)), width))
        x_C = (log_theta_F + log_ntk_F) @ params["up"]
        return x_C * sigmoid(x_C) @ (params["down"] / 100) - exponent_F * 2 / (2 * s - 1)

    z_F, h = np.log(powers(o.base, width)), 1 / 400
    for s in np.arange(1, min(np.ceil(n / o.length), o.scales), h):
        a = slope(z_F, s)
        b = slope(z_F + h / 2 * a, s + h / 2)
        c = slope(z_F + h / 2 * b, s + h / 2)
        z_F = z_F + h / 6 * (a + 2 * b + 2 * c + slope(z_F + h * c, s + h))
    return turned_scores(q, k, offsets(pos) * np.exp(z_F), o.pairing)


def by_parts_theta(o, width, n):
    """The frequencies of `ntk_by_parts`: section 3.2 of the paper; for the other ramps, its
    code.
    """
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


def _yarn_scores(o, *inputs):
    log = np.log(o.factor)
    root = (0.1 * o.mscale * log + 1) / (0.1 * o.mscale_all_dim * log + 1)
    return root**2 * rotary_scores(by_parts_theta)(o, *inputs)


SCORES = {
    "pi": rotary_scores(lambda o, width, n: powers(o.base, width) / o.factor),
    "ntk": rotary_scores(
        lambda o, width, n: powers(o.base * o.factor ** (width / (width - 2)), width)
    ),
    "dynamic_ntk": rotary_scores(_dynamic_theta),
    "clex": _clex_scores,
    "ntk_by_parts": rotary_scores(by_parts_theta),
    "yarn": _yarn_scores,
}
