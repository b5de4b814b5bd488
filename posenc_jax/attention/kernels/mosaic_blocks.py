"""What one program of a kernel of `mosaic` does: a block of queries or of keys, and all others.

A block of logits [64, 64] is in the registers of one warpgroup. Its rows are queries, or keys where
products over queries follow, since a product reads the rows of what is in registers.
"""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from posenc_jax.attention.kernels.block_ranges import meet
from posenc_jax.attention.kernels.gpu_bias import bias_of_blocks
from posenc_jax.attention.kernels.mosaic_operations import (
    SIZE,
    along_diagonals,
    in_plain_operations,
    plus_product,
    products,
    unrolled,
)
from posenc_jax.attention.kernels.mosaic_program import (
    ROOMS,
    TILES,
    MosaicProgram,
    Sides,
    barrier,
    copy,
    merged,
    over,
    room,
    rooms,
)
from posenc_jax.attention.kernels.products import scale
from posenc_jax.attention.mask import conditions
from posenc_jax.attention.softmax import FLOOR, NOTHING, capped, through_cap


class Pair(NamedTuple):
    """A block of queries and one of keys, in shared memory; `keys_first` says what its rows are."""

    program: MosaicProgram
    sides: Sides
    i: Any
    j: Any
    keys_first: bool

    def of_queries(self, x_Q: jax.Array) -> jax.Array:
        """A value of each query in all places of the block."""
        return jax.lax.broadcast_in_dim(x_Q, (SIZE, SIZE), [int(self.keys_first)])

    def of_keys(self, x_K: jax.Array) -> jax.Array:
        """A value of each key in all places of the block."""
        return jax.lax.broadcast_in_dim(x_K, (SIZE, SIZE), [1 - int(self.keys_first)])

    def products(self, of_query: Any, of_key: Any) -> jax.Array:
        """The products of what queries and keys have, [64, C] each."""
        return products(of_key, of_query) if self.keys_first else products(of_query, of_key)


def forward(program: MosaicProgram, i, o, log) -> None:
    """Writes the output of a query block, [Q, C], and the logarithm of its sums."""
    zeros_Q = jnp.zeros((SIZE,), jnp.float32)

    def visit(pair: Pair, masked: bool, state):
        old_Q, total_Q, sum_QC = state
        s_QK, _ = _logits(pair, masked)
        new_Q = jnp.maximum(old_Q, s_QK.max(axis=1))
        p_QK, shrink_Q = jnp.exp(s_QK - pair.of_queries(new_Q)), jnp.exp(old_Q - new_Q)
        total_Q = total_Q * shrink_Q + p_QK.sum(axis=1)
        sum_QC *= _in_rows(shrink_Q, sum_QC)
        return new_Q, total_Q, plus_product(sum_QC, p_QK, pair.sides.v)

    def finish(state) -> list:
        top_Q, total_Q, sum_QC = state
        safe_Q = jnp.where(total_Q > 0, total_Q, 1.0)
        log_Q = jnp.where(total_Q > 0, top_Q + jnp.log(safe_Q), NOTHING)
        return [sum_QC / _in_rows(safe_Q, sum_QC), log_Q]

    outputs = [program.tokens(o, i), program.line(log, i)]
    start = zeros_Q + FLOOR, zeros_Q, _zeros(program.inputs.v)
    _over_keys(program, i, visit, start, finish, outputs)


def backward_of_queries(program: MosaicProgram, i, dq, d_until=None) -> None:
    """Writes the gradients of a block of queries, and of sums up to them."""

    def visit(pair: Pair, masked: bool, state):
        dq_QC, d_Q = state
        _, ds_QK, d_product_QK = _gradients(pair, masked)
        return plus_product(dq_QC, d_product_QK, pair.sides.k), d_Q + ds_QK.sum(axis=1)

    def finish(state) -> list:
        dq_QC, d_Q = state
        return [dq_QC * scale(program.plan), d_Q][: len(outputs)]

    outputs = [program.tokens(dq, i)]
    outputs += [] if d_until is None else [program.line(d_until, i)]
    start = _zeros(program.inputs.q), jnp.zeros((SIZE,), jnp.float32)
    _over_keys(program, i, visit, start, finish, outputs)


