"""Rotations by small matrices: their exponentials, and products of them with channels."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.target import target, tuned_for

TOGETHER = {"tpu": 128}  # tokens whose matrices are exponentiated at once; a row of a TPU's tile
TOGETHER_ELSEWHERE = 1024
# The widest matrices whose exponential is summed entry by entry on a CPU. At 4 x 4 that takes 1/28
# of the time of `jax.scipy.linalg.expm`; at 16 x 16 it takes 5 times as long, and by products of
# matrices 1.3 times.
ENTRYWISE = 8
NEWTON = 32  # steps of Newton's method; its error is squared by each


def exponentials(a_BTHGUV: jax.Array) -> jax.Array:
    """exp(A) of the small matrices in the last two axes.

    Taylor's series is summed entry by entry, or by products of matrices on a CPU where they are
    wide. A norm above 2^17 is too large.
    """
    if tuned_for("cpu"):
        size = a_BTHGUV.shape[-1]
        if size > ENTRYWISE:
            return exponential(a_BTHGUV)
        return jnp.moveaxis(
            _series_by_entries(jnp.moveaxis(a_BTHGUV, (4, 5), (0, 1))), (0, 1), (4, 5)
        )
    batch, time, *rest = a_BTHGUV.shape
    tokens = batch * time
    together = min(tokens, TOGETHER.get(target().backend, TOGETHER_ELSEWHERE))
    a_NHGUV = a_BTHGUV.reshape(tokens, *rest)
    a_NHGUV = jnp.pad(a_NHGUV, [(0, -tokens % together), *[(0, 0)] * 4])
    a_SNHGUV = a_NHGUV.reshape(-1, together, *rest)
    # Groups of tokens one after another: the backward pass keeps each step of a group's series.
    by_entries = jax.checkpoint(_series_by_entries)
    series = jax.lax.map(by_entries, a_SNHGUV.transpose(0, 4, 5, 2, 3, 1))
    exp_NHGUV = series.transpose(0, 5, 3, 4, 1, 2).reshape(-1, *rest)
    return exp_NHGUV[:tokens].reshape(a_BTHGUV.shape)


def exponential(a_UV: jax.Array) -> jax.Array:
    """exp(A) of the matrices in the last two axes, [..., U, U], by products of matrices.

    `jax.scipy.linalg.expm` solves linear systems, see `cayley`.
    """
    product = partial(jnp.matmul, precision="highest")
    eye_UV = jnp.eye(a_UV.shape[-1], dtype=a_UV.dtype)
    return _series(a_UV, jnp.broadcast_to(eye_UV, a_UV.shape), product, rows=-2)


def cayley(skew_HCC: jax.Array) -> jax.Array:
    """(I - S)(I + S)^-1 of antisymmetric matrices S; NaN where a sum of a column and one of a row
    multiply to more than 10^7.

    I + S is inverted by Newton's method, X <- X (2 I - (I + S) X), which converges from any matrix
    since no singular value of I + S is below 1 (Ben-Israel & Cohen 1966). LAPACK, which solves
    linear systems on a CPU, hands many matrices to the pool of threads that runs it and waits: with
    as many devices as threads jaxlib 0.10.2 waits forever. A TPU needs much memory for them.
    """
    eye_1CC = jnp.eye(skew_HCC.shape[-1], dtype=skew_HCC.dtype)[None]
    product = partial(jnp.matmul, precision="highest")
    a_HCC = jax.lax.stop_gradient(eye_1CC + skew_HCC)
    widest = lambda axis: (
        jnp.abs(a_HCC).sum(axis=axis, keepdims=True).max(axis=(1, 2), keepdims=True)
    )
    norm_H11 = widest(1) * widest(2)
    newton = lambda _, x_HCC: product(x_HCC, 2 * eye_1CC - product(a_HCC, x_HCC))
    inverse_HCC = jax.lax.fori_loop(0, NEWTON, newton, a_HCC.swapaxes(1, 2) / norm_H11)
    inverse_HCC = jnp.where(norm_H11 < 1e7, inverse_HCC, jnp.nan)
    return jax.lax.custom_linear_solve(
        lambda x_HCC: product(eye_1CC + skew_HCC, x_HCC),
        eye_1CC - skew_HCC,
        lambda _, right_HCC: product(inverse_HCC, right_HCC),
        lambda _, right_HCC: product(inverse_HCC.swapaxes(1, 2), right_HCC),
    )


def _series_by_entries(a_UVN: jax.Array) -> jax.Array:
    """exp(A), [U, V, ..., tokens]. Tokens are last because they fill the tiles of a TPU."""
    eye_UV = jnp.eye(len(a_UVN), dtype=a_UVN.dtype)
    eye_UVN = eye_UV.reshape(*eye_UV.shape, *[1] * (a_UVN.ndim - 2))

    def product(a_UVN, b_VWN):
        return sum(a_UVN[:, v, None] * b_VWN[None, v] for v in range(len(b_VWN)))

    return _series(a_UVN, eye_UVN, product, rows=0)


def _series(a: jax.Array, eye: jax.Array, product: Callable, rows: int) -> jax.Array:
    """exp(A): the series of A / 2^s, whose norm is at most 2, squared s times.

    rows: the axis of the rows of the matrices; that of their columns is the next one.
    """
    most, terms = 16, 24  # the next term is below 3e-18
    norm = jnp.abs(a).sum(axis=rows, keepdims=True).max(axis=rows + 1, keepdims=True)
    halvings = jnp.clip(jnp.ceil(jnp.log2(jnp.maximum(norm, 0.5))) - 1, 0, most)
    a = a * jnp.exp2(-halvings)

    def horner(n, total):
        return eye + product(a, total) / (terms - n).astype(a.dtype)

    def square(n, x):
        return jnp.where(n.astype(halvings.dtype) < halvings, product(x, x), x)

    series = jax.lax.fori_loop(0, terms, jax.checkpoint(horner), eye + jnp.zeros_like(a))
    return jax.lax.fori_loop(0, most, jax.checkpoint(square), series)


def each_times(matrix_BTHGUV: jax.Array, x_BTHC: jax.Array) -> jax.Array:
    """Each small matrix times its block of channels, shape and dtype of x; G or H may be 1.

    On accelerators it is summed entry by entry, apart from what reads the result: as a part of a
    concatenation XLA for a TPU compiles it for many minutes.
    """
    if tuned_for("tpu") and matrix_BTHGUV.shape[3] == 1:
        return _all_times(matrix_BTHGUV[:, :, :, 0], x_BTHC)
    x_BTHGV = x_BTHC.reshape(*x_BTHC.shape[:3], -1, matrix_BTHGUV.shape[-1])
    x_BTHGV = x_BTHGV.astype(matrix_BTHGUV.dtype)
    if tuned_for("cpu"):
        y_BTHGU = jnp.matmul(matrix_BTHGUV, x_BTHGV[..., None], precision="highest")
    else:
        y_BTHGU = (matrix_BTHGUV * x_BTHGV[..., None, :]).sum(axis=-1)
        y_BTHGU = jax.lax.optimization_barrier(y_BTHGU.astype(x_BTHC.dtype))
    return y_BTHGU.reshape(x_BTHC.shape).astype(x_BTHC.dtype)


def _all_times(matrix_BTHUV: jax.Array, x_BTHC: jax.Array) -> jax.Array:
    """`each_times` on a TPU, where all blocks of channels have one matrix.

    Products with permutations put channels in the order of their places in a block, and back, which
    is exact: moved otherwise they would be copied in float32.
    """
    wide, size = matrix_BTHUV.dtype, matrix_BTHUV.shape[-1]
    order = np.arange(x_BTHC.shape[-1]).reshape(-1, size).T.ravel()
    order_CC = np.eye(len(order), dtype=x_BTHC.dtype)[:, order]
    moved = lambda x_BTHC, order_CC: jnp.matmul(x_BTHC, order_CC, precision="highest")
    x_BTHVG = moved(x_BTHC, order_CC).reshape(*x_BTHC.shape[:3], size, -1).astype(wide)
    y_BTHUG = (matrix_BTHUV[..., None] * x_BTHVG[..., None, :, :]).sum(axis=-2)
    y_BTHC = y_BTHUG.astype(x_BTHC.dtype).reshape(x_BTHC.shape)
    return moved(jax.lax.optimization_barrier(y_BTHC), order_CC.T)
