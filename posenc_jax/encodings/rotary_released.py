"""Context extension of released models: Llama 3's scaling and LongRoPE.

As in `rotary_scaling`, these methods use the weights of `rope` and have no parameters.
"""

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least, positive, require, with_axes
from posenc_jax.encodings.rotary_scaling import check_extension, ntk_by_parts
from posenc_jax.encodings.rotation import Pairing, Turn


def _llama3_theta(o, width, n):
    """Definition: one wavelength at a time, as in the released code."""
    theta_F = rotation.powers(o.base, width)
    for k_pair, theta in enumerate(theta_F):
        wavelength = 2 * np.pi / theta
        if wavelength > o.length / o.low:
            theta_F[k_pair] = theta / o.factor
        elif wavelength >= o.length / o.high:
            smooth = (o.length / wavelength - o.low) / (o.high - o.low)
            theta_F[k_pair] = (1 - smooth) * theta / o.factor + smooth * theta
    return theta_F


@method(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - low) / (high - low) "
    "in [0, 1]",
    paper="Dubey et al. 2024 (Llama 3.1), arXiv 2407.21783 and its released code",
    scores=rotation.scores_of(_llama3_theta),
    example={"base": 100.0, "length": 64},
    reference="transformers",
)
def llama3(
    base: float = 500_000.0,
    pairing: Pairing = "half",
    factor: float = 8.0,
    length: int = 8192,
    low: float = 1.0,
    high: float = 4.0,
) -> Encoding:
    """Llama 3.1's scaling: slow pairs interpolated, fast pairs as they are, a ramp between.

    The paper has the base alone; low, high, the ramp and the defaults are those of the released
    code. It is `ntk_by_parts` with a ramp from 1 to 4 turns instead of 1 to 32.

    Args:
      base, pairing: as in `rope`.
      factor: slow frequencies are divided by it.
      length: tokens the model was trained on.
      low: pairs with fewer turns within `length` are slow.
      high: pairs with more turns are fast.

    FieldError: base, length or low not positive, factor below 1, high not above low, an unknown
    pairing; later, an odd width of a head.
    """
    check_extension(base, factor, length)
    positive(low=low)
    require(low < high, "high", high, f"must be above low {low}")
    return ntk_by_parts(base, pairing, factor, length, beta_fast=high, beta_slow=low)


def _longrope_scores(o, params, q, k, pos, n):
    theta_F = rotation.powers(o.base, q.shape[-1])
    ones = [1.0] * len(theta_F)
    stretch_F = (o.long or [o.factor] * len(ones)) if n > o.length else (o.short or ones)
    angle_TF = np.array([
        [t * theta / (1 if t < o.start else s) for theta, s in zip(theta_F, stretch_F, strict=True)]
        for t in np.asarray(pos, np.float64)
    ])  # fmt: skip
    angle_QKHF = (angle_TF[:, None] - angle_TF[None])[:, :, None]
    temperature = 1 + np.log(o.factor) / np.log(o.length)
    return temperature * rotation.turned_scores(q, k, angle_QKHF, o.pairing)


@method(
    kind="rotary",
    formula="theta_k / s_k, s_k of the short or the long list; logits times "
    "1 + ln factor / ln length",
    paper="Ding et al. 2024, arXiv 2402.13753",
    scores=_longrope_scores,
    example={"length": 8},
    vary={"long": (1.0, 2.0, 3.0, 5.0), "short": (1.0, 1.0, 1.5, 2.0), "start": 4},
    reference="transformers",
)
def longrope(
    base: float = 10_000.0,
    pairing: Pairing = "half",
    factor: float = 4.0,
    length: int = 2048,
    short: tuple[float, ...] = (),
    long: tuple[float, ...] = (),
    start: int = 0,
) -> Encoding:
    """LongRoPE: each frequency has a factor of its own, from a list for short or for long texts.

    A sequence of more than `length` tokens, by the layout's `length_BT`, uses the long list, also
    while it is decoded: its keys are turned again. Queries and keys are each multiplied by
    sqrt(1 + ln factor / ln length), at every length, as in the released models.

    Args:
      base, pairing: as in `rope`.
      factor: how many times `length` the model is extended to.
      length: tokens the model was trained on.
      short: divisors of the C/2 frequencies up to `length`; () for 1.
      long: the divisors beyond it, as the paper's search finds them; () for `factor`, as in `pi`.
      start: positions below this keep their frequencies with both lists. The paper searches for it;
        released models and Hugging Face do not have it. With it, scores depend on more than i - j.

    FieldError: base or length not positive, factor below 1, length 1, a number of a list that is
    not positive, start below 0, an unknown pairing; later, an odd width of a head or a list that
    does not have its C/2 numbers.
    """
    check_extension(base, factor, length)
    at_least(2, length=length)
    at_least(0, start=start)
    for name, given in (("short", short), ("long", long)):
        good = all(0 < value < np.inf for value in given)
        require(good, name, given, "must be positive and finite")

    def divided(head, name, given, usual):
        freq_F = rotation.ladder(head, base)
        rule = f"has {len(given)} numbers; a head of {head} has {len(freq_F)} pairs"
        require(len(given) in (0, len(freq_F)), name, given, rule)
        return freq_F / np.array(given or [usual] * len(freq_F))

    def frequencies(head):
        divided(head, "long", long, factor)
        return divided(head, "short", short, 1.0)

    def place(key, layout):
        return with_axes(layout.pos_BT), layout.length_BT

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        angle = jnp.where(
            (length_BT > length)[:, :, None, None],
            rotation.angles(pos_BT, divided(dims.head, "long", long, factor)[None]),
            rotation.angles(pos_BT, frequencies(dims.head)[None]),
        )
        if start:
            plain = rotation.angles(pos_BT, rotation.ladder(dims.head, base)[None])
            angle = jnp.where((pos_BT < start)[:, :, None, None], plain, angle)
        amplitude = float(np.sqrt(1 + np.log(factor) / np.log(length)))
        return Turn(*(leaf * amplitude for leaf in rotation.turns(angle)))

    return rotation.rotary(frequencies, pairing, table, place=place)
