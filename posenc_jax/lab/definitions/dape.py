"""Definitions of the methods in `posenc_jax.encodings.dape`."""

from types import SimpleNamespace

import numpy as np

from posenc_jax.lab.definitions import bias_formulas, bias_networks
from posenc_jax.lab.definitions.shared import dots


def _dape_scores(o, params, q_THC, k_THC, pos_T, n):
    inner = SimpleNamespace(learned=False, threshold=512.0)  # the biases' defaults
    scores = (bias_formulas.SCORES | bias_networks.SCORES)[o.bias]
    b_HTT = scores(inner, params["bias"], 0 * q_THC, 0 * k_THC, pos_T, n)
    a_HTT = dots(q_THC, k_THC)
    pair_TTP = np.moveaxis(np.concatenate([a_HTT, b_HTT]), 0, -1)
    return a_HTT + b_HTT + np.moveaxis(_mapped(params["mlp"], pair_TTP, o), -1, 0)


def _mapped(mlp, x_TTP, o):
    """Two convolutions over keys, of one key in `dape`, with a leaky ReLU between them."""
    hidden_TTW = _convolved(x_TTP, mlp["in"], mlp["in_bias"], getattr(o, "kernel", 1))
    hidden_TTW = np.where(hidden_TTW > 0, hidden_TTW, 0.01 * hidden_TTW)
    return _convolved(hidden_TTW, mlp["out"], mlp["out_bias"], getattr(o, "kernel", 1))


def _convolved(x_TTP, w_NW, b_W, kernel):
    keys, y_TTW = x_TTP.shape[1], np.zeros((*x_TTP.shape[:2], len(b_W))) + b_W
    w_KPW = w_NW.reshape(kernel, x_TTP.shape[2], -1)
    for j in range(keys):
        for n in range(kernel):
            if 0 <= j + n - kernel // 2 < keys:
                y_TTW[:, j] += x_TTP[:, j + n - kernel // 2] @ w_KPW[n]
    return y_TTW


SCORES = {
    "dape": _dape_scores,
    "dape_v2": _dape_scores,
}
