"""What programs are compiled for, and from which size on which form of attention is the better one.

Operations that a backend needs in another form are in operations.py and operations_rotary.py.
"""

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax

_given = jax.make_user_context(None)  # a part of the keys of `jax.jit`'s caches
# Logits of one sequence, all heads, up to which `form="auto"` is dense. A CPU is faster in blocks
# from about 1,024 tokens on; elsewhere memory decides: 2^25 float32 logits are 128 MB.
DENSE_LOGITS = {"cpu": 2**21}
DENSE_LOGITS_ELSEWHERE = 2**25
# Logits from which it is the kernel, where that takes the method. An H100 is faster with it at the
# shortest length that was measured, 1,024 tokens of 12 heads; a TPU was not measured.
KERNEL_LOGITS = {"gpu": 2**23}
KERNEL_DTYPES = {"gpu": ("bfloat16",)}  # that it takes there; a GPU's float32 was not measured
KERNEL_DTYPES_ELSEWHERE = "bfloat16", "float32"
# What a GPU's kernels are written in. JAX 0.11 deprecates it, and 0.12 warns at every call.
TRITON = "jax.experimental.pallas.triton"
VECTOR_MEMORY = dict.fromkeys(("TPU v2", "TPU v3", "TPU v4", "TPU v4 lite"), 12 * 2**20)
VECTOR_MEMORY_ELSEWHERE = 96 * 2**20
# Queries whose visible keys are counted at once: a CPU writes each comparison to memory.
COUNTED = {"cpu": 64}
COUNTED_ELSEWHERE = 8192


class Target(NamedTuple):
    """What programs are traced and compiled for.

    backend: "cpu", "gpu" or "tpu".
    devices: of all processes; devices of a topology, for a machine that is not at hand.
    loops:   whether layers that are alike are a loop. XLA counts the operations of its body once.
    """

    backend: str
    devices: tuple[Any, ...]
    loops: bool = True


def target() -> Target:
    """The target that `compile_for` gave; by default JAX's own backend and devices."""
    given = _given.value
    return given or Target(jax.default_backend(), tuple(jax.devices()))


def compile_for(
    backend: str, devices: Sequence[Any] = (), loops: bool = True
) -> AbstractContextManager[None]:
    """Traces and compiles what is inside for this backend, whatever machine this is.

    devices: by default those of this machine, which is enough to trace a program.
    loops:   see `Target`.
    """
    return _given(Target(backend, tuple(devices or jax.devices()), loops))


def tuned_for(backend: str) -> bool:
    """Whether what is traced now is tuned for this backend."""
    return target().backend == backend


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


def lacks_triton() -> bool:
    """Whether what is traced now needs a part of Pallas for its kernels that this JAX has not."""
    return tuned_for("gpu") and importlib.util.find_spec(TRITON) is None


def kernel_takes(dtype: Any) -> bool:
    """Whether `form="auto"` may leave queries of this dtype to a kernel."""
    return str(dtype) in KERNEL_DTYPES.get(target().backend, KERNEL_DTYPES_ELSEWHERE)


def interpreted() -> bool:
    """Whether a GPU's kernels are interpreted, since the devices of the target are not GPUs."""
    return target().devices[0].platform == "cpu"


def vector_memory() -> int:
    """Bytes of a TPU core's vector memory that a kernel may use, three quarters of what it has."""
    return VECTOR_MEMORY.get(target().devices[0].device_kind, VECTOR_MEMORY_ELSEWHERE)


def holds(heads: int, width: int, size: int) -> bool:
    """Whether a TPU's vector memory holds a kernel's blocks of so many queries and keys, where it
    makes a traced bias.

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
