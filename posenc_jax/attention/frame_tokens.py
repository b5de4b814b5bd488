"""The tokens of queries and of keys of a frame, with the positions that the encoding reads."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.attention.tokens import Tokens
from posenc_jax.encoding import Encoding, Extent, Placed, place
from posenc_jax.layout import Layout, positions, take_columns, whole_array, whole_number
from posenc_jax.meshes import partitioned


def checked_queries(layout: Layout, keys: Layout | None, queries: Any) -> tuple:
    """The pair (start, size) of `queries`, checked.

    ValueError: they are not such numbers, or the columns are not within the tokens.
    """
    if keys is not None:
        raise ValueError("queries: columns of layout; with keys given, all of it are queries")
    if not isinstance(queries, tuple | list) or len(queries) != 2:
        raise ValueError(f"queries: {queries!r} is not (start, size)")
    start, size = queries[0], whole_number("queries: size", queries[1])
    rows, total = layout.index_BT.shape
    if isinstance(size, Tracer):
        raise ValueError("queries: the size is traced; it is the shape of q, a Python int")
    if jnp.ndim(start) == 0:
        start = whole_number("queries: start", start)
    else:
        start = whole_array("queries: start", start, "give whole numbers", wide=True)
        if start.ndim > 1 or rows not in (1, start.shape[0]):
            raise ValueError(
                f"queries: start: shape {start.shape}; give one number, or one a row, [{rows}]"
            )
    for n in [] if isinstance(start, Tracer) else np.ravel(start):
        if not 0 <= size <= total or not 0 <= n <= total - size:
            raise ValueError(f"queries: columns {n} to {n} + {size} of {total} tokens")
    if not 0 <= size <= total:
        raise ValueError(f"queries: {size} columns of {total} tokens")
    return start, size


def placed_over(axis: str, encoding: Encoding, layout: Layout) -> Placed:
    """The positions of this device's tokens, which `place` makes of the tokens of all devices."""
    gather = lambda x: jax.lax.all_gather(x, axis, axis=1, tiled=True)
    whole = place(encoding, None, jax.tree.map(gather, layout))
    time = layout.index_BT.shape[1]
    first = jax.lax.axis_index(axis) * time
    return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, time, axis=1), whole)


def frame_sides(
    encoding: Encoding,
    layout: Layout,
    keys: Layout | None,
    queries: tuple[int | jax.Array, int] | None,
    placed: Placed,
) -> tuple[Tokens, Tokens]:
    """The queries' and the keys' tokens, with the positions that the encoding reads."""
    if keys is not None:
        at = (None, None) if placed is None else placed
        if not isinstance(at, tuple | list) or len(at) != 2:
            raise ValueError("frame.placed: give a pair, the queries' and the keys', with keys")
        q, k = _tokens(encoding, layout, at[0]), _tokens(encoding, keys, at[1])
        return _widened(q, k), _widened(k, q)
    k = _tokens(encoding, layout, placed)
    column_T = jnp.arange(1, k.index_BT.shape[1] + 1, dtype=jnp.int32)
    k = k._replace(token_BT=jnp.zeros_like(k.index_BT) + column_T[None])
    if queries is None:
        return k, k
    start, size = queries
    if jnp.ndim(start) == 0:
        cut = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size, axis=1)
        return jax.tree.map(cut, k), k

    def cut_rows(k: Tokens, start_B: jax.Array) -> Tokens:
        column_BQ = start_B[:, None] + jnp.arange(size, dtype=start_B.dtype)[None]
        column_BQ = jnp.clip(column_BQ, 0, k.index_BT.shape[1] - 1)
        return jax.tree.map(lambda leaf: take_columns(leaf, column_BQ), k)

    return partitioned(cut_rows, k.index_BT, 2, k, start), k


def _widened(side: Tokens, other: Tokens) -> Tokens:
    """The tokens of one side of cross-attention, whose `Extent`s reach over both sides.

    A method that counts from the middle of all tokens then has the same middle on both sides.
    """
    is_extent = lambda x: isinstance(x, Extent)

    def widen(leaf, ends):
        if not is_extent(leaf):
            return leaf
        low_B1, high_B1 = (end_BT[:, :1].astype(leaf.low_BT.dtype) for end_BT in ends)
        return Extent(jnp.minimum(leaf.low_BT, low_B1), jnp.maximum(leaf.high_BT, high_B1))

    placed = jax.tree.map(widen, side.placed, other.placed, is_leaf=is_extent)
    return side._replace(placed=placed)


def _tokens(encoding: Encoding, layout: Layout, placed: Placed) -> Tokens:
    layout = dataclasses.replace(layout, pos_BT=positions(layout.pos_BT))
    if placed is not None:
        placed = _checked_placed(encoding, layout, placed)
    else:
        place_tokens = functools.partial(place, encoding, None)
        placed = partitioned(place_tokens, layout.index_BT, 2, layout)
    return Tokens(placed, layout.index_BT, layout.segment_BT, token_BT=layout.index_BT)


def _checked_placed(encoding: Encoding, layout: Layout, placed: Placed) -> Placed:
    """The positions that a caller or a ring gave, as int32, float32 or wider.

    ValueError: they are not such as `encoding.place` makes, with or without a key, or where it is
    None no positions.
    """
    if encoding.place is None:
        wanted = placed = positions(placed, "frame.placed")
        if placed.ndim not in (2, 3):
            raise ValueError(f"frame.placed: shape {placed.shape} is not [B, T] or [B, T, A]")
    else:
        drawn = wanted = jax.eval_shape(encoding.place, jax.random.key(0), layout)
        if jax.tree.structure(placed) != jax.tree.structure(wanted):
            # Some methods keep what they draw beside the positions (`dinov3`).
            wanted = jax.eval_shape(functools.partial(place, encoding, None), layout)
        if jax.tree.structure(placed) != jax.tree.structure(wanted):
            raise ValueError(
                f"frame.placed: {jax.tree.structure(placed)}; give what encoding.place(key, "
                f"layout) draws, {jax.tree.structure(drawn)}"
            )
    rows, time = layout.segment_BT.shape

    def check(x, want):
        if jnp.issubdtype(want.dtype, jnp.number):
            x = positions(x, "frame.placed")
        shape, lead = x.shape, {(1, time), (rows, time)}
        if rows == 1:
            lead.add((shape[0], time))
        if x.dtype.kind != want.dtype.kind and want.dtype == bool:
            raise ValueError(f"frame.placed: dtype {x.dtype}; it is {want.dtype}")
        if shape[:2] not in lead or shape[2:] != want.shape[2:]:
            wanted = ", ".join(map(str, (rows, time, *want.shape[2:])))
            raise ValueError(f"frame.placed: shape {shape} is not that of the layout, [{wanted}]")
        return x

    return jax.tree.map(check, placed, wanted)
