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
    mlp, pair_TTP = params["mlp"], np.moveaxis(np.concatenate([a_HTT, b_HTT]), 0, -1)
    hidden_TTW = pair_TTP @ mlp["in"] + mlp["in_bias"]
    hidden_TTW = np.where(hidden_TTW > 0, hidden_TTW, 0.01 * hidden_TTW)
    return a_HTT + b_HTT + np.moveaxis(hidden_TTW @ mlp["out"] + mlp["out_bias"], -1, 0)


SCORES = {
    "dape": _dape_scores,
}