def backward_of_keys(program: MosaicProgram, j, dk, dv, d_after=None) -> None:
    """Writes the gradients of a block of keys and values, and of sums after keys."""

    def visit(pair: Pair, masked: bool, state):
        dk_KC, dv_KC, d_K = state
        p_KQ, ds_KQ, d_product_KQ = _gradients(pair, masked)
        dv_KC = plus_product(dv_KC, p_KQ, pair.sides.g)
        return plus_product(dk_KC, d_product_KQ, pair.sides.q), dv_KC, d_K + ds_KQ.sum(axis=1)

    def finish(state) -> list:
        dk_KC, dv_KC, d_K = state
        return [dk_KC * scale(program.plan), dv_KC, d_K][: len(outputs)]

    outputs = [program.tokens(dk, j), program.tokens(dv, j)]
    outputs += [] if d_after is None else [program.line(d_after, j)]
    start = _zeros(program.inputs.k), _zeros(program.inputs.v), jnp.zeros((SIZE,), jnp.float32)
    _over_queries(program, j, visit, start, finish, outputs)


def gradient_of_keys(program: MosaicProgram, j, dk, d_after=None) -> None:
    """Writes what `backward_of_keys` does without the gradient of values."""

    def visit(pair: Pair, masked: bool, state):
        dk_KC, d_K = state
        _, ds_KQ, d_product_KQ = _gradients(pair, masked)
        return plus_product(dk_KC, d_product_KQ, pair.sides.q), d_K + ds_KQ.sum(axis=1)

    def finish(state) -> list:
        dk_KC, d_K = state
        return [dk_KC * scale(program.plan), d_K][: len(outputs)]

    outputs = [program.tokens(dk, j)]
    outputs += [] if d_after is None else [program.line(d_after, j)]
    start = _zeros(program.inputs.k), jnp.zeros((SIZE,), jnp.float32)
    _over_queries(program, j, visit, start, finish, outputs)


def gradient_of_values(program: MosaicProgram, j, dv) -> None:
    """Writes the gradient of a block of values."""

    def visit(pair: Pair, masked: bool, dv_KC):
        return plus_product(dv_KC, _weights(pair, masked)[0], pair.sides.g)

    start, finish = _zeros(program.inputs.v), lambda dv_KC: [dv_KC]
    _over_queries(program, j, visit, start, finish, [program.tokens(dv, j)])


def gradient_of_row(program: MosaicProgram, n, d_row) -> None:
    """Writes the part [2 x 64] of a row's gradient that one diagonal of blocks has.

    Program n has the pairs of blocks whose biases begin at the row's block n.
    """
    i_count, j_count = program.ranges.first_I.shape[0], program.ranges.first_J.shape[0]
    back = i_count - 1 - n  # of query blocks before key blocks
    first, end = jnp.maximum(back, 0), jnp.minimum(i_count, j_count + back)
    visited = lambda i: merged(program.queries(i), program.keys(i - back))
    pair = lambda sides, i: Pair(program, sides, i, i - back, False)
    visit = lambda pair, masked, sum_QK: sum_QK + _gradients(pair, masked)[1]
    start, output = jnp.zeros((SIZE, SIZE), jnp.float32), d_row.at[program.b, program.h, n]
    finish = lambda sum_QK: [along_diagonals(sum_QK)]
    meets = lambda i: meet(program.ranges, i, i - back)
    runs = [(first, end, True)]
    _over(program.pair(back, 0), runs, visited, pair, visit, start, finish, [output], meets)


