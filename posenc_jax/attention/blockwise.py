"""Attention in square blocks: nothing of size Q x K outlives a block, forward or backward.

The method of FlashAttention (arXiv 2205.14135) with a bias: softmax over the keys seen so far,
rescaled as blocks arrive, and a backward pass that makes each block's logits, and its bias, again.
Key blocks that no query of a block sees are not visited.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.block_plan import (
    Blocks,
    Plan,
    cut_heads,
    cut_tokens,
    fill_pairs,
    join_results,
    pair_start,
    pick,
    pick_pair,
    plan_of,
)
from posenc_jax.attention.derivatives import reverse_mode_once
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.mask import visible
from posenc_jax.attention.score_options import ScoreOptions, both, plus
from posenc_jax.attention.softmax import (
    empty,
    finish,
    masked,
    narrow,
    product,
    scores,
    sink_gradient,
    sum_to,
    take_in,
    through_cap,
)
from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends.barriers import barrier, transposed
from posenc_jax.backends.skew import skew
from posenc_jax.dtypes import widest
from posenc_jax.encoding import bias


class Learned(NamedTuple):
    """What the bias of a block is made of, and what has a gradient.

    bias:      the row of offsets of the encoding's bias, or its parameters.
    bias_BHQK: the bias that the caller of `attend` gave, filled up to whole blocks; None: none.
    """

    bias: Any
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


def learned_of(layer: Layer) -> Any:
    """What the encoding's bias of a block is made of: its row of offsets, or the parameters."""
    return layer.params if layer.row_BHN is None else layer.row_BHN


def row_start(plan: Plan, blocks: Blocks, i, j):
    """The first entry that block (i, j) reads of the row of offsets."""
    return (len(blocks.q.index_BT) - 1 - i) * plan.queries + j * plan.keys


def local(plan: Plan, learned: Learned, blocks: Blocks, i, j) -> Learned:
    """The part of `learned` that block (i, j) reads: a piece of the row, or all parameters; and the
    block of the caller's bias.
    """
    bias_BHQK = pick_pair(plan, learned.bias_BHQK, i, j)
    if not plan.row:
        return Learned(learned.bias, bias_BHQK)
    start, size = row_start(plan, blocks, i, j), plan.queries + plan.keys
    row_BHN = jax.lax.dynamic_slice_in_dim(learned.bias, start, size, axis=-1)
    return Learned(row_BHN, bias_BHQK)


def add_local(plan: Plan, total: Learned, part: Learned, blocks: Blocks, i, j) -> Learned:
    """The sum of gradients `total`, plus the gradient `part` of what block (i, j) reads.

    `total` has the shapes of `learned`, in float32 or wider.
    """
    bias, bias_BHQK = total
    before = local(plan, total, blocks, i, j)
    add = lambda t, p: t + p.astype(t.dtype)
    if not plan.row:
        bias = jax.tree.map(add, bias, part.bias)
    else:
        row_BHN, start = add(before.bias, part.bias), row_start(plan, blocks, i, j)
        bias = jax.lax.dynamic_update_slice_in_dim(bias, row_BHN, start, axis=-1)
    if bias_BHQK is not None:
        start = pair_start(plan, bias_BHQK, i, j)
        sum_BHQK = add(before.bias_BHQK, part.bias_BHQK)
        bias_BHQK = jax.lax.dynamic_update_slice(bias_BHQK, sum_BHQK, start)
    return Learned(bias, bias_BHQK)


def block_bias(plan: Plan, part: Learned, q: Tokens, k: Tokens) -> jax.Array | None:
    """The bias of a block, [B|1, H|1, q, k], or None."""
    if plan.encoding.bias is None:
        return part.bias_BHQK
    if plan.row:
        return plus(skew(part.bias, plan.queries), part.bias_BHQK)
    encoding_BHQK = bias(plan.encoding, part.bias, q.placed, k.placed, plan.dims)
    return plus(encoding_BHQK, part.bias_BHQK)


def masked_scores(plan: Plan, q_BHQC, k_BHKC, bias_BHQK, q: Tokens, k: Tokens, mask_BHQK):
    """Masked logits of a block, and the capped products that they are made of."""
    s_BHQK = barrier(scores(q_BHQC, k_BHKC, plan.cap))  # the reason is in `softmax.dense_cpu`
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
    residuals = q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks, o_IBHQC, log_IBHQ1
    return (o_IBHQC.astype(v_JBHKC.dtype), log_IBHQ1), residuals


def _backward(plan: Plan, residuals, gradients):
    g_IBHQC, g_log_IBHQ1 = gradients
    q_IBHQC, k_JBHKC, v_JBHKC, learned, sink_H, blocks, o_IBHQC, log_IBHQ1 = residuals
    wide, dtype = o_IBHQC.dtype, g_IBHQC.dtype
    delta_IBHQ1 = (g_IBHQC.astype(wide) * o_IBHQC).sum(axis=-1, keepdims=True) - g_log_IBHQ1
    if plan.encoding.bias is None:
        learned = learned._replace(bias=None)

    def query_block(totals, i):
        q_BHQC, g_BHQC, log_BHQ1, delta_BHQ1, q = pick(
            (q_IBHQC, g_IBHQC, log_IBHQ1, delta_IBHQ1, blocks.q), i
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
            # Barriers, and gradients of keys and values as [C, K]: see `softmax.dense_cpu`.
            dp_BHQK = barrier(product(g_BHQC, transposed(v_BHKC)))
            ds_BHQK = barrier(p_BHQK * (dp_BHQK - delta_BHQ1))
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
    d_sink = sink_gradient(sink_H, log_IBHQ1, delta_IBHQ1)
    return *reverse_mode_once((dq_IBHQC, dk_JBHKC, dv_JBHKC, d_learned, d_sink)), None


_attention.defvjp(_forward, _backward)
