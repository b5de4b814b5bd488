"""Definitions of the methods in `posenc_jax.encodings.rotary_by_content`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, powers, sigmoid, turned_scores


def _repo_scores(o, params, q_THC, k_THC, pos_T, n):
    x_TD = q_THC.reshape(len(q_THC), -1)
    gate_TM = x_TD @ params["gate"]
    z_TH = (gate_TM * sigmoid(gate_TM) * (x_TD @ params["content"])) @ params["position"]
    apart_QKH1 = (z_TH[:, None] - z_TH[None])[..., None]
    return turned_scores(q_THC, k_THC, apart_QKH1 * powers(o.base, q_THC.shape[-1]), o.pairing)


def _tapa_scores(o, params, q_THC, k_THC, pos_T, n):
    width = q_THC.shape[-1]
    cut = int(o.share * width)

    def score(h, i, j):
        amplitude = np.dot(q_THC[i, h, :cut], k_THC[j, h, :cut]) / np.sqrt(cut)
        phase = np.dot(q_THC[i, h, cut:], k_THC[j, h, cut:]) / np.sqrt(width - cut)
        return amplitude * np.cos(2 * np.pi * abs(pos_T[i] - pos_T[j]) ** o.power * phase)

    return by_pair(score, q_THC)


def _softplus(x):
    return np.log1p(np.exp(x))


def _summed_scores(o, q_THC, k_THC, added_THF):
    """rope at the sum of the angles that the tokens after the key add."""
    sum_THF = np.cumsum(added_THF, axis=0)
    return turned_scores(q_THC, k_THC, sum_THF[:, None] - sum_THF[None], o.pairing)


def _selective_rope_scores(o, params, q_THC, k_THC, pos_T, n):
    unit_THC = q_THC / np.sqrt((q_THC**2).sum(-1, keepdims=True) + 1e-6)
    low_TR = unit_THC.reshape(len(q_THC), -1) @ params["a"]
    added_THF = np.einsum("tr,rhf->thf", low_TR, params["b"]) * powers(o.base, q_THC.shape[-1])
    return _summed_scores(o, q_THC, k_THC, added_THF)


def _mamba3_rope_scores(o, params, q_THC, k_THC, pos_T, n):
    x_TD = q_THC.reshape(len(q_THC), -1)
    step_TH = _softplus(x_TD @ params["step"] + params["step_bias"])
    angle_TF = np.pi * np.tanh(x_TD @ params["angle"])
    return _summed_scores(o, q_THC, k_THC, step_TH[..., None] * angle_TF[:, None])


SCORES = {
    "selective_rope": _selective_rope_scores,
    "mamba3_rope": _mamba3_rope_scores,
    "repo": _repo_scores,
    "tapa": _tapa_scores,
}
