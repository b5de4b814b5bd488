"""Rotary methods for images and video: positions have two or three axes, [B, T, 2] or [B, T, 3].

Positions of another shape are refused with a FieldError, and a width of a head that 4 does not
divide (two axes), or that is odd (three).
"""

from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Count, Positive, register, require, three, with_axes
from posenc_jax.encodings.rotation import Pairing, Turn, angles, ladder, rotary, turns
from posenc_jax.options import FieldError

Order = Literal["sections", "interleaved"]
Bands = Literal["same", "alternate"]
# Fraction of an id that is added before rounding down: 0.12 seconds are id 3 at 40 ms each, though
# the float32 nearest to 0.12 is a little less.
EARLY = 1e-3


def split_axes(pos_BTA: jax.Array, axes: int) -> list[jax.Array]:
    """Splits positions [B, T, axes] into one [B, T] for each axis. FieldError: another shape."""
    return [with_axes(pos_BTA, axes)[..., a] for a in range(axes)]


def angles_by_axis(pos_A: Sequence[jax.Array], freq_F: np.ndarray, axis_F: np.ndarray) -> jax.Array:
    """Angles [B, T, 1, F]: pair f turns by the positions pos_A[axis_F[f]], [B, T]."""
    rows_A = [np.flatnonzero(axis_F == a) for a in range(len(pos_A))]
    angles_A = [angles(pos_A[a], freq_F[rows_F][None]) for a, rows_F in enumerate(rows_A)]
    return jnp.concatenate(angles_A, axis=-1)[..., np.argsort(np.concatenate(rows_A))]


def turns_by_axis(pos_A: Sequence[jax.Array], freq_F: np.ndarray, axis_F: np.ndarray) -> Turn:
    """Cosines and sines of `angles_by_axis`."""
    return turns(angles_by_axis(pos_A, freq_F, axis_F))


