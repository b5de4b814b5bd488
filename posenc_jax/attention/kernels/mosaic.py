"""The kernels of `gpu` in Pallas' Mosaic GPU, for a Hopper GPU (H100, H200).

They are interpreted where there is no GPU, which is slow and for tests.
"""

import importlib.metadata
from collections.abc import Callable
from functools import partial

import jax
from jax._src.lib import cuda_versions  # CUDA's version has no public name
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams  # public in JAX 0.12
from jax.experimental.pallas import mosaic_gpu as plgpu

from posenc_jax.attention.block_plan import Plan
from posenc_jax.attention.derivatives import not_differentiated
from posenc_jax.attention.kernels import gpu
from posenc_jax.attention.kernels import mosaic_blocks as blocks
from posenc_jax.attention.kernels.gpu_program import Inputs
from posenc_jax.attention.kernels.mosaic_operations import SIZE
from posenc_jax.attention.kernels.mosaic_program import MosaicProgram
from posenc_jax.attention.layers import Layer
from posenc_jax.attention.score_options import ScoreOptions
from posenc_jax.backends import target as targets
from posenc_jax.backends.target import interpreted, target
from posenc_jax.meshes import vary_alike

WIDEST = 128  # channels of a head
MISCOMPILED = 12080, 13000  # versions of CUDA, 12.8.0 and 13.0.0
MENDED = 12, 9, 86  # version of ptxas, of CUDA 12.9.1
HOPPER = "9."  # how its compute capability begins


def refuses(layer: Layer) -> str:
    """Why this kernel does not take the method of a layer; "" if it does."""
    capability = targets.compute_capability()
    if capability is not None and not capability.startswith(HOPPER):
        lacking = f" with this JAX, which has no {targets.TRITON}" if targets.lacks_triton() else ""
        return f"a GPU of compute capability {capability}{lacking}; the kernel is for {HOPPER}x"
    if layer.chosen and not target().kernel:
        return "form='auto', since the kernel for a Hopper GPU was not measured yet"
    if layer.causal and (cuda := _miscompiled()):
        return f"causal attention with CUDA {cuda}, whose ptxas compiles it wrongly"
    return gpu.refuses(layer)


def _miscompiled() -> str:
    """The version of CUDA, such as "12.8", if its ptxas compiles causal masks wrongly; else "".

    JAX's own attention in Mosaic refuses the same versions, from 12.8.0 to before 12.9.1. CUDA's
    runtime does not tell 12.9.0 from 12.9.1; the package of ptxas does.
    """
    if interpreted() or cuda_versions is None:
        return ""
    version = cuda_versions.cuda_runtime_get_version()
    if not MISCOMPILED[0] <= version < MISCOMPILED[1]:
        return ""
    try:
        ptxas = importlib.metadata.version("nvidia-cuda-nvcc-cu12")
    except importlib.metadata.PackageNotFoundError:
        ptxas = ""
    mended = ptxas and tuple(map(int, ptxas.split(".")[:3])) >= MENDED
    return "" if mended else f"{version // 1000}.{version % 1000 // 10}"


def refuses_call(q_BQHC, k_BKGC, v_BKGC, options: ScoreOptions) -> str:
    """Why this kernel does not take these arrays and options; "" if it does."""
    if q_BQHC.dtype.itemsize != 2:
        return f"{q_BQHC.dtype}, with the kernel for a Hopper GPU; give bfloat16"
    if (width := max(q_BQHC.shape[3], v_BKGC.shape[3])) > WIDEST:
        return f"heads of {width} channels, with the kernel for a Hopper GPU: {WIDEST} at most"
    return ""


def fits(layer: Layer) -> bool:
    """It takes tokens in any order."""
    return True


@partial(jax.jit, inline=True)
def kernel(q_BQHC, k_BKGC, v_BKGC, layer: Layer, options: ScoreOptions):
    """softmax(q k / sqrt(C) + bias) v over visible keys, and the log-sum-exp; see `Kernel`."""
    return gpu.attention(PROGRAMS, SIZE, q_BQHC, k_BKGC, v_BKGC, layer, options)


def _call(body: Callable, plan: Plan, traced, inputs: Inputs, steering, count: int, *outputs):
    """The outputs of a kernel, see `gpu.Programs`.

    The sums of keys' and of values' gradients do not both fit into registers at 128 channels.
    """
    if body is blocks.backward_of_keys and inputs.q.shape[3] + inputs.v.shape[3] > 2 * SIZE:
        call = lambda body, *outputs: _call(body, plan, traced, inputs, steering, count, *outputs)
        (dv,) = call(blocks.gradient_of_values, outputs[1])
        dk, *d_after = call(blocks.gradient_of_keys, outputs[0], *outputs[2:])
        return [dk, dv, *d_after]
    batch, _, heads, _ = inputs.q.shape
    arrays, tree = jax.tree.flatten((not_differentiated(inputs), steering))

    def run(*refs):
        inputs, (ranges, whole) = tree.unflatten(refs[: len(arrays)])
        n, h, b = map(jax.lax.axis_index, ("block", "head", "row"))
        body(MosaicProgram(plan, traced, inputs, ranges, whole, b, h), n, *refs[len(arrays) :])

    run.__name__ = getattr(body, "func", body).__name__
    axes = jax.typeof(inputs.q).manual_axis_type
    results = plgpu.kernel(
        run,
        out_type=[jax.ShapeDtypeStruct(*x, manual_axis_type=axes) for x in outputs],
        grid=(heads, count, batch),
        grid_names=("head", "block", "row"),
        compiler_params=plgpu.CompilerParams(
            approx_math=True, lowering_semantics=plgpu.LoweringSemantics.Warpgroup
        ),
        interpret=InterpretGPUParams(detect_races=True) if interpreted() else None,
    )(*arrays)
    return vary_alike((results, inputs.q))[0]  # of which JAX loses track in `jax.shard_map`


PROGRAMS = gpu.Programs(
    _call,
    blocks.forward,
    blocks.backward_of_queries,
    blocks.backward_of_keys,
    blocks.gradient_of_row,
    blocks.gradient_of_numbers,
)
