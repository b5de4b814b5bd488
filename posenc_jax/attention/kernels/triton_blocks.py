"""What one program of a kernel of `triton` does: a block of queries or of keys, and all others."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention.kernels.block_ranges import meet
from posenc_jax.attention.kernels.products import product, scale
from posenc_jax.attention.kernels.triton_bias import of_pair
from posenc_jax.attention.kernels.triton_program import Keys, Program, Queries
from posenc_jax.attention.mask import conditions
from posenc_jax.attention.softmax import FLOOR, capped, through_cap


def forward(of: Program, i, o, log) -> None:
    """Writes the output of a query block, [Q, C], and the logarithm of its sums."""
    zero_Q1, q = jnp.zeros((of.plan.queries, 1), jnp.float32), of.queries(i)

    def visit(whole, j, state):
        old_Q1, total_Q1, sum_QC = state
        k = of.keys(j)
        s_QK, _ = _logits(of, q, k, _bias(of, i, j), whole)
        new_Q1 = jnp.maximum(old_Q1, s_QK.max(axis=1, keepdims=True))
        p_QK, shrink_Q1 = jnp.exp(s_QK - new_Q1), jnp.exp(old_Q1 - new_Q1)
        total_Q1 = total_Q1 * shrink_Q1 + p_QK.sum(axis=1, keepdims=True)
        return new_Q1, total_Q1, sum_QC * shrink_Q1 + _weighed(p_QK, k.v_KC, 1)

    start = zero_Q1 + FLOOR, zero_Q1, _zeros(of, of.given.v)
    top_Q1, total_Q1, sum_QC = _over_keys(of, i, visit, start)
    safe_Q1 = jnp.where(total_Q1 > 0, total_Q1, 1)
    o[of.b, of.at(i), of.h, :] = (sum_QC / safe_Q1).astype(o.dtype)
    log[of.b, of.h, of.at(i)] = jnp.where(total_Q1 > 0, top_Q1 + jnp.log(safe_Q1), 0)[:, 0]


def backward_of_queries(of: Program, i, dq, d_until=None) -> None:
    """Writes the gradients of a block of queries, and of sums up to them."""
    q = of.queries(i)

    def visit(whole, j, state):
        dq_QC, d_Q1 = state
        k = of.keys(j)
        _, ds_QK, d_product_QK = _gradients(of, q, k, _bias(of, i, j), whole)
        dq_QC += _weighed(d_product_QK, k.k_KC, 1)
        return dq_QC, d_Q1 + ds_QK.sum(axis=1, keepdims=True)

    start = _zeros(of, of.given.q), jnp.zeros((of.plan.queries, 1), jnp.float32)
    dq_QC, d_Q1 = _over_keys(of, i, visit, start)
    dq[of.b, of.at(i), of.h, :] = (dq_QC * scale(of.plan)).astype(dq.dtype)
    if d_until is not None:
        d_until[of.b, of.h, 0, of.at(i)] = d_Q1[:, 0]


def backward_of_keys(of: Program, j, dk, dv, d_after=None) -> None:
    """Writes the gradients of a block of keys and values, and of sums after keys."""
    k = of.keys(j)

    def visit(whole, i, state):
        dk_KC, dv_KC, d_1K = state
        q = of.queries(i)
        p_QK, ds_QK, d_product_QK = _gradients(of, q, k, _bias(of, i, j), whole)
        dk_KC += _weighed(d_product_QK, q.q_QC, 0)
        dv_KC += _weighed(p_QK, q.g_QC, 0)
        return dk_KC, dv_KC, d_1K + ds_QK.sum(axis=0, keepdims=True)

    zero_1K = jnp.zeros((1, of.plan.keys), jnp.float32)
    start = _zeros(of, of.given.k), _zeros(of, of.given.v), zero_1K
    first, whole, end = of.spans.first_J[j], of.whole.first_J[j], of.spans.end_J[j]
    runs = (first, whole, False), (whole, end, True)
    dk_KC, dv_KC, d_1K = _over(of, runs, visit, start)
    dk[of.b, of.at(j), of.h, :] = (dk_KC * scale(of.plan)).astype(dk.dtype)
    dv[of.b, of.at(j), of.h, :] = dv_KC.astype(dv.dtype)
    if d_after is not None:
        d_after[of.b, of.h, 0, of.at(j)] = d_1K[0]


def gradient_of_row(of: Program, n, d_row) -> None:
    """Writes the part [2 size] of a row's gradient that one diagonal of blocks has.

    Program n has the pairs of blocks whose biases begin at the row's block n.
    """
    size, (i_count, j_count) = of.plan.queries, (x.shape[0] for x in (of.spans[0], of.spans[2]))
    back = i_count - 1 - n  # of query blocks before key blocks

    def visit(i, sum_QK):
        def add():
            q, k, bias_QK = of.queries(i), of.keys(i - back), _bias(of, i, i - back)
            return sum_QK + _gradients(of, q, k, bias_QK, False)[1]

        return jax.lax.cond(meet(of.spans, i, i - back), add, lambda: sum_QK)

    some = jnp.maximum(back, 0), jnp.minimum(i_count, j_count + back)
    sum_QK = jax.lax.fori_loop(*some, visit, jnp.zeros((size, size), jnp.float32))
    d_row[of.b, of.h, n, :] = _along_diagonals(sum_QK)


def gradient_of_numbers(group: Sequence[int], of: Program, i, d_numbers) -> None:
    """Writes the gradients of some numbers that a traced bias reads, of one query block.

    group:     which of all numbers.
    d_numbers: of `Numbers.whole`, [B, H, I, N], or of `Numbers.q`, [B, H, N, Q].
    """
    (leaves, tree), q = jax.tree.flatten(_numbers(of, i)), of.queries(i)

    def bias(j, floats):
        given = dict(enumerate(leaves)) | dict(zip(group, floats, strict=True))
        return _traced(of, tree.unflatten(given.values()), j)

    def visit(j, sums):
        bias_QK, pull = jax.vjp(partial(bias, j), [leaves[n] for n in group])
        (parts,) = pull(_gradients(of, q, of.keys(j), bias_QK, False)[1])
        return [total + part for total, part in zip(sums, parts, strict=True)]

    start = [jnp.zeros((of.plan.queries, 1), leaves[n].dtype) for n in group]
    sums = jax.lax.fori_loop(of.spans.first_I[i], of.spans.end_I[i], visit, start)
    whole = group[0] < sum(x.shape[1] for x in of.given.made.whole)
    for number, d_Q1 in enumerate(sums):
        if whole:
            d_numbers[of.b, of.h, i, number] = d_Q1.sum()
        else:
            d_numbers[of.b, of.h, number, of.at(i)] = d_Q1[:, 0]


def _over_keys(of: Program, i, visit, state) -> Any:
    """The state after visit(whole, j, state) of every key block that query block i may see."""
    first, whole, end = of.spans.first_I[i], of.whole.end_I[i], of.spans.end_I[i]
    return _over(of, ((first, whole, True), (whole, end, False)), visit, state)


def _over(of: Program, runs: Sequence[tuple[Any, Any, bool]], visit, state) -> Any:
    """The state after visit(whole, n, state) of all blocks of the runs: (start, end, whole).

    A heavy bias costs far more than a mask, and much to compile twice: none is whole then.
    """
    if of.heavy:
        runs = [(runs[0][0], runs[-1][1], False)]
    for start, end, whole in runs:
        state = jax.lax.fori_loop(start, end, partial(visit, whole), state)
    return state


def _zeros(of: Program, x) -> jax.Array:
    return jnp.zeros((of.plan.queries, x.shape[3]), jnp.float32)


def _weighed(x_QK: jax.Array, x_TC: jax.Array, over: int) -> jax.Array:
    """The product over queries (0) or keys (1), summed in float32."""
    return product(x_QK.astype(x_TC.dtype), x_TC, over, 0)


def _logits(of: Program, q: Queries, k: Keys, bias_QK, whole: bool) -> tuple[jax.Array, jax.Array]:
    """Masked logits, and the capped products that they are made of."""
    product_QK = product(q.q_QC, k.k_KC, 1, 1) * scale(of.plan)
    product_QK = s_QK = capped(product_QK, of.plan.cap)
    if bias_QK is not None:
        s_QK = s_QK + bias_QK
    if of.given.sums is not None:
        s_QK = s_QK + q.until_Q1 + (k.after_1K + of.given.sums.between[of.b, of.h, q.i, 0, k.j])
    return s_QK if whole else jnp.where(_visible(of, q, k), s_QK, -jnp.inf), product_QK


def _gradients(of: Program, q: Queries, k: Keys, bias_QK, whole: bool) -> tuple[jax.Array, ...]:
    """The weights, the logits' gradients, and those of the products of q and k."""
    s_QK, product_QK = _logits(of, q, k, bias_QK, whole)
    p_QK = jnp.exp(s_QK - q.log_Q1)
    ds_QK = p_QK * (product(q.g_QC, k.v_KC, 1, 1) - q.drop_Q1)
    return p_QK, ds_QK, through_cap(ds_QK, product_QK, of.plan.cap)


