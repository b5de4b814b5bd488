"""Rotary methods that read positions of several axes: images, video, and streams that mix them."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.angles import (
    Pairing,
    angles,
    check_positive,
    ladder,
    offsets,
    powers,
    rotary,
    turned_scores,
    turns,
)
from posenc_jax.encodings.card import method

Order = Literal["sections", "interleaved"]
TIMED = ("time", "row", "column")
EARLY = 1e-3  # of an id: 0.12 seconds are the third 40 ms, though float32 has a little less


def split_axes(name: str, pos_BTA: jax.Array, axes: Sequence[str]) -> list[jax.Array]:
    """[B, T, A] as A arrays [B, T]. ValueError: positions of another shape."""
    if pos_BTA.ndim != 3 or pos_BTA.shape[-1] != len(axes):
        raise ValueError(
            f"positions: shape {pos_BTA.shape} is not [B, T, {len(axes)}]; {name} reads "
            f"({', '.join(axes)})"
        )
    return [pos_BTA[..., a] for a in range(len(axes))]


def angles_by_axis(pos_A: Sequence[jax.Array], freq_F: np.ndarray, axis_F: np.ndarray) -> jax.Array:
    """Angles [B, T, 1, F]: pair f turns by position axis_F[f]; each position is [B, T]."""
    rows_A = [np.flatnonzero(axis_F == a) for a in range(len(pos_A))]
    found = [angles(p, freq_F[rows_F][None]) for p, rows_F in zip(pos_A, rows_A, strict=True)]
    return jnp.concatenate(found, axis=-1)[..., np.argsort(np.concatenate(rows_A))]


def _axial_scores(o, params, q, k, pos, n):
    theta = powers(o.base, q.shape[-1] // 2)
    angle_QKHF = np.concatenate([offsets(pos[:, axis]) * theta for axis in (0, 1)], axis=-1)
    return turned_scores(q, k, angle_QKHF, o.pairing)


def _check_quarters(head: int, name: str) -> None:
    if head < 4 or head % 4:
        raise ValueError(f"head: {head} channels; {name} needs a width that 4 divides")


@method(
    kind="rotary",
    formula="as rope: the first C/4 pairs turn by the row, the others by the column, base^(-4k/C)",
    paper="Heo et al. 2024, arXiv 2403.13298",
    relative=True,
    axes=2,
    scores=_axial_scores,
    reference="timm, transformers",
)
def axial(base: float = 100.0, pairing: Pairing = "half") -> Encoding:
    """Two-dimensional rotary: half of the pairs turn by the row, half by the column.

    Positions are [B, T, 2], (row, column). The paper's formula alternates the two; its code, as
    here, puts one after the other. Base 100 as there, for images of dozens of patches a side.

    Raises:
      ValueError: base not positive, an unknown pairing; later, a width of a head that 4 does not
        divide, positions of another shape.
    """
    check_positive(base=base)

    def frequencies(head):
        _check_quarters(head, "axial")
        return np.tile(ladder(head // 2, base), 2)

    def table(params, pos_BTA, dims):
        pos_A = split_axes("axial", pos_BTA, TIMED[1:])
        axis_F = np.arange(dims.head // 2) // (dims.head // 4)
        return turns(angles_by_axis(pos_A, frequencies(dims.head), axis_F))

    return rotary(frequencies, pairing, table)


def crossed(key: jax.Array, heads: int, head: int, base: float, name: str) -> jax.Array:
    """Frequencies [2, H, F] by row and by column, as `mixed` begins: a random cross for each head.

    Pairs k and C/4 + k of a head turn along two directions at a right angle, at base^(-4k/C).
    ValueError: a head width that 4 does not divide; `name` is the method that needs it.
    """
    _check_quarters(head, name)
    tilt_H1 = jax.random.uniform(key, (heads, 1), float, 0, 2 * np.pi)
    size_1K = jnp.asarray(ladder(head // 2, base)[None], float)
    along = lambda wave: jnp.concatenate(
        [size_1K * wave(tilt_H1), size_1K * wave(tilt_H1 + np.pi / 2)], axis=-1
    )
    return jnp.stack([along(jnp.sin), along(jnp.cos)])


def _mixed_scores(o, params, q, k, pos, n):
    row_HF, column_HF = np.asarray(params["freq_AHF"], np.float64)
    angle_QKHF = offsets(pos[:, 0]) * row_HF + offsets(pos[:, 1]) * column_HF
    return turned_scores(q, k, angle_QKHF, o.pairing)


@method(
    kind="rotary",
    formula="each pair turns by row f + column g, its f and g learned for each head and layer",
    paper="Heo et al. 2024 (RoPE-Mixed), arXiv 2403.13298",
    relative=True,
    axes=2,
    scores=_mixed_scores,
    reference="timm",
)
def mixed(base: float = 10.0, pairing: Pairing = "half") -> Encoding:
    """Two-dimensional rotary with learned frequencies, so that pairs can turn along diagonals.

    Positions are [B, T, 2], (row, column). Parameters freq_AHF [2, H, F] of each layer, in radians
    a row and a column, begin as in the authors' code: sizes base^(-4k/C), base 10, along two
    directions at a right angle, which a random angle tilts for each head.

    Raises:
      ValueError: base not positive, an unknown pairing; later, a width of a head that 4 does not
        divide, positions of another shape.
    """
    check_positive(base=base)

    def init(key, dims):
        return {"freq_AHF": crossed(key, dims.heads, dims.head, base, "mixed")}

    def table(params, pos_BTA, dims):
        pairs = zip(split_axes("mixed", pos_BTA, TIMED[1:]), params["freq_AHF"], strict=True)
        row, column = (angles(pos_BT, freq_HF.astype(float)) for pos_BT, freq_HF in pairs)
        return turns(row + column)

    return each_layer(rotary(lambda head: ladder(head, base), pairing, table, init=init))


def pair_axes(pairs: int, sections: tuple[int, ...], order: Order) -> np.ndarray:
    """Which of (time, height, width) each pair of a head turns by: 0, 1 or 2, int [F].

    Sections left empty follow Qwen2-VL, 1/4, 3/8, 3/8, or interleaved Qwen3-VL, 3/8, 5/16, 5/16.

    ValueError: sections that are not the head's pairs, or too uneven to interleave.
    """
    if not sections and order == "sections":
        time = max(pairs // 4, 1)
        sections = time, (pairs - time + 1) // 2, (pairs - time) // 2
    elif not sections:
        space = 5 * pairs // 16
        sections = pairs - 2 * space, space, space
    if sum(sections) != pairs:
        raise ValueError(
            f"encoding.sections: {sections} sum to {sum(sections)}; a head of {2 * pairs} has "
            f"{pairs} pairs"
        )
    axis_F = np.repeat(np.arange(3), sections)
    if order == "interleaved":
        axis_F = np.zeros(pairs, int)
        for axis in (1, 2):
            axis_F[axis : 3 * sections[axis] : 3] = axis
        if tuple(np.bincount(axis_F, minlength=3)) != tuple(sections):
            raise ValueError(
                f"encoding.sections: {sections} do not interleave; time must be widest"
            )
    return axis_F


def _axis_of_pair(o, pairs):
    """Definition: the axis of each pair, one at a time; a third are dealt out where interleaved."""
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
    """M-RoPE of what is placed: three positions [B, T]."""
    check_positive(base=base)
    if order not in ("sections", "interleaved"):
        raise ValueError(f"encoding.order: {order!r} is not one of: 'sections', 'interleaved'")
    if sections and (len(sections) != 3 or any(type(n) is not int or n < 0 for n in sections)):
        raise ValueError(
            f"encoding.sections: {sections!r} is not three whole numbers: pairs for time, height "
            "and width"
        )

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
    relative=True,
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

    Positions are [B, T, 3], (time, row, column); text has three equal numbers, and is rope to the
    bit. Frequencies are rope's, from one section on to the next.

    Args:
      base: as in rope; a million in Qwen2-VL.
      pairing: as in rope; Qwen has "half".
      sections: pairs for each axis, C/2 in all; () for the share that Qwen2-VL has, 16:24:24, or
        with order="interleaved" that of Qwen3-VL, 24:20:20.
      order: "interleaved" deals pairs out in turn, time, height, width, until an axis has its own
        (Qwen3-VL), so that each axis has fast and slow pairs.

    Raises:
      ValueError: base not positive, an unknown pairing or order, sections that are not three
        numbers; later, an odd width of a head, sections that are not its pairs or do not
        interleave, positions of another shape.
    """

    def place(key, layout):
        return tuple(split_axes("mrope", layout.pos_BT, TIMED))

    return _multimodal(base, pairing, sections, order, place=place)


