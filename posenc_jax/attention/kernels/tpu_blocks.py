"""What the kernels of `kernel` do with one block of keys and one of queries, on the chip."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels.block_ranges import Spans, meet
from posenc_jax.attention.kernels.products import product, scale
from posenc_jax.attention.mask import conditions
from posenc_jax.attention.softmax import FLOOR, capped, through_cap


class Given(NamedTuple):
    """What the kernels read: arrays outside, blocks of them inside.

    q, k, v:        [B, H, C, T]; keys and values may have fewer heads, each for H / K of queries.
    q_seen, k_seen: index and segment of each token, [B|1, 2, T].
    rows:           twice the row of a relative bias, [1, H|1, I + J, 1, size]; inside, the two
      neighbouring blocks that the pair of blocks reads.
    sums:           see `Sums`.
    made:           see `traced_bias.Made`.
    g:              the output's gradient, [B, H, C, Q].
    log:            logarithm of each query's sum of exponentials, [B, H, 1, Q].
    drop:           sum of g times the output, [B, H, 1, Q].
    bias:           inside, a traced bias's block [K, Q], -inf where a query does not see a key; the
      logits' gradient goes in its place.
    """

    q: Any
    k: Any
    v: Any
    q_seen: Any
    k_seen: Any
    rows: Any = None
    sums: Any = None
    made: Any = None
    g: Any = None
    log: Any = None
    drop: Any = None
    bias: Any = None


class Sides(NamedTuple):
    """Of what a backward kernel makes gradients: for both it makes a block's logits only once."""

    queries: bool
    keys: bool


def forward(plan: Plan, spans: Spans, i, j, given: Given, o, log, top, total, sum_CQ):
    """One visit of a query block to a key block; at the last one it writes the output."""

    @pl.when(j == 0)
    def _():
        top[...] = jnp.full_like(top, FLOOR)
        total[...] = jnp.zeros_like(total)
        sum_CQ[...] = jnp.zeros_like(sum_CQ)

    def visit(whole: bool):
        s_KQ, _ = _logits(plan, given, j, whole)
        old_1Q = top[...]
        new_1Q = jnp.maximum(old_1Q, s_KQ.max(axis=0, keepdims=True))
        p_KQ = jnp.exp(s_KQ - new_1Q)
        shrink_1Q = jnp.exp(old_1Q - new_1Q)
        top[...] = new_1Q
        total[...] = total[...] * shrink_1Q + p_KQ.sum(axis=0, keepdims=True)
        sum_CQ[...] = sum_CQ[...] * shrink_1Q + product(given.v[...], p_KQ, 1, 0)

    _visit(plan, spans, i, j, given, visit)

    @pl.when(j == spans.first_J.shape[0] - 1)
    def _():
        some = total[...] > 0
        safe_1Q = jnp.where(some, total[...], 1)
        o[...] = (sum_CQ[...] / safe_1Q).astype(o.dtype)
        log[...] = jnp.where(some, top[...] + jnp.log(safe_1Q), 0)


def backward(sides: Sides, plan: Plan, spans: Spans, i, j, given: Given, *refs):
    """One visit, for the gradients of queries with those of biases, of keys, or of both."""
    (queries, keys), left = sides, iter(refs)
    rows, summed = given.rows is not None, given.sums is not None
    some: Any = lambda *asked: [next(left) if one else None for one in asked]
    dq, d_row, d_until = some(queries, queries and rows, queries and summed)
    dk, dv, d_after = some(keys, keys, keys and summed)
    of_block = lambda total: None if total is None else total.at[i if keys else 0]
    of_queries: Any = [*map(of_block, some(queries, queries and summed))]
    of_keys = some(keys, keys, keys and summed)
    sum_CQ, sum_1Q, sum_k, sum_v, sum_KL = *of_queries, *of_keys

    def clear(totals):
        for total in totals:
            if total is not None:
                total[...] = jnp.zeros_like(total)

    pl.when(j == 0)(partial(clear, of_queries))
    pl.when(i == 0)(partial(clear, of_keys))
    pl.when((i == 0) & (j == 0))(partial(clear, [d_row]))

    def visit(whole: bool):
        p_KQ, ds_KQ, d_product_KQ = _gradients(plan, given, j, whole)
        if sum_CQ is not None:
            sum_CQ[...] += product(given.k[...], d_product_KQ, 1, 0)
        if d_row is not None:
            before_1N, after_1N = unskew(ds_KQ)
            n = spans.first_J.shape[0] - 1 + i - j
            d_row[n] += before_1N
            d_row[n + 1] += after_1N
        if sum_1Q is not None:
            sum_1Q[...] += ds_KQ.sum(axis=0, keepdims=True)
        if sum_k is not None:
            sum_v[...] += product(given.g[...], p_KQ, 1, 1)
            sum_k[...] += product(given.q[...], d_product_KQ, 1, 1)
        if sum_KL is not None:
            columns = [ds_KQ[:, n : n + LANES] for n in range(0, plan.queries, LANES)]
            sum_KL[...] += sum(columns[1:], columns[0])
        if queries and given.bias is not None:
            given.bias[...] = ds_KQ

    _visit(plan, spans, i, j, given, visit)

    @pl.when(j == spans.first_J.shape[0] - 1)
    def _():
        if dq is not None:
            dq[...] = (sum_CQ[...] * scale(plan)).astype(dq.dtype)
        if d_until is not None:
            d_until[...] = sum_1Q[...]

    @pl.when(i == spans.first_I.shape[0] - 1)
    def _():
        if dk is not None:
            dk[...] = (sum_k[...] * scale(plan)).astype(dk.dtype)
            dv[...] = sum_v[...].astype(dv.dtype)
        if d_after is not None:
            d_after[...] = sum_KL[...].T.sum(axis=0, keepdims=True)


