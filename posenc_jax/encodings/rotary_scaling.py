"""Context extension of rotary: rope with other frequencies, to read past the trained length.

Every method here uses the weights of `rope`: train with `rope`, evaluate with any. Only `clex` has
parameters, and is trained. With factor 1 they are `rope` to the bit; `dynamic_ntk` and `clex` are
within the trained length.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import Count, Factor, NotNegative, Positive, register, require
from posenc_jax.encodings.positions import drawn
from posenc_jax.encodings.positions_augmented import per_token, sequence_keys
from posenc_jax.encodings.rotation import TURN, Pairing, Turn
from posenc_jax.recipes import recorded

Ramp = Literal["turns", "pairs", "pairs_truncated"]
STEPS = 100  # of the integration of CLEX, from one scale to the next, as in the authors' code


@register(kind="rotary", formula="rope at t / factor", paper="Chen et al. 2023, arXiv 2306.15595")
def pi(base: Positive = 10_000.0, pairing: Pairing = "half", factor: Factor = 4.0) -> Encoding:
    """Position interpolation: positions divided by a factor, at every length.

    In fact the frequencies are divided, so that positions stay exact integers.

    Args:
      base: that of the trained model, `rope_theta` of its config.json.
      factor: the length wanted divided by the length that the model was trained on.
    """
    return rotation.turning(lambda head: rotation.ladder(head, base) / factor, pairing)


def slowed(pos_BT: jax.Array, freq_F: np.ndarray, by: jax.Array) -> Turn:
    """Turns at the frequencies times `by` [B, T, 1, F]; as exact as `angles` where `by` is 1.

    Elsewhere a frequency is a float32; at far positions queries and keys have the same error in
    their angle, which cancels.
    """
    slower = freq_F.astype(by.dtype)[None, None, None] * by
    far, near = rotation.angles(pos_BT, slower), rotation.angles(pos_BT, freq_F[None])
    return rotation.turns(jnp.where(by == 1, near, far))


def ntk_power(head: int) -> np.ndarray:
    """The exponent of a stretch s for each pair: (s^(C/(C-2)))^(-2k/C) = s^(-2k/(C-2))."""
    return -2 * np.arange(head // 2) / max(head - 2, 1)


@register(
    kind="rotary",
    formula="rope of base * factor^(C/(C-2))",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
)
def ntk(base: Positive = 10_000.0, pairing: Pairing = "half", factor: Factor = 4.0) -> Encoding:
    """NTK-aware scaling: a larger base, so that the slowest pair slows by the whole factor.

    The fastest pair does not change.

    Args:
      base, factor: as in `pi`.
    """
    slower = lambda head: rotation.ladder(head, base) * factor ** ntk_power(head)
    return rotation.turning(slower, pairing)


@register(
    kind="rotary",
    formula="rope of base * s^(C/(C-2)), s = alpha * max(1, n / length) - (alpha - 1)",
    paper="emozilla 2023, in Peng et al. 2023, arXiv 2309.00071",
)
def dynamic_ntk(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    length: Count = 2048,
    alpha: Positive = 1.0,
) -> Encoding:
    """NTK-aware scaling by the current length n: rope up to `length`, a larger base beyond.

    Alpha 1 is the paper's s = max(1, n / length), `ntk` with the factor n / length. Other values
    follow the authors' code and Hugging Face, which calls alpha `factor`. n is the layout's
    `length_BT`. Keys are turned again for each n (a cache keeps them unturned), so decoding token
    by token equals the full pass if the layouts state the same length.

    Args:
      base: as in `pi`.
      length: tokens the model was trained on, `max_position_embeddings` of its config.json.
      alpha: how fast the base grows beyond `length`; 1 in the paper, `factor` of a config.json.
    """

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        past = jnp.maximum(length_BT - length, 0).astype(float)
        stretch = 1 + alpha / length * past[:, :, None, None]
        power = ntk_power(dims.head).astype(stretch.dtype)[None, None, None]
        return slowed(pos_BT, rotation.ladder(dims.head, base), jnp.exp(jnp.log(stretch) * power))

    return rotation.rotary(pairing, table, place=rotation.with_length)


@partial(jax.jit, static_argnums=(1, 2))  # one program where code runs op by op
@jax.default_matmul_precision("highest")  # errors of tensor cores would add up over the steps
def _stretches(params, base: float, scales: int) -> jax.Array:
    """ln(theta(s) / theta(1)) of CLEX at the scales s = 1, 2, ..., [scales, F].

    That of ntk is known, so that Runge-Kutta steps integrate the learned part alone.
    """
    up_FC, down_CF = params["up"].astype(float), params["down"].astype(float) / 100
    rope_F = jnp.asarray(np.log(rotation.ladder(up_FC.shape[1], base)), float)
    power_F, h = jnp.asarray(ntk_power(up_FC.shape[1]), float), 1 / STEPS
    ntk = lambda s: power_F * jnp.log(2 * s - 1)
    slope = lambda more_F, s: jax.nn.silu((more_F + 2 * (rope_F + ntk(s))) @ up_FC) @ down_CF

    def step(more_F, s):
        a_F = slope(more_F, s)
        b_F = slope(more_F + h / 2 * a_F, s + h / 2)
        c_F = slope(more_F + h / 2 * b_F, s + h / 2)
        d_F = slope(more_F + h * c_F, s + h)
        return more_F + h / 6 * (a_F + 2 * b_F + 2 * c_F + d_F), more_F

    s_N = 1 + jnp.arange((scales - 1) * STEPS + 1, dtype=float) * h
    more_NF = jax.lax.scan(step, jnp.zeros_like(rope_F), s_N)[1]
    return more_NF[::STEPS] + jax.vmap(ntk)(s_N[::STEPS])


@register(
    kind="rotary",
    formula="rope of frequencies theta(s), s = ceil(n / length): theta(1) rope's, "
    "d ln theta / ds = d ln ntk / ds + silu((ln theta + ln ntk) A) B, ntk(s) of factor 2 s - 1",
    paper="Chen et al. 2023, arXiv 2310.16450",
)
def clex(
    base: Positive = 10_000.0, pairing: Pairing = "half", length: Count = 2048, scales: Count = 16
) -> Encoding:
    """CLEX: frequencies follow a learned differential equation in the scale of the context, s.

    Scale s is for sequences of up to s `length` tokens; up to `length` this is `rope`. B starts at
    0, which gives the frequencies of `ntk`. All layers share A, `up` [C/2, C], and 100 B, `down`
    [C, C/2]: the authors train at a rate of 2e-5, and larger ones let the solution grow without
    bound. In training each sequence draws s, and of s n positions the first, the last and n - 2
    others; one longer than `length` has an s of n / length or more, and positions below s `length`.
    The equation is solved anew in each forward pass.

    Args:
      base: as in `pi`.
      length: tokens the model was trained on before.
      scales: the largest s. Longer sequences are read with it; in training they give NaN.
    """

    def init(key, dims):
        pairs, most = len(rotation.ladder(dims.head, base)), dims.head**-0.5
        up_FC = jax.random.uniform(key, (pairs, dims.head), float, -most, most)
        return {"up": up_FC, "down": jnp.zeros((dims.head, pairs), float)}

    def place(key, layout):
        pos_BT, n_BT = rotation.with_length(key, layout)
        least_BT = jnp.minimum(-(-n_BT // length), scales)
        if key is None:
            return pos_BT, least_BT
        scale_key, place_key = jax.random.split(key)
        draw = lambda k, least: jax.random.randint(k, (), least, scales + 1, jnp.int32)
        scale_BT = per_token(draw, sequence_keys(scale_key, layout), least_BT)
        room_BT, pos_BT = scale_BT * jnp.minimum(n_BT, length), pos_BT.astype(jnp.int32)
        inner = layout.segment_BT, pos_BT - 1, n_BT - 2
        shown_BT = 1 + drawn(place_key, *inner, scales * length, room_BT=room_BT - 2)
        shown_BT = jnp.where(pos_BT == n_BT - 1, room_BT - 1, shown_BT) * jnp.minimum(pos_BT, 1)
        held_BT = (room_BT >= n_BT) | (layout.segment_BT <= 0)
        return jnp.where(held_BT, shown_BT.astype(float), jnp.nan), scale_BT

    def table(params, placed, dims):
        pos_BT, scale_BT = placed
        by_BTF = jnp.exp(_stretches(params, base, scales))[scale_BT - 1]
        return slowed(pos_BT, rotation.ladder(dims.head, base), by_BTF[:, :, None])

    return rotation.rotary(pairing, table, init=init, place=place)


def _trained_share(head, base, length, beta_fast, beta_slow, ramp: Ramp) -> np.ndarray:
    """The share of each pair's trained frequency that stays: 1 for fast pairs, 0 for slow ones."""
    if ramp == "turns":
        count = length * rotation.ladder(head, base) / TURN
        if beta_fast == beta_slow:  # a step, as in Llama 4
            return (count >= beta_slow).astype(float)
        return np.clip((count - beta_slow) / (beta_fast - beta_slow), 0, 1)
    ends = [head * np.log(length / (TURN * b)) / (2 * np.log(base)) for b in (beta_fast, beta_slow)]
    if ramp == "pairs_truncated":
        ends = [np.floor(ends[0]), np.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], head - 1)
    return 1 - np.clip((np.arange(head // 2) - low) / max(high - low, 0.001), 0, 1)


def by_parts(
    base: float, factor: float, length: int, beta_fast: float, beta_slow: float, ramp: Ramp
) -> Callable[[int], np.ndarray]:
    """A function (head width) -> the frequencies of `ntk_by_parts`, float64 [F]. FieldError: as
    there.
    """
    rule = f"must be beta_slow {beta_slow} or more"
    require(beta_slow <= beta_fast, "beta_fast", beta_fast, rule)
    require(ramp == "turns" or base > 1, "base", base, f"must be above 1 for ramp {ramp!r}")

    def frequencies(head):
        share = _trained_share(head, base, length, beta_fast, beta_slow, ramp)
        return rotation.ladder(head, base) * (share + (1 - share) / factor)

    return frequencies


@register(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - slow) / (fast - slow) "
    "in [0, 1]",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
)
def ntk_by_parts(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    factor: Factor = 4.0,
    length: Count = 2048,
    beta_fast: float = 32.0,
    beta_slow: Positive = 1.0,
    ramp: Ramp = "turns",
) -> Encoding:
    """NTK by parts: slow pairs interpolated, fast pairs as they are, a ramp between.

    A pair that turns more than `beta_fast` times within the trained `length` keeps its frequency.
    That of a pair with fewer than `beta_slow` turns is divided by the factor. Between, the paper's
    ramp is linear in the number of turns ("turns"). In the authors' code and Hugging Face it is
    linear in the index of the pair ("pairs"), by default with its ends rounded outwards to whole
    pairs ("pairs_truncated").

    Args:
      base, factor: as in `pi`.
      length: tokens the model was trained on before it is extended,
        `original_max_position_embeddings` of a config.json.
      beta_fast: pairs that turn more often than this within `length` keep their frequency.
      beta_slow: pairs that turn less often than this have theirs divided by the factor.
      ramp: between both, linear in the number of turns, as in the paper ("turns"), or in the index
        of the pair, as in transformers ("pairs_truncated", or "pairs" where the config.json has
        truncate=false). As rope_type llama3 a config.json has "turns" too.

    FieldError: beta_fast is below beta_slow.
    """
    frequencies = by_parts(base, factor, length, beta_fast, beta_slow, ramp)
    return rotation.turning(frequencies, pairing)


def root_temperature(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """The factor of queries and of keys: 0.1 ln(factor) + 1, or a quotient of two such."""
    at = lambda scale: 0.1 * scale * float(np.log(factor)) + 1.0
    return at(mscale) / at(mscale_all_dim)


@recorded
def louder(encoding: Encoding, amplitude: float) -> Encoding:
    """The rotary encoding with queries and keys each multiplied by the amplitude."""
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        return Turn(*(leaf * amplitude for leaf in plain(params, placed, dims)))

    return encoding._replace(table=table)


@register(
    kind="rotary",
    formula="ntk_by_parts, and logits times (0.1 ln factor + 1)^2",
    paper="Peng et al. 2023, arXiv 2309.00071",
)
def yarn(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    factor: Factor = 4.0,
    length: Count = 2048,
    beta_fast: float = 32.0,
    beta_slow: Positive = 1.0,
    ramp: Ramp = "turns",
    mscale: NotNegative = 1.0,
    mscale_all_dim: NotNegative = 0.0,
) -> Encoding:
    """YaRN: the ramp of `ntk_by_parts`, and a temperature that sharpens attention.

    Queries and keys are each multiplied by sqrt(1/t) = 0.1 ln(factor) + 1, through their cosines
    and sines as in the authors' code, so the logits by its square 1/t.

    Args:
      base, pairing, factor, length, beta_fast, beta_slow: as in `ntk_by_parts`.
      ramp: as in `ntk_by_parts`; only the ramps in the index can be written to a config.json, so
        take "pairs_truncated" for weights that other programs run.
      mscale, mscale_all_dim: DeepSeek's numbers: the multiplier is 0.1 mscale ln(factor) + 1
        divided by 0.1 mscale_all_dim ln(factor) + 1. DeepSeek's attention also multiplies the
        logits of all channels, those that do not turn included, by the square of the divisor,
        which is not done here.

    Example, a model of 8,192 tokens read to 32,768:
      make("yarn", base=500_000.0, length=8192, factor=4.0, ramp="pairs_truncated")

    FieldError: as `ntk_by_parts`.
    """
    parts = ntk_by_parts(base, pairing, factor, length, beta_fast, beta_slow, ramp)
    return louder(parts, root_temperature(factor, mscale, mscale_all_dim))
