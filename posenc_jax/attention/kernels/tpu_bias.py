"""Compiles a traced bias for a TPU: its equations in blocks of 8 keys and a block of queries.

A value with N entries is an array [N, 8, Q]: each equation works on whole vectors, and to move
entries costs nothing. A product with parameters is one of the matrix unit, by a matrix that has
each parameter 8 times on a diagonal. All heads are made at once. `traced_bias` has the equations.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels.products import product
from posenc_jax.attention.kernels.tpu_blocks import Inputs, mask_conditions
from posenc_jax.attention.kernels.traced_bias import (
    IDENTITIES,
    MOVES,
    REDUCTIONS,
    TracedBias,
    bind,
    floats,
    moved_entries,
    outside_values,
    reduced_entries,
    run,
    value,
)
from posenc_jax.backends.target import tuned_for
from posenc_jax.encoding import Params, Placed

ROWS = 8  # keys at a time: the rows of a TPU's vector


class Operands(NamedTuple):
    """What the kernels read of a bias, each a list of arrays; see `traced_bias.Reads`.

    whole:   entries made of parameters, each in all places of a vector, [N, 8, LANES].
    weights: matrices of products with parameters, [8 N', 8 N].
    q:       entries of each query, [B|1, N, 1, Q].
    k:       positions of keys, [B|1, N, K].
    """

    whole: Any
    weights: Any
    q: Any
    k: Any


def operands(bias: TracedBias, params: Params, q_placed: Placed, k_placed: Placed) -> Operands:
    """What the kernels read of the bias. It has gradients by the parameters, none by positions."""
    tokens_last = lambda x: jnp.swapaxes(x.reshape(*x.shape[:2], -1), 1, 2)
    q_placed, k_placed = jax.lax.stop_gradient((q_placed, k_placed))
    first_q, first_k = jax.tree.map(lambda x: x[0, 0], (q_placed, k_placed))
    of_query = lambda q: [outside_values(bias, params, q, first_k)[v] for v in bias.reads.q]

    values = outside_values(bias, params, first_q, first_k)
    of_queries = jax.vmap(jax.vmap(of_query))(q_placed)
    in_all_lanes = lambda x: jnp.broadcast_to(x.reshape(-1, 1, 1), (x.size, ROWS, LANES))
    return Operands(
        [in_all_lanes(values[v]) for v in bias.reads.whole],
        [_matrix(value(values, eqn.invars[n]), eqn, n) for eqn, n in bias.reads.weights.values()],
        [tokens_last(x)[:, :, None] for x in of_queries],
        [tokens_last(x) for x in jax.tree.leaves(k_placed)],
    )


def _matrix(x: jax.Array, eqn, n: int) -> jax.Array:
    """The matrix of a product with parameters x, its operand n, for 8 keys."""
    axes = eqn.params["dimension_numbers"][0][n]
    x = jnp.moveaxis(x, axes, range(len(axes))).reshape(math.prod(x.shape[a] for a in axes), -1)
    return jnp.kron(x.T, jnp.eye(ROWS, dtype=x.dtype))


def fill(plan: Plan, bias: TracedBias, inputs: Inputs, columns, logits) -> None:
    """Writes the bias of a block for all heads to `logits`, [H, K, Q], -inf where a query does not
    see a key. One mask for all heads costs less than one for each head's logits.

    columns: room for what is read of keys, [K, N]: their positions, index and segment.
    """
    for x, column in zip((*inputs.operands.k, inputs.k_mask), columns, strict=True):
        column[...] = x[...].T

    def rows(at) -> None:
        visible = mask_conditions(plan, inputs.q_mask[...], columns[-1][at, :])
        bias_H8Q = _block(bias, columns, at, logits.shape, *_load(inputs.operands))
        logits[:, at, :] = jnp.where(reduce(jnp.logical_and, visible), bias_H8Q, -jnp.inf)

    _for_rows(bias, logits, rows)


def pull(bias: TracedBias, inputs: Inputs, columns, logits, sums) -> None:
    """Adds the gradients of what was read to `sums`; `logits` holds those of logits, [H, K, Q]."""

    def rows(at) -> None:
        block = partial(_block, bias, columns, at, logits.shape)
        _, back = jax.vjp(block, *_load(inputs.operands))
        for total, part in zip(sums, floats(back(logits[:, at, :])), strict=True):
            total[...] += part

    _for_rows(bias, logits, rows, 4)


def _for_rows(bias: TracedBias, logits, call: Callable, share: int = 1) -> None:
    """call(rows) for each 8 keys; a TPU interleaves the instructions of up to 16 / `share`."""
    step = lambda n, _: call(pl.ds(pl.multiple_of(n * ROWS, ROWS), ROWS))
    widest = max((v.aval.size for eqn in bias.inside for v in eqn.outvars), default=1)
    together = min(16, 1024 // widest) // share if tuned_for("tpu") else 1
    unroll = 1 << max(together.bit_length() - 1, 0)
    jax.lax.fori_loop(0, logits.shape[1] // ROWS, step, None, unroll=unroll)


def _load(operands: Operands) -> tuple:
    """All that is read but for keys, from the chip's memory."""
    return jax.tree.map(lambda x: x[...], operands[:3])


def _block(bias: TracedBias, columns, at, shape: tuple, whole, weights, q) -> jax.Array:
    """The bias of 8 keys, [H, 8, Q]."""
    heads, _, queries = shape
    wide = [jnp.concatenate([x] * (queries // LANES), axis=-1) for x in whole]
    k = [column[at, :][None] for column in columns[:-1]]
    k = [jnp.concatenate([x[..., n : n + 1] for n in range(x.shape[2])]) for x in k]
    variables = [*bias.reads.whole, *bias.reads.q, *bias.reads.k]
    values = dict(zip(variables, [*wide, *q, *k], strict=True))
    matrices = dict(zip(bias.reads.weights, weights, strict=True))

    def apply(eqn, blocks) -> list[jax.Array]:
        if (matrix := matrices.get(eqn.outvars[0])) is None:
            return _apply(eqn, blocks)
        (x,) = (x for x in blocks if x is not None)  # the weights have no value: they are `matrix`
        x = jnp.broadcast_to(x, (len(x), ROWS, queries)).reshape(-1, queries)
        products: jax.Array = _weighted(bias.dtype, matrix, x)
        return [products.reshape(-1, ROWS, queries)]

    run(bias.inside, values, apply)
    bias_H8Q = value(values, bias.result)
    return jnp.broadcast_to(bias_H8Q, (heads, ROWS, queries)).astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _weighted(dtype, matrix: jax.Array, x: jax.Array) -> jax.Array:
    """The product of a matrix and x, [8 N', Q]. Operands, also those of the gradients, are rounded
    to the dtype of queries and keys, as all products of a kernel are.
    """
    return product(matrix.astype(dtype), x, 1, 0)


def _weighted_gradients(dtype, residuals, g):
    g, (matrix, x) = g.astype(dtype), residuals
    return product(g, x, 1, 1), product(matrix.astype(dtype), g, 0, 0)


_weighted.defvjp(lambda dtype, *args: (_weighted(dtype, *args), args), _weighted_gradients)


def _apply(eqn, blocks: Sequence[jax.Array]) -> list[jax.Array]:
    """An equation's results of its operands, [N, 8|1, Q|1] each."""
    name = eqn.primitive.name
    if name in IDENTITIES:
        return list(blocks)
    if name in MOVES:
        entries = jnp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        return [_picked(entries, at) for at in moved_entries(eqn)]
    if name == "sign":  # JAX lowers it only where the TPU is at hand
        x = jax.lax.stop_gradient(blocks[0])
        return [jnp.where(x > 0, jnp.ones_like(x), jnp.where(x < 0, -jnp.ones_like(x), x))]
    if name == "custom_jvp_call":
        return [jax.nn.relu(*blocks)]
    if name == "dot_general":
        return [jnp.multiply(*blocks).sum(axis=0, keepdims=True)]
    if name in REDUCTIONS:
        at = reduced_entries(eqn)
        x = _picked(blocks[0], at.ravel())
        reduce, _ = REDUCTIONS[name]
        return [reduce(x.reshape(*at.shape, *x.shape[1:]), axis=0)]
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in blocks))
    return bind(eqn, [jnp.broadcast_to(x, shape) for x in blocks])


def _picked(x: jax.Array, at: np.ndarray) -> jax.Array:
    """The entries `at` of x, whose first axis they are."""
    if np.array_equal(at, np.arange(len(x))):
        return x
    if len(x) == 1:
        return jnp.broadcast_to(x, (len(at), *x.shape[1:]))
    return jnp.concatenate([x[n : n + 1] for n in at])
