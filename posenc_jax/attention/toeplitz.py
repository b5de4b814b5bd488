"""A relative bias from one row of offsets.

Where positions count up along storage, a bias that depends on i - j alone takes Q + K - 1 values on
a [Q, K] grid. One row of them becomes the grid by copies, and the grid's gradient becomes the row's
by a sum: no gather, no scatter.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Placed
from posenc_jax.layout import Layout


def bias_row(bias: Callable, placed: Placed, offset_N: jax.Array) -> jax.Array:
    """The bias at offsets, [1, H|1, N].

    Args:
      bias: (q_placed, k_placed) -> [1, H|1, Q, K], of an encoding whose bias is relative.
      placed: positions, for their structure and dtypes alone.
      offset_N: whole numbers.
    """
    query = jax.tree.map(lambda leaf: jnp.zeros((1, 1), leaf.dtype), placed)
    key = jax.tree.map(lambda leaf: -offset_N[None].astype(leaf.dtype), placed)
    return bias(query, key)[:, :, 0]


def straight(layout: Layout) -> jax.Array:
    """Whether positions count up by one along storage, which is in order: bool scalar."""
    column_T = jnp.arange(layout.segment_BT.shape[1], dtype=jnp.int32)
    real_BT = layout.segment_BT > 0
    lag_BT = layout.pos_BT - column_T[None].astype(layout.pos_BT.dtype)
    seen_BT = jax.lax.cummax(jnp.where(real_BT, column_T[None], -1), axis=1)
    last_BT = jnp.pad(seen_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    at_last = lambda x: jnp.take_along_axis(x, jnp.maximum(last_BT, 0), axis=1)
    same_BT = real_BT & (last_BT >= 0) & (at_last(layout.segment_BT) == layout.segment_BT)
    ordered = jnp.all(layout.index_BT - column_T[None] == layout.index_BT[:, :1])
    return ordered & jnp.all(~same_BT | (at_last(lag_BT) == lag_BT))
