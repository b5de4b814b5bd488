"""Attention in square blocks: nothing of size Q x K outlives a block, forward or backward.

The method of FlashAttention (arXiv 2205.14135) with a bias: softmax over the keys seen so far,
rescaled as blocks arrive, and a backward pass that makes each block's logits, and its bias, again.
Key blocks that no query of a block sees are not visited.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.derivatives import reverse_mode_once
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions, both, plus
from posenc_jax.attention.softmax import (
    empty,
    finish,
    log_sum_exp,
    masked,
    narrow,
    product,
    scores,
    sum_to,
    take_in,
    through_cap,
    transposed,
)
from posenc_jax.attention.tokens import Tokens, visible
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Dims, Encoding, bias
from posenc_jax.operations import barrier, skew

NEVER = 2**31 - 1  # storage index of a filler key: after every query


class Plan(NamedTuple):
    """What is known when tracing.

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


class Learned(NamedTuple):
    """What a block's bias is made of: the encoding's row of offsets or parameters, and the bias of
    the user's own, filled up to whole blocks.
    """

    own: Any
    bias_BHQK: jax.Array | None


@partial(jax.jit, inline=True)
def blockwise(
    q_BQHC, k_BKHC, v_BKHC, layer: Layer, options: ScoreOptions
) -> tuple[jax.Array, jax.Array]:
    """softmax(q k + bias) v over visible keys, [B, Q, H, C], and its log-sum-exp, [B, Q, H].

    `q_BQHC` is scaled.
    """
    plan = plan_of(layer, options.cap)
    q_IBHQC = cut_heads(q_BQHC, plan.queries)
    k_JBHKC, v_JBHKC = cut_heads(k_BKHC, plan.keys), cut_heads(v_BKHC, plan.keys)
    blocks = cut_tokens(plan, layer.q, layer.k, options.mask_BHQK)
    learned = Learned(learned_of(layer), fill_pairs(plan, options.bias_BHQK))
    results: Any = _attention(plan, q_IBHQC, k_JBHKC, v_JBHKC, learned, options.sink_H, blocks)
    o_IBHQC, log_IBHQ1 = results
    return join_results(o_IBHQC, log_IBHQ1, q_BQHC.shape[1])


def plan_of(layer: Layer, cap: float | None) -> Plan:
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


def learned_of(layer: Layer) -> Any:
    """What blocks make their bias of: its row of offsets, or the parameters."""
    return layer.params if layer.row_BHN is None else layer.row_BHN


def fill(x: jax.Array, size: int, value=0) -> jax.Array:
    """x padded along axis 1 to a multiple of `size`."""
    pads = [(0, 0), (0, -x.shape[1] % size)] + [(0, 0)] * (x.ndim - 2)
    return jnp.pad(x, pads, constant_values=value)


def cut(x: jax.Array, size: int, value=0) -> jax.Array:
    """[B, T, ...] to [I, B, size, ...], padded with `value`."""
    x = fill(x, size, value)
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0)


def cut_heads(x_BTHC: jax.Array, size: int) -> jax.Array:
    """[B, T, H, C] to [I, B, H, size, C]."""
    return barrier(jnp.swapaxes(cut(x_BTHC, size), 2, 3))


def join_blocks(x_IBHTC, time: int) -> jax.Array:
    """[I, B, H, size, C] to [B, time, H, C]."""
    x_BITHC = x_IBHTC.transpose(1, 0, 3, 2, 4)
    return x_BITHC.reshape(x_BITHC.shape[0], -1, *x_BITHC.shape[3:])[:, :time]


def join_results(o_IBHQC, log_IBHQ1, time: int) -> tuple[jax.Array, jax.Array]:
    """Outputs and log-sum-exps of blocks of queries as those of all, [B, Q, H, C] and [B, Q, H]."""
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
    """Where block (i, j) begins."""
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
    """Both sides' tokens in blocks. Fillers have segment -1, and come after every query."""
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
    some_I = meet_IJ.any(axis=1)
    return Blocks(q, k, jnp.where(some_I, first_I, 0), jnp.where(some_I, end_I, 0), mask_BHQK)


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


