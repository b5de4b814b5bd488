"""Definitions of the methods in `posenc_jax.encodings.by_layer`."""

from types import SimpleNamespace

import numpy as np

from posenc_jax.lab.definitions.rotary_axes import mrope_scores
from posenc_jax.lab.definitions.rotary_scaling import by_parts_theta
from posenc_jax.lab.definitions.shared import dots, offsets, powers, rotary_scores, turned_scores


def _irope_scores(o, params, q, k, pos, n):
    if (o.layer + 1) % o.every:
        turned = turned_scores(q, k, offsets(pos) * powers(o.base, q.shape[-1]), o.pairing)
        if o.chunk is None:
            return turned
        chunk_T = np.array([t // o.chunk for t in pos])
        return np.where(chunk_T[:, None] == chunk_T, turned, -np.inf)
    scale_T = [1 + o.temperature * np.log(1 + np.floor((t + 1) / o.floor)) for t in pos]
    return np.array(scale_T)[None, :, None] * dots(q, k)


def _in_window(o, pos, s_HTT):
    """The logits, with keys `window` or more tokens away hidden, except in global layers."""
    if not (o.layer + 1) % o.every:
        return s_HTT
    return np.where(np.abs(offsets(pos)[:, :, 0, 0]) >= o.window, -np.inf, s_HTT)


def _local_global_scores(o, params, q, k, pos, n):
    scaled = o.local_base, 1.0
    if not (o.layer + 1) % o.every:
        scaled = o.base, o.factor
    theta_F = powers(scaled[0], q.shape[-1]) / scaled[1]
    return _in_window(o, pos, turned_scores(q, k, offsets(pos) * theta_F, o.pairing))


def _with_yarn(o, ramp):
    """The logits (q, k, pos, n) -> [H, T, T] of `yarn` with its defaults."""
    full = SimpleNamespace(**vars(o), ramp=ramp, beta_fast=32.0, beta_slow=1.0)
    scores, root = rotary_scores(by_parts_theta), 0.1 * np.log(o.factor) + 1
    return lambda q, k, pos, n: root**2 * scores(full, {}, q, k, pos, n)


def _olmo3_scores(o, params, q, k, pos, n):
    if not (o.layer + 1) % o.every:
        return _with_yarn(o, "pairs_truncated")(q, k, pos, n)
    turned = turned_scores(q, k, offsets(pos) * powers(o.base, q.shape[-1]), o.pairing)
    return _in_window(o, pos, turned)


def _gpt_oss_scores(o, params, q, k, pos, n):
    return _in_window(o, pos, _with_yarn(o, "pairs")(q, k, pos, n))


def _circle_rope_scores(o, params, q, k, pos, n):
    ids_T3 = pos[:, -3:] if o.layer % 2 else pos[:, :3]
    plain = SimpleNamespace(**vars(o), order="sections")
    return mrope_scores(plain, params, q, k, ids_T3, n)


SCORES = {
    "irope": _irope_scores,
    "local_global": _local_global_scores,
    "olmo3": _olmo3_scores,
    "gpt_oss": _gpt_oss_scores,
    "circle_rope": _circle_rope_scores,
}
