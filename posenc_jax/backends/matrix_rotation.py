"""Rotations by small matrices: their exponentials, and products of them with channels."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.target import target, tuned_for

TOGETHER = {"tpu": 128}  # tokens whose matrices are exponentiated at once; a row of a TPU's tile
TOGETHER_ELSEWHERE = 1024


def exponentials(a_BTHGUV: jax.Array) -> jax.Array:
    """exp(A) of the small matrices in the last two axes.

    `jax.scipy.linalg.expm` solves linear systems, for which a TPU needs 900 MB at 256 tokens. There
    Taylor's series is summed entry by entry. A norm above 2^17 is too large for both.
    """
    if tuned_for("cpu"):
        return jax.scipy.linalg.expm(a_BTHGUV)
    batch, time, *rest = a_BTHGUV.shape
    tokens = batch * time
    together = min(tokens, TOGETHER.get(target().backend, TOGETHER_ELSEWHERE))
    a_NHGUV = a_BTHGUV.reshape(tokens, *rest)
    a_NHGUV = jnp.pad(a_NHGUV, [(0, -tokens % together), *[(0, 0)] * 4])
    a_SNHGUV = a_NHGUV.reshape(-1, together, *rest)
    # Groups of tokens one after another: the backward pass keeps each step of a group's series.
    series = jax.lax.map(jax.checkpoint(_series), a_SNHGUV.transpose(0, 4, 5, 2, 3, 1))
    exp_NHGUV = series.transpose(0, 5, 3, 4, 1, 2).reshape(-1, *rest)
    return exp_NHGUV[:tokens].reshape(a_BTHGUV.shape)


def _series(a_UVN: jax.Array) -> jax.Array:
    """exp(A), [U, V, ..., tokens]: the series of A / 2^s, whose norm is at most 2, squared s times.

    Tokens are last because they fill the tiles of a TPU.
    """
    most, terms = 16, 24  # the next term is below 3e-18
    eye_UV = jnp.eye(len(a_UVN), dtype=a_UVN.dtype)
    eye_UVN = eye_UV.reshape(*eye_UV.shape, *[1] * (a_UVN.ndim - 2))
    norm_N = jnp.abs(a_UVN).sum(axis=0).max(axis=0)
    halvings_N = jnp.clip(jnp.ceil(jnp.log2(jnp.maximum(norm_N, 0.5))) - 1, 0, most)
    a_UVN = a_UVN * jnp.exp2(-halvings_N)[None, None]

    def product(a_UVN, b_VWN):
        return sum(a_UVN[:, v, None] * b_VWN[None, v] for v in range(len(b_VWN)))

    def horner(n, sum_UVN):
        return eye_UVN + product(a_UVN, sum_UVN) / (terms - n).astype(a_UVN.dtype)

    def square(n, x_UVN):
        more_N = n.astype(halvings_N.dtype) < halvings_N
        return jnp.where(more_N[None, None], product(x_UVN, x_UVN), x_UVN)

    series = jax.lax.fori_loop(0, terms, jax.checkpoint(horner), eye_UVN + jnp.zeros_like(a_UVN))
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
