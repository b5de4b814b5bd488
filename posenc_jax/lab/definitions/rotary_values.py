"""Definitions of the methods in `posenc_jax.encodings.rotary_values`."""

import numpy as np

from posenc_jax.lab.definitions.shared import turned_scores


def _gta_angles(o, pos_TA, width):
    """Angles [T, F]; frequencies rise, row and column take turns."""
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


SCORES = {
    "gta": _gta_scores,
}
OUTPUTS = {
    "gta": _gta_outputs,
}