def axis_of_halves(pairs: int) -> np.ndarray:
    """The axis by which each pair turns, the row (0) for the first half, the column (1): [F]."""
    return np.repeat((0, 1), pairs // 2)


def turns_2d(pos_BTA: jax.Array, freq_AHF: jax.Array) -> Turn:
    """Cosines and sines of the angles row * frequency + column * frequency, [B, T, H, F]."""
    pairs = zip(split_axes(pos_BTA, 2), freq_AHF, strict=True)
    row, column = (angles(pos_BT, freq_HF.astype(float)) for pos_BT, freq_HF in pairs)
    return turns(row + column)


def check_quarters(head: int) -> None:
    """Raises a FieldError if 4 does not divide the width of a head."""
    if head < 4 or head % 4:
        raise FieldError("head", f"{head} channels; two axes of pairs need a width that 4 divides")


@register(
    kind="rotary",
    formula="as rope: the first C/4 pairs turn by the row, the others by the column, base^(-4k/C)",
    paper="Heo et al. 2024, arXiv 2403.13298",
    axes=2,
)
def axial(base: Positive = 100.0, pairing: Pairing = "half", bands: Bands = "same") -> Encoding:
    """Two-dimensional rotary: half of the pairs turn by the row, half by the column.

    Positions are [B, T, 2], (row, column), and all pairs of the row come first. The paper's formula
    alternates rows and columns; its code has all pairs of the column first, so its weights read
    positions (column, row). Base 100 is that of the code, for images of dozens of patches a side.

    Args:
      bands: "same": rows and columns have the same frequencies; "alternate": of the frequencies
        base^(-2k/C) of rope, rows have those of even k and columns those of odd k, as in Pixtral.
    """

    def frequencies(head):
        check_quarters(head)
        freq_F = ladder(head, base)
        return np.concatenate([freq_F[::2], freq_F[0 if bands == "same" else 1 :: 2]])

    def table(params, pos_BTA, dims):
        freq_F = frequencies(dims.head)
        return turns_by_axis(split_axes(pos_BTA, 2), freq_F, axis_of_halves(len(freq_F)))

    return rotary(pairing, table, frequencies)


def crossed(key: jax.Array, heads: int, head: int, base: float) -> jax.Array:
    """Initial frequencies of `mixed`, [2, H, F] by row and by column: a random cross for each head.

    Pairs k and C/4 + k of a head turn along two directions at a right angle, at base^(-4k/C).
    FieldError: 4 does not divide the width of the head.
    """
    check_quarters(head)
    tilt_H1 = jax.random.uniform(key, (heads, 1), float, 0, 2 * np.pi)
    size_1K = jnp.asarray(ladder(head // 2, base)[None], float)
    tilts = tilt_H1, tilt_H1 + np.pi / 2
    along = lambda wave: jnp.concatenate([size_1K * wave(tilt) for tilt in tilts], axis=-1)
    return jnp.stack([along(jnp.sin), along(jnp.cos)])


@register(
    kind="rotary",
    formula="each pair turns by row f + column g, its f and g learned for each head and layer",
    paper="Heo et al. 2024 (RoPE-Mixed), arXiv 2403.13298",
    axes=2,
)
def mixed(base: Positive = 10.0, pairing: Pairing = "half") -> Encoding:
    """Two-dimensional rotary with learned frequencies, so that pairs can turn along diagonals.

    Positions are [B, T, 2], (row, column). Each layer has parameters freq_AHF [2, H, F], in radians
    per row and per column. They start as in the authors' code: of size base^(-4k/C) with base 10,
    along two directions at a right angle, which are turned by a random angle for each head.
    """
    init = lambda key, dims: {"freq_AHF": crossed(key, dims.heads, dims.head, base)}
    table = lambda params, pos_BTA, dims: turns_2d(pos_BTA, params["freq_AHF"])
    return each_layer(rotary(pairing, table, init=init))


def shares(count: int) -> tuple[int, int, int]:
    """Splits `count` pairs or heads into those for time, height and width: about 1/4, 3/8 and
    3/8.
    """
    time = max(count // 4, 1)
    return time, (count - time + 1) // 2, (count - time) // 2


def pair_axes(pairs: int, sections: tuple[int, ...], order: Order) -> np.ndarray:
    """The axis by which each pair of a head turns, 0 for time, 1 for height, 2 for width, int [F].

    Without sections: those of Qwen2-VL, 1/4, 3/8, 3/8; interleaved, of Qwen3-VL, 3/8, 5/16, 5/16.

    FieldError: sections that do not sum to the head's pairs, or too uneven to interleave.
    """
    if not sections and order == "sections":
        sections = shares(pairs)
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


@register(
    kind="rotary",
    formula="as rope, pair k turning by time, height or width as its section says",
    paper="Wang et al. 2024 (Qwen2-VL), arXiv 2409.12191",
    axes=3,
)
def mrope(
    base: Positive = 1_000_000.0,
    pairing: Pairing = "half",
    sections: tuple[int, ...] = (),
    order: Order = "sections",
) -> Encoding:
    """M-RoPE: sections of a head's pairs turn by time, by height and by width.

    Positions are [B, T, 3], (time, row, column). Text has three equal numbers, for which this is
    rope to the bit. Frequencies are those of rope, and go on from one section to the next.

    Args:
      base, pairing: as in `rope`; a million and "half" in Qwen2-VL.
      sections: pairs for each axis, C/2 in all; () for the shares of Qwen2-VL, 16:24:24, or with
        order="interleaved" those of Qwen3-VL, 24:20:20.
      order: "sections", or "interleaved" (Qwen3-VL): pairs go to time, height and width in turn
        until an axis has all of its own, so that each axis has fast and slow pairs.

    FieldError: sections that are not three numbers; later, sections that are not the head's pairs
    or do not interleave.
    """
    three("sections", sections, unit="pairs")
    return pairs_by_axis(lambda pairs: pair_axes(pairs, sections, order), base, pairing)


def pairs_by_axis(axis_fn: Callable[[int], np.ndarray], base: float, pairing: Pairing) -> Encoding:
    """`rope` whose pairs turn by time, height or width: axis_fn(number of pairs) -> 0 to 2, [F]."""

    def frequencies(head):
        freq_F = ladder(head, base)
        axis_fn(len(freq_F))
        return freq_F

    def table(params, placed, dims):
        return turns_by_axis(placed, ladder(dims.head, base), axis_fn(dims.head // 2))

    return rotary(pairing, table, frequencies, place=split_three)


def split_three(key, layout) -> tuple[jax.Array, ...]:
    """`place` of methods that read (time, row, column): one [B, T] for each."""
    return tuple(split_axes(layout.pos_BT, 3))


@register(
    kind="rotary",
    formula="mrope with time in seconds: its id is floor(rate seconds), 40 ms each at rate 25",
    paper="Xu et al. 2025 (Qwen2.5-Omni), arXiv 2503.20215",
    axes=3,
)
def tmrope(
    base: Positive = 1_000_000.0,
    pairing: Pairing = "half",
    sections: tuple[int, ...] = (),
    order: Order = "sections",
    rate: Count = 25,
) -> Encoding:
    """TMRoPE: M-RoPE with time in seconds, so that sound and picture of a moment agree.

    Positions are [B, T, 3], (seconds, row, column). The id of a moment is the number of whole units
    of 1/rate seconds before it. `multimodal_ids.positions` makes such positions for text, images,
    sound and video. If ids are given instead of seconds, `mrope` is the same method.

    Args:
      base, pairing, sections, order: as in `mrope`.
      rate: time ids per second; the paper's unit is 40 ms.

    FieldError: as `mrope`.
    """

    def place(key, layout):
        seconds_BT, *space = split_axes(layout.pos_BT, 3)
        whole_BT = jnp.floor(seconds_BT).astype(jnp.int32)
        part_BT = seconds_BT.astype(float) - whole_BT.astype(float)
        # Whole seconds in integers: float32 does not hold all ids past 2^24.
        return whole_BT * rate + jnp.floor(part_BT * rate + EARLY).astype(jnp.int32), *space

    return mrope(base, pairing, sections, order)._replace(place=place)


@register(
    kind="rotary",
    formula="as rope, pair k of the R_a pairs of axis a turning by base_a^(-k/R_a)",
    paper="released code of Flux, HunyuanVideo, Wan and CogVideoX; alternating: Liu et al. 2025 "
    "(VRoPE), arXiv 2502.11664",
    axes=3,
)
def nd_rope(
    sections: tuple[int, ...] = (),
    bases: tuple[float, ...] = (10_000.0,),
    order: Literal["sections", "alternate"] = "sections",
    ladders: Literal["axis", "head"] = "axis",
    pairing: Pairing = "interleaved",
) -> Encoding:
    """Rotary over any number of axes, each with channels and frequencies of its own.

    Positions are [B, T, A], (time, row, column) where A is 3. Axes may be the channels of a model
    of pictures or video, as in Flux with sections (8, 28, 28), or the distances from the corners of
    a frame, `multimodal_ids.corner_ids`, as in VRoPE with order="alternate", ladders="head". Other
    numbers of axes and of pairs than those of `axial` and `mrope` are possible.

    Args:
      sections: pairs of each axis; those left over do not turn. () for all, as in Wan: the axes
        after the first have equal numbers, and the first has the rest.
      bases: of each axis, or one for all.
      order: "sections": the first pairs are those of the first axis; "alternate": pair k is that of
        axis k mod A, for which sections are ().
      ladders: "axis": each axis has all frequencies from 1 to nearly 1/base; "head": the
        frequencies of rope, of which each axis has those of its pairs.
      pairing: as in `rope`; "half" in Cosmos.

    FieldError: bases that are not positive, or not as many as axes; sections with
    order="alternate", or negative ones; later, sections of more pairs than a head has, or of
    another number than the positions' axes.
    """
    require(all(base > 0 for base in bases), "bases", bases, "must be positive")
    alone = not sections or order == "sections"
    require(alone, "sections", sections, "are for order 'sections'; leave them out")
    require(all(pairs >= 0 for pairs in sections), "sections", sections, "must be 0 or more")

    def axis_of_pairs(pairs, axes):
        require(len(bases) in (1, axes), "bases", bases, f"are not one for each of {axes} axes")
        if order == "alternate":
            return np.arange(pairs) % axes
        each = pairs // axes
        number_A = sections or (pairs - (axes - 1) * each, *[each] * (axes - 1))
        return np.repeat(np.arange(axes), number_A)

    def frequencies(axis_F, pairs):
        base_F = np.array(bases)[axis_F if len(bases) > 1 else 0 * axis_F]
        if ladders == "head":
            return base_F ** (-np.arange(len(axis_F)) / pairs)
        same_FF = axis_F[:, None] == axis_F
        return base_F ** (-np.tril(same_FF, -1).sum(axis=1) / same_FF.sum(axis=1))

    def turning_pairs(head):
        pairs = len(ladder(head, 1.0))
        few = sum(sections) <= pairs
        require(few, "sections", sections, f"sum to {sum(sections)}; a head has {pairs} pairs")
        return np.ones(sum(sections) or pairs)

    def table(params, pos_BTA, dims):
        axes = len(sections) or pos_BTA.shape[-1]
        pos_A, pairs = split_axes(pos_BTA, axes), dims.head // 2
        axis_F = axis_of_pairs(pairs, axes)
        return turns_by_axis(pos_A, frequencies(axis_F, pairs), axis_F)

    return rotary(pairing, table, turning_pairs)