def _visit(plan: Plan, spans: Spans, i, j, given: Given, visit) -> None:
    """Calls visit(whole) if the blocks meet; `whole`: no key is left to mask.

    Every query sees every key, or all but those ahead, for which a relative bias's row has -inf; or
    a traced bias is masked.
    """
    used = meet(spans, i, j)
    if given.bias is not None:
        pl.when(used)(partial(visit, True))
        return
    whole = spans.one_I[i] == spans.one_J[j]
    if plan.causal and not plan.hidden:
        whole &= spans.low_I[i] >= spans.high_J[j]
    pl.when(used & whole)(partial(visit, True))
    pl.when(used & ~whole)(partial(visit, False))


def _logits(plan: Plan, given: Given, j, whole: bool) -> tuple[jax.Array, jax.Array]:
    """Masked logits, and the capped products that they are made of."""
    product_KQ = capped(product(given.k[...], given.q[...] * scale(plan), 0, 0), plan.cap)
    s_KQ = product_KQ
    if given.rows is not None:
        s_KQ = s_KQ + skew(*(row[...] for row in given.rows))
    if given.bias is not None:
        s_KQ = s_KQ + given.bias[...]
    if given.sums is not None:
        after_K1 = given.sums.after[...].T + given.sums.between[0, j]
        s_KQ = s_KQ + given.sums.until[...] + after_K1
    # A selection for each condition takes fewer instructions than one for all of them.
    for seen_KQ in [] if whole else seen_conditions(plan, given.q_seen[...], given.k_seen[...].T):
        s_KQ = jnp.where(seen_KQ, s_KQ, -jnp.inf)
    return s_KQ, product_KQ


def _gradients(plan: Plan, given: Given, j, whole: bool) -> tuple[jax.Array, ...]:
    """The weights, the logits' gradients, and those of the products of q and k."""
    s_KQ, product_KQ = _logits(plan, given, j, whole)
    p_KQ = jnp.exp(s_KQ - given.log[...])
    dp_KQ = product(given.v[...], given.g[...], 0, 0)
    ds_KQ = p_KQ * (dp_KQ - given.drop[...])
    return p_KQ, ds_KQ, through_cap(ds_KQ, product_KQ, plan.cap)


def seen_conditions(plan: Plan, q_seen_2Q: jax.Array, k_seen_K2: jax.Array) -> list[jax.Array]:
    """The mask's conditions (see `tokens.conditions`) of a block, each [K, Q].

    Where the row of a relative bias has -inf for keys ahead (`Plan.hidden`), causality is not asked
    again.
    """
    index_1Q, segment_1Q = q_seen_2Q[0:1], q_seen_2Q[1:2]
    index_K1, segment_K1 = k_seen_K2[:, 0:1], k_seen_K2[:, 1:2]
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
    """The gradients of `before` and `after` in `skew`: sums along diagonals."""
    parts = g_KQ.shape[0] // LANES
    tile = lambda a, r: g_KQ[a * LANES : (a + 1) * LANES, r * LANES : (r + 1) * LANES]

    def column(c):
        found = [
            tile(a, r) for a in range(parts) for r in range(parts) if (r - a - c) % (2 * parts) == 0
        ]
        return sum(found) if found else jnp.zeros((LANES, LANES), g_KQ.dtype)

    sum_SN = jnp.concatenate([column(c) for c in range(2 * parts)], axis=1)
    while (half := len(sum_SN) // 2) > 0:
        back = sum_SN.shape[1] - half
        sum_SN = sum_SN[:half] + pltpu.roll(sum_SN[half:], back, axis=1)
    size = g_KQ.shape[1]
    return sum_SN[:, size:], sum_SN[:, :size]
