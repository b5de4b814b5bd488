"""Scores that depend on content (see `Walk`): plain autodiff, remade block by block going back."""

import jax
import jax.numpy as jnp

from posenc_jax.attention.blockwise import (
    block_bias,
    cut,
    cut_heads,
    cut_tokens,
    empty,
    finish,
    join_blocks,
    local,
    pick,
    plan_of,
    take_in,
)
from posenc_jax.attention.dense import heads_first, product, transposed
from posenc_jax.attention.frames import Frame, visible
from posenc_jax.encoding import Side, Walk


def dense_walk(walk: Walk, q_BQHC, k_BKHC, v_BKHC, q: Side, k: Side, frame: Frame) -> jax.Array:
    """Attention in one piece, [B, Q, H, C]; `q_BQHC` comes scaled, the sides as they are."""
    q_BHQC, k_BHKC, v_BHKC = heads_first(q_BQHC), heads_first(k_BKHC), heads_first(v_BKHC)
    s_BHQK = walk_logits(walk, q_BHQC, k_BHKC, q, k, frame)
    o_BHQC = _output(walk, take_in(empty(q_BHQC, v_BHKC), s_BHQK, v_BHKC))
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3)


def walk_logits(walk: Walk, q_BHQC, k_BHKC, q: Side, k: Side, frame: Frame) -> jax.Array:
    """The masked logits of a dense frame in one piece, [B, H, Q, K]."""
    carry, bias, seen = _start(walk, frame, q), frame.bias_BHQK, frame.visible_BHQK
    return _score(walk, frame, q_BHQC, k_BHKC, bias, q, k, seen, carry)[0]


def blockwise_walk(walk: Walk, q_BQHC, k_BKHC, v_BKHC, q: Side, k: Side, frame: Frame) -> jax.Array:
    """The same in blocks, the latest keys first; `visit` is remade in the backward pass."""
    plan = plan_of(frame)
    blocks = cut_tokens(frame, plan)
    learned = frame.row_BHN if plan.row else frame.params
    split = lambda side, size: jax.tree.map(lambda x: cut(x, size), (side.x_BTHC, side.feat))
    q_JBHC = cut_heads(q_BQHC, plan.queries), split(q, plan.queries), blocks.q
    k_JBHC = (
        *(cut_heads(x, plan.keys) for x in (k_BKHC, v_BKHC)), split(k, plan.keys), blocks.k
    )  # fmt: skip

    @jax.checkpoint
    def query_block(i):
        q_BHQC, (q_x, q_feat), q_tokens = pick(q_JBHC, i)
        q_side = Side(q_x, q_tokens.placed, q_feat, q_tokens.index_BT)

        @jax.checkpoint
        def visit(state_carry, j):
            state, carry = state_carry
            k_BHKC, v_BHKC, (k_x, k_feat), k_tokens = pick(k_JBHC, j)
            k_side = Side(k_x, k_tokens.placed, k_feat, k_tokens.index_BT)
            seen = visible(q_tokens, k_tokens, plan.causal, plan.mask)
            bias = block_bias(plan, local(plan, learned, blocks, i, j), q_tokens, k_tokens)
            s, carry = _score(walk, frame, q_BHQC, k_BHKC, bias, q_side, k_side, seen, carry)
            return take_in(state, s, v_BHKC), carry

        def key_block(state_carry, j):
            used = (blocks.first_I[i] <= j) & (j < blocks.end_I[i])
            return jax.lax.cond(used, visit, lambda held, j: held, state_carry, j), None

        state = empty(q_BHQC, k_JBHC[1][0]), _start(walk, frame, q_side)
        (state, _), _ = jax.lax.scan(key_block, state, jnp.arange(len(k_JBHC[0])), reverse=True)
        return _output(walk, state).astype(v_BKHC.dtype)

    o_IBHQC = jax.lax.map(query_block, jnp.arange(len(q_JBHC[0])))
    return join_blocks(o_IBHQC, q_BQHC.shape[1])


def _start(walk: Walk, frame: Frame, q: Side):
    return None if walk.start is None else walk.start(frame.params, q)


def _output(walk: Walk, state) -> jax.Array:
    """Attention's output: the weighted mean of values, or their sum where the walk weighs."""
    o_BHQC, log_BHQ1 = finish(state)
    return o_BHQC * jnp.exp(log_BHQ1) if walk.weighs else o_BHQC


def _score(
    walk: Walk, frame: Frame, q_BHQC, k_BHKC, bias_BHQK, q: Side, k: Side, visible_BHQK, carry
):
    """Masked logits of a block, and the carry after it."""
    s_BHQK = product(q_BHQC, transposed(k_BHKC))
    if bias_BHQK is not None:
        s_BHQK = s_BHQK + bias_BHQK.astype(s_BHQK.dtype)
    seen = jnp.broadcast_to(visible_BHQK, s_BHQK.shape)
    s_BHQK, carry = walk.score(frame.params, s_BHQK, q, k, seen, carry)
    return jnp.where(seen, s_BHQK, -jnp.inf), carry
