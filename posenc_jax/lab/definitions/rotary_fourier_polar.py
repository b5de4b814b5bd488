"""Definitions of the methods in `posenc_jax.encodings.rotary_fourier_polar`."""

import numpy as np

from posenc_jax.lab.definitions.shared import offsets, powers, turned_scores


def _fope_scores(o, params, q, k, pos, n):
    theta_F = powers(o.base, q.shape[-1])
    theta_G = theta_F[theta_F * o.length >= 2 * np.pi]
    waves, heads = len(theta_G), q.shape[1]
    if o.learned:
        cos_HGG, sin_HGG = (np.asarray(params[name], np.float64) for name in ("cos", "sin"))
    else:
        spread = o.sigma * np.sqrt(2 / (waves * waves + heads * waves))
        noise = np.random.default_rng(o.seed).standard_normal((2, heads, waves, waves))
        cos_HGG, sin_HGG = np.eye(waves) + spread * noise
    wave_THF = np.ones((len(pos), heads, len(theta_F)), complex)
    for t, at in enumerate(np.asarray(pos, np.float64)):
        for h in range(heads):
            wave_THF[t, h, :waves] = np.cos(at * theta_G) @ cos_HGG[h]
            wave_THF[t, h, :waves] += 1j * (np.sin(at * theta_G) @ sin_HGG[h])
    gain_QKHF = wave_THF[:, None] * wave_THF[None].conj()
    return turned_scores(q, k, np.zeros(gain_QKHF.shape), o.pairing, gain_QKHF=gain_QKHF)


def _pope_scores(o, params, q, k, pos, n):
    theta_C = np.array([float(o.base) ** (-c / q.shape[-1]) for c in range(q.shape[-1])])
    delta_HC = np.clip(np.asarray(params["delta_HC"], np.float64), -2 * np.pi, 0)
    phase_QKHC = offsets(pos) * theta_C - delta_HC
    size_q, size_k = (np.log1p(np.exp(x)) for x in (q, k))
    s_HQK = np.einsum("qhc,khc,qkhc->hqk", size_q, size_k, np.cos(phase_QKHC))
    return s_HQK / np.sqrt(q.shape[-1])


SCORES = {
    "fope": _fope_scores,
    "pope": _pope_scores,
}
