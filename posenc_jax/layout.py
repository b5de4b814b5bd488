"""Where each token stands: its position, its sequence, and its place in storage.

Positions are explicit everywhere, so padding on either side, packed documents, cached decoding and
recurrence memory are one code path. Masks read `index` and `segment`, never positions.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.meshes import partitioned


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layout:
    """The tokens of a batch; a pytree of arrays, made by `layout` or `full`.

    pos_BT:     position in the token's own sequence, [B, T] or [B, T, A] (row, column, ...).
    length_BT:  number of tokens in that sequence, int32.
    index_BT:   order in storage, int32: what causality reads.
    segment_BT: which sequence of the row the token belongs to, int32; 0 is padding.
    group_BT:   tokens that belong together have one number, int32, 0 for none: the digits of one
                significance, as the task that wrote them knows it; see `digit_places` and
                `unit_places`.
    counted:    whether positions count up by one along storage inside each sequence, as `layout`
                makes them when it is given none. A relative bias is then made from one row of
                offsets; the output is NaN if it is not so.

    B may be 1 where all rows are alike, in every field at once; a random `place` then draws once
    for all of them.
    """

    pos_BT: jax.Array
    length_BT: jax.Array
    index_BT: jax.Array
    segment_BT: jax.Array
    group_BT: jax.Array
    counted: bool = dataclasses.field(default=False, metadata={"static": True})

    def replace(self, **fields: Any) -> "Layout":
        """The layout with other fields; one with other positions is not `counted`."""
        if "pos_BT" in fields:
            fields = {"counted": False, **fields, "pos_BT": positions(fields["pos_BT"])}
        return dataclasses.replace(self, **fields)


def positions(pos_BT: jax.Array) -> jax.Array:
    """The positions as int32, float32 or wider: offsets of narrower types would wrap or round.

    ValueError: an unsigned type of 32 bits or more, or one that holds no numbers.
    """
    dtype = jnp.result_type(pos_BT)
    if jnp.issubdtype(dtype, jnp.floating):
        return pos_BT if jnp.finfo(dtype).bits >= 32 else pos_BT.astype(jnp.float32)
    fits = jnp.issubdtype(dtype, jnp.integer) and jnp.iinfo(dtype).max < 2**32 - 1
    if not fits and dtype != jnp.int64:
        raise ValueError(f"pos_BT: dtype {dtype}; give int32 or float32")
    return pos_BT if dtype == jnp.int64 else pos_BT.astype(jnp.int32)


def layout(
    segment_BT: jax.Array,
    pos_BT: jax.Array | None = None,
    start: int = 0,
    group_BT: jax.Array | None = None,
) -> Layout:
    """The layout of rows given by their segment ids; positions count up from 0 in each segment.

    Args:
      segment_BT: int or bool [B, T]; 0 is padding, and each other id stands in one run.
      pos_BT: positions to use instead, [B, T] or [B, T, A].
      start: storage index of the first column.
      group_BT: which tokens belong together, int [B, T]; none by default.

    ValueError: shapes that do not fit together, segments that are no whole numbers, as those of a
    mask of 0 and -inf, or positions of an unsigned 32-bit type.
    """
    shape = segment_BT.shape
    if len(shape) != 2:
        raise ValueError(f"segment_BT: shape {shape} is not [B, T]")
    dtype = jnp.result_type(segment_BT)
    if jnp.issubdtype(dtype, jnp.inexact):
        raise ValueError(f"segment_BT: dtype {dtype}; give whole numbers or bool")
    for name, given in (("pos_BT", pos_BT), ("group_BT", group_BT)):
        if given is not None and given.shape[:2] != shape:
            raise ValueError(
                f"{name}: shape {given.shape} does not begin with {shape}, the segments'"
            )
    pos_BT = None if pos_BT is None else positions(pos_BT)
    return partitioned(_layout, segment_BT, 2, segment_BT, pos_BT, start, group_BT)


@partial(jax.jit, inline=True)
def _layout(segment_BT, pos_BT, start, group_BT) -> Layout:
    """One program where it runs op by op."""
    segment_BT = segment_BT.astype(jnp.int32)
    time = segment_BT.shape[1]
    index_BT = jnp.broadcast_to(jnp.arange(time, dtype=jnp.int32), segment_BT.shape)
    before = jnp.pad(segment_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    first_BT = jax.lax.cummax(jnp.where(segment_BT != before, index_BT, 0), axis=1)
    after = jnp.pad(segment_BT, ((0, 0), (0, 1)), constant_values=-1)[:, 1:]
    last_BT = jax.lax.cummin(
        jnp.where(segment_BT != after, index_BT, time - 1), axis=1, reverse=True
    )
    counted = pos_BT is None
    if counted:
        pos_BT = jnp.where(segment_BT > 0, index_BT - first_BT, 0)
    group_BT = jnp.zeros_like(segment_BT) if group_BT is None else group_BT.astype(jnp.int32)
    length_BT = last_BT - first_BT + 1
    return Layout(pos_BT, length_BT, index_BT + start, segment_BT, group_BT, counted)


def full(batch: int, time: int) -> Layout:
    """Rows of one unpadded sequence each."""
    return layout(jnp.ones((batch, time), jnp.int32))


def join(before: Layout, after: Layout) -> Layout:
    """Two stretches of storage, one after the other along time."""
    both = lambda a, b: jnp.concatenate([a, b], axis=1)
    return jax.tree.map(both, before.replace(counted=False), after.replace(counted=False))


def straight(layout: Layout) -> jax.Array:
    """Whether positions count up by one along storage, which is in order: bool scalar."""
    column_T = jnp.arange(layout.segment_BT.shape[1], dtype=jnp.int32)
    real_BT = layout.segment_BT > 0
    lag_BT = layout.pos_BT - column_T[None].astype(layout.pos_BT.dtype)
    seen_BT = jax.lax.cummax(jnp.where(real_BT, column_T[None], -1), axis=1)
    last_BT = jnp.pad(seen_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    at_last = lambda x: jnp.take_along_axis(x, jnp.maximum(last_BT, 0), axis=1)
    same_BT = real_BT & (last_BT >= 0) & (at_last(layout.segment_BT) == layout.segment_BT)
    ahead_BT = layout.index_BT - column_T[None]
    most_B1 = ahead_BT.max(axis=1, keepdims=True, initial=-(2**31), where=real_BT)
    in_order_BT = ~real_BT | (ahead_BT == most_B1)
    return jnp.all(in_order_BT & (~same_BT | (at_last(lag_BT) == lag_BT)))


def digit_places(tokens_BT: jax.Array, digits: Sequence[int], from_end: bool = False) -> jax.Array:
    """Groups for text with numbers in it: a digit's place in its run of digits, from 1; int32.

    Tokens that are no digits have group 0. Two numbers need another token between them, and so do
    packed documents.

    Args:
      tokens_BT: int [B, T].
      digits: ids of the digits' tokens.
      from_end: count from the last digit of a run: its significance, where that stands first the
        most significant digit. A number must then be written to its end.
    """
    if from_end:
        return digit_places(tokens_BT[:, ::-1], digits)[:, ::-1]
    digit_BT = jnp.isin(tokens_BT, jnp.asarray(digits, tokens_BT.dtype))
    index_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32), digit_BT.shape)
    other_BT = jax.lax.cummax(jnp.where(digit_BT, -1, index_BT), axis=1)
    return jnp.where(digit_BT, index_BT - other_BT, 0)


def unit_places(tokens_BT: jax.Array, separators: Sequence[int]) -> jax.Array:
    """Groups for BiPE: a token's place in its unit, from 1; int32.

    A unit is a sentence or a line: it ends with a separator, which belongs to it, or with the text.
    Packed documents need a separator between them.

    Args:
      tokens_BT: int [B, T].
      separators: ids of the tokens that end a unit, such as the full stop and the end of a line.
    """
    ends_BT = jnp.isin(tokens_BT, jnp.asarray(separators, tokens_BT.dtype))
    index_BT = jnp.broadcast_to(jnp.arange(tokens_BT.shape[1], dtype=jnp.int32), ends_BT.shape)
    last_BT = jax.lax.cummax(jnp.where(ends_BT, index_BT, -1), axis=1)
    return index_BT - jnp.pad(last_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
