"""Definitions of the methods in `posenc_jax.encodings.rotary_generators`."""

import numpy as np

from posenc_jax.lab.definitions.shared import offsets, powers, turned_scores


def _exponential(hermitian, subscripts):
    """exp(A) of antisymmetric matrices, by the eigenvectors of the Hermitian i A."""
    values, vectors = np.linalg.eigh(1j * hermitian)
    return np.einsum(subscripts, vectors, np.exp(-1j * values), vectors.conj()).real


def _liere_scores(o, params, q, k, pos, n):
    raw_AHGUV = np.asarray(params["skew"], np.float64)
    skew_AHGUV = np.triu(raw_AHGUV, 1) - np.swapaxes(np.triu(raw_AHGUV, 1), -1, -2)
    block = skew_AHGUV.shape[-1]
    turned = np.zeros((2, *q.shape))
    for t, (row, column) in enumerate(np.asarray(pos, np.float64) / (o.size - 1)):
        sum_HGUV = row * skew_AHGUV[0] + column * skew_AHGUV[1]
        matrix_HGUV = _exponential(sum_HGUV, "hgue,hge,hgve->hguv")
        for side, x in enumerate((q, k)):
            cut = x[t].reshape(x.shape[1], -1, block)
            turned[side, t] = np.einsum("hguv,hgv->hgu", matrix_HGUV, cut).reshape(x.shape[1:])
    scores_HQK = np.einsum("qhc,khc->hqk", *turned) / np.sqrt(q.shape[-1])
    far = (np.asarray(pos) >= 8 * o.size).any(axis=1)
    return np.where(far[None, :, None] | far[None, None], np.nan, scores_HQK)


def _string_generator(o, params, axis, h, head):
    """The generator [C, C] of one axis and head."""
    if o.basis == "circulant":
        first_C = np.asarray(params["first"], np.float64)[axis, h]
        full = np.stack([np.roll(first_C, c) for c in range(head)], axis=1)
        return full - full.T
    free = np.triu(np.asarray(params["skew"], np.float64)[h], 1)
    skew, eye = free - free.T, np.eye(head)
    basis = (eye - skew) @ np.linalg.inv(eye + skew)
    theta = np.asarray(params["freq_AHF"], np.float64)[axis, h]
    plane = np.zeros((head, head))
    for f in range(head // 2):
        plane[head // 2 + f, f], plane[f, head // 2 + f] = theta[f], -theta[f]
    return basis @ plane @ basis.T


def _string_scores(o, params, q, k, pos, n):
    """The logits of `string`: q^T exp(sum_a L_a (r_k - r_q)_a) k."""
    heads, head = q.shape[1:]
    generator_AHCC = np.array([
        [_string_generator(o, params, axis, h, head) for h in range(heads)] for axis in range(2)
    ])  # fmt: skip
    shift_QKA = np.asarray(pos, np.float64)[None] - np.asarray(pos, np.float64)[:, None]
    sum_QKHCC = np.einsum("qka,ahcd->qkhcd", shift_QKA, generator_AHCC)
    turned = _exponential(sum_QKHCC, "qkhce,qkhe,qkhde->qkhcd")
    return np.einsum("qhc,qkhcd,khd->hqk", q, turned, k) / np.sqrt(head)


def _tree_scores(o, params, q, k, pos, n):
    """The logits of `tree`: q^T M(i)^T M(j) k, M the product of matrices from the root to a
    node.
    """
    heads, head = q.shape[1:]
    raw_RHCC = np.triu(np.asarray(params["skew"], np.float64), 1)
    step_RHCC = _exponential(raw_RHCC - np.swapaxes(raw_RHCC, -1, -2), "rhce,rhe,rhde->rhcd")

    def product(node, h):
        if node == 0:
            return np.eye(head)
        parent, branch = divmod(node - 1, o.branches)
        return product(parent, h) @ step_RHCC[branch, h]

    product_THCC = np.array([[product(int(t), h) for h in range(heads)] for t in pos])
    turned_q, turned_k = (np.einsum("thcd,thd->thc", product_THCC, x) for x in (q, k))
    return np.einsum("qhc,khc->hqk", turned_q, turned_k) / np.sqrt(head)


def _comrope_scores(o, params, q, k, pos, n):
    """q^T exp(sum_a A_a (r_j - r_i)_a) k, since the generators commute."""
    raw_HGUV = np.asarray(params["generator"], np.float64)
    skew_HGUV = raw_HGUV - np.swapaxes(raw_HGUV, -1, -2)
    blocks, block = raw_HGUV.shape[1:3]
    if o.commuting == "dependent":
        multiple_AG = np.asarray(params["multiple"], np.float64)
    else:
        multiple_AG = np.array([[float(g % 2 == a) for g in range(blocks)] for a in range(2)])
    pos_TA = np.asarray(pos, np.float64)
    angle_QKG = (pos_TA[None] - pos_TA[:, None]) / o.size @ multiple_AG
    sum_QKHGUV = angle_QKG[:, :, None, :, None, None] * skew_HGUV
    turned = _exponential(sum_QKHGUV, "qkhgue,qkhge,qkhgve->qkhguv")
    cut = lambda x: x.reshape(*x.shape[:2], blocks, block)
    scores_HQK = np.einsum("qhgu,qkhguv,khgv->hqk", cut(q), turned, cut(k)) / np.sqrt(q.shape[-1])
    far = ((pos_TA >= 8 * o.size) | (pos_TA < 0)).any(axis=1)
    return np.where(far[None, :, None] | far[None, None], np.nan, scores_HQK)


def _harope_scores(o, params, q, k, pos, n):
    """q^T M^T R(i)^T R(j) M^-T k, with the inverse of M by elimination."""
    raw = {name: np.asarray(value, np.float64) for name, value in params.items()}
    halves = ((raw[side] - np.swapaxes(raw[side], -1, -2)) / 2 for side in ("left", "right"))
    left_HCC, right_HCC = (_exponential(half, "hce,he,hde->hcd") for half in halves)
    scale_HC = np.log1p(np.exp(raw["log_scale"])) + 1e-6
    map_HCC = left_HCC @ (scale_HC[..., None] * np.swapaxes(right_HCC, -1, -2))
    inverse_HCC = np.linalg.inv(map_HCC)
    q = np.einsum("hcd,qhd->qhc", map_HCC, q)
    k = np.einsum("hdc,khd->khc", inverse_HCC, k)
    theta_F = powers(o.base, q.shape[-1] // 2)
    angles = [offsets(pos[:, axis]) * theta_F for axis in (0, 1)]
    return turned_scores(q, k, np.concatenate(angles, axis=-1), o.pairing)


SCORES = {
    "comrope": _comrope_scores,
    "harope": _harope_scores,
    "liere": _liere_scores,
    "string": _string_scores,
    "tree": _tree_scores,
}