def gradient_of_numbers(group: Sequence[int], program: MosaicProgram, i, d_numbers) -> None:
    """Writes the gradients of a group of the numbers that a traced bias reads, [N, Q], of a block.

    group: their places among all numbers, those of parameters first.
    """

    def visit(pair: Pair, masked: bool, sums):
        leaves, tree = jax.tree.flatten(_numbers(pair))
        ds_QK = _gradients(pair, masked)[1]

        def parts(leaves, ds_QK):
            def bias(floats):
                inputs = dict(enumerate(leaves)) | dict(zip(group, floats, strict=True))
                return _traced(pair, tree.unflatten(inputs.values()))

            return jax.vjp(bias, [leaves[n] for n in group])[1](ds_QK)[0]

        d_blocks = in_plain_operations(parts, leaves, ds_QK)
        return [total + d_QK.sum(axis=1) for total, d_QK in zip(sums, d_blocks, strict=True)]

    start = [jnp.zeros((SIZE,), jnp.float32) for _ in group]
    lines = [d_numbers.at[program.b, program.h, n, program.at(i)] for n in range(len(group))]
    first, end = program.ranges.first_I[i], program.ranges.end_I[i]
    _over_keys(program, i, visit, start, list, lines, [(first, end, True)])


def _over_keys(program, i, visit, start, finish, outputs, runs=None) -> None:
    first, end = program.ranges.first_I[i], program.ranges.end_I[i]
    unmasked = program.unmasked.end_I[i]
    runs = runs or _runs(program, (first, unmasked, False), (unmasked, end, True))
    visited = lambda j: merged(program.keys(j), program.pair(i, j))
    pair = lambda sides, j: Pair(program, sides, i, j, False)
    _over(program.queries(i), runs, visited, pair, visit, start, finish, outputs)


def _over_queries(program, j, visit, start, finish, outputs) -> None:
    first, end = program.ranges.first_J[j], program.ranges.end_J[j]
    unmasked = program.unmasked.first_J[j]
    runs = _runs(program, (first, unmasked, True), (unmasked, end, False))
    visited = lambda i: merged(program.queries(i), program.pair(i, j))
    pair = lambda sides, i: Pair(program, sides, i, j, True)
    _over(program.keys(j), runs, visited, pair, visit, start, finish, outputs)


def _runs(program: MosaicProgram, *runs) -> list[tuple[Any, Any, bool]]:
    """The runs of blocks; a heavy bias costs far more than a mask, so that all are masked then."""
    return [(runs[0][0], runs[-1][1], True)] if program.heavy else list(runs)


def _over(
    stays: Sides,
    runs: list,
    visited: Callable[[Any], Sides],
    pair: Callable[[Sides, Any], Pair],
    visit: Callable,
    start: Any,
    finish: Callable[[Any], list],
    outputs: list,
    meets: Callable[[Any], Any] | None = None,
) -> None:
    """Writes what `finish` makes of the state after visits of all blocks.

    Args:
      stays: where the blocks that stay are in memory; visited(n): the others.
      pair: of (what is in shared memory, n).
      visit: (pair, masked, state) -> state.
      outputs: where each result of `finish` goes.
      meets: see `over`.
    """

    def run(held: Sides, into: Sides, results, held_barrier, barriers) -> None:
        held = room(held, 0)
        copy(stays, held, held_barrier)
        plgpu.barrier_wait(held_barrier)
        see = lambda masked, n, sides, state: visit(pair(merged(held, sides), n), masked, state)
        values = finish(over(runs, visited, into, barriers, see, start, meets))
        _write(values, results, outputs)

    example = visited(runs[0][0])
    types = rooms(stays, 1), rooms(example, ROOMS), [_result(x) for x in outputs]
    pl.run_scoped(run, *types, barrier(stays, 1), barrier(example, ROOMS))


def _result(output) -> Any:
    """Shared memory for a block that is written."""
    tiles = TILES if output.dtype.itemsize == 2 else ()
    return plgpu.SMEM(output.shape, output.dtype, transforms=tiles)


