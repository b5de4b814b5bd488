"""How attention is cut into blocks of queries and of keys, and which blocks meet."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.layers import Layer
from posenc_jax.attention.softmax import log_sum_exp
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends.barriers import barrier
from posenc_jax.encoding import Dims, Encoding

NEVER = 2**31 - 1  # storage index of a filler key: after every query


class Plan(NamedTuple):
    """What is known of attention in blocks when it is traced; static, so it is hashable.

    row: the bias is given as a row of offsets, see `Layer.row_BHN`, not by its parameters.
    hidden: that row has -inf for keys ahead of the query, so that nothing else hides them.
    """

    encoding: Encoding
    dims: Dims
    row: bool
    hidden: bool
    causal: bool
    mask_padding: bool
    queries: int  # in a block
    keys: int
    cap: float | None


class Blocks(NamedTuple):
    """Tokens cut into blocks, leading axes I or J, and the range of key blocks of each query block.

    Blocks outside first_I <= j < end_I hold no key that query block i sees. The mask is that of the
    user's own, filled up to whole blocks where an axis is not 1.
    """

    q: Tokens
    k: Tokens
    first_I: jax.Array
    end_I: jax.Array
    mask_BHQK: jax.Array | None = None


def plan_of(layer: Layer, cap: float | None) -> Plan:
    """The plan of a layer's attention, with the cap of its logits."""
    queries, keys = layer.blocks()
    row = layer.row_BHN is not None
    return Plan(
        layer.encoding,
        layer.dims,
        row,
        row and layer.hides_ahead,
        layer.causal,
        layer.mask_padding,
        queries,
        keys,
        cap,
    )


def fill(x: jax.Array, size: int, value=0) -> jax.Array:
    """x padded along axis 1 to a multiple of `size`."""
    pads = [(0, 0), (0, -x.shape[1] % size)] + [(0, 0)] * (x.ndim - 2)
    return jnp.pad(x, pads, constant_values=value)


def cut(x: jax.Array, size: int, value=0) -> jax.Array:
    """[B, T, ...] to [I, B, size, ...], padded with `value`."""
    x = fill(x, size, value)
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0)


def cut_heads(x_BTHC: jax.Array, size: int) -> jax.Array:
    """[B, T, H, C] to [I, B, H, size, C]; its barrier keeps the transpose out of products."""
    return barrier(jnp.swapaxes(cut(x_BTHC, size), 2, 3))


def join_blocks(x_IBHTC, time: int) -> jax.Array:
    """[I, B, H, size, C] to [B, time, H, C]."""
    x_BITHC = x_IBHTC.transpose(1, 0, 3, 2, 4)
    return x_BITHC.reshape(x_BITHC.shape[0], -1, *x_BITHC.shape[3:])[:, :time]


def join_results(o_IBHQC, log_IBHQ1, time: int) -> tuple[jax.Array, jax.Array]:
    """Outputs [B, Q, H, C] and log-sum-exps [B, Q, H] of all queries, of those of their blocks."""
    log_BQH1 = join_blocks(log_IBHQ1, time)
    return join_blocks(o_IBHQC, time), log_sum_exp(log_BQH1.swapaxes(1, 2))


def fill_pairs(plan: Plan, x_BHQK: jax.Array | None) -> jax.Array | None:
    """Axes Q and K filled up to whole blocks with zeros, where they are not 1."""
    if x_BHQK is None:
        return None
    sizes = zip(x_BHQK.shape[2:], (plan.queries, plan.keys), strict=True)
    pads = [(0, 0 if size == 1 else -size % block) for size, block in sizes]
    return jnp.pad(x_BHQK, [(0, 0), (0, 0), *pads])


def pair_start(plan: Plan, x_BHQK: jax.Array, i, j) -> tuple:
    """The first entry of block (i, j) along each axis of [B, H, Q, K]; see `fill_pairs`."""
    *_, queries, keys = x_BHQK.shape
    return 0, 0, 0 if queries == 1 else i * plan.queries, 0 if keys == 1 else j * plan.keys


def pick_pair(plan: Plan, x_BHQK: jax.Array | None, i, j) -> jax.Array | None:
    """Block (i, j) of what `fill_pairs` filled; axes of 1 stay."""
    if x_BHQK is None:
        return None
    *lead, queries, keys = x_BHQK.shape
    sizes = *lead, min(queries, plan.queries), min(keys, plan.keys)
    return jax.lax.dynamic_slice(x_BHQK, pair_start(plan, x_BHQK, i, j), sizes)


def cut_tokens(plan: Plan, q: Tokens, k: Tokens, mask_BHQK: jax.Array | None = None) -> Blocks:
    """The tokens of both sides in blocks, and which blocks meet.

    Tokens that fill up the last block have segment -1; such keys come after every query.
    """
    sides = []
    for side, size, index in ((q, plan.queries, -1), (k, plan.keys, NEVER)):
        placed = jax.tree.map(partial(cut, size=size), side.placed)
        sides.append(
            Tokens(
                placed,
                cut(side.index_BT, size, index),
                cut(side.segment_BT, size, -1),
                cut(side.token_BT, size),
            )
        )
    q, k = sides
    over = lambda pick, x: pick(x, axis=(1, 2))
    least = 0 if plan.mask_padding else -1  # segments up to this are never seen
    low = lambda s: over(jnp.min, jnp.where(s > least, s, NEVER))
    meet_IJ = over(jnp.max, q.segment_BT)[:, None] >= low(k.segment_BT)[None]
    meet_IJ &= low(q.segment_BT)[:, None] <= over(jnp.max, k.segment_BT)[None]
    if not plan.mask_padding:
        meet_IJ = jnp.ones_like(meet_IJ)
    if plan.causal:
        meet_IJ &= over(jnp.max, q.index_BT)[:, None] >= over(jnp.min, k.index_BT)[None]
    mask_BHQK = fill_pairs(plan, mask_BHQK)
    if mask_BHQK is not None:
        meet_IJ &= _any_of_blocks(plan, mask_BHQK)
    first_I = jnp.argmax(meet_IJ, axis=1)
    end_I = meet_IJ.shape[1] - jnp.argmax(meet_IJ[:, ::-1], axis=1)
    any_I = meet_IJ.any(axis=1)
    return Blocks(q, k, jnp.where(any_I, first_I, 0), jnp.where(any_I, end_I, 0), mask_BHQK)


def _any_of_blocks(plan: Plan, mask_BHQK: jax.Array) -> jax.Array:
    """Whether a block of the mask shows any key, [I|1, J|1]."""
    queries, keys = mask_BHQK.shape[2:]
    mask_QK = mask_BHQK.any(axis=(0, 1))
    i = 1 if queries == 1 else queries // plan.queries
    j = 1 if keys == 1 else keys // plan.keys
    return mask_QK.reshape(i, queries // i, j, keys // j).any(axis=(1, 3))


def pick(tree: Any, n: jax.Array) -> Any:
    """Element n along the leading axis of every array."""
    take = lambda x: jax.lax.dynamic_index_in_dim(x, n, axis=0, keepdims=False)
    return jax.tree.map(take, tree)