def _visible(of: Program, q: Queries, k: Keys) -> jax.Array:
    """Which keys each query sees, [Q, K]; see `tokens.conditions`."""
    sides = q.index_Q1, q.segment_Q1, k.index_1K, k.segment_1K
    return reduce(jnp.logical_and, conditions(*sides, of.plan.causal, of.plan.mask_padding))


def _bias(of: Program, i, j) -> jax.Array | None:
    """The bias of a pair of blocks."""
    if of.traced is not None:
        return _traced(of, _numbers(of, i), j)
    if of.given.row is None:
        return None
    size, line = of.plan.queries, jax.lax.broadcasted_iota
    shape, blocks = (size, size), of.spans[0].shape[0]
    n_QK = line(jnp.int32, shape, 1) - line(jnp.int32, shape, 0)
    _, head = of.own(of.given.row)
    return of.given.row[0, head, n_QK + (size * (blocks - i + j) - 1)]


def _numbers(of: Program, i) -> tuple[Any, Any]:
    """What a traced bias reads of parameters and of queries: lists of lists of blocks [Q, 1]."""
    made = of.given.made
    column = (of.plan.queries, 1)
    head = lambda x: of.h if x.shape[0] > 1 else 0
    whole = [
        [jnp.broadcast_to(x[head(x), n], column) for n in range(x.shape[1])] for x in made.whole
    ]
    return whole, [[x[*of.own(x), n, of.at(i)][:, None] for n in range(x.shape[2])] for x in made.q]


