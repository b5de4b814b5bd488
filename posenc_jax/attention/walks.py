"""Scores that depend on content (see `Walk`): plain autodiff, remade block by block going back."""

from functools import partial

import jax
import jax.numpy as jnp

from posenc_jax.attention.block_plan import (
    cut,
    cut_heads,
    cut_tokens,
    fill_pairs,
    join_results,
    pick,
    pick_pair,
    plan_of,
)
from posenc_jax.attention.blockwise import Learned, block_bias, learned_of, local
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.mask import visible
from posenc_jax.attention.score_options import ScoreOptions, both, plus
from posenc_jax.attention.softmax import empty, finish, scores, take_in
from posenc_jax.encoding import Params, Side, Walk
from posenc_jax.hook_checks import checked_result
from posenc_jax.meshes import vary_alike


def walk_logits(product_BHQK, q: Side, k: Side, layer: Layer, options: ScoreOptions) -> jax.Array:
    """The masked logits of a dense frame in one piece, [B, H, Q, K], of the products of q and k."""
    walk, q = layer.encoding.walk, _told(q, options)
    assert walk is not None
    bias_BHQK = plus(layer.bias_BHQK, options.bias_BHQK)
    assert layer.visible_BHQK is not None
    see_BHQK = both(layer.visible_BHQK, options.mask_BHQK)
    carry = _start(walk, layer.params, q)
    return _score(walk, layer.params, product_BHQK, bias_BHQK, q, k, see_BHQK, carry)[0]


@partial(jax.jit, inline=True)
def blockwise_walk(
    q_BQHC, k_BKHC, v_BKHC, q: Side, k: Side, layer: Layer, options: ScoreOptions
) -> tuple[jax.Array, jax.Array]:
    """Attention in blocks, the latest keys first, [B, Q, H, C], and log-sum-exps, [B, Q, H].

    `q_BQHC` is scaled. `visit` is remade in the backward pass.
    """
    plan, walk, params = plan_of(layer, options.cap), layer.encoding.walk, layer.params
    assert walk is not None
    bias, blocks = learned_of(layer), cut_tokens(plan, layer.q, layer.k, options.mask_BHQK)
    bias_IBHQK = _stretches(
        fill_pairs(plan, options.bias_BHQK), 2, plan.queries, len(blocks.first_I)
    )
    split = lambda side, size: jax.tree.map(partial(cut, size=size), (side.x_BTHC, side.feat))
    q_IBHC = cut_heads(q_BQHC, plan.queries), split(q, plan.queries), blocks.q
    k_JBHC = (
        *(cut_heads(x, plan.keys) for x in (k_BKHC, v_BKHC)), split(k, plan.keys), blocks.k
    )  # fmt: skip

    # Both levels are computed again going back: kept, the logits of all pairs of blocks and the
    # carries between them would fill the memory.
    @jax.checkpoint
    def query_block(i_bias):
        i, bias_BHQK = i_bias
        q_BHQC, (q_x, q_feat), q_tokens = pick(q_IBHC, i)
        q_side = _told(Side(q_x, q_tokens.placed, q_feat, q_tokens.token_BT), options)

        @jax.checkpoint
        def visit(state_carry, block, learned, mask_BHQK):
            state, carry = state_carry
            k_BHKC, v_BHKC, (k_x, k_feat), k_tokens = block
            k_side = Side(k_x, k_tokens.placed, k_feat, k_tokens.token_BT)
            seen = visible(q_tokens, k_tokens, plan.causal, plan.mask_padding)
            seen = both(seen, mask_BHQK)
            bias = block_bias(plan, learned, q_tokens, k_tokens)
            s = scores(q_BHQC, k_BHKC, plan.cap)
            s, carry = _score(walk, params, s, bias, q_side, k_side, seen, carry)
            return take_in(state, s, v_BHKC), carry

        def key_block(state_carry, j_bias):
            j, bias_BHQK = j_bias
            used = (blocks.first_I[i] <= j) & (j < blocks.end_I[i])
            # Picked here, because what a branch reads is kept for each j going back, as a whole.
            learned = local(plan, Learned(bias, None), blocks, i, j)._replace(bias_BHQK=bias_BHQK)
            block = pick(k_JBHC, j), learned, pick_pair(plan, blocks.mask_BHQK, i, j)
            held = jax.lax.cond(used, visit, lambda held, *block: held, state_carry, *block)
            return held, None

        begin = empty(q_BHQC, k_JBHC[1][0]), _start(walk, params, q_side)
        state, _ = vary_alike((begin, q_BHQC))
        blocks_J = jnp.arange(len(k_JBHC[0])), _stretches(bias_BHQK, 3, plan.keys, len(k_JBHC[0]))
        (state, _), _ = jax.lax.scan(key_block, state, blocks_J, reverse=True)
        o_BHQC, log_BHQ1 = finish(state, walk.weighs, options.sink_H)
        return o_BHQC.astype(v_BKHC.dtype), log_BHQ1

    o_IBHQC, log_IBHQ1 = jax.lax.map(query_block, (jnp.arange(len(q_IBHC[0])), bias_IBHQK))
    return join_results(o_IBHQC, log_IBHQ1, q_BQHC.shape[1])


def _stretches(x_BHQK: jax.Array | None, axis: int, size: int, count: int) -> jax.Array | None:
    """[B, H, Q, K] with an axis cut into `count` stretches along a new first axis; None stays None.

    An axis of size 1 is repeated. A loop over stretches (`lax.scan`) makes the gradient of each
    once; a loop that picks them from the whole array would add to all of it at each step.
    """
    if x_BHQK is None:
        return None
    if x_BHQK.shape[axis] == 1:
        return jnp.broadcast_to(x_BHQK[None], (count, *x_BHQK.shape))
    shape = *x_BHQK.shape[:axis], count, size, *x_BHQK.shape[axis + 1 :]
    return jnp.moveaxis(x_BHQK.reshape(shape), axis, 0)


def _told(q: Side, options: ScoreOptions) -> Side:
    """The queries' side with the scale that `attend` got, and whether it got a mask."""
    return q._replace(scale=options.scale, masked=options.mask_BHQK is not None)


def _start(walk: Walk, params: Params, q: Side):
    return None if walk.start is None else walk.start(params, q)


def _score(walk: Walk, params: Params, s_BHQK, bias_BHQK, q: Side, k: Side, visible_BHQK, carry):
    """Masked logits of a block, and the carry after it."""
    if bias_BHQK is not None:
        s_BHQK = s_BHQK + bias_BHQK.astype(s_BHQK.dtype)
    seen = visible_BHQK & jnp.ones_like(s_BHQK[:, :1], bool)
    changed, carry = walk.score(params, s_BHQK, q, k, seen, carry)
    letters, kind = "[B, H, Q, K]", s_BHQK.dtype
    s_BHQK = checked_result("walk.score", walk.score, changed, letters, s_BHQK.shape, kind)
    return jnp.where(seen, s_BHQK, -jnp.inf), carry
