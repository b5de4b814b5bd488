"""Definitions of the methods in `posenc_jax.encodings.rotary_vision`."""

import numpy as np

from posenc_jax.lab.definitions.shared import by_pair, powers, turned_scores


def _gta_angles(o, pos_TA, width):
    """The angles of `gta`, [T, F]; frequencies rise, and row and column alternate."""
    count = width // 4
    pairs = [(n, axis) for n in range(1, count + 1) for axis in range(2)]
    turn = lambda t, n, axis: 2 * np.pi * t[axis] / o.size * 2.0**n / 2.0**count
    return np.array([[turn(t, n, axis) for n, axis in pairs] for t in pos_TA])


def _gta_scores(o, params, q, k, pos, n):
    angle_TF = _gta_angles(o, pos, q.shape[-1])
    return turned_scores(q, k, (angle_TF[:, None] - angle_TF[None])[:, :, None], o.pairing)


def _gta_outputs(o, params, weight_HQK, v_KHC, pos, n):
    angle_TF = _gta_angles(o, pos, v_KHC.shape[-1])
    out_QHC = np.zeros((weight_HQK.shape[1], *v_KHC.shape[1:]))
    half = v_KHC.shape[-1] // 2
    pick = {
        "half": (slice(0, half), slice(half, None)),
        "interleaved": (slice(0, None, 2), slice(1, None, 2)),
    }
    real, imaginary = pick[o.pairing]
    for i, j in np.ndindex(weight_HQK.shape[1:]):
        seen_HF = (v_KHC[j][:, real] + 1j * v_KHC[j][:, imaginary]) * np.exp(
            1j * (angle_TF[j] - angle_TF[i])
        )
        out_QHC[i][:, real] += weight_HQK[:, i, j, None] * seen_HF.real
        out_QHC[i][:, imaginary] += weight_HQK[:, i, j, None] * seen_HF.imag
    return out_QHC


def _prope_map(query_A, key_A, width):
    """The matrix between a query and a key, [C, C]: blocks of cameras, then two quarters of
    pairs.
    """
    map_CC, pairs = np.zeros((width, width)), width // 8
    camera = lambda pos_A: pos_A[:16].reshape(4, 4)
    for c in range(0, width // 2, 4):
        map_CC[c : c + 4, c : c + 4] = camera(query_A) @ np.linalg.inv(camera(key_A))
    for start, axis in ((width // 2, 17), (width // 2 + 2 * pairs, 16)):
        for n in range(pairs):
            angle = (query_A[axis] - key_A[axis]) * 100.0 ** (-n / pairs)
            a, b = start + n, start + n + pairs
            map_CC[a, a] = map_CC[b, b] = np.cos(angle)
            map_CC[b, a] = np.sin(angle)
            map_CC[a, b] = -np.sin(angle)
    return map_CC


def _prope_scores(o, params, q_THC, k_THC, pos_TA, n):
    width, pos_TA = q_THC.shape[-1], pos_TA.astype(np.float64)

    def score(h, i, j):
        return q_THC[i, h] @ _prope_map(pos_TA[i], pos_TA[j], width) @ k_THC[j, h] / width**0.5

    return by_pair(score, q_THC)


def _prope_outputs(o, params, weight_HQK, v_KHC, pos_TA, n):
    out_QHC, pos_TA = np.zeros_like(v_KHC), pos_TA.astype(np.float64)
    for i, j in np.ndindex(weight_HQK.shape[1:]):
        seen_HC = v_KHC[j] @ _prope_map(pos_TA[i], pos_TA[j], v_KHC.shape[-1]).T
        out_QHC[i] += weight_HQK[:, i, j, None] * seen_HC
    return out_QHC


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
    if not o.time_turns:
        pos_TF = pos_TF * np.array([axis > 0 for axis in axis_F])
    angle_QKHF = (pos_TF[:, None] - pos_TF[None]) * powers(o.base, q.shape[-1])
    return turned_scores(q, k, angle_QKHF[:, :, None], o.pairing)


def _spiral_scores(o, params, q, k, pos, n):
    """Each pair turns by the length of the position's projection on its direction."""
    width, count = q.shape[-1], o.directions
    pos_TA, half = np.asarray(pos, np.float64), width // 4
    shift_QKA = pos_TA[:, None] - pos_TA[None]
    angle_QKHF = np.zeros((len(pos), len(pos), 1, 2 * half))
    for pair in range(2 * half):
        step, direction = divmod(pair % half, count)
        degrees = 90 * direction / count + (90 if pair >= half else 0)
        along = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        theta = o.base ** (-2 * step / (width / (2 * count)))
        angle_QKHF[:, :, 0, pair] = shift_QKA @ along * theta
    return turned_scores(q, k, angle_QKHF, o.pairing)


SCORES = {
    "spiral": _spiral_scores,
    "gta": _gta_scores,
    "prope": _prope_scores,
    "dinov3": _dinov3_scores,
    "mhrope": _mhrope_scores,
    "video_rope": _video_rope_scores,
}
OUTPUTS = {
    "gta": _gta_outputs,
    "prope": _prope_outputs,
}
