"""Rotary methods for images, video and streams that mix them: positions have three axes."""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import one_of, positive, require
from posenc_jax.encodings.rotary_2d import angles_by_axis, split_axes
from posenc_jax.encodings.rotation import Pairing, ladder, powers, rotary, turned_scores, turns

Order = Literal["sections", "interleaved"]
# Fraction of an id that is added before rounding down: 0.12 seconds are id 3 at 40 ms each, though
# the float32 nearest to 0.12 is a little less.
EARLY = 1e-3


def pair_axes(pairs: int, sections: tuple[int, ...], order: Order) -> np.ndarray:
    """Which of (time, height, width) each pair of a head turns by: 0, 1 or 2, int [F].

    Without sections: those of Qwen2-VL, 1/4, 3/8, 3/8; interleaved, of Qwen3-VL, 3/8, 5/16, 5/16.

    FieldError: sections that do not sum to the head's pairs, or too uneven to interleave.
    """
    if not sections and order == "sections":
        time = max(pairs // 4, 1)
        sections = time, (pairs - time + 1) // 2, (pairs - time) // 2
    elif not sections:
        space = 5 * pairs // 16
        sections = pairs - 2 * space, space, space
    rule = f"sum to {sum(sections)}; a head of {2 * pairs} has {pairs} pairs"
    require(sum(sections) == pairs, "sections", sections, rule)
    axis_F = np.repeat(np.arange(3), sections)
    if order == "interleaved":
        axis_F = np.zeros(pairs, int)
        for axis in (1, 2):
            axis_F[axis : 3 * sections[axis] : 3] = axis
        fits = tuple(np.bincount(axis_F, minlength=3)) == tuple(sections)
        require(fits, "sections", sections, "do not interleave; time must be widest")
    return axis_F


def _axis_of_pair(o, pairs):
    """Definition: the axis of each pair, one at a time."""
    if o.order == "interleaved":
        height, width = o.sections[1:] or (5 * pairs // 16, 5 * pairs // 16)
        deal = lambda k: (
            1 if k % 3 == 1 and k < 3 * height else 2 if k % 3 == 2 and k < 3 * width else 0
        )
        return [deal(k) for k in range(pairs)]
    time = o.sections[0] if o.sections else max(pairs // 4, 1)
    height = o.sections[1] if o.sections else -(-(pairs - time) // 2)
    return [0] * time + [1] * height + [2] * (pairs - time - height)


def _mrope_scores(o, params, q, k, pos, n):
    pos_TF = np.asarray(pos, np.float64)[:, _axis_of_pair(o, q.shape[-1] // 2)]
    angle_QKHF = (pos_TF[:, None] - pos_TF[None]) * powers(o.base, q.shape[-1])
    return turned_scores(q, k, angle_QKHF[:, :, None], o.pairing)


def _multimodal(base, pairing, sections, order, **hooks) -> Encoding:
    """M-RoPE of the positions that `place` makes: one [B, T] for each axis."""
    positive(base=base)
    one_of("order", order, Order)
    three = len(sections) in (0, 3) and all(type(n) is int and n >= 0 for n in sections)
    rule = "is not three whole numbers: pairs for time, height and width"
    require(three, "sections", sections, rule)

    def frequencies(head):
        freq_F = ladder(head, base)
        pair_axes(len(freq_F), sections, order)
        return freq_F

    def table(params, placed, dims):
        axis_F = pair_axes(dims.head // 2, sections, order)
        return turns(angles_by_axis(placed, frequencies(dims.head), axis_F))

    return rotary(frequencies, pairing, table, **hooks)


@method(
    kind="rotary",
    formula="as rope, pair k turning by time, height or width as its section says",
    paper="Wang et al. 2024 (Qwen2-VL), arXiv 2409.12191",
    axes=3,
    scores=_mrope_scores,
    vary={"sections": (2, 1, 1)},
    reference="transformers",
)
def mrope(
    base: float = 1_000_000.0,
    pairing: Pairing = "half",
    sections: tuple[int, ...] = (),
    order: Order = "sections",
) -> Encoding:
    """M-RoPE: sections of a head's pairs turn by time, by height and by width.

    Positions are [B, T, 3], (time, row, column). Text has three equal numbers, for which this is
    rope to the bit. Frequencies are those of rope, and go on from one section to the next.

    Args:
      base: as in `rope`; a million in Qwen2-VL.
      pairing: as in `rope`; Qwen has "half".
      sections: pairs for each axis, C/2 in all; () for the shares of Qwen2-VL, 16:24:24, or with
        order="interleaved" those of Qwen3-VL, 24:20:20.
      order: "sections", or "interleaved" (Qwen3-VL): pairs go to time, height and width in turn
        until an axis has all of its own, so that each axis has fast and slow pairs.

    FieldError: base not positive, an unknown pairing or order, sections that are not three numbers;
    later, an odd width of a head, sections that are not its pairs or do not interleave, positions
    of another shape.
    """
    place = lambda key, layout: tuple(split_axes(layout.pos_BT, 3))
    return _multimodal(base, pairing, sections, order, place=place)


@method(
    kind="rotary",
    formula="mrope with time in seconds: its id is floor(rate seconds), 40 ms each at rate 25",
    paper="Xu et al. 2025 (Qwen2.5-Omni), arXiv 2503.20215",
    axes=3,
    scores=lambda o, params, q, k, pos, n: _mrope_scores(
        o, params, q, k, np.stack([np.floor(pos[:, 0] * o.rate + EARLY), *pos[:, 1:].T], axis=1), n
    ),
    vary={"sections": (2, 1, 1)},
    reference="transformers",
)
def tmrope(
    base: float = 1_000_000.0,
    pairing: Pairing = "half",
    sections: tuple[int, ...] = (),
    order: Order = "sections",
    rate: int = 25,
) -> Encoding:
    """TMRoPE: M-RoPE with time in seconds, so that sound and picture of a moment agree.

    Positions are [B, T, 3], (seconds, row, column). The id of a moment is the number of whole units
    of 1/rate seconds before it. `multimodal_ids.positions` makes such positions for text, images,
    sound and video. If ids are given instead of seconds, `mrope` is the same method.

    Args:
      base, pairing, sections, order: as in `mrope`.
      rate: time ids per second; the paper's unit is 40 ms.

    FieldError: as `mrope`, and a rate that is not positive.
    """
    positive(rate=rate)

    def place(key, layout):
        seconds_BT, *space = split_axes(layout.pos_BT, 3)
        whole_BT = jnp.floor(seconds_BT).astype(jnp.int32)
        part_BT = seconds_BT.astype(float) - whole_BT.astype(float)
        # Whole seconds in integers: float32 does not hold all ids past 2^24.
        return whole_BT * rate + jnp.floor(part_BT * rate + EARLY).astype(jnp.int32), *space

    return _multimodal(base, pairing, sections, order, place=place)
