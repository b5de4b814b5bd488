"""Definitions of the methods in `posenc_jax.encodings.bias_networks`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_offset, by_pair, dots, sigmoid


def network_of(params, x, h):
    """The output of head h for one number, or for one for each axis."""
    hidden = np.maximum(np.atleast_1d(x) @ np.atleast_2d(params["w1"]) + params["b1"], 0)
    return float(hidden @ params["w2"][:, h])


def _fire_scores(o, params, q_THC, k_THC, pos_T, n):
    psi = lambda x: np.log(abs(params["c"] * x) + 1)

    def bias(h, i, j):
        most = max(pos_T[i], abs(params["stretch"] * o.threshold))
        x = psi(pos_T[i] - pos_T[j]) / (psi(most) + 1e-6)
        return network_of(params, x, h) + params["b2"][h]

    return dots(q_THC, k_THC) + by_pair(bias, q_THC)


def _mlp_bias(o, params, d, h, heads):
    x = d if o.reach is None else 8 * d / (o.reach - 1)
    if o.spacing == "log":
        x = np.sign(x) * np.log(1 + abs(x)) / (1 if o.reach is None else np.log(8))
    y = network_of(params, x, h)
    return 16 * sigmoid(y) if o.squash else y


def _swin_v2_bias(o, params, d, h, heads):
    x_A = 8 * np.asarray(d, np.float64) / (o.window - 1)
    x_A = np.sign(x_A) * np.log2(1 + abs(x_A)) / 3
    return 16 * sigmoid(network_of(params, x_A, h))


SCORES = {
    "fire": _fire_scores,
    "mlp": by_offset(_mlp_bias),
    "swin_v2": by_offset(_swin_v2_bias),
}
