"""Context extension of rotary: rope with other frequencies, to read past the trained length.

Every method here uses the weights of `rope` and has no parameters: train with `rope`, evaluate with
any. With factor 1 it is `rope` to the bit, and so is `dynamic_ntk` within the trained length.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least, positive, require, with_axes
from posenc_jax.encodings.rotation import TURN, Pairing, Turn
from posenc_jax.layout import Layout

Ramp = Literal["turns", "pairs", "pairs_truncated"]


def check_extension(base: float, factor: float, length: int = 1) -> None:
    """FieldError: base or length not positive, or factor below 1."""
    positive(base=base, length=length)
    at_least(1, factor=factor)


@method(
    kind="rotary",
    formula="rope at t / factor",
    paper="Chen et al. 2023, arXiv 2306.15595",
    reference="transformers, x-transformers",
)
def pi(base: float = 10_000.0, pairing: Pairing = "half", factor: float = 4.0) -> Encoding:
    """Position interpolation: positions divided by a factor, at every length.

    In fact the frequencies are divided, so that positions stay exact integers.

    FieldError: base not positive, factor below 1; later, an odd head width.
    """
    check_extension(base, factor)
    return rotation.turning(lambda head: rotation.ladder(head, base) / factor, pairing)


def with_length(key, layout: Layout) -> tuple[jax.Array, jax.Array]:
    """`place` of methods that read the sequence's length n: (pos_BT, length_BT)."""
    return with_axes(layout.pos_BT), layout.length_BT


