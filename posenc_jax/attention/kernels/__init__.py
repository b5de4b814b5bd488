"""Attention in fused kernels, which a bias enters: ours for a TPU and a GPU, JAX's and cuDNN's.

README.md in this folder draws how ours are put together.
"""

from collections.abc import Callable

import jax

from posenc_jax.attention.kernels import cudnn, tpu
from posenc_jax.attention.layers import Layer
from posenc_jax.backends.target import tuned_for


def fused(
    q_BQHC,
    k_BKGC,
    v_BKGC,
    layer: Layer,
    sink_H: jax.Array | None,
    cap: float | None,
    without_kernel: Callable[[], jax.Array],
) -> jax.Array:
    """softmax(q k / sqrt(C) + bias) v over visible keys, [B, Q, H, C]; q and k are rotated.

    The kernel is that of what programs are compiled for: on a GPU cuDNN's where it fits, else ours
    in Triton, or where JAX has none the result of `without_kernel`; on a TPU JAX's splash attention
    where it fits and `form="auto"` chose the kernel, else ours. On a CPU ours for a TPU is
    interpreted.
    """
    if tuned_for("gpu"):
        return cudnn.kernel(q_BQHC, k_BKGC, v_BKGC, layer, sink_H, cap, without_kernel)
    if tuned_for("tpu") and layer.chosen:  # imported here, since few programs need it
        from posenc_jax.attention.kernels import splash

        kernel = splash.kernel
    else:
        kernel = tpu.kernel
    return kernel(q_BQHC, k_BKGC, v_BKGC, layer, sink_H, cap)
