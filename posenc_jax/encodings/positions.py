"""Methods that change the positions which the parts to their right in a chain read.

All read positions of one axis and the length n of the token's sequence. In evaluation they read
nothing else, so that padding on either side, packed documents and cached decoding change nothing.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Count, Range, register, with_axes
from posenc_jax.layout import over_sequence, sequences, take_columns

Evaluate = Literal["spread", "random", "plain"]
Per = Literal["example", "batch"]


def documents(pos_BT: jax.Array, length_BT: jax.Array, segment_BT: jax.Array) -> jax.Array:
    """The number of each token's document in its row, 0 for the last; -1 for padding of two or more
    tokens.

    Documents that have their position 0 are counted from the right, so that queries have the same
    numbers with and without a memory of earlier keys before them.
    """
    column_BT = jax.lax.broadcasted_iota(jnp.int32, segment_BT.shape, 1)
    first_BT = sequences(segment_BT).first_BT
    is_document_BT = (segment_BT > 0) | (length_BT == 1)
    begins_BT = over_sequence(jax.ops.segment_min, pos_BT, segment_BT) == 0
    begins_BT &= is_document_BT & (column_BT == first_BT)
    from_here_BT = jnp.cumsum(begins_BT[:, ::-1], axis=1, dtype=jnp.int32)[:, ::-1]
    later_BT = take_columns(from_here_BT - begins_BT.astype(jnp.int32), first_BT)
    return jnp.where(is_document_BT, later_BT, -1)


def drawn(key, group_BT, pos_BT, length_BT, limit: int, per_row=True, room_BT=None) -> jax.Array:
    """The positions of tokens: for token p of n, the p-th of n sorted draws from range(limit),
    without replacement.

    Tokens of a row with the same group share a draw and must have the same length and room; rows
    share draws unless `per_row`. A draw takes the n smallest of `limit` random numbers, or of the
    first `room` of them, which is exactly uniform over subsets except for ties, one in 2^32. Time
    and memory: [B, limit] for each group.
    """
    rows = len(group_BT) if per_row else 1
    rank = jax.vmap(partial(jnp.searchsorted, side="right"))

    def draw(state):
        group, shown_BT = state
        mine_BT = group_BT == group
        n_B1 = jnp.max(jnp.where(mine_BT, length_BT, 1), axis=1, keepdims=True)
        bits_RL = jax.random.bits(jax.random.fold_in(key, group), (rows, limit), jnp.uint32)
        if room_BT is not None:
            room_B1 = jnp.max(jnp.where(mine_BT, room_BT, 0), axis=1, keepdims=True)
            held_BL = jnp.arange(limit, dtype=jnp.int32)[None] < room_B1
            bits_RL = jnp.where(held_BL, bits_RL, ~jnp.uint32(0))
        nth_B1 = jnp.take_along_axis(jnp.sort(bits_RL, axis=1), n_B1 - 1, axis=1)
        count_BL = jnp.cumsum(bits_RL <= nth_B1, axis=1, dtype=jnp.int32)
        draw_BT = rank(count_BL, pos_BT).astype(jnp.int32)
        next_group = jnp.max(jnp.where(group_BT < group, group_BT, -1))
        return next_group, jnp.where(mine_BT, draw_BT, shown_BT)

    start = jnp.max(group_BT), jnp.zeros_like(pos_BT)
    return jax.lax.while_loop(lambda state: state[0] >= 0, draw, start)[1]


def spread(pos_BT: jax.Array, length_BT: jax.Array, limit: int) -> jax.Array:
    """(p + 1)(limit + 1) // (n + 1) - 1, computed within 32 bits."""
    rank_BT, among_BT = (pos_BT + 1).astype(jnp.uint32), (length_BT + 1).astype(jnp.uint32)
    whole_BT, remainder_BT = jnp.uint32(limit + 1) // among_BT, jnp.uint32(limit + 1) % among_BT
    return (rank_BT * whole_BT + rank_BT * remainder_BT // among_BT).astype(jnp.int32) - 1


@register(
    kind="positions",
    formula="p -> the p-th of n sorted draws from 0 .. limit - 1, without replacement",
    paper="Ruoss et al. 2023, arXiv 2305.16843",
    beyond="error",
    reads=lambda o, n: Range(0, min(n, o.limit)),
    moves=lambda o, n, span, training: Range(
        0, n if o.evaluate == "plain" and not training else o.limit
    ),
)
def randomized(
    limit: Count = 2048, evaluate: Evaluate = "spread", per: Per = "example", seed: int = 0
) -> Encoding:
    """Random sorted positions from a range longer than any sequence, drawn again at every step.

    In training each document of each example has its own draw. A sequence of more than `limit`
    tokens gets NaN, and so does a position outside of its sequence; padding, of any size, gets 0.

    Args:
      limit: positions are below this.
      evaluate: the positions in evaluation. "spread": the mean draw, rounded down,
        (p + 1)(limit + 1) // (n + 1) - 1, which is exact up to 65,534 tokens; "random": one draw
        for each length, fixed by `seed`; "plain": the token's own position. The public code draws
        again for each batch in evaluation; "random" is nearest to it.
      per: "example": each row draws for itself; "batch": rows share draws, as in the public code.
      seed: of evaluate="random".
    """

    def place(key, layout):
        token_BT, length_BT = with_axes(layout.pos_BT).astype(jnp.int32), layout.length_BT
        if key is not None:
            group_BT = documents(token_BT, length_BT, layout.segment_BT)
            shown_BT = drawn(key, group_BT, token_BT, length_BT, limit, per == "example")
        elif evaluate == "random":
            # One draw for each length, the same for all sequences of that length.
            token_1M, length_1M = token_BT.reshape(1, -1), length_BT.reshape(1, -1)
            shown_1M = drawn(jax.random.key(seed), length_1M, token_1M, length_1M, limit, False)
            shown_BT = shown_1M.reshape(token_BT.shape)
        else:
            shown_BT = token_BT if evaluate == "plain" else spread(token_BT, length_BT, limit)
        inside_BT = (token_BT >= 0) & (token_BT < length_BT)
        held_BT = inside_BT & (length_BT <= limit)
        held_BT = jnp.where(held_BT, shown_BT.astype(float), jnp.nan)
        return jnp.where(layout.segment_BT > 0, held_BT, 0.0)

    return Encoding(place=place)


@register(
    kind="positions",
    formula="t -> t length / n where n > length, else t",
    paper="Chen et al. 2023, arXiv 2306.15595",
    beyond="interpolate",
    moves=lambda o, n, span, training: (
        Range(*(end * o.length / n for end in span)) if n > o.length else span
    ),
)
def interpolated(length: Count = 512) -> Encoding:
    """Position interpolation: sequences longer than `length` are squeezed into it.

    In the paper all sequences have one factor, that of the extended context. Here each sequence has
    its own, which is 1 up to `length` tokens.

    Args:
      length: tokens that are not squeezed, those of the longest sequence in training.
    """

    def place(key, layout):
        pos_BT, n_BT = with_axes(layout.pos_BT).astype(float), layout.length_BT.astype(float)
        return jnp.where(n_BT > length, pos_BT * length / n_BT, pos_BT)

    return Encoding(place=place)


@register(
    kind="positions",
    formula="t -> min(t, length - 1)",
    paper="textbook",
    beyond="clamp",
    moves=lambda o, n, span, training: Range(
        min(span.low, o.length - 1), min(span.below, o.length)
    ),
)
def clamped(length: Count = 512) -> Encoding:
    """Positions past the range are replaced by its last, length - 1.

    Args:
      length: positions that stay as they are, 0 to length - 1.
    """
    return Encoding(place=lambda key, at: jnp.minimum(with_axes(at.pos_BT), length - 1))