def _ntk_power(head: int) -> np.ndarray:
    """Each pair's exponent of a stretch s: (s^(C/(C-2)))^(-2k/C) = s^(-2k/(C-2))."""
    return -2 * np.arange(head // 2) / max(head - 2, 1)


@method(
    kind="rotary",
    formula="rope of base * factor^(C/(C-2))",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
    reference="rotary-embedding-torch, x-transformers",
)
def ntk(base: float = 10_000.0, pairing: Pairing = "half", factor: float = 4.0) -> Encoding:
    """NTK-aware scaling: a larger base, so that the slowest pair slows by the whole factor.

    The fastest pair does not change.

    FieldError: base not positive, factor below 1; later, an odd head width.
    """
    check_extension(base, factor)
    slower = lambda head: rotation.ladder(head, base) * factor ** _ntk_power(head)
    return rotation.turning(slower, pairing)


@method(
    kind="rotary",
    formula="rope of base * s^(C/(C-2)), s = alpha * max(1, n / length) - (alpha - 1)",
    paper="emozilla 2023, in Peng et al. 2023, arXiv 2309.00071",
    example={"length": 8},
    reference="transformers",
)
def dynamic_ntk(
    base: float = 10_000.0, pairing: Pairing = "half", length: int = 2048, alpha: float = 1.0
) -> Encoding:
    """NTK-aware scaling by the current length n: rope up to `length`, a larger base beyond.

    Alpha 1 is the paper's s = max(1, n / length), `ntk` with the factor n / length. Other values
    follow the authors' code and Hugging Face, which calls alpha `factor`. n is the layout's
    `length_BT`. Keys are turned again for each n (a cache keeps them unturned), so decoding token
    by token equals the full pass if the layouts state the same length. Beyond `length` a frequency
    is a float32; at far positions queries and keys have the same error in their angle, which
    cancels.

    FieldError: base, length or alpha not positive; later, an odd head width.
    """
    positive(base=base, length=length, alpha=alpha)
    frequencies = lambda head: rotation.ladder(head, base)

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        past = jnp.maximum(length_BT - length, 0).astype(float)
        stretch = 1 + alpha / length * past[:, :, None, None]
        slower = jnp.exp(
            jnp.log(stretch) * _ntk_power(dims.head).astype(stretch.dtype)[None, None, None]
        )
        trained = frequencies(dims.head)[None]
        longer = trained.astype(stretch.dtype)[None, None] * slower
        far, near = rotation.angles(pos_BT, longer), rotation.angles(pos_BT, trained)
        return rotation.turns(jnp.where(stretch > 1, far, near))

    return rotation.rotary(frequencies, pairing, table, place=with_length)


def _kept(head, base, length, beta_fast, beta_slow, ramp: Ramp) -> np.ndarray:
    """The share of each frequency that is kept as trained: 1 for fast pairs, 0 for slow ones."""
    if ramp == "turns":
        count = length * rotation.ladder(head, base) / TURN
        return np.clip((count - beta_slow) / (beta_fast - beta_slow), 0, 1)
    ends = [head * np.log(length / (TURN * b)) / (2 * np.log(base)) for b in (beta_fast, beta_slow)]
    if ramp == "pairs_truncated":
        ends = [np.floor(ends[0]), np.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], head - 1)
    return 1 - np.clip((np.arange(head // 2) - low) / max(high - low, 0.001), 0, 1)


def by_parts(
    base: float, factor: float, length: int, beta_fast: float, beta_slow: float, ramp: Ramp
) -> Callable[[int], np.ndarray]:
    """head width -> the frequencies of `ntk_by_parts`, float64 [F]. FieldError: as there."""
    check_extension(base, factor, length)
    positive(beta_slow=beta_slow)
    require(beta_slow < beta_fast, "beta_fast", beta_fast, f"must be above beta_slow {beta_slow}")
    require(ramp == "turns" or base > 1, "base", base, f"must be above 1 for ramp {ramp!r}")

    def frequencies(head):
        kept = _kept(head, base, length, beta_fast, beta_slow, ramp)
        return rotation.ladder(head, base) * (kept + (1 - kept) / factor)

    return frequencies


@method(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - slow) / (fast - slow) "
    "in [0, 1]",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
    example={"length": 64},
    reference="transformers",
)
def ntk_by_parts(
    base: float = 10_000.0,
    pairing: Pairing = "half",
    factor: float = 4.0,
    length: int = 2048,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    ramp: Ramp = "turns",
) -> Encoding:
    """NTK by parts: slow pairs interpolated, fast pairs as they are, a ramp between.

    A pair that turns more than `beta_fast` times within the trained `length` keeps its frequency.
    That of a pair with fewer than `beta_slow` turns is divided by the factor. Between, the paper's
    ramp is linear in the number of turns ("turns"). In the authors' code and Hugging Face it is
    linear in the index of the pair ("pairs"), by default with its ends rounded outwards to whole
    pairs ("pairs_truncated").

    FieldError: base, length or beta_slow not positive, factor below 1, beta_fast not above
    beta_slow; later, an odd head width.
    """
    frequencies = by_parts(base, factor, length, beta_fast, beta_slow, ramp)
    return rotation.turning(frequencies, pairing)


def root_temperature(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """What queries and keys are each multiplied by: 0.1 ln(factor) + 1, or a quotient of two."""
    at = lambda scale: 0.1 * scale * float(np.log(factor)) + 1.0
    return at(mscale) / at(mscale_all_dim)


def louder(encoding: Encoding, amplitude: float) -> Encoding:
    """The rotary encoding, and queries and keys each multiplied by the amplitude."""
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        return Turn(*(leaf * amplitude for leaf in plain(params, placed, dims)))

    return encoding._replace(table=table)


@method(
    kind="rotary",
    formula="ntk_by_parts, and logits times (0.1 ln factor + 1)^2",
    paper="Peng et al. 2023, arXiv 2309.00071",
    example={"length": 64},
    reference="transformers",
)
def yarn(
    base: float = 10_000.0,
    pairing: Pairing = "half",
    factor: float = 4.0,
    length: int = 2048,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    ramp: Ramp = "turns",
    mscale: float = 1.0,
    mscale_all_dim: float = 0.0,
) -> Encoding:
    """YaRN: the ramp of `ntk_by_parts`, and a temperature that sharpens attention.

    Queries and keys are each multiplied by sqrt(1/t) = 0.1 ln(factor) + 1, through their cosines
    and sines as in the authors' code, so the logits by its square 1/t. Hugging Face has the ramp
    "pairs_truncated".

    Args:
      base, pairing, factor, length, beta_fast, beta_slow, ramp: as in `ntk_by_parts`.
      mscale, mscale_all_dim: DeepSeek's numbers. The multiplier is 0.1 mscale ln(factor) + 1
        divided by 0.1 mscale_all_dim ln(factor) + 1. DeepSeek's attention also multiplies the
        logits of all channels, those that do not turn included, by the square of the divisor,
        which is not done here.

    FieldError: as `ntk_by_parts`, and mscale or mscale_all_dim below 0.
    """
    at_least(0, mscale=mscale, mscale_all_dim=mscale_all_dim)
    parts = ntk_by_parts(base, pairing, factor, length, beta_fast, beta_slow, ramp)
    return louder(parts, root_temperature(factor, mscale, mscale_all_dim))
