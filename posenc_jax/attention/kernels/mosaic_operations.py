"""Operations of a Hopper GPU on blocks [64, 64], each with what stands for it on a CPU.

The interpreter of Pallas' Mosaic GPU has copies, barriers and loops. It has no product whose
operand is in registers, none that adds to registers, and no code of Mosaic's own; JAX 0.10's has no
product with a transposed operand.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from posenc_jax.attention.kernels.products import product
from posenc_jax.attention.kernels.traced_bias import bind, run, value
from posenc_jax.backends.target import interpreted

SIZE = 64  # rows of a product of one warpgroup, and columns of 128 bytes of bfloat16


def products(a: Any, b: Any) -> jax.Array:
    """[M, C] and [N, C] in shared memory to their products, float32 [M, N]."""
    if interpreted():
        return product(a[...], b[...], 1, 1)

    def multiply(sums) -> jax.Array:
        plgpu.wgmma(sums, a, b.transpose((1, 0)))
        return sums[...]

    shape = a.shape[0], b.shape[0]
    return pl.run_scoped(multiply, plgpu.WGMMAAccumulatorRef(shape, jnp.float32))


def plus_product(sum_MC: jax.Array, a_MN: jax.Array, b: Any) -> jax.Array:
    """sum + a b, of a in registers and b, [N, C], in shared memory."""
    a_MN = a_MN.astype(b.dtype)
    if interpreted():
        return sum_MC + product(a_MN, b[...], 1, 0)
    add = lambda sums: plgpu.wgmma(sums, a_MN, b)
    total: Any = pl.run_state(add)(plgpu.WGMMAAccumulatorRef.init(sum_MC))
    return total


def unrolled(window: Any, keys_first: bool) -> jax.Array:
    """A window of 2 x 64 values in shared memory to a block: entry 63 - query + key, float32.

    keys_first: the block is [K, Q], else [Q, K].
    """
    if interpreted():
        copies = jax.lax.broadcast_in_dim(window[...], (SIZE, 2 * SIZE), [1]).reshape(-1)
        lines = jax.lax.slice(copies, [SIZE - 1], [2 * SIZE**2 - 1]).reshape(SIZE, -1)
        block_QK = jax.lax.slice(lines, [0, 0], [SIZE, SIZE])
        return block_QK.T if keys_first else block_QK
    from jax.experimental.mosaic import gpu as mgpu
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import arith, memref

    block = plgpu.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, layout=plgpu.Layout.WGMMA)

    @plgpu.inline_mgpu(arg_types=(plgpu.RefType(),), return_type=block)
    def read(_, window) -> Any:
        last = arith.constant(ir.IndexType.get(), SIZE - 1)

        def entry(_, place):
            key, query = place if keys_first else place[::-1]
            return memref.load(window, [arith.addi(arith.subi(last, query), key)])

        zeros = mgpu.FragmentedArray.splat(
            mgpu.c(0.0, ir.F32Type.get()), (SIZE, SIZE), mgpu.WGMMA_LAYOUT
        )
        return zeros.foreach(entry, create_array=True)

    return read(window)  # pyright: ignore[reportCallIssue] - the decorator gives the context


def along_diagonals(x_QK: jax.Array) -> jax.Array:
    """A block [64, 64] to [2 x 64]: entry n is the sum where 63 - row + column is n."""
    if interpreted():
        # Rows of 127 numbers, read as rows of 128, move by one to the left from each to the next.
        wide = jax.lax.pad(x_QK, jnp.float32(0), [(0, 0, 0), (SIZE - 1, 0, 0)])
        flat = jax.lax.pad(wide.reshape(-1), jnp.float32(0), [(0, SIZE, 0)])
        return flat.reshape(SIZE, 2 * SIZE).sum(axis=0)
    from jax.experimental.mosaic import gpu as mgpu
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import arith, memref

    layout = plgpu.Layout.WG_STRIDED((2 * SIZE,), vec_size=1)
    line = plgpu.ShapeDtypeStruct((2 * SIZE,), jnp.float32, layout=layout)

    @plgpu.inline_mgpu(arg_types=(plgpu.Layout.WGMMA, plgpu.RefType()), return_type=line)
    def through_memory(_, x_QK, room) -> Any:
        x_QK.store_untiled(room, optimized=False)
        mgpu.warpgroup_barrier()  # threads read what others have written
        index = ir.IndexType.get()
        number = lambda n: arith.constant(index, n)

        def entry(zero, place):
            total = zero
            for row in range(SIZE):
                column = arith.addi(place[0], number(row - SIZE + 1))
                inside = arith.cmpi(arith.CmpIPredicate.ult, column, number(SIZE))
                safe = arith.select(inside, column, number(0))
                value = memref.load(room, [number(row), safe])
                total = arith.addf(total, arith.select(inside, value, zero))
            return total

        zeros = mgpu.FragmentedArray.splat(
            mgpu.c(0.0, ir.F32Type.get()), (2 * SIZE,), layout.to_mgpu()
        )
        return zeros.foreach(entry, create_array=True)

    run = lambda room: through_memory(x_QK, room)  # pyright: ignore[reportCallIssue]
    return pl.run_scoped(run, plgpu.SMEM((SIZE, SIZE), jnp.float32))


# What Mosaic GPU has no rule for, in operations that it has.
PLAIN = {
    "add_any": jnp.add,
    "reshard": lambda x, **_: x,  # of a cotangent that is 0, where a mesh has explicit axes
    "log1p": lambda x, **_: jnp.log(1 + x),
    "integer_pow": lambda x, y: _power(x, y),
}


def _power(x: jax.Array, y: int) -> jax.Array:
    product = reduce(jnp.multiply, [x] * abs(y), jnp.ones_like(x))
    return product if y >= 0 else 1 / product


def in_plain_operations(call: Callable, *args: Any) -> Any:
    """call(*args), in operations that Mosaic GPU has."""
    closed, shapes = jax.make_jaxpr(call, return_shape=True)(*args)
    results = _in_plain(closed, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shapes), results)


def _in_plain(closed: Any, leaves: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *leaves], strict=True))

    def apply(eqn, operands) -> list[Any]:
        name = eqn.primitive.name
        for program in ("jaxpr", "call_jaxpr"):  # of `jax.jit` and of `jax.custom_jvp`
            if program in eqn.params:
                return _in_plain(eqn.params[program], operands)
        return [PLAIN[name](*operands, **eqn.params)] if name in PLAIN else bind(eqn, operands)

    run(jaxpr.eqns, values, apply)
    return [value(values, v) for v in jaxpr.outvars]
