"""Definitions of the methods in `posenc_jax.encodings.rotary`."""

import numpy as np

from posenc_jax.lab.definitions.shared import offsets, powers, rotary_scores, turned_scores


def _fastest(theta_F, count):
    """The first `count` frequencies, followed by zeros."""
    return np.array([theta if k < count else 0.0 for k, theta in enumerate(theta_F)])


def _hope_theta(o, width, n):
    theta_F = powers(o.base, width)
    return _fastest(theta_F, sum(theta * o.length >= 2 * np.pi for theta in theta_F))


def _headwise_scores(o, params, q, k, pos, n):
    _, heads, width = q.shape
    theta_HF = powers(o.base, heads * width).reshape(heads, width // 2)
    if o.learned:
        theta_HF = np.asarray(params["freq_HF"], np.float64)
    return turned_scores(q, k, offsets(pos) * theta_HF, o.pairing)


def _xpos_scores(o, params, q, k, pos, n):
    pairs = np.arange(q.shape[-1] // 2)
    zeta_F = (2 * pairs / q.shape[-1] + 0.4) / (1 + 0.4)
    gain_QKHF = zeta_F ** (offsets(pos) / o.span)
    angle_QKHF = offsets(pos) * powers(o.base, q.shape[-1])
    return turned_scores(q, k, angle_QKHF, o.pairing, gain_QKHF=gain_QKHF)


def _evq_theta(o, width, n):
    """Frequencies at the quantiles of the density cosh(tau (1 - u)), found by halving."""
    theta, pairs = [], width // 2
    share_below = lambda u: 1 - np.sinh(o.tau * (1 - u)) / np.sinh(o.tau)
    for k in range(pairs):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if share_below(middle) < (k + 0.5) / pairs else (low, middle)
        theta.append(o.base**-low)
    return np.array(theta)


def _rope_pp_scores(o, params, q, k, pos, n):
    """In imaginary heads Re of -i q conj(k) e^(i D theta), which is Im without the -i."""
    heads = q.shape[1]
    second = lambda h: h % 2 == 1 if o.imaginary == "alternate" else h >= (heads + 1) // 2
    late_H1 = np.array([[np.pi / 2 if second(h) else 0.0] for h in range(heads)])
    angle_QKHF = offsets(pos) * powers(o.base, q.shape[-1]) - late_H1
    return turned_scores(q, k, angle_QKHF, o.pairing)


SCORES = {
    "evq": rotary_scores(_evq_theta),
    "rope_pp": _rope_pp_scores,
    "rope": rotary_scores(lambda o, width, n: powers(o.base, width)),
    "partial": rotary_scores(lambda o, width, n: powers(o.base, int(width * o.share))),
    "p_rope": rotary_scores(
        lambda o, width, n: _fastest(powers(o.base, width), int(width // 2 * o.share))
    ),
    "hope": rotary_scores(_hope_theta),
    "headwise": _headwise_scores,
    "xpos": _xpos_scores,
}
