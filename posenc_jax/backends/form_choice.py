"""Which form of attention is the better one for a size, by what programs are compiled for."""

from typing import Any

import jax

from posenc_jax.backends.target import target, tuned_for, vector_memory

# Logits of one sequence, all heads, up to which `form="auto"` is dense. A CPU is faster in blocks
# from about 1,024 tokens on; elsewhere memory decides: 2^25 float32 logits are 128 MB.
DENSE_LOGITS = {"cpu": 2**21}

DENSE_LOGITS_ELSEWHERE = 2**25

# Logits from which it is the kernel, where that takes the method. An H100 is faster with it at the
# shortest length that was measured, 1,024 tokens of 12 heads; a TPU was not measured.
KERNEL_LOGITS = {"gpu": 2**23}

KERNEL_DTYPES = {"gpu": ("bfloat16",)}  # that it takes there; a GPU's float32 was not measured

KERNEL_DTYPES_ELSEWHERE = "bfloat16", "float32"

# Queries whose visible keys are counted at once: a CPU writes each comparison to memory.
COUNTED = {"cpu": 64}

COUNTED_ELSEWHERE = 8192


def kernels_fit(logits: int) -> bool:
    """Whether what is traced now is better with a kernel for so many logits of one sequence.

    XLA does not partition a kernel over devices, so it is for one accelerator, or for each of
    several alone, inside of `jax.shard_map`.
    """
    if tuned_for("cpu") or logits <= KERNEL_LOGITS.get(target().backend, DENSE_LOGITS_ELSEWHERE):
        return False
    mesh = jax.sharding.get_abstract_mesh()
    alone = bool(mesh.manual_axes) and set(mesh.manual_axes) == set(mesh.axis_names)
    return alone or len(target().devices) == 1


def kernel_takes(dtype: Any) -> bool:
    """Whether `form="auto"` may leave queries of this dtype to a kernel."""
    return str(dtype) in KERNEL_DTYPES.get(target().backend, KERNEL_DTYPES_ELSEWHERE)


def holds(heads: int, width: int, size: int) -> bool:
    """Whether a TPU's vector memory holds the blocks of a kernel with a traced bias.

    It has the float32 logits of all heads, in a third of it, sums and results of all, and what it
    reads and makes of one.
    """
    logits = 4 * heads * size**2
    rest = 24 * heads * width * size + 32 * size * (size + width)
    return 3 * logits <= vector_memory() and logits + rest <= vector_memory()


def most_dense_logits() -> int:
    """Logits of one sequence, all heads, up to which dense attention is the better form."""
    return DENSE_LOGITS.get(target().backend, DENSE_LOGITS_ELSEWHERE)


def counted() -> int:
    """Queries whose visible keys are counted at once."""
    return COUNTED.get(target().backend, COUNTED_ELSEWHERE)
