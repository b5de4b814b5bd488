"""Context extension of rotary: rope with other frequencies, to read past the trained length.

Every method here is `rope` of the same weights, and has no parameters: train with `rope`, evaluate
with any. With factor 1, and `dynamic_ntk` within the trained length, it is `rope`, bit for bit.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.angles import (
    TURN,
    Pairing,
    angles,
    check_positive,
    ladder,
    offsets,
    one_axis,
    powers,
    rotary,
    turned_scores,
    turning,
    turns,
)
from posenc_jax.encodings.card import method

Ramp = Literal["turns", "pairs", "pairs_truncated"]


def check_extension(base: float, factor: float, length: int = 1) -> None:
    """ValueError: an option outside what every extension takes."""
    check_positive(base=base, length=length)
    if not 1 <= factor < np.inf:
        raise ValueError(f"encoding.factor: {factor} must be 1 or more, and finite")


@method(
    kind="rotary",
    formula="rope at t / factor",
    paper="Chen et al. 2023, arXiv 2306.15595",
    relative=True,
    scores=lambda o, params, q, k, pos, n: turned_scores(
        q, k, offsets(pos) / o.factor * powers(o.base, q.shape[-1]), o.pairing
    ),
    reference="transformers, x-transformers",
)
def pi(base: float = 10_000.0, pairing: Pairing = "half", factor: float = 4.0) -> Encoding:
    """Position interpolation: positions divided by a factor, at every length.

    The frequencies are divided instead, so that positions stay exact integers.

    Raises:
      ValueError: base not positive, factor below 1, an unknown pairing; later, an odd head width.
    """
    check_extension(base, factor)
    return turning(lambda head: ladder(head, base) / factor, pairing)


def _ntk_power(head: int) -> np.ndarray:
    """What a stretch s is raised to, for each pair: (s^(C/(C-2)))^(-2k/C) = s^(-2k/(C-2))."""
    return -2 * np.arange(head // 2) / max(head - 2, 1)


@method(
    kind="rotary",
    formula="rope of base * factor^(C/(C-2))",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
    relative=True,
    scores=lambda o, params, q, k, pos, n: turned_scores(
        q, k, offsets(pos) * powers(
            o.base * o.factor ** (q.shape[-1] / (q.shape[-1] - 2)), q.shape[-1]
        ), o.pairing
    ),
    reference="rotary-embedding-torch, x-transformers",
)  # fmt: skip
def ntk(base: float = 10_000.0, pairing: Pairing = "half", factor: float = 4.0) -> Encoding:
    """NTK-aware scaling: a larger base, so that the slowest pair slows by the whole factor.

    The fastest pair does not change at all.

    Raises:
      ValueError: base not positive, factor below 1, an unknown pairing; later, an odd head width.
    """
    check_extension(base, factor)
    return turning(lambda head: ladder(head, base) * factor ** _ntk_power(head), pairing)


def _dynamic_scores(o, params, q, k, pos, n):
    width = q.shape[-1]
    stretch = o.alpha * max(n, o.length) / o.length - (o.alpha - 1)
    theta = powers(o.base * stretch ** (width / (width - 2)), width)
    return turned_scores(q, k, offsets(pos) * theta, o.pairing)


@method(
    kind="rotary",
    formula="rope of base * s^(C/(C-2)), s = alpha * max(1, n / length) - (alpha - 1)",
    paper="emozilla 2023, in Peng et al. 2023, arXiv 2309.00071",
    relative=True,
    scores=_dynamic_scores,
    example={"length": 8},
    reference="transformers",
)
def dynamic_ntk(
    base: float = 10_000.0, pairing: Pairing = "half", length: int = 2048, alpha: float = 1.0
) -> Encoding:
    """NTK-aware scaling by the current length n: rope as trained up to `length`, more base beyond.

    Alpha 1 is the paper's s = max(1, n / length), `ntk` with the factor that n asks for; others
    are the form of its authors' code, and of Hugging Face, which calls it `factor`. n is the
    layout's `length_BT`: keys are turned anew for each n (a cache keeps them unturned), so decoding
    token by token equals the full pass where the layout states the same length, and changes with n
    where that grows. Beyond `length` a frequency is itself a float32: far out queries and keys are
    off by one angle, which cancels.

    Raises:
      ValueError: base, length or alpha not positive, an unknown pairing; later, an odd head width.
    """
    check_positive(base=base, length=length, alpha=alpha)

    def frequencies(head):
        return ladder(head, base)

    def place(key, layout):
        return one_axis(layout.pos_BT), layout.length_BT

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        past = jnp.maximum(length_BT - length, 0).astype(float)
        stretch = 1 + alpha / length * past[:, :, None, None]
        slower = jnp.exp(
            jnp.log(stretch) * _ntk_power(dims.head).astype(stretch.dtype)[None, None, None]
        )
        trained = frequencies(dims.head)[None]
        longer = trained.astype(stretch.dtype)[None, None] * slower
        angle = jnp.where(stretch > 1, angles(pos_BT, longer), angles(pos_BT, trained))
        return turns(angle)

    return rotary(frequencies, pairing, table, place=place)


def _kept(head, base, length, beta_fast, beta_slow, ramp: Ramp) -> np.ndarray:
    """The share of each frequency that stays as trained: 1 for fast pairs, 0 for slow ones."""
    if ramp == "turns":
        count = length * ladder(head, base) / TURN
        return np.clip((count - beta_slow) / (beta_fast - beta_slow), 0, 1)
    ends = [head * np.log(length / (TURN * b)) / (2 * np.log(base)) for b in (beta_fast, beta_slow)]
    if ramp == "pairs_truncated":
        ends = [np.floor(ends[0]), np.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], head - 1)
    return 1 - np.clip((np.arange(head // 2) - low) / max(high - low, 0.001), 0, 1)


def _by_parts(base, pairing, factor, length, beta_fast, beta_slow, ramp, amplitude) -> Encoding:
    check_extension(base, factor, length)
    check_positive(beta_slow=beta_slow)
    if not beta_slow < beta_fast:
        raise ValueError(f"encoding.beta_fast: {beta_fast} must be above beta_slow {beta_slow}")
    if ramp not in ("turns", "pairs", "pairs_truncated"):
        raise ValueError(
            f"encoding.ramp: {ramp!r} is not one of: 'turns', 'pairs', 'pairs_truncated'"
        )
    if ramp != "turns" and base <= 1:
        raise ValueError(f"encoding.base: {base} must be above 1 for ramp {ramp!r}")

    def frequencies(head):
        kept = _kept(head, base, length, beta_fast, beta_slow, ramp)
        return ladder(head, base) * (kept + (1 - kept) / factor)

    return turning(frequencies, pairing, amplitude)


def _by_parts_theta(o, width):
    """Definition in float64, section 3.2 of the paper and, for the other ramps, its code."""
    theta = powers(o.base, width)
    if o.ramp == "turns":
        wavelength = 2 * np.pi / theta
        r = o.length / wavelength
        gamma = np.array([
            0.0 if x < o.beta_slow else 1.0 if x > o.beta_fast
            else (x - o.beta_slow) / (o.beta_fast - o.beta_slow) for x in r
        ])  # fmt: skip
    else:

        def where(turns):  # the pair that makes so many turns within the trained length
            return width * np.log(o.length / (turns * 2 * np.pi)) / (2 * np.log(o.base))

        low, high = where(o.beta_fast), where(o.beta_slow)
        if o.ramp == "pairs_truncated":
            low, high = np.floor(low), np.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        gamma = 1 - np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return (1 - gamma) * theta / o.factor + gamma * theta


@method(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - slow) / (fast - slow) "
    "in [0, 1]",
    paper="bloc97 2023, in Peng et al. 2023, arXiv 2309.00071",
    relative=True,
    scores=lambda o, params, q, k, pos, n: turned_scores(
        q, k, offsets(pos) * _by_parts_theta(o, q.shape[-1]), o.pairing
    ),
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
    """Slow pairs interpolated, fast pairs left alone, a ramp between.

    A pair that turns more than `beta_fast` times within the trained `length` keeps its frequency;
    under `beta_slow` times it is divided by the factor. Between, the paper's ramp is linear in the
    number of turns; the authors' code and Hugging Face have it linear in the index of the pair
    ("pairs"), by default with its ends rounded outwards to whole pairs ("pairs_truncated").

    Raises:
      ValueError: base, length or beta_slow not positive, factor below 1, beta_fast not above
        beta_slow, an unknown pairing or ramp; later, an odd width of a head.
    """
    return _by_parts(base, pairing, factor, length, beta_fast, beta_slow, ramp, 1.0)


@method(
    kind="rotary",
    formula="ntk_by_parts, and logits times (0.1 ln factor + 1)^2",
    paper="Peng et al. 2023, arXiv 2309.00071",
    relative=True,
    scores=lambda o, params, q, k, pos, n: (0.1 * np.log(o.factor) + 1) ** 2 * turned_scores(
        q, k, offsets(pos) * _by_parts_theta(o, q.shape[-1]), o.pairing
    ),
    example={"length": 64},
    reference="transformers",
)  # fmt: skip
def yarn(
    base: float = 10_000.0,
    pairing: Pairing = "half",
    factor: float = 4.0,
    length: int = 2048,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    ramp: Ramp = "turns",
) -> Encoding:
    """YaRN: the ramp of `ntk_by_parts`, and a temperature that sharpens attention.

    Queries and keys are each multiplied by sqrt(1/t) = 0.1 ln(factor) + 1, once, through their
    cosines and sines as in the authors' code, so the logits carry its square 1/t. Options and
    errors are those of `ntk_by_parts`; the ramp Hugging Face has is "pairs_truncated".

    Raises:
      ValueError: as `ntk_by_parts`.
    """
    amplitude = 0.1 * float(np.log(factor)) + 1.0 if factor >= 1 else 1.0  # below 1: refused
    return _by_parts(base, pairing, factor, length, beta_fast, beta_slow, ramp, amplitude)
