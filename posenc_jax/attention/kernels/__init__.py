"""Attention in fused kernels, which a bias enters: ours for a TPU and GPUs, JAX's and cuDNN's.

`interface` says what each of them is asked; README.md draws how ours are put together.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import jax

# Pallas adds settings to JAX 0.11 when it is imported, which count in the keys of `jax.jit`: a
# program that imports it while it is traced is compiled again.
import jax.experimental.pallas.tpu

from posenc_jax.attention.kernels.interface import Kernel
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.backends.target import kernel_names


def in_line(layer: Layer) -> list[Kernel]:
    """The kernels of what programs are compiled for, in the order in which they are asked.

    A module is imported here, since few programs need it.
    """
    names = kernel_names(measured=layer.chosen)
    return [cast(Kernel, importlib.import_module(f"{__name__}.{name}")) for name in names]


def refuses(layer: Layer) -> str:
    """Why no kernel takes the method of a layer, as the last in line says it; "" if one does."""
    reasons = [kernel.refuses(layer) for kernel in in_line(layer)]
    return "" if "" in reasons else reasons[-1]


def fused(
    q_BQHC,
    k_BKGC,
    v_BKGC,
    layer: Layer,
    options: ScoreOptions,
    without_kernel: Callable[[], tuple[jax.Array, jax.Array | None]],
) -> tuple[jax.Array, jax.Array | None]:
    """What `Kernel.kernel` returns, of the first in line that takes the arguments.

    without_kernel: makes the same in another form of attention, for what none takes.

    ValueError: the caller asked for a kernel, and none takes such arrays or options.
    """
    reasons = []

    def refused(kernel: Kernel) -> bool:
        reason = kernel.refuses(layer) or kernel.refuses_call(q_BQHC, k_BKGC, v_BKGC, options)
        reasons.append(reason)
        return bool(reason)

    takers = [kernel for kernel in in_line(layer) if not refused(kernel)]
    if not takers and not layer.chosen:
        raise ValueError(refusal(reasons[-1]))

    def asked(results: tuple) -> tuple[jax.Array, jax.Array | None]:
        o_BQHC, lse_BQH = results
        return o_BQHC, lse_BQH if options.lse else None

    def first(takers: Sequence[Kernel], q, k, v):
        if not takers:
            return asked(without_kernel())
        kernel, *others = takers
        run = lambda q, k, v: asked(kernel.kernel(q, k, v, layer, options))
        if (fits := kernel.fits(layer)) is True:
            return run(q, k, v)
        return jax.lax.cond(fits, run, partial(first, others), q, k, v)

    return first(takers, q_BQHC, k_BKGC, v_BKGC)


def refusal(reason: str) -> str:
    """The message of the error where a caller asked for a kernel."""
    return f"form: 'kernel' does not take {reason}; use 'blockwise' or 'auto'"
