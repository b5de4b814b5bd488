"""What the kernels of `tpu` do with one block of queries and one of keys, on the chip."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels.block_ranges import BlockRanges, meet, unmasked
from posenc_jax.attention.kernels.products import product, scale
from posenc_jax.attention.mask import conditions
from posenc_jax.attention.softmax import FLOOR, NOTHING, capped, through_cap


class Inputs(NamedTuple):
    """What the kernels read: arrays outside, blocks of them inside.

    q, k, v:        [B, H, C, T]; keys and values may have fewer heads, each for H / K of queries.
    q_mask, k_mask: index and segment of each token, [B|1, 2, T].
    rows:           twice the row of a relative bias, [1, H|1, I + J, 1, size]; inside, the two
      neighbouring blocks that the pair of blocks reads.
    sums:           see `KeySums`.
    operands:       see `tpu_bias.Operands`.
    g:              the output's gradient, [B, H, C, Q].
    log:            logarithm of each query's sum of exponentials, [B, H, 1, Q].
    delta:          sum of g times the output over channels, [B, H, 1, Q].
    bias:           inside, a traced bias's block [K, Q], -inf where a query does not see a key; the
      backward kernel writes the logits' gradient in its place.
    """

    q: Any
    k: Any
    v: Any
    q_mask: Any
    k_mask: Any
    rows: Any = None
    sums: Any = None
    operands: Any = None
    g: Any = None
    log: Any = None
    delta: Any = None
    bias: Any = None


class Sides(NamedTuple):
    """Whether a backward kernel makes the gradients of queries, and those of keys.

    A kernel for both makes a block's logits only once.
    """

    queries: bool
    keys: bool


def forward(plan: Plan, ranges: BlockRanges, i, j, inputs: Inputs, o, log, top, total, sum_CQ):
    """One visit of a query block to a key block; at the last one it writes the output."""

    @pl.when(j == 0)
    def _():
        top[...] = jnp.full_like(top, FLOOR)
        total[...] = jnp.zeros_like(total)
        sum_CQ[...] = jnp.zeros_like(sum_CQ)

    def visit(masked: bool):
        s_KQ, _ = _logits(plan, inputs, j, masked)
        old_1Q = top[...]
        new_1Q = jnp.maximum(old_1Q, s_KQ.max(axis=0, keepdims=True))
        p_KQ = jnp.exp(s_KQ - new_1Q)
        shrink_1Q = jnp.exp(old_1Q - new_1Q)
        top[...] = new_1Q
        total[...] = total[...] * shrink_1Q + p_KQ.sum(axis=0, keepdims=True)
        sum_CQ[...] = sum_CQ[...] * shrink_1Q + product(inputs.v[...], p_KQ, 1, 0)

    _visit(plan, ranges, i, j, inputs, visit)

    @pl.when(j == ranges.first_J.shape[0] - 1)
    def _():
        seen = total[...] > 0  # queries that see a key
        safe_1Q = jnp.where(seen, total[...], 1)
        o[...] = (sum_CQ[...] / safe_1Q).astype(o.dtype)
        log[...] = jnp.where(seen, top[...] + jnp.log(safe_1Q), NOTHING)


def backward(sides: Sides, plan: Plan, ranges: BlockRanges, i, j, inputs: Inputs, *refs):
    """One visit, which adds to the gradients of queries and of biases, of keys, or of both.

    refs: those of the outputs, then of scratch, in the order of `tpu._gradients`; there are none
      for what this kernel does not make.
    """
    (queries, keys), remaining = sides, iter(refs)
    rows, summed = inputs.rows is not None, inputs.sums is not None
    take: Any = lambda *present: [next(remaining) if there else None for there in present]
    dq, d_row, d_until = take(queries, queries and rows, queries and summed)
    dk, dv, d_after = take(keys, keys, keys and summed)
    # With keys as the outer loop, all blocks of queries have their sums in scratch at once.
    block_of = lambda total: None if total is None else total.at[i if keys else 0]
    of_queries: Any = [*map(block_of, take(queries, queries and summed))]
    of_keys = take(keys, keys, keys and summed)
    sum_CQ, sum_1Q, sum_k, sum_v, sum_KL = *of_queries, *of_keys

    def clear(totals):
        for total in totals:
            if total is not None:
                total[...] = jnp.zeros_like(total)

    pl.when(j == 0)(partial(clear, of_queries))
    pl.when(i == 0)(partial(clear, of_keys))
    pl.when((i == 0) & (j == 0))(partial(clear, [d_row]))

    def visit(masked: bool):
        p_KQ, ds_KQ, d_product_KQ = _gradients(plan, inputs, j, masked)
        if sum_CQ is not None:
            sum_CQ[...] += product(inputs.k[...], d_product_KQ, 1, 0)
        if d_row is not None:
            before_1N, after_1N = unskew(ds_KQ)
            n = ranges.first_J.shape[0] - 1 + i - j
            d_row[n] += before_1N
            d_row[n + 1] += after_1N
        if sum_1Q is not None:
            sum_1Q[...] += ds_KQ.sum(axis=0, keepdims=True)
        if sum_k is not None:
            sum_v[...] += product(inputs.g[...], p_KQ, 1, 1)
            sum_k[...] += product(inputs.q[...], d_product_KQ, 1, 1)
        if sum_KL is not None:
            columns = [ds_KQ[:, n : n + LANES] for n in range(0, plan.queries, LANES)]
            sum_KL[...] += sum(columns[1:], columns[0])
        if queries and inputs.bias is not None:
            inputs.bias[...] = ds_KQ

    _visit(plan, ranges, i, j, inputs, visit)

    @pl.when(j == ranges.first_J.shape[0] - 1)
    def _():
        if dq is not None:
            dq[...] = (sum_CQ[...] * scale(plan)).astype(dq.dtype)
        if d_until is not None:
            d_until[...] = sum_1Q[...]

    @pl.when(i == ranges.first_I.shape[0] - 1)
    def _():
        if dk is not None:
            dk[...] = (sum_k[...] * scale(plan)).astype(dk.dtype)
            dv[...] = sum_v[...].astype(dv.dtype)
        if d_after is not None:
            d_after[...] = sum_KL[...].T.sum(axis=0, keepdims=True)


def _visit(plan: Plan, ranges: BlockRanges, i, j, inputs: Inputs, visit) -> None:
    """Calls visit(masked) if the blocks meet; masked=False: every query sees every key.

    A traced bias has the mask in it already, as -inf.
    """
    used = meet(ranges, i, j)
    if inputs.bias is not None:
        pl.when(used)(partial(visit, False))
        return
    segments = ranges.segment_I[i], ranges.segment_J[j]
    whole = unmasked(plan, *segments, ranges.low_I[i], ranges.high_J[j])
    pl.when(used & whole)(partial(visit, False))
    pl.when(used & ~whole)(partial(visit, True))


def _logits(plan: Plan, inputs: Inputs, j, masked: bool) -> tuple[jax.Array, jax.Array]:
    """Masked logits, and the capped products that they are made of."""
    product_KQ = capped(product(inputs.k[...], inputs.q[...] * scale(plan), 0, 0), plan.cap)
    s_KQ = product_KQ
    if inputs.rows is not None:
        s_KQ = s_KQ + skew(*(row[...] for row in inputs.rows))
    if inputs.bias is not None:
        s_KQ = s_KQ + inputs.bias[...]
    if inputs.sums is not None:
        after_K1 = inputs.sums.after[...].T + inputs.sums.between[0, j]
        s_KQ = s_KQ + inputs.sums.until[...] + after_K1
    if masked:
        # A selection for each condition takes fewer instructions than one for all of them.
        for visible_KQ in mask_conditions(plan, inputs.q_mask[...], inputs.k_mask[...].T):
            s_KQ = jnp.where(visible_KQ, s_KQ, -jnp.inf)
    return s_KQ, product_KQ


def _gradients(plan: Plan, inputs: Inputs, j, masked: bool) -> tuple[jax.Array, ...]:
    """The weights, the logits' gradients, and those of the products of q and k."""
    s_KQ, product_KQ = _logits(plan, inputs, j, masked)
    p_KQ = jnp.exp(s_KQ - inputs.log[...])
    dp_KQ = product(inputs.v[...], inputs.g[...], 0, 0)
    ds_KQ = p_KQ * (dp_KQ - inputs.delta[...])
    return p_KQ, ds_KQ, through_cap(ds_KQ, product_KQ, plan.cap)


