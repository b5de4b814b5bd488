"""A bias of any form inside a kernel: its own function, traced for one query and one key.

What it makes of parameters, or of them and a query, is made outside of the kernel. The rest is
done there for 8 keys and a block of queries at a time. A value with N entries is an array
[N, 8, Q]: each equation works on whole vectors, and to move entries costs nothing. A product with
parameters is one of the matrix unit, by a matrix that has each parameter 8 times on a diagonal.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.block_sizes import LANES
from posenc_jax.attention.kernels.products import product
from posenc_jax.attention.kernels.tpu_blocks import Given, seen_conditions
from posenc_jax.attention.kernels.traced_bias import (
    MOVES,
    OVER,
    SAME,
    Made,
    TracedBias,
    _run,
    _value,
    before,
    bind,
    floats,
)
from posenc_jax.backends.target import tuned_for
from posenc_jax.encoding import Params, Placed

ROWS = 8  # keys at a time: the rows of a TPU's vector


def make(bias: TracedBias, params: Params, q_placed: Placed, k_placed: Placed) -> Made:
    """What kernels read of it. It has gradients by the parameters, none by positions."""
    last = lambda x: jnp.swapaxes(x.reshape(*x.shape[:2], -1), 1, 2)
    q_placed, k_placed = jax.lax.stop_gradient((q_placed, k_placed))
    first_q, first_k = jax.tree.map(lambda x: x[0, 0], (q_placed, k_placed))
    of_query = lambda q: [before(bias, params, q, first_k)[v] for v in bias.read.q]

    env = before(bias, params, first_q, first_k)
    of_q = jax.vmap(jax.vmap(of_query))(q_placed)
    lanes = lambda x: jnp.broadcast_to(x.reshape(-1, 1, 1), (x.size, ROWS, LANES))
    return Made(
        [lanes(env[v]) for v in bias.read.whole],
        [_matrix(_value(env, eqn.invars[n]), eqn, n) for eqn, n in bias.read.weights.values()],
        [last(x)[:, :, None] for x in of_q],
        [last(x) for x in jax.tree.leaves(k_placed)],
    )


def _matrix(x: jax.Array, eqn, n: int) -> jax.Array:
    """The matrix of a product with parameters x, its operand n, for 8 keys."""
    axes = eqn.params["dimension_numbers"][0][n]
    x = jnp.moveaxis(x, axes, range(len(axes))).reshape(math.prod(x.shape[a] for a in axes), -1)
    return jnp.kron(x.T, jnp.eye(ROWS, dtype=x.dtype))


def fill(plan: Plan, bias: TracedBias, given: Given, columns, logits) -> None:
    """Writes the bias of a block for all heads to `logits`, [H, K, Q], -inf where a query does not
    see a key. One mask for all heads costs less than one for each head's logits.

    columns: room for what is read of keys, [K, N]: their positions, index and segment.
    """
    for x, column in zip((*given.made.k, given.k_seen), columns, strict=True):
        column[...] = x[...].T

    def rows(at) -> None:
        seen = seen_conditions(plan, given.q_seen[...], columns[-1][at, :])
        bias_H8Q = _block(bias, columns, at, logits.shape, *_read(given.made))
        logits[:, at, :] = jnp.where(reduce(jnp.logical_and, seen), bias_H8Q, -jnp.inf)

    _for_rows(bias, logits, rows)


def pull(bias: TracedBias, given: Given, columns, logits, sums) -> None:
    """Adds to `sums` the gradients of what was read, of those of the logits, [H, K, Q]."""

    def rows(at) -> None:
        block = partial(_block, bias, columns, at, logits.shape)
        _, back = jax.vjp(block, *_read(given.made))
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


def _read(made: Made):
    return jax.tree.map(lambda x: x[...], made[:3])


def _block(bias: TracedBias, columns, at, shape: tuple, whole, weights, q) -> jax.Array:
    """The bias of 8 keys, [H, 8, Q]."""
    heads, _, queries = shape
    wide = [jnp.concatenate([x] * (queries // LANES), axis=-1) for x in whole]
    k = [column[at, :][None] for column in columns[:-1]]
    k = [jnp.concatenate([x[..., n : n + 1] for n in range(x.shape[2])]) for x in k]
    read = [*bias.read.whole, *bias.read.q, *bias.read.k]
    env = dict(zip(read, [*wide, *q, *k], strict=True))
    matrices = dict(zip(bias.read.weights, weights, strict=True))

    def apply(eqn, blocks) -> list[jax.Array]:
        if (matrix := matrices.get(eqn.outvars[0])) is None:
            return _apply(eqn, blocks)
        (x,) = (x for x in blocks if x is not None)
        x = jnp.broadcast_to(x, (len(x), ROWS, queries)).reshape(-1, queries)
        found: jax.Array = _weighed(bias.dtype, matrix, x)
        return [found.reshape(-1, ROWS, queries)]

    _run(bias.inside, env, apply)
    found = _value(env, bias.closed.jaxpr.outvars[0])
    return jnp.broadcast_to(found, (heads, ROWS, queries)).astype(jnp.float32)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _weighed(dtype, matrix: jax.Array, x: jax.Array) -> jax.Array:
    """The product; its operands and those of its gradients are rounded to the dtype."""
    return product(matrix.astype(dtype), x, 1, 0)


def _weighed_gradients(dtype, kept, g):
    g, (matrix, x) = g.astype(dtype), kept
    return product(g, x, 1, 1), product(matrix.astype(dtype), g, 0, 0)


_weighed.defvjp(lambda dtype, *given: (_weighed(dtype, *given), given), _weighed_gradients)


def _apply(eqn, blocks: Sequence[jax.Array]) -> list[jax.Array]:
    """An equation's results of its operands, [N, 8|1, Q|1]."""
    name = eqn.primitive.name
    if name in SAME:
        return list(blocks)
    if name in MOVES:
        return _moved(eqn, blocks)
    if name == "sign":  # JAX lowers it only where the TPU is at hand
        x = jax.lax.stop_gradient(blocks[0])
        return [jnp.where(x > 0, jnp.ones_like(x), jnp.where(x < 0, -jnp.ones_like(x), x))]
    if name == "custom_jvp_call":
        return [jax.nn.relu(*blocks)]
    if name == "dot_general":
        return [jnp.multiply(*blocks).sum(axis=0, keepdims=True)]
    if name in OVER:
        shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
        at = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axes, range(len(axes)))
        x = _picked(blocks[0], at.ravel())
        return [OVER[name](x.reshape(-1, eqn.outvars[0].aval.size, *x.shape[1:]), axis=0)]
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in blocks))
    return bind(eqn, [jnp.broadcast_to(x, shape) for x in blocks])


def _moved(eqn, blocks: Sequence[jax.Array]) -> list[jax.Array]:
    """The entries, as the equation moves their numbers."""
    ends = np.cumsum([v.aval.size for v in eqn.invars])
    numbers = [
        np.arange(end - v.aval.size, end, dtype=np.int32).reshape(v.aval.shape)
        for end, v in zip(ends, eqn.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        moved = [np.asarray(at).ravel() for at in bind(eqn, numbers)]
    whole = jnp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
    return [_picked(whole, at) for at in moved]


def _picked(x: jax.Array, at: np.ndarray) -> jax.Array:
    if np.array_equal(at, np.arange(len(x))):
        return x
    if len(x) == 1:
        return jnp.broadcast_to(x, (len(at), *x.shape[1:]))
    return jnp.concatenate([x[n : n + 1] for n in at])
