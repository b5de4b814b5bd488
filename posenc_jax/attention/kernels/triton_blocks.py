"""What one program of a kernel of `triton` does: a block of queries or of keys, and all others."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention.kernels.block_ranges import meet
from posenc_jax.attention.kernels.gpu_bias import bias_of_blocks
from posenc_jax.attention.kernels.products import product, scale
from posenc_jax.attention.kernels.triton_program import Keys, Queries, TritonProgram
from posenc_jax.attention.mask import conditions
from posenc_jax.attention.softmax import FLOOR, NOTHING, capped, through_cap


def forward(program: TritonProgram, i, o, log) -> None:
    """Writes the output of a query block, [Q, C], and the logarithm of its sums."""
    zero_Q1, q = jnp.zeros((program.plan.queries, 1), jnp.float32), program.queries(i)

    def visit(masked, j, state):
        old_Q1, total_Q1, sum_QC = state
        k = program.keys(j)
        s_QK, _ = _logits(program, q, k, _bias(program, i, j), masked)
        new_Q1 = jnp.maximum(old_Q1, s_QK.max(axis=1, keepdims=True))
        p_QK, shrink_Q1 = jnp.exp(s_QK - new_Q1), jnp.exp(old_Q1 - new_Q1)
        total_Q1 = total_Q1 * shrink_Q1 + p_QK.sum(axis=1, keepdims=True)
        return new_Q1, total_Q1, sum_QC * shrink_Q1 + _times(p_QK, k.v_KC, 1)

    start = zero_Q1 + FLOOR, zero_Q1, _zeros(program, program.inputs.v)
    top_Q1, total_Q1, sum_QC = _over_keys(program, i, visit, start)
    safe_Q1 = jnp.where(total_Q1 > 0, total_Q1, 1)
    o[program.b, program.at(i), program.h, :] = (sum_QC / safe_Q1).astype(o.dtype)
    log_Q1 = jnp.where(total_Q1 > 0, top_Q1 + jnp.log(safe_Q1), NOTHING)
    log[program.b, program.h, program.at(i)] = log_Q1[:, 0]


def backward_of_queries(program: TritonProgram, i, dq, d_until=None) -> None:
    """Writes the gradients of a block of queries, and of sums up to them."""
    q = program.queries(i)

    def visit(masked, j, state):
        dq_QC, d_Q1 = state
        k = program.keys(j)
        _, ds_QK, d_product_QK = _gradients(program, q, k, _bias(program, i, j), masked)
        dq_QC += _times(d_product_QK, k.k_KC, 1)
        return dq_QC, d_Q1 + ds_QK.sum(axis=1, keepdims=True)

    start = _zeros(program, program.inputs.q), jnp.zeros((program.plan.queries, 1), jnp.float32)
    dq_QC, d_Q1 = _over_keys(program, i, visit, start)
    dq[program.b, program.at(i), program.h, :] = (dq_QC * scale(program.plan)).astype(dq.dtype)
    if d_until is not None:
        d_until[program.b, program.h, 0, program.at(i)] = d_Q1[:, 0]


def backward_of_keys(program: TritonProgram, j, dk, dv, d_after=None) -> None:
    """Writes the gradients of a block of keys and values, and of sums after keys."""
    k = program.keys(j)

    def visit(masked, i, state):
        dk_KC, dv_KC, d_1K = state
        q = program.queries(i)
        p_QK, ds_QK, d_product_QK = _gradients(program, q, k, _bias(program, i, j), masked)
        dk_KC += _times(d_product_QK, q.q_QC, 0)
        dv_KC += _times(p_QK, q.g_QC, 0)
        return dk_KC, dv_KC, d_1K + ds_QK.sum(axis=0, keepdims=True)

    zero_1K = jnp.zeros((1, program.plan.keys), jnp.float32)
    start = _zeros(program, program.inputs.k), _zeros(program, program.inputs.v), zero_1K
    first, end = program.ranges.first_J[j], program.ranges.end_J[j]
    unmasked = program.unmasked.first_J[j]
    runs = (first, unmasked, True), (unmasked, end, False)
    dk_KC, dv_KC, d_1K = _over(program, runs, visit, start)
    dk[program.b, program.at(j), program.h, :] = (dk_KC * scale(program.plan)).astype(dk.dtype)
    dv[program.b, program.at(j), program.h, :] = dv_KC.astype(dv.dtype)
    if d_after is not None:
        d_after[program.b, program.h, 0, program.at(j)] = d_1K[0]


def gradient_of_row(program: TritonProgram, n, d_row) -> None:
    """Writes the part [2 size] of a row's gradient that one diagonal of blocks has.

    Program n has the pairs of blocks whose biases begin at the row's block n.
    """
    size, ranges = program.plan.queries, program.ranges
    i_count, j_count = ranges.first_I.shape[0], ranges.first_J.shape[0]
    back = i_count - 1 - n  # of query blocks before key blocks

    def visit(i, sum_QK):
        def add():
            q, k = program.queries(i), program.keys(i - back)
            bias_QK = _bias(program, i, i - back)
            return sum_QK + _gradients(program, q, k, bias_QK, True)[1]

        return jax.lax.cond(meet(program.ranges, i, i - back), add, lambda: sum_QK)

    first, end = jnp.maximum(back, 0), jnp.minimum(i_count, j_count + back)
    sum_QK = jax.lax.fori_loop(first, end, visit, jnp.zeros((size, size), jnp.float32))
    d_row[program.b, program.h, n, :] = _along_diagonals(sum_QK)


def gradient_of_numbers(group: Sequence[int], program: TritonProgram, i, d_numbers) -> None:
    """Writes the gradients of a group of the numbers that a traced bias reads, [N, Q], of a block.

    group: their places among all numbers, those of parameters first.
    """
    (leaves, tree), q = jax.tree.flatten(_numbers(program, i)), program.queries(i)

    def bias(j, floats):
        inputs = dict(enumerate(leaves)) | dict(zip(group, floats, strict=True))
        return _traced(program, tree.unflatten(inputs.values()), j)

    def visit(j, sums):
        bias_QK, pull = jax.vjp(partial(bias, j), [leaves[n] for n in group])
        (parts,) = pull(_gradients(program, q, program.keys(j), bias_QK, True)[1])
        return [total + part for total, part in zip(sums, parts, strict=True)]

    start = [jnp.zeros((program.plan.queries, 1), leaves[n].dtype) for n in group]
    sums = jax.lax.fori_loop(program.ranges.first_I[i], program.ranges.end_I[i], visit, start)
    for number, d_Q1 in enumerate(sums):
        d_numbers[program.b, program.h, number, program.at(i)] = d_Q1[:, 0]


def _over_keys(program: TritonProgram, i, visit, state) -> Any:
    """The state after visit(masked, j, state) of every key block that query block i may see."""
    first, end = program.ranges.first_I[i], program.ranges.end_I[i]
    unmasked = program.unmasked.end_I[i]
    return _over(program, ((first, unmasked, False), (unmasked, end, True)), visit, state)


def _over(program: TritonProgram, runs: Sequence[tuple[Any, Any, bool]], visit, state) -> Any:
    """The state after visit(masked, n, state) of all blocks of the runs: (start, end, masked).

    A heavy bias costs far more than a mask, and much to compile twice: all blocks are masked then.
    """
    if program.heavy:
        runs = [(runs[0][0], runs[-1][1], True)]
    for start, end, masked in runs:
        state = jax.lax.fori_loop(start, end, partial(visit, masked), state)
    return state


def _zeros(program: TritonProgram, x) -> jax.Array:
    return jnp.zeros((program.plan.queries, x.shape[3]), jnp.float32)


def _times(x_QK: jax.Array, x_TC: jax.Array, over: int) -> jax.Array:
    """The product over queries (0) or keys (1), summed in float32."""
    return product(x_QK.astype(x_TC.dtype), x_TC, over, 0)


def _logits(
    program: TritonProgram, q: Queries, k: Keys, bias_QK, masked: bool
) -> tuple[jax.Array, jax.Array]:
    """Masked logits, and the capped products that they are made of."""
    product_QK = product(q.q_QC, k.k_KC, 1, 1) * scale(program.plan)
    product_QK = s_QK = capped(product_QK, program.plan.cap)
    if bias_QK is not None:
        s_QK = s_QK + bias_QK
    if program.inputs.sums is not None:
        between = program.inputs.sums.between[program.b, program.h, q.i, 0, k.j]
        s_QK = s_QK + q.until_Q1 + (k.after_1K + between)
    if masked:
        s_QK = jnp.where(_visible(program, q, k), s_QK, -jnp.inf)
    return s_QK, product_QK


def _gradients(
    program: TritonProgram, q: Queries, k: Keys, bias_QK, masked: bool
) -> tuple[jax.Array, ...]:
    """The weights, the logits' gradients, and those of the products of q and k."""
    s_QK, product_QK = _logits(program, q, k, bias_QK, masked)
    p_QK = jnp.exp(s_QK - q.log_Q1)
    ds_QK = p_QK * (product(q.g_QC, k.v_KC, 1, 1) - q.delta_Q1)
    return p_QK, ds_QK, through_cap(ds_QK, product_QK, program.plan.cap)


