"""Positions augmented in training: a random shift, shifts and a scale, or a jump.

All tokens of a sequence share their draw; packed documents have draws of their own, and padding on
either side changes none.

Abacus, coupling and BiPE place a token by its group in the layout, which the task, or
`layout.digit_places` and `layout.unit_places`, make; a token of no group has position 0. Parts to
the left of these read the layout's positions: `fire` in `make("fire+abacus+learned")`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import (
    Count,
    Factor,
    NotNegative,
    Range,
    Whole,
    register,
    require,
    with_axes,
)
from posenc_jax.encodings.positions import Per
from posenc_jax.layout import Layout, contiguous, order_of, over_sequence, rising


def sequence_keys(key: jax.Array, layout: Layout, per_row: bool = True) -> jax.Array:
    """A random key for each token, [B, T], the same in a sequence; rows share keys unless
    `per_row`.
    """
    row_B = jnp.arange(len(layout.segment_BT), dtype=jnp.int32)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    key_B = fold(key, row_B if per_row else 0 * row_B)
    return jax.vmap(fold)(key_B, layout.segment_BT)


def per_token(draw: Callable, key_BT: jax.Array, *args_BT: jax.Array) -> jax.Array:
    """Calls draw(key, *args) for each token."""
    return jax.vmap(jax.vmap(draw))(key_BT, *args_BT)


@register(
    kind="positions",
    formula="t -> t + k, in training with one k for each sequence, uniform over 0 .. shift",
    paper="Kiyono et al. 2021, arXiv 2109.05644",
    moves=lambda o, n, span, training: Range(
        span.low + (0 if training else o.still), span.below + (o.shift if training else o.still)
    ),
)
def shifted(shift: Whole = 500, still: Whole = 0) -> Encoding:
    """SHAPE: absolute positions moved by one random offset for each training sequence.

    A table to its right needs `shift` rows more than the longest training sequence has tokens.

    Args:
      shift: the largest offset, itself included; the public code draws from 0 .. shift - 1.
      still: the offset in evaluation; `shift` in the public code.
    """

    def place(key, layout):
        pos_BT = with_axes(layout.pos_BT)
        if key is None:
            return pos_BT + still
        draw = lambda k: jax.random.randint(k, (), 0, shift + 1, jnp.int32)
        return pos_BT + per_token(draw, sequence_keys(key, layout)).astype(pos_BT.dtype)

    return Encoding(place=place)


def _cape_moves(o, n, span, training):
    """`Card.moves` of `cape`."""
    low, below = (end - (n - 1) / 2 if o.normalize else end for end in span)
    if not training:
        return Range(low, below)
    low, below = low - o.shift - o.jitter, below + o.shift + o.jitter
    return Range(min(low * o.scale, low / o.scale), max(below * o.scale, below / o.scale))


@register(
    kind="positions",
    formula="t -> s (t - (n - 1)/2 + k + e_t), in training |k| <= shift, |e_t| <= jitter, "
    "|ln s| <= ln scale",
    paper="Likhomanenko et al. 2021, arXiv 2106.03143",
    moves=_cape_moves,
)
def cape(
    shift: NotNegative = 5.0,
    jitter: NotNegative = 0.5,
    scale: Factor = 1.03,
    normalize: bool = True,
) -> Encoding:
    """CAPE: positions from the sequence's middle, in training shifted, jittered and stretched.

    All draws are uniform: k and ln s for each sequence, e_t for each token. In the paper sinusoidal
    codes read these positions. The defaults are its settings for text; those for speech and images
    differ.

    Args:
      shift: the largest shift of a sequence, in tokens.
      jitter: the largest shift of a token, in tokens; up to 0.5 it keeps the order.
      scale: the largest factor; the smallest is 1 / scale.
      normalize: positions count from the middle of the sequence. False: from its start, which
        decoding needs if the length is not known in advance, as in the paper's translation.
    """

    def place(key, layout):
        pos_BT = with_axes(layout.pos_BT).astype(float)
        if normalize:
            pos_BT = pos_BT - (layout.length_BT - 1).astype(float) / 2
        if key is None:
            return pos_BT
        uniform = lambda k: jax.random.uniform(k, (), float, -1.0, 1.0)
        keys = [sequence_keys(k, layout) for k in jax.random.split(key, 3)]
        token_keys = per_token(jax.random.fold_in, keys[2], layout.pos_BT.astype(jnp.int32))
        moved_BT = (
            pos_BT + shift * per_token(uniform, keys[0]) + jitter * per_token(uniform, token_keys)
        )
        return jnp.exp(np.log(scale) * per_token(uniform, keys[1])) * moved_BT

    return Encoding(place=place)


@register(
    kind="positions",
    formula="t -> t, in training t + k for t >= m, m uniform over 1 .. (n + 1) // 2 and k over "
    "0 .. limit - n",
    paper="Zhu et al. 2023, arXiv 2309.10400",
    moves=lambda o, n, span, training: Range(
        span.low, span.below + (max(o.limit - n, 0) if training else 0)
    ),
)
def pose(limit: Count = 8192) -> Encoding:
    """PoSE: a jump in the positions of each training sequence, so that far distances are trained.

    A model fine-tuned on n tokens meets all distances below `limit`. The first part keeps its
    positions, and the second is moved by k; m and k are drawn for each sequence. Two parts and
    these ranges are those of the public code, which also takes the two parts of the text from
    places that are apart.

    Args:
      limit: positions are below this in training.
    """

    def place(key, layout):
        pos_BT, n_BT = with_axes(layout.pos_BT), layout.length_BT
        if key is None:
            return pos_BT
        first_key, jump_key = (sequence_keys(k, layout) for k in jax.random.split(key))
        draw = lambda k, low, most: jax.random.randint(k, (), low, most + 1, jnp.int32)
        first_BT = per_token(draw, first_key, jnp.ones_like(n_BT), (n_BT + 1) // 2)
        jump_BT = per_token(draw, jump_key, jnp.zeros_like(n_BT), jnp.maximum(limit - n_BT, 0))
        return pos_BT + jnp.where(pos_BT >= first_BT, jump_BT, 0).astype(pos_BT.dtype)

    return Encoding(place=place)


def by_group(layout: Layout, key, room_BT, limit: int, per_row: bool = True) -> jax.Array:
    """Positions by group [B, T]: g + k, or 0 for tokens of no group; NaN from `limit` on.

    k is 0 in evaluation; with a key, uniform over 0 .. room - 1, one for each sequence.
    """
    offset_BT = jnp.zeros_like(layout.group_BT)
    if key is not None:
        draw = lambda k, room: jax.random.randint(k, (), 0, room, jnp.int32)
        offset_BT = per_token(draw, sequence_keys(key, layout, per_row), room_BT)
    shown_BT = jnp.where(layout.group_BT > 0, layout.group_BT + offset_BT, 0)
    return jnp.where(shown_BT < limit, shown_BT.astype(float), jnp.nan)


# Fields of the card of a method that reads groups.
GROUPED: dict[str, Any] = {
    "beyond": "error",
    "moves": lambda o, n, span, training: Range(0, o.limit),
}


@register(
    kind="positions",
    formula="a digit -> its place in its number from 1, in training + k, uniform over 0 .. offset; "
    "another token -> 0",
    paper="McLeish et al. 2024, arXiv 2405.17399",
    groups="place",
    **GROUPED,
)
def abacus(offset: int = 99, limit: Count = 512, per: Per = "example") -> Encoding:
    """Abacus: digits at the same place of their numbers have the same position.

    Places count in the order of writing; the paper writes the least significant digit first.

    Args:
      offset: the largest k. Numbers of up to `offset` digits more than in training then have
        positions that were trained.
      limit: positions are below this, the rows of the paper's table; NaN from there on.
      per: "example": each sequence draws its k; "batch": one k for all, as in the public code.

    FieldError: offset is not below limit.
    """
    require(0 <= offset < limit, "offset", offset, f"must be 0 or more and below limit, {limit}")

    def place(key, layout):
        room_BT = jnp.full_like(layout.group_BT, offset + 1)
        return by_group(layout, key, room_BT, limit, per == "example")

    return Encoding(place=place)


@register(
    kind="positions",
    formula="a token of group g -> g, in training + k, uniform over what keeps all below limit; "
    "of no group -> 0",
    paper="Cho et al. 2024, arXiv 2405.20671",
    groups="significance",
    **GROUPED,
)
def coupled(limit: Count = 512) -> Encoding:
    """Position coupling: tokens with the same role in the task have the same position.

    For addition these are the digits of the same significance in all numbers. Each training
    sequence starts at a random position, such that its largest is below `limit`.

    Args:
      limit: positions are below this, the public code's `max_position` + 1; NaN from there on.
    """

    def place(key, layout):
        largest_BT = over_sequence(jax.ops.segment_max, layout.group_BT, layout.segment_BT)
        return by_group(layout, key, jnp.maximum(limit - largest_BT, 1), limit)

    return Encoding(place=place)


# Fields of the cards of BiPE's two parts.
UNITS: dict[str, Any] = {
    "paper": "He et al. 2024 (BiPE), arXiv 2401.16421",
    "groups": "unit",
    "moves": lambda o, n, span, training: Range(0, n),
}


@register(kind="positions", formula="t -> t's place in its unit, from 0", **UNITS)
def bipe_inner() -> Encoding:
    """BiPE's place of a token inside its unit, a sentence or a line, for a method at the input.

    BiPE-RoPE is the chain "bipe_inner+learned+bipe_outer+rope", with length=1024 and
    beyond="clamp" in the authors' code, and BiPE-ALiBi has `alibi` in place of `rope`; there that
    code multiplies the slopes by 96. The groups are those of `layout.unit_places`.
    """
    return Encoding(place=lambda key, at: jnp.maximum(at.group_BT - 1, 0))


@register(
    kind="positions",
    formula="t -> number of units that begin after the first token, up to t",
    **UNITS,
)
def bipe_outer() -> Encoding:
    """BiPE's number of a token's unit, for a relative method; see `bipe_inner`."""

    def place(key, layout):
        segment_BT = layout.segment_BT
        stored = rising(segment_BT, layout.index_BT) & contiguous(segment_BT)
        order = order_of(stored, segment_BT, layout.index_BT)
        begins_BT = (segment_BT > 0) & (layout.group_BT == 1)
        count_BT = jnp.cumsum(order.arranged(begins_BT), axis=1, dtype=jnp.int32)
        count_BT = order.restored(count_BT)
        return count_BT - over_sequence(jax.ops.segment_min, count_BT, layout.segment_BT)

    return Encoding(place=place)