@method(
    kind="rotary",
    formula="mrope with time in seconds: its id is floor(rate seconds), 40 ms each at rate 25",
    paper="Xu et al. 2025 (Qwen2.5-Omni), arXiv 2503.20215",
    relative=True,
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
    """TMRoPE: M-RoPE whose time ids are absolute, so that sound and picture of a moment agree.

    Positions are [B, T, 3], (seconds, row, column), and a moment's id is how many whole units of
    1/rate seconds have passed. `streams.positions` makes them for text, images, sound and video.
    With ids at hand, `mrope` is the same method.

    Args:
      base, pairing, sections, order: as in `mrope`.
      rate: time ids in a second; the paper's unit is 40 ms.

    Raises:
      ValueError: as `mrope`, and a rate that is not positive.
    """
    check_positive(rate=rate)

    def place(key, layout):
        seconds_BT, *space = split_axes("tmrope", layout.pos_BT, TIMED)
        whole_BT = jnp.floor(seconds_BT).astype(jnp.int32)
        part_BT = seconds_BT.astype(float) - whole_BT.astype(float)
        # Whole seconds in integers: an id past 2^24 is no float32.
        return whole_BT * rate + jnp.floor(part_BT * rate + EARLY).astype(jnp.int32), *space

    return _multimodal(base, pairing, sections, order, place=place)