def _visible(program: TritonProgram, q: Queries, k: Keys) -> jax.Array:
    """Which keys each query sees, [Q, K]; see `mask.conditions`."""
    sides = q.index_Q1, q.segment_Q1, k.index_1K, k.segment_1K
    rule = conditions(*sides, program.plan.causal, program.plan.mask_padding)
    return reduce(jnp.logical_and, rule)


def _bias(program: TritonProgram, i, j) -> jax.Array | None:
    """The bias of a pair of blocks."""
    if program.traced is not None:
        return _traced(program, _numbers(program, i), j)
    if program.inputs.row is None:
        return None
    size, line = program.plan.queries, jax.lax.broadcasted_iota
    shape, blocks = (size, size), program.ranges[0].shape[0]
    n_QK = line(jnp.int32, shape, 1) - line(jnp.int32, shape, 0)
    _, head = program.row_and_head(program.inputs.row)
    return program.inputs.row[0, head, n_QK + (size * (blocks - i + j) - 1)]


def _numbers(program: TritonProgram, i) -> tuple[Any, Any]:
    """What a traced bias reads of parameters and of queries: lists of lists of blocks [Q, 1]."""
    numbers = program.inputs.numbers
    column, place = (program.plan.queries, 1), program.row_and_head
    head = lambda x: program.h if x.shape[0] > 1 else 0
    of_params = [
        [jnp.broadcast_to(x[head(x), n], column) for n in range(x.shape[1])] for x in numbers.whole
    ]
    of_queries = [
        [x[*place(x), n, program.at(i)][:, None] for n in range(x.shape[2])] for x in numbers.q
    ]
    return of_params, of_queries


def _traced(program: TritonProgram, numbers: tuple[Any, Any], j) -> jax.Array:
    """A traced bias of a pair of blocks, [Q, K]."""
    assert program.traced is not None
    row = lambda x: program.b if x.shape[0] > 1 else 0
    of_keys = [
        [x[row(x), n, program.at(j)][None] for n in range(x.shape[1])]
        for x in program.inputs.numbers.k
    ]
    bias = bias_of_blocks(program.traced, *numbers, of_keys)
    return jnp.broadcast_to(bias, (program.plan.queries, program.plan.keys)).astype(jnp.float32)


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
    shifted_KN = line(jnp.int32, shape, 1) - line(jnp.int32, shape, 0) == by
    shifted_KN, moved_QN = shifted_KN.astype(jnp.bfloat16), jnp.zeros((x_QK.shape[0], wide))
    for _ in range(3):
        upper = jax.lax.bitcast_convert_type(x_QK, jnp.int32) & ~0xFFFF
        part_QK = jax.lax.bitcast_convert_type(upper, jnp.float32)
        moved_QN += product(part_QK.astype(jnp.bfloat16), shifted_KN, 1, 0)
        x_QK -= part_QK
    return moved_QN
