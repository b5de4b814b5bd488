"""Definitions of the methods in `posenc_jax.encodings.bias_formulas`."""

import math

import numpy as np

from posenc_jax.lab.definitions.shared import by_offset, by_pair, dots, sigmoid


def _alibi_bias(o, params, d, h, heads):
    def slopes(heads):
        if math.log2(heads).is_integer():
            start = 2.0 ** (-o.bias_max / heads)
            return [start * start**i for i in range(heads)]
        power = 2 ** math.floor(math.log2(heads))
        return slopes(power) + slopes(2 * power)[0::2][: heads - power]

    slope = 2.0 ** params["log2_slopes"][h] if o.learned else slopes(heads)[h]
    return -slope * abs(d)


def _kerple_log_bias(o, params, d, h, heads):
    a, b = np.exp(params["log_a"]), np.exp(params["log_b"])
    return -a[h] * np.log(1 + b[h] * abs(d))


def _kerple_power_bias(o, params, d, h, heads):
    a, p = np.exp(params["log_a"]), 2 * sigmoid(params["logit_p"])
    return -a[h] * abs(d) ** p[h]


def _bam_bias(o, params, d, h, heads):
    away = abs(-d - 2 * np.sinh(params["loc"][h])) + 1e-5
    return -np.exp(params["log_scale"][h]) * away ** params["shape"][h]


def _sandwich_bias(o, params, d, h, heads):
    waves = range(o.first, o.first + o.channels // 2)
    ratio = 8 * (h + 1) / heads
    return sum(np.cos(d / o.base ** (2 * k / o.channels)) for k in waves) / ratio


def _window_scores(o, params, q_THC, k_THC, pos_T, n):
    def score(h, i, j):
        # first=0 is no bound: it switches this off, also for negative positions.
        always = o.first > 0 and pos_T[j] < o.first
        ahead = o.distance if o.ahead is None else o.ahead
        seen = -ahead <= pos_T[i] - pos_T[j] <= o.distance or always
        return dots(q_THC[i : i + 1], k_THC[j : j + 1])[h, 0, 0] if seen else -np.inf

    return by_pair(score, q_THC)


SCORES = {
    "alibi": by_offset(_alibi_bias),
    "kerple_log": by_offset(_kerple_log_bias),
    "kerple_power": by_offset(_kerple_power_bias),
    "bam": by_offset(_bam_bias),
    "sandwich": by_offset(_sandwich_bias),
    "window": _window_scores,
}
