"""Definitions of the methods in `posenc_jax.encodings.rotary_axes`."""

import numpy as np

from posenc_jax.lab.definitions.shared import offsets, powers, turned_scores


def _axial_scores(o, params, q, k, pos, n):
    theta = powers(o.base, q.shape[-1])
    column = theta[::2] if o.bands == "same" else theta[1::2]
    both = zip(pos.T, (theta[::2], column), strict=True)
    angle_QKHF = np.concatenate([offsets(p) * theta for p, theta in both], axis=-1)
    return turned_scores(q, k, angle_QKHF, o.pairing)


def _mixed_scores(o, params, q, k, pos, n):
    row_HF, column_HF = np.asarray(params["freq_AHF"], np.float64)
    angle_QKHF = offsets(pos[:, 0]) * row_HF + offsets(pos[:, 1]) * column_HF
    return turned_scores(q, k, angle_QKHF, o.pairing)


def _pair_axes(o, pairs):
    """The axis of each pair, 0 to 2, one pair at a time."""
    if o.order == "interleaved":
        height, width = o.sections[1:] or (5 * pairs // 16, 5 * pairs // 16)
        deal = lambda k: (
            1 if k % 3 == 1 and k < 3 * height else 2 if k % 3 == 2 and k < 3 * width else 0
        )
        return [deal(k) for k in range(pairs)]
    time = o.sections[0] if o.sections else max(pairs // 4, 1)
    height = o.sections[1] if o.sections else -(-(pairs - time) // 2)
    return [0] * time + [1] * height + [2] * (pairs - time - height)


def mrope_scores(o, params, q, k, pos, n):
    pos_TF = np.asarray(pos, np.float64)[:, _pair_axes(o, q.shape[-1] // 2)]
    angle_QKHF = (pos_TF[:, None] - pos_TF[None]) * powers(o.base, q.shape[-1])
    return turned_scores(q, k, angle_QKHF[:, :, None], o.pairing)


def _tmrope_scores(o, params, q, k, pos, n):
    id_T = np.floor(pos[:, 0] * o.rate + 1e-3)
    return mrope_scores(o, params, q, k, np.stack([id_T, *pos[:, 1:].T], axis=1), n)


def _nd_rope_pairs(o, pairs, axes):
    """(axis, frequency) of each pair that turns, one pair at a time."""
    each = pairs // axes
    sections = o.sections or (pairs - (axes - 1) * each, *[each] * (axes - 1))
    axis_F = [axis for axis, count in enumerate(sections) for _ in range(count)]
    if o.order == "alternate":
        axis_F = [k % axes for k in range(pairs)]
    turning = []
    for k, axis in enumerate(axis_F):
        base = o.bases[axis] if len(o.bases) > 1 else o.bases[0]
        before, same = axis_F[:k].count(axis), axis_F.count(axis)
        exponent = k / pairs if o.ladders == "head" else before / same
        turning.append((axis, base**-exponent))
    return turning


def _nd_rope_scores(o, params, q, k, pos, n):
    turning = _nd_rope_pairs(o, q.shape[-1] // 2, pos.shape[1])
    angles = [offsets(pos[:, axis]) * theta for axis, theta in turning]
    return turned_scores(q, k, np.concatenate(angles, axis=-1), o.pairing)


SCORES = {
    "nd_rope": _nd_rope_scores,
    "axial": _axial_scores,
    "mixed": _mixed_scores,
    "mrope": mrope_scores,
    "tmrope": _tmrope_scores,
}