def mask_conditions(plan: Plan, q_mask_2Q: jax.Array, k_mask_K2: jax.Array) -> list[jax.Array]:
    """The conditions of the mask (see `mask.conditions`) for a block, each [K, Q].

    Where the row of a relative bias has -inf for keys ahead (`Plan.hidden`), causality is not asked
    again.
    """
    index_1Q, segment_1Q = q_mask_2Q[0:1], q_mask_2Q[1:2]
    index_K1, segment_K1 = k_mask_K2[:, 0:1], k_mask_K2[:, 1:2]
    causal = plan.causal and not plan.hidden
    return conditions(index_1Q, segment_1Q, index_K1, segment_K1, causal, plan.mask_padding)


def skew(before_1N: jax.Array, after_1N: jax.Array) -> jax.Array:
    """A block [K, Q] of a relative bias, from two neighbouring blocks of its row.

    Element (j, i) is entry i - j of `after`, and N + i - j of `before` where that is below 0.
    A strided roll would take a few instructions less, but a TPU v4 has none.
    """
    size = after_1N.shape[1]
    turned = jnp.concatenate([after_1N, before_1N], axis=1)
    while (rows := len(turned)) < size:
        turned = jnp.concatenate([turned, pltpu.roll(turned, rows, axis=1)], axis=0)
    return turned[:size, :size]


def unskew(g_KQ: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The gradients of `before` and `after` in `skew`: sums along diagonals.

    Tiles of 128 x 128 of one diagonal are added first, then rows are rolled onto each other in
    log2(128) halvings.
    """
    parts = g_KQ.shape[0] // LANES
    tile = lambda a, r: g_KQ[a * LANES : (a + 1) * LANES, r * LANES : (r + 1) * LANES]

    def column(c):
        tiles = [
            tile(a, r) for a in range(parts) for r in range(parts) if (r - a - c) % (2 * parts) == 0
        ]
        return sum(tiles) if tiles else jnp.zeros((LANES, LANES), g_KQ.dtype)

    sum_SN = jnp.concatenate([column(c) for c in range(2 * parts)], axis=1)
    while (half := len(sum_SN) // 2) > 0:
        back = sum_SN.shape[1] - half
        sum_SN = sum_SN[:half] + pltpu.roll(sum_SN[half:], back, axis=1)
    size = g_KQ.shape[1]
    return sum_SN[:, size:], sum_SN[:, :size]