def _traced(of: Program, numbers: tuple[Any, Any], j) -> jax.Array:
    """A traced bias of a pair of blocks, [Q, K]."""
    assert of.traced is not None
    row = lambda x: of.b if x.shape[0] > 1 else 0
    k = [[x[row(x), n, of.at(j)][None] for n in range(x.shape[1])] for x in of.given.made.k]
    found = of_pair(of.traced, *numbers, k)
    return jnp.broadcast_to(found, (of.plan.queries, of.plan.keys)).astype(jnp.float32)


def _along_diagonals(x_QK: jax.Array) -> jax.Array:
    """[Q, K] to [Q + K]: entry n is the sum where Q - 1 - row + column is n.

    First all rows move by Q - 1 to the right, then each back, one bit of its number after another.
    """
    (rows, columns), line = x_QK.shape, jax.lax.broadcasted_iota
    wide = rows + columns
    x_QN, row_QN, bit = _moved(x_QK, wide, rows - 1), line(jnp.int32, (rows, wide), 0), 1
    while bit < rows:
        x_QN = jnp.where((row_QN & bit) > 0, _moved(x_QN, wide, -bit), x_QN)
        bit *= 2
    return x_QN.sum(axis=0)


def _moved(x_QK: jax.Array, wide: int, by: int) -> jax.Array:
    """x moved by so many columns, [Q, wide]: registers are not addressed, so a product does it.

    Three numbers of bfloat16 add up to one of float32; each is exact in a product with ones.
    """
    line, shape = jax.lax.broadcasted_iota, (x_QK.shape[1], wide)
    one_KN = line(jnp.int32, shape, 1) - line(jnp.int32, shape, 0) == by
    one_KN, moved_QN = one_KN.astype(jnp.bfloat16), jnp.zeros((x_QK.shape[0], wide))
    for _ in range(3):
        upper = jax.lax.bitcast_convert_type(x_QK, jnp.int32) & ~0xFFFF
        part_QK = jax.lax.bitcast_convert_type(upper, jnp.float32)
        moved_QN += product(part_QK.astype(jnp.bfloat16), one_KN, 1, 0)
        x_QK -= part_QK
    return moved_QN