def row_start(plan: Plan, blocks: Blocks, i, j):
    """Where block (i, j) begins in the row of offsets."""
    return (len(blocks.q.index_BT) - 1 - i) * plan.queries + j * plan.keys


def local(plan: Plan, learned: Learned, blocks: Blocks, i, j) -> Learned:
    """What block (i, j) needs of `learned`: the bias's parameters, or a piece of its row; and the
    block of the user's own bias.
    """
    bias_BHQK = pick_pair(plan, learned.bias_BHQK, i, j)
    if not plan.row:
        return Learned(learned.own, bias_BHQK)
    start, size = row_start(plan, blocks, i, j), plan.queries + plan.keys
    row_BHN = jax.lax.dynamic_slice_in_dim(learned.own, start, size, axis=-1)
    return Learned(row_BHN, bias_BHQK)


def add_local(plan: Plan, total: Learned, part: Learned, blocks: Blocks, i, j) -> Learned:
    """`total`, shaped as `learned` but float32 or wider, plus the block's part of it."""
    own, bias_BHQK = total
    before = local(plan, total, blocks, i, j)
    add = lambda t, p: t + p.astype(t.dtype)
    if not plan.row:
        own = jax.tree.map(add, own, part.own)
    else:
        row_BHN, start = add(before.own, part.own), row_start(plan, blocks, i, j)
        own = jax.lax.dynamic_update_slice_in_dim(own, row_BHN, start, axis=-1)
    if bias_BHQK is not None:
        start = pair_start(plan, bias_BHQK, i, j)
        sum_BHQK = add(before.bias_BHQK, part.bias_BHQK)
        bias_BHQK = jax.lax.dynamic_update_slice(bias_BHQK, sum_BHQK, start)
    return Learned(own, bias_BHQK)


def block_bias(plan: Plan, part: Learned, q: Tokens, k: Tokens) -> jax.Array | None:
    """The bias of a block, [B|1, H|1, q, k], or None."""
    if plan.encoding.bias is None:
        return part.bias_BHQK
    if plan.row:
        return plus(skew(part.own, plan.queries), part.bias_BHQK)
    own_BHQK = bias(plan.encoding, part.own, q.placed, k.placed, plan.dims)
    return plus(own_BHQK, part.bias_BHQK)


def masked_scores(plan: Plan, q_BHQC, k_BHKC, bias_BHQK, q: Tokens, k: Tokens, mask_BHQK):
    """Masked logits of a block, and the capped products that they are made of."""
    s_BHQK = barrier(scores(q_BHQC, k_BHKC, plan.cap))
    seen_BHQK = both(visible(q, k, plan.causal, plan.mask_padding), mask_BHQK)
    return masked(s_BHQK, bias_BHQK, seen_BHQK), s_BHQK


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(plan: Plan, q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks: Blocks):
    return _forward(plan, q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks)[0]


def _forward(plan: Plan, q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks: Blocks):
    def query_block(i):
        q_BHQC, q = pick((q_IBHQC, blocks.q), i)

        def key_block(j, state):
            k_BHKC, v_BHKC, k = pick((k_JBHKC, v_JBHKC, blocks.k), j)
            bias_BHQK = block_bias(plan, local(plan, learned, blocks, i, j), q, k)
            mask_BHQK = pick_pair(plan, blocks.mask_BHQK, i, j)
            s_BHQK, _ = masked_scores(plan, q_BHQC, k_BHKC, bias_BHQK, q, k, mask_BHQK)
            return take_in(state, s_BHQK, v_BHKC)

        state = empty(q_BHQC, v_JBHKC[0])
        state = jax.lax.fori_loop(blocks.first_I[i], blocks.end_I[i], key_block, state)
        return finish(state, sink_H=sink_H)

    o_IBHQC, log_IBHQ1 = jax.lax.map(query_block, jnp.arange(len(q_IBHQC)))
    kept = q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks, o_IBHQC, log_IBHQ1
    return (o_IBHQC.astype(v_JBHKC.dtype), log_IBHQ1), kept


