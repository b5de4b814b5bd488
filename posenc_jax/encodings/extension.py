"""Context extension as released models have it: `llama3`, `longrope`, and positions dropped.

As in `scaling`, every method reads weights that were trained with `rope` and has no parameters.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Placed
from posenc_jax.encodings.angles import (
    TURN,
    Pairing,
    Turn,
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
from posenc_jax.encodings.scaling import check_extension


def _llama3_scores(o, params, q, k, pos, n):
    """Definition in float64, one wavelength at a time, as the released code has it."""
    theta_F = powers(o.base, q.shape[-1])
    for k_pair, theta in enumerate(theta_F):
        wavelength = 2 * np.pi / theta
        if wavelength > o.length / o.low:
            theta_F[k_pair] = theta / o.factor
        elif wavelength >= o.length / o.high:
            smooth = (o.length / wavelength - o.low) / (o.high - o.low)
            theta_F[k_pair] = (1 - smooth) * theta / o.factor + smooth * theta
    return turned_scores(q, k, offsets(pos) * theta_F, o.pairing)


@method(
    kind="rotary",
    formula="theta_k ((1 - g) / factor + g), g = (length theta_k / 2 pi - low) / (high - low) "
    "in [0, 1]",
    paper="Dubey et al. 2024 (Llama 3.1), arXiv 2407.21783 and its released code",
    relative=True,
    scores=_llama3_scores,
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
    """Llama 3.1's scaling: slow pairs interpolated, fast pairs left alone, a ramp between.

    The report tells the base alone; low, high and the ramp are in the released code, as are the
    defaults. It is `ntk_by_parts` with the ramp in turns from 1 to 4 in place of 1 to 32.

    Args:
      base, pairing: as in `rope`.
      factor: what slow frequencies are divided by.
      length: tokens the model was trained on.
      low: pairs that turn less often within `length` are slow.
      high: pairs that turn more often are fast.

    Raises:
      ValueError: base, length or low not positive, factor below 1, high not above low, an unknown
        pairing; later, an odd width of a head.
    """
    check_extension(base, factor, length)
    check_positive(low=low)
    if not low < high:
        raise ValueError(f"encoding.high: {high} must be above low {low}")

    def frequencies(head):
        freq_F = ladder(head, base)
        kept_F = np.clip((length * freq_F / TURN - low) / (high - low), 0, 1)
        return freq_F * (kept_F + (1 - kept_F) / factor)

    return turning(frequencies, pairing)


def _longrope_scores(o, params, q, k, pos, n):
    theta_F = powers(o.base, q.shape[-1])
    ones = [1.0] * len(theta_F)
    stretch_F = (o.long or [o.factor] * len(ones)) if n > o.length else (o.short or ones)
    angle_TF = np.array([
        [t * theta / (1 if t < o.start else s) for theta, s in zip(theta_F, stretch_F, strict=True)]
        for t in np.asarray(pos, np.float64)
    ])  # fmt: skip
    angle_QKHF = (angle_TF[:, None] - angle_TF[None])[:, :, None]
    temperature = 1 + np.log(o.factor) / np.log(o.length)
    return temperature * turned_scores(q, k, angle_QKHF, o.pairing)


@method(
    kind="rotary",
    formula="theta_k / s_k, s_k of the short or the long list; logits times "
    "1 + ln factor / ln length",
    paper="Ding et al. 2024, arXiv 2402.13753",
    relative=True,
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
    """LongRoPE: a factor of its own for each frequency, one list for short and one for long texts.

    A sequence of more than `length` tokens, by the layout's `length_BT`, reads the long list, also
    while it is decoded; keys are turned anew. Queries and keys each carry
    sqrt(1 + ln factor / ln length), at every length, as in the released models.

    Args:
      base, pairing: as in `rope`.
      factor: how many times `length` the model is extended to.
      length: tokens the model was trained on.
      short: what divides each of the C/2 frequencies up to `length`; () for 1.
      long: the same beyond it, as the paper's search finds them; () for `factor`, which is `pi`.
      start: positions below this keep their frequencies in every list; the paper searches for it,
        released models and Hugging Face have none. Scores then tell more than i - j.

    Raises:
      ValueError: base or length not positive, factor below 1, length 1, a number of a list that is
        not positive, start below 0, an unknown pairing; later, an odd width of a head or a list
        that does not have its C/2 numbers.
    """
    check_extension(base, factor, length)
    if length < 2:
        raise ValueError(f"encoding.length: {length} must be 2 or more")
    if start < 0:
        raise ValueError(f"encoding.start: {start} must be 0 or more")
    for name, given in (("short", short), ("long", long)):
        if not all(0 < value < np.inf for value in given):
            raise ValueError(f"encoding.{name}: {given} must be positive and finite")

    def divided(head, name, given, usual):
        freq_F = ladder(head, base)
        if given and len(given) != len(freq_F):
            raise ValueError(
                f"encoding.{name}: {len(given)} numbers; a head of {head} has {len(freq_F)} pairs"
            )
        return freq_F / np.array(given or [usual] * len(freq_F))

    def frequencies(head):
        divided(head, "long", long, factor)
        return divided(head, "short", short, 1.0)

    def place(key, layout):
        return one_axis(layout.pos_BT), layout.length_BT

    def table(params, placed, dims):
        pos_BT, length_BT = placed
        angle = jnp.where(
            (length_BT > length)[:, :, None, None],
            angles(pos_BT, divided(dims.head, "long", long, factor)[None]),
            angles(pos_BT, frequencies(dims.head)[None]),
        )
        if start:
            plain = angles(pos_BT, ladder(dims.head, base)[None])
            angle = jnp.where((pos_BT < start)[:, :, None, None], plain, angle)
        amplitude = float(np.sqrt(1 + np.log(factor) / np.log(length)))
        return Turn(*(leaf * amplitude for leaf in turns(angle)))

    return rotary(frequencies, pairing, table, place=place)


def sharpened(beta: Callable[[Placed], jax.Array], place: Callable | None = None) -> Encoding:
    """Queries times beta(placed), [B, T] float32 or wider: logits sharper or flatter, no positions.

    Args:
      beta: what the logits of a query are multiplied by.
      place: as in `Encoding`.
    """

    def rotate(table, x_BTHC, side):
        return x_BTHC if side == "k" else (x_BTHC.astype(table.dtype) * table).astype(x_BTHC.dtype)

    return Encoding(
        place=place,
        table=lambda params, placed, dims: beta(placed)[:, :, None, None],
        rotate=rotate,
    )


def _drope_scores(o, params, q, k, pos, n):
    beta = 1 + o.temperature * np.log(max(1.0, n / o.length))
    return beta * np.einsum("qhc,khc->hqk", q, k) / np.sqrt(q.shape[-1])


@method(
    kind="none",
    formula="q.k / sqrt(C) (1 + temperature ln max(1, n / length))",
    paper="Gelberg et al. 2025, arXiv 2512.12167",
    relative=True,
    scores=_drope_scores,
    example={"length": 8},
)
def drope(length: int = 2048, temperature: float = 0.412) -> Encoding:
    """DroPE: positions dropped after training, and attention sharper past the trained length.

    Train with `rope`, go on for a while with this in its place on the same parameters at the same
    length, and read longer texts: a causal mask is all that tells order then. n is the sequence's
    length, the layout's `length_BT`.

    Args:
      length: tokens the model was trained on; up to it this is `nope`.
      temperature: growth of the logits' scale. The paper fits it at the length wanted: 0.412 for
        its model trained from scratch, 0.103 for SmolLM. 0 for none.

    Raises:
      ValueError: length not positive, temperature below 0.
    """
    check_positive(length=length)
    if not 0 <= temperature < np.inf:
        raise ValueError(f"encoding.temperature: {temperature} must be 0 or more, and finite")

    def beta(length_BT):
        stretch_BT = jnp.maximum(length_BT, length).astype(float) / length
        return 1 + temperature * jnp.log(stretch_BT)

    return sharpened(beta, place=lambda key, layout: layout.length_BT)
