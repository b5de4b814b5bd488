"""The kernels of `gpu` in Pallas' Triton, for any GPU from an A100 on.

Where there is no GPU they are interpreted, which is slow and for tests. JAX 0.11 deprecates Triton.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as gpu

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.block_sizes import GPU_BLOCK
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernels import triton_blocks as blocks
from posenc_jax.attention.kernels.gpu import Programs, attention, refuses
from posenc_jax.attention.kernels.gpu_program import Inputs
from posenc_jax.attention.kernels.triton_blocks import TritonProgram
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.backends.target import interpreted

__all__ = ["fits", "kernel", "refuses", "refuses_call"]


def refuses_call(q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
    """It takes all arrays and options."""
    return ""


def fits(layer: Layer) -> bool:
    """It takes tokens in any order."""
    return True


@partial(jax.jit, inline=True)
def kernel(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """softmax(q k / sqrt(C) + bias) v over visible keys, and the log-sum-exp; see `Kernel`."""
    return attention(PROGRAMS, GPU_BLOCK[0], q_BQHC, k_BKGC, v_BKGC, layer, options)


def _call(body: Callable, plan: Plan, traced, inputs: Inputs, steering, count: int, *outputs):
    """The outputs of a kernel, see `gpu.Programs`."""
    batch, _, heads, _ = inputs.q.shape

    def run(inputs, steering, *refs):
        (ranges, whole), (n, h, b) = steering, map(pl.program_id, range(3))
        body(TritonProgram(plan, traced, inputs, ranges, whole, b, h), n, *refs)

    warps = 8 if traced is not None and traced.heavy else 4
    stages = 2 if inputs.row is None else 1  # what is read of a row is not worth fetching ahead
    axes = jax.typeof(inputs.q).manual_axis_type
    return pl.pallas_call(
        run,
        grid=(count, heads, batch),
        out_shape=[jax.ShapeDtypeStruct(*x, manual_axis_type=axes) for x in outputs],
        compiler_params=gpu.CompilerParams(num_warps=warps, num_stages=stages),
        interpret=interpreted(),
        name=getattr(body, "func", body).__name__,
    )(not_differentiated(inputs), steering)


PROGRAMS = Programs(
    _call,
    blocks.forward,
    blocks.backward_of_queries,
    blocks.backward_of_keys,
    blocks.gradient_of_row,
    blocks.gradient_of_numbers,
)
