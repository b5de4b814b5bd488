"""Biases by a formula: ALiBi, KERPLE, BAM, Sandwich's cosines, a window; D = i - j.

ALiBi, KERPLE and Sandwich are causal in their papers; here a key ahead of the query has the same
bias as a key at the same distance behind it.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.bias import layered, offsets, per_head
from posenc_jax.encodings.card import Count, Positive, Whole, register, require
from posenc_jax.encodings.rotation import angles
from posenc_jax.heads import by_head, tell_heads

LEAST = 0.01  # smallest start of KERPLE's parameters: the authors' code clamps them there


def distances(q_placed, k_placed) -> jax.Array:
    """|D|, float [B, 1, Q, K]."""
    return jnp.abs(offsets(q_placed, k_placed)).astype(float)[:, None]


def _between(key: jax.Array, heads: int, *most: float) -> list[jax.Array]:
    """Uniform random numbers for each head, [H], from LEAST to each of `most`."""
    keys = zip(jax.random.split(key, len(most)), most, strict=True)
    return [jax.random.uniform(k, (heads,), float, LEAST, upper) for k, upper in keys]


def alibi_slopes(heads: int, bias_max: float = 8.0) -> np.ndarray:
    """ALiBi's slopes [H]: 2^(-8/H), 2^(-16/H), ...; float64. `bias_max` is in place of 8.

    If H is not a power of 2, as in the authors' code: the slopes of the next lower power, then
    every second slope of the next higher power.
    """
    geometric = lambda n: 2.0 ** (-bias_max * np.arange(1, n + 1) / n)
    power = 2 ** int(math.log2(heads))
    return np.concatenate([geometric(power), geometric(2 * power)[::2][: heads - power]])


@register(
    kind="bias",
    formula="q.k / sqrt(C) - m[h] |i - j|, m[h] = 2^(-8 h / H) for h = 1 .. H",
    paper="Press et al. 2022, arXiv 2108.12409",
)
def alibi(learned: bool = False, bias_max: Positive = 8.0) -> Encoding:
    """ALiBi: a penalty that grows linearly with distance, with a slope for each head.

    Args:
      learned: slopes are parameters that start at those of the paper and stay positive; all layers
        share them.
      bias_max: in place of the formula's 8, so the smallest slope is 2^-bias_max; 16 in
        MPT-StoryWriter, which reads 65,536 tokens.
    """

    def init(key, dims):
        # The smallest slope is 1/256; a step that suits the largest would be too large for it.
        log2_slopes = jnp.log2(jnp.asarray(alibi_slopes(dims.heads, bias_max), float))
        return {"log2_slopes": log2_slopes} if learned else {}

    def bias(params, q_placed, k_placed, dims):
        slopes = lambda dims: jnp.asarray(alibi_slopes(dims.heads, bias_max), float)
        slope_H = by_head(slopes, params, dims)
        if learned:
            slope_H = jnp.exp2(params["log2_slopes"].astype(float))
        return -per_head(slope_H) * distances(q_placed, k_placed)

    return Encoding(init=init, bias=bias, relative=True, of_heads=None if learned else tell_heads)


@register(
    kind="bias",
    formula="q.k / sqrt(C) - a[h] ln(1 + b[h] |i - j|), a, b > 0",
    paper="Chi et al. 2022, arXiv 2205.09921",
)
def kerple_log(shared: bool = True) -> Encoding:
    """KERPLE's logarithmic kernel: a penalty that grows like the logarithm of the distance.

    Parameters start as in the authors' code, a uniform up to 2 and b up to 1. Their logarithms are
    learned, which keeps them positive; the authors' code clamps them at 0.01 instead.
    """

    def init(key, dims):
        a_H, b_H = _between(key, dims.heads, 2.0, 1.0)
        return {"log_a": jnp.log(a_H), "log_b": jnp.log(b_H)}

    def bias(params, q_placed, k_placed, dims):
        a, b = jnp.exp(per_head(params["log_a"])), jnp.exp(per_head(params["log_b"]))
        return -a * jnp.log1p(b * distances(q_placed, k_placed))

    return layered(Encoding(init=init, bias=bias, relative=True), shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) - a[h] |i - j|^p[h], a > 0, 0 < p < 2",
    paper="Chi et al. 2022, arXiv 2205.09921",
)
def kerple_power(shared: bool = True) -> Encoding:
    """KERPLE's power kernel; with p = 1 it is ALiBi's.

    Parameters start as in the authors' code, a uniform up to 1 and p up to 2. The parameters ln a
    and ln(p / (2 - p)) are learned, which keeps a and p in range; the authors' code clamps a at
    0.01 and p to 0.01 .. 2 instead.
    """

    def init(key, dims):
        a_H, p_H = _between(key, dims.heads, 1.0, 2 - LEAST)
        return {"log_a": jnp.log(a_H), "logit_p": jnp.log(p_H / (2 - p_H))}

    def bias(params, q_placed, k_placed, dims):
        a, p = jnp.exp(per_head(params["log_a"])), 2 * jax.nn.sigmoid(per_head(params["logit_p"]))
        return -a * distances(q_placed, k_placed) ** p

    return layered(Encoding(init=init, bias=bias, relative=True), shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) - a[h] |j - i - mu[h]|^p[h], a > 0",
    paper="Bianchessi et al. 2026, arXiv 2505.22842",
)
def bam(shared: bool = True) -> Encoding:
    """BAM: the logarithm of a generalised Gaussian of the offset, as a prior over the keys.

    Each head learns the scale a, the shape p and the centre mu. Heads start as ALiBi, with its
    slopes as a, p = 1 and mu = 0. A negative p moves attention away from the keys around mu. As in
    the authors' code, the parameters are ln a, p and x with mu = e^x - e^-x, and 1e-5 is added to
    the distance. The paper is causal; here keys ahead have the value of the same function. Left
    out: the temperature by length that the paper combines it with (SSMax).
    """

    def init(key, dims):
        log_scale_H = jnp.log(jnp.asarray(alibi_slopes(dims.heads), float))
        still_H = jnp.zeros(dims.heads)
        return {"log_scale": log_scale_H, "shape": still_H + 1, "loc": still_H}

    def bias(params, q_placed, k_placed, dims):
        scale, shape = jnp.exp(per_head(params["log_scale"])), per_head(params["shape"])
        ahead_B1QK = -offsets(q_placed, k_placed).astype(float)[:, None]
        away_BHQK = jnp.abs(ahead_B1QK - 2 * jnp.sinh(per_head(params["loc"])))
        return -scale * (away_BHQK + 1e-5) ** shape

    return layered(Encoding(init=init, bias=bias, relative=True), shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + H / (8 h) sum_k cos((i - j) / base^(2k / channels)) for h = 1 .. H",
    paper="Chi et al. 2023, arXiv 2212.10356",
)
def sandwich(
    channels: Count = 128, base: Positive = 10_000.0, first: Literal[0, 1] = 0
) -> Encoding:
    """Sandwich: dot products of two sinusoidal codes as a bias, weaker from head to head.

    Nothing is learned. Code that subtracts channels / 2 from the sum computes the same attention,
    since the softmax ignores constants.

    Args:
      channels: width of the codes, even; half as many cosines are summed.
      base: the longest wavelength is nearly 2 pi `base` tokens.
      first: the first k: 0 as in sinusoidal codes and the paper's listing, 1 as in the sum in its
        text and in NeMo.

    FieldError: channels is odd.
    """
    require(channels % 2 == 0, "channels", channels, "must be even")
    freq = base ** (-2 * np.arange(first, first + channels // 2)[None] / channels)

    def code(pos_BT):
        angle_BTW = angles(pos_BT, freq)[:, :, 0]
        return jnp.concatenate([jnp.cos(angle_BTW), jnp.sin(angle_BTW)], axis=-1)

    def factors(dims):
        return dims.heads / (8 * (1 + jnp.arange(dims.heads, dtype=float)))

    def bias(params, q_placed, k_placed, dims):
        # cos(x - y) = cos x cos y + sin x sin y: one product instead of Q x K x waves cosines.
        sum_BQK = jnp.einsum("bqw,bkw->bqk", code(q_placed), code(k_placed), precision="highest")
        return per_head(by_head(factors, params, dims)) * sum_BQK[:, None]

    return Encoding(bias=bias, relative=True, of_heads=tell_heads)


@register(
    kind="bias",
    formula="q.k / sqrt(C) where -ahead <= i - j <= distance or j < first, else -inf",
    paper="textbook; first tokens: Xiao et al. 2023 (StreamingLLM), arXiv 2309.17453",
)
def window(distance: Count = 128, first: Whole = 0, ahead: Whole | None = None) -> Encoding:
    """A window: keys further away than `distance` are hidden; within it, positions are not told.

    It is for comparison with methods that hide far tokens only in part.

    Args:
      distance: from a query to the last key that it sees behind it, and ahead of it.
      first: tokens at the start of each sequence that every query sees; StreamingLLM keeps 4. Its
        rope counts tokens within the cache, not in the text, which is not done here.
      ahead: distance to the last key that it sees ahead of it; None: `distance`. A window of l
        tokens to the left and r to the right, as (l, r) elsewhere, is distance l, ahead r.
    """

    def bias(params, q_placed, k_placed, dims):
        apart_B1QK = distances(q_placed, k_placed)
        far_B1QK = apart_B1QK > distance
        if ahead is not None:
            behind_B1QK = offsets(q_placed, k_placed)[:, None]
            far_B1QK = (behind_B1QK > distance) | (behind_B1QK < -ahead)
        if first:
            far_B1QK &= (k_placed >= first)[:, None, None]
        # 0 times the distance instead of 0, which would hide a position that is NaN.
        return jnp.where(far_B1QK, -jnp.inf, 0 * apart_B1QK)

    return Encoding(bias=bias, relative=first == 0)
