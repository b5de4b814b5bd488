"""Relative biases in closed form: KERPLE's kernels, Sandwich's cosines, a plain window; D = i - j.

KERPLE and Sandwich are causal in their papers; keys ahead of the query get what those as far behind
get.
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.angles import angles
from posenc_jax.encodings.bias import at_least_1, by_offset, offsets
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import one_of, require

LEAST = 0.01  # of KERPLE's parameters at the start: where the authors' code clamps them


def distances(q_placed, k_placed) -> jax.Array:
    """|D|, float [B, 1, Q, K]."""
    return jnp.abs(offsets(q_placed, k_placed)).astype(float)[:, None]


def per_head(x_H: jax.Array) -> jax.Array:
    return x_H.astype(float)[None, :, None, None]


def _between(key: jax.Array, heads: int, most: float) -> jax.Array:
    return jax.random.uniform(key, (heads,), float, LEAST, most)


def _kerple_log_scores(o, params, q_THC, k_THC, pos_T, n):
    a, b = np.exp(params["log_a"]), np.exp(params["log_b"])
    return by_offset(lambda h, d: -a[h] * np.log(1 + b[h] * abs(d)), q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) - a[h] ln(1 + b[h] |i - j|), a, b > 0",
    paper="Chi et al. 2022, arXiv 2205.09921",
    relative=True,
    scores=_kerple_log_scores,
)
def kerple_log(shared: bool = True) -> Encoding:
    """KERPLE's logarithmic kernel: a penalty that grows ever slower with distance.

    Parameters start as in the authors' code, a uniform up to 2 and b up to 1. Their logarithms are
    learned, which keeps them positive; the authors' code clamps them at 0.01 instead.

    Args:
      shared: as in the authors' code, all layers share the parameters; False: each has its own.
    """

    def init(key, dims):
        a_key, b_key = jax.random.split(key)
        a_H, b_H = _between(a_key, dims.heads, 2.0), _between(b_key, dims.heads, 1.0)
        return {"log_a": jnp.log(a_H), "log_b": jnp.log(b_H)}

    def bias(params, q_placed, k_placed, dims):
        a, b = jnp.exp(per_head(params["log_a"])), jnp.exp(per_head(params["log_b"]))
        return -a * jnp.log1p(b * distances(q_placed, k_placed))

    encoding = Encoding(init=init, bias=bias, relative=True)
    return encoding if shared else each_layer(encoding)


def _kerple_power_scores(o, params, q_THC, k_THC, pos_T, n):
    a, p = np.exp(params["log_a"]), 2 / (1 + np.exp(-params["logit_p"]))
    return by_offset(lambda h, d: -a[h] * abs(d) ** p[h], q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) - a[h] |i - j|^p[h], a > 0, 0 < p < 2",
    paper="Chi et al. 2022, arXiv 2205.09921",
    relative=True,
    scores=_kerple_power_scores,
)
def kerple_power(shared: bool = True) -> Encoding:
    """KERPLE's power kernel, of which ALiBi is the one with p = 1.

    Parameters start as in the authors' code, a uniform up to 1 and p up to 2. What is learned, ln a
    and ln(p / (2 - p)), keeps both in range; the authors' code clamps a at 0.01 and p to 0.01 .. 2
    instead.

    Args:
      shared: as in the authors' code, all layers share the parameters; False: each has its own.
    """

    def init(key, dims):
        a_key, p_key = jax.random.split(key)
        p_H = _between(p_key, dims.heads, 2 - LEAST)
        return {
            "log_a": jnp.log(_between(a_key, dims.heads, 1.0)),
            "logit_p": jnp.log(p_H / (2 - p_H)),
        }

    def bias(params, q_placed, k_placed, dims):
        a, p = jnp.exp(per_head(params["log_a"])), 2 * jax.nn.sigmoid(per_head(params["logit_p"]))
        return -a * distances(q_placed, k_placed) ** p

    encoding = Encoding(init=init, bias=bias, relative=True)
    return encoding if shared else each_layer(encoding)


def _sandwich_scores(o, params, q_THC, k_THC, pos_T, n):
    heads = q_THC.shape[1]

    def value(h, d):
        waves = range(o.first, o.first + o.channels // 2)
        ratio = 8 * (h + 1) / heads
        return sum(np.cos(d / o.base ** (2 * k / o.channels)) for k in waves) / ratio

    return by_offset(value, q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + H / (8 h) sum_k cos((i - j) / base^(2k / channels)) for h = 1 .. H",
    paper="Chi et al. 2023, arXiv 2212.10356",
    relative=True,
    scores=_sandwich_scores,
)
def sandwich(channels: int = 128, base: float = 10_000.0, first: Literal[0, 1] = 0) -> Encoding:
    """Dot products of two sinusoidal codes as a bias, weaker from head to head; nothing is learned.

    Code that subtracts channels / 2 from the sum computes the same attention: the softmax does not
    see it.

    Args:
      channels: width of the codes, even; half as many cosines are summed.
      base: the longest wavelength is nearly 2 pi `base` tokens.
      first: the first k; 0 is that of sinusoidal codes, so of the paper's listing, 1 that of the
        sum in its text, and of NeMo.
    """
    at_least_1("channels", channels)
    require(channels % 2 == 0, "channels", channels, "must be even")
    require(0 < base < np.inf, "base", base, "must be positive and finite")
    one_of("first", first, Literal[0, 1])
    freq = base ** (-2 * np.arange(first, first + channels // 2)[None] / channels)

    def code(pos_BT):
        angle_BTW = angles(pos_BT, freq)[:, :, 0]
        return jnp.concatenate([jnp.cos(angle_BTW), jnp.sin(angle_BTW)], axis=-1)

    def bias(params, q_placed, k_placed, dims):
        # cos(x - y) = cos x cos y + sin x sin y: one product, not a cosine for every Q x K x wave.
        exact = jax.lax.Precision.HIGHEST
        sum_BQK = jnp.einsum("bqw,bkw->bqk", code(q_placed), code(k_placed), precision=exact)
        factor_H = dims.heads / (8 * (1 + jnp.arange(dims.heads, dtype=float)))
        return per_head(factor_H) * sum_BQK[:, None]

    return Encoding(bias=bias, relative=True)


def _window_scores(o, params, q_THC, k_THC, pos_T, n):
    value = lambda h, d: 0.0 if abs(d) <= o.distance else -np.inf
    return by_offset(value, q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) where |i - j| <= distance, else -inf",
    paper="textbook",
    relative=True,
    scores=_window_scores,
    example={"distance": 8},
    reference="transformers",
)
def window(distance: int = 128) -> Encoding:
    """Nothing is seen from further away than `distance`; within it, no position is told.

    A query always sees itself. For comparison: what a model does that cannot look far.
    """
    at_least_1("distance", distance)

    def bias(params, q_placed, k_placed, dims):
        apart_B1QK = distances(q_placed, k_placed)
        # Not a plain 0, which would hide a position that is NaN.
        return jnp.where(apart_B1QK > distance, -jnp.inf, 0 * apart_B1QK)

    return Encoding(bias=bias, relative=True)
