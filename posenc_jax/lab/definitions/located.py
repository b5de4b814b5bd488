"""Definitions of the methods in `posenc_jax.encodings.located`."""

from posenc_jax.lab.definitions.shared import powers, sigmoid, turned_scores


def _repo_scores(o, params, q_THC, k_THC, pos_T, n):
    x_TD = q_THC.reshape(len(q_THC), -1)
    gate_TM = x_TD @ params["gate"]
    z_TH = (gate_TM * sigmoid(gate_TM) * (x_TD @ params["content"])) @ params["position"]
    apart_QKH1 = (z_TH[:, None] - z_TH[None])[..., None]
    return turned_scores(q_THC, k_THC, apart_QKH1 * powers(o.base, q_THC.shape[-1]), o.pairing)


SCORES = {
    "repo": _repo_scores,
}
