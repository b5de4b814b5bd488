"""Definitions of the methods in `posenc_jax.encodings.rotary_vision`."""

import numpy as np

from posenc_jax.lab.definitions.shared import powers, turned_scores


def _dinov3_scores(o, params, q, k, pos, n):
    centre_TA = 2 * (np.asarray(pos, np.float64) + 0.5) / np.array([o.rows, o.columns]) - 1
    theta_F = 2 * np.pi * powers(o.base, q.shape[-1] // 2)
    angle_TF = np.concatenate([centre_TA[:, a : a + 1] * theta_F for a in (0, 1)], axis=1)
    return turned_scores(q, k, (angle_TF[:, None] - angle_TF[None])[:, :, None], o.pairing)


def _mhrope_scores(o, params, q, k, pos, n):
    heads, theta_F = q.shape[1], powers(o.base, q.shape[-1])
    time = o.heads[0] if o.heads else max(heads // 4, 1)
    height = o.heads[1] if o.heads else -(-(heads - time) // 2)
    width = o.heads[2] if o.heads else heads - time - height
    axis_H = [0] * time + [1] * height + [2] * width
    pos_TH = np.zeros((len(pos), heads))
    pos_TH[:, : len(axis_H)] = np.asarray(pos, np.float64)[:, axis_H]
    angle_QKHF = (pos_TH[:, None] - pos_TH[None])[..., None] * theta_F
    return turned_scores(q, k, angle_QKHF, o.pairing)


def _video_rope_scores(o, params, q, k, pos, n):
    pairs = q.shape[-1] // 2
    space = pairs - (max(pairs // 4, 1) if o.time is None else o.time)
    axis_F = [0 if k >= space else 2 if k % 2 else 1 for k in range(pairs)]
    pos_TF = np.asarray(pos, np.float64)[:, axis_F]
    angle_QKHF = (pos_TF[:, None] - pos_TF[None]) * powers(o.base, q.shape[-1])
    return turned_scores(q, k, angle_QKHF[:, :, None], o.pairing)


SCORES = {
    "dinov3": _dinov3_scores,
    "mhrope": _mhrope_scores,
    "video_rope": _video_rope_scores,
}
