"""Definitions of the methods in `posenc_jax.encodings.grape`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, dots, sigmoid


def _grape_m_scores(o, params, q_THC, k_THC, pos_T, n):
    heads, head = q_THC.shape[1:]
    eye, theta_F = np.eye(head), np.asarray(params["freq_F"], np.float64)
    s_HTT = np.zeros((heads, len(q_THC), len(k_THC)))
    for h in range(heads):
        free = np.triu(params["skew"][h], 1)
        basis = (eye - free + free.T) @ np.linalg.inv(eye + free - free.T)
        for i, j in np.ndindex(s_HTT.shape[1:]):
            turned = np.eye(head)
            for f, theta in enumerate(theta_F):
                # exp(L) = I + sin(s)/s L + (1 - cos(s))/s^2 L^2 for L = s (b a^T - a b^T).
                a, b = basis[:, f], basis[:, f + head // 2]
                plane, s = np.outer(b, a) - np.outer(a, b), (pos_T[j] - pos_T[i]) * theta
                turned = turned @ (eye + np.sin(s) * plane + (1 - np.cos(s)) * plane @ plane)
            s_HTT[h, i, j] = q_THC[i, h] @ turned @ k_THC[j, h] / np.sqrt(head)
    return s_HTT


def _grape_a_scores(o, params, q_THC, k_THC, pos_T, n):
    softplus, root = lambda x: np.log1p(np.exp(x)), np.sqrt(q_THC.shape[-1])

    def score(h, i, j):
        query_gate = softplus(params["query"][h] @ q_THC[i, h] / root)
        key_gate = softplus(params["key"][h] @ k_THC[j, h] / root)
        # Slopes of 4 heads: 2^-2, 2^-4, 2^-6, 2^-8.
        slope = softplus(params["rate"][h]) * 2.0 ** (-8 * (h + 1) / q_THC.shape[1])
        distance = abs(pos_T[i] - pos_T[j])
        return np.dot(q_THC[i, h], k_THC[j, h]) / root - distance * slope * (query_gate + key_gate)

    return by_pair(score, q_THC)


def _grape_ap_scores(o, params, q_THC, k_THC, pos_T, n):
    """The logits of `grape_ap` in an encoder, where the sum goes over all later keys."""
    x_TD, pairs = q_THC.reshape(len(q_THC), -1), o.width // 2
    s_HTT = dots(q_THC, k_THC)
    for h in range(len(s_HTT)):
        p_TW = x_TD @ params["probe"][:, h]
        p_TW = p_TW / np.sqrt((p_TW**2).mean(axis=1, keepdims=True) + 1e-6)
        p_TF = p_TW[:, :pairs] + 1j * p_TW[:, pairs:]
        turned_TF = np.exp(1j * np.asarray(pos_T, np.float64))[:, None] * p_TF
        z_TT = (p_TF @ turned_TF.conj().T).real / o.width
        edge_TT = np.log(sigmoid(z_TT)) * 2.0 ** (-8 * (h + 1) / len(s_HTT))
        for i, j in np.ndindex(edge_TT.shape):
            s_HTT[h, i, j] += edge_TT[i, j + 1 :].sum()
    return s_HTT


SCORES = {
    "grape_m": _grape_m_scores,
    "grape_a": _grape_a_scores,
    "grape_ap": _grape_ap_scores,
}