def _backward(plan: Plan, kept, gradients):
    g_IBHQC, g_log_IBHQ1 = gradients
    q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks, o_IBHQC, log_IBHQ1 = kept
    wide, dtype = o_IBHQC.dtype, g_IBHQC.dtype
    drop_IBHQ1 = (g_IBHQC.astype(wide) * o_IBHQC).sum(axis=-1, keepdims=True) - g_log_IBHQ1
    if plan.encoding.bias is None:
        learned = learned._replace(own=None)

    def query_block(totals, i):
        q_BHQC, g_BHQC, log_BHQ1, drop_BHQ1, q = pick(
            (q_IBHQC, g_IBHQC, log_IBHQ1, drop_IBHQ1, blocks.q), i
        )
        q_BHCQ, g_BHCQ = (narrow(transposed(x), dtype) for x in (q_BHQC, g_BHQC))

        def key_block(j, state):
            dk_JBHCK, dv_JBHCK, d_learned, dq_BHQC = state
            k_BHKC, v_BHKC, k = pick((k_JBHKC, v_JBHKC, blocks.k), j)
            bias_of = lambda part: block_bias(plan, part, q, k)
            bias_BHQK, pull = jax.vjp(bias_of, local(plan, learned, blocks, i, j))
            mask_BHQK = pick_pair(plan, blocks.mask_BHQK, i, j)
            s_BHQK, product_BHQK = masked_scores(plan, q_BHQC, k_BHKC, bias_BHQK, q, k, mask_BHQK)
            p_BHQK = jnp.exp(s_BHQK - log_BHQ1)
            dp_BHQK = barrier(product(g_BHQC, transposed(v_BHKC)))
            ds_BHQK = barrier(p_BHQK * (dp_BHQK - drop_BHQ1))
            near_BHQK = narrow(through_cap(ds_BHQK, product_BHQK, plan.cap), dtype)
            dv_JBHCK = dv_JBHCK.at[j].add(product(g_BHCQ, narrow(p_BHQK, dtype)))
            dk_JBHCK = dk_JBHCK.at[j].add(product(q_BHCQ, near_BHQK))
            if bias_BHQK is not None:
                (part,) = pull(sum_to(ds_BHQK, bias_BHQK))
                d_learned = add_local(plan, d_learned, part, blocks, i, j)
            return dk_JBHCK, dv_JBHCK, d_learned, dq_BHQC + product(near_BHQK, k_BHKC)

        state = (*totals, jnp.zeros_like(q_BHQC, wide))
        state = jax.lax.fori_loop(blocks.first_I[i], blocks.end_I[i], key_block, state)
        return state[:-1], state[-1].astype(dtype)

    zeros = lambda x: jnp.zeros_like(jnp.swapaxes(x, -1, -2), wide)
    sums = jax.tree.map(lambda x: jnp.zeros_like(x, widest(x.dtype)), learned)
    totals = zeros(k_JBHKC), zeros(v_JBHKC), sums
    totals, dq_IBHQC = jax.lax.scan(query_block, totals, jnp.arange(len(q_IBHQC)))
    dk_JBHKC, dv_JBHKC = (jnp.swapaxes(x, -1, -2).astype(dtype) for x in totals[:2])
    d_learned = jax.tree.map(lambda total, x: total.astype(x.dtype), totals[2], learned)
    d_sink = sink_gradient(sink_H, log_IBHQ1, drop_IBHQ1)
    return *reverse_mode_once((dq_IBHQC, dk_JBHKC, dv_JBHKC, d_learned, d_sink)), None


def sink_gradient(sink_H, log_XBHQ1, drop_XBHQ1):
    """The gradient of sinks, of which each query's log has them; `drop` is as in `_backward`."""
    if sink_H is None:
        return None
    sink_BH11 = sink_H.astype(log_XBHQ1.dtype).reshape((1,) * (log_XBHQ1.ndim - 3) + (-1, 1, 1))
    weight_XBHQ1 = jnp.exp(sink_BH11 - log_XBHQ1)
    by_head = -(weight_XBHQ1 * drop_XBHQ1).sum(axis=(-1, -2))
    return by_head.sum(axis=tuple(range(by_head.ndim - 1))).astype(sink_H.dtype)


_attention.defvjp(_forward, _backward)
