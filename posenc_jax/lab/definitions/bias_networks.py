"""Definitions of the methods in `posenc_jax.encodings.bias_networks`."""

from types import SimpleNamespace

import numpy as np

from posenc_jax.lab.definitions import bias_formulas
from posenc_jax.lab.definitions.shared import by_offset, by_pair, dots, sigmoid


def network_output(params, x, h):
    """The output of the network for head h, for one number x or for one number for each axis."""
    hidden = np.maximum(np.atleast_1d(x) @ np.atleast_2d(params["w1"]) + params["b1"], 0)
    return float(hidden @ params["w2"][:, h])


def _fire_scores(o, params, q_THC, k_THC, pos_T, n):
    psi = lambda x: np.log(abs(params["c"] * x) + 1)

    def bias(h, i, j):
        most = max(pos_T[i], abs(params["stretch"] * o.threshold))
        x = psi(pos_T[i] - pos_T[j]) / (psi(most) + 1e-6)
        return network_output(params, x, h) + params["b2"][h]

    return dots(q_THC, k_THC) + by_pair(bias, q_THC)


def _mlp_bias(o, params, d, h, heads):
    x = d if o.reach is None else 8 * d / (o.reach - 1)
    if o.spacing == "log":
        x = np.sign(x) * np.log(1 + abs(x)) / (1 if o.reach is None else np.log(8))
    y = network_output(params, x, h)
    return 16 * sigmoid(y) if o.squash else y


def _swin_v2_bias(o, params, d, h, heads):
    x_A = 8 * np.asarray(d, np.float64) / (o.window - 1)
    x_A = np.sign(x_A) * np.log2(1 + abs(x_A)) / 3
    return 16 * sigmoid(network_output(params, x_A, h))


def _dape_scores(o, params, q_THC, k_THC, pos_T, n):
    inner = SimpleNamespace(learned=False, threshold=512.0, bias_max=8.0)  # the biases' defaults
    scores = (bias_formulas.SCORES | SCORES)[o.bias]
    b_HTT = scores(inner, params["bias"], 0 * q_THC, 0 * k_THC, pos_T, n)
    a_HTT = dots(q_THC, k_THC)
    pair_TTP = np.moveaxis(np.concatenate([a_HTT, b_HTT]), 0, -1)
    return a_HTT + b_HTT + np.moveaxis(_mapped(params["mlp"], pair_TTP, o), -1, 0)


def _mapped(mlp, x_TTP, o):
    """DAPE's MLP of pairs [T, T, P]: two convolutions over keys, of one key in `dape`, with a leaky
    ReLU between.
    """
    hidden_TTW = _convolved(x_TTP, mlp["in"], mlp["in_bias"], getattr(o, "kernel", 1))
    hidden_TTW = np.where(hidden_TTW > 0, hidden_TTW, 0.01 * hidden_TTW)
    return _convolved(hidden_TTW, mlp["out"], mlp["out_bias"], getattr(o, "kernel", 1))


def _convolved(x_TTP, w_NW, b_W, kernel):
    """One convolution over keys, [T, T, W]."""
    keys, y_TTW = x_TTP.shape[1], np.zeros((*x_TTP.shape[:2], len(b_W))) + b_W
    w_KPW = w_NW.reshape(kernel, x_TTP.shape[2], -1)
    for j in range(keys):
        for n in range(kernel):
            if 0 <= j + n - kernel // 2 < keys:
                y_TTW[:, j] += x_TTP[:, j + n - kernel // 2] @ w_KPW[n]
    return y_TTW


SCORES = {
    "fire": _fire_scores,
    "mlp": by_offset(_mlp_bias),
    "swin_v2": by_offset(_swin_v2_bias),
    "dape": _dape_scores,
    "dape_v2": _dape_scores,
}