def _write(values: list, results: list, outputs: list) -> None:
    """Writes values from registers to memory, through shared memory."""
    for value, result in zip(values, results, strict=True):
        result[...] = value.astype(result.dtype)
    plgpu.commit_smem()
    for result, output in zip(results, outputs, strict=True):
        plgpu.copy_smem_to_gmem(result, output)
    plgpu.wait_smem_to_gmem(0)


def _zeros(x) -> jax.Array:
    return jnp.zeros((SIZE, x.shape[3]), jnp.float32)


def _in_rows(x_M: jax.Array, like: jax.Array) -> jax.Array:
    """A value of each row in all its columns."""
    return jax.lax.broadcast_in_dim(x_M, like.shape, [0])


def _logits(pair: Pair, masked: bool) -> tuple[jax.Array, jax.Array]:
    """Masked logits, and the capped products that they are made of."""
    program, sides = pair.program, pair.sides
    product = pair.products(sides.q, sides.k) * scale(program.plan)
    product = s = capped(product, program.plan.cap)
    if program.traced is not None:
        s += in_plain_operations(partial(_traced, pair), _numbers(pair))
    if sides.window is not None:
        s += unrolled(sides.window, pair.keys_first)
    if (sums := program.inputs.sums) is not None:
        between = sums.between[program.b, program.h, pair.i, 0, pair.j]
        s += pair.of_queries(sides.until[...]) + pair.of_keys(sides.after[...] + between)
    return jnp.where(_visible(pair), s, -jnp.inf) if masked else s, product


def _weights(pair: Pair, masked: bool) -> tuple[jax.Array, jax.Array]:
    """The weights, and the capped products of q and k."""
    s, product = _logits(pair, masked)
    return jnp.exp(s - pair.of_queries(pair.sides.log[...])), product


def _gradients(pair: Pair, masked: bool) -> tuple[jax.Array, ...]:
    """The weights, the logits' gradients, and those of the products of q and k."""
    sides, (p, product) = pair.sides, _weights(pair, masked)
    ds = p * (pair.products(sides.g, sides.v) - pair.of_queries(sides.delta[...]))
    return p, ds, through_cap(ds, product, pair.program.plan.cap)


def _visible(pair: Pair) -> jax.Array:
    """Which keys each query sees; see `mask.conditions`."""
    plan, sides = pair.program.plan, pair.sides
    q = [pair.of_queries(sides.q_mask[n]) for n in (0, 1)]
    k = [pair.of_keys(sides.k_mask[n]) for n in (0, 1)]
    rule = conditions(q[0], q[1], k[0], k[1], plan.causal, plan.mask_padding)
    return reduce(jnp.logical_and, rule)


def _numbers(pair: Pair) -> tuple[Any, Any, Any]:
    """What a traced bias reads of parameters, queries and keys: lists of lists of blocks."""
    program, sides, numbers = pair.program, pair.sides, pair.program.inputs.numbers
    block = lambda x: jax.lax.broadcast_in_dim(x, (SIZE, SIZE), [])
    head = lambda x: program.h if x.shape[0] > 1 else 0
    of_params = [[block(x[head(x), n]) for n in range(x.shape[1])] for x in numbers.whole]
    lines = lambda x: [x[n] for n in range(x.shape[0])]
    of_queries = [[pair.of_queries(x_Q) for x_Q in lines(x)] for x in sides.q_numbers]
    return of_params, of_queries, [[pair.of_keys(x_K) for x_K in lines(x)] for x in sides.k_numbers]


def _traced(pair: Pair, numbers: tuple[Any, Any, Any]) -> jax.Array:
    """A traced bias of a pair of blocks."""
    assert pair.program.traced is not None
    bias = bias_of_blocks(pair.program.traced, *numbers)
    return jnp.broadcast_to(bias, (SIZE, SIZE)).astype(jnp.float32)
