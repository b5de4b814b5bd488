"""What programs are compiled for: the backend, the chip, and which fused kernels there are.

Operations that a backend needs in another form are in the other modules of this package; which form
of attention is better where is in `form_choice.py`.
"""

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax

_target = jax.make_user_context(None)  # a part of the keys of `jax.jit`'s caches
# What a GPU's kernels are written in. JAX 0.11 deprecates it, and 0.12 warns at every call.
TRITON = "jax.experimental.pallas.triton"
# The fused kernels that may be asked for by name, modules of `attention.kernels`.
KERNELS = {"cpu": ("tpu",), "gpu": ("cudnn", "triton", "mosaic"), "tpu": ("splash", "tpu")}
VECTOR_MEMORY = dict.fromkeys(("TPU v2", "TPU v3", "TPU v4", "TPU v4 lite"), 12 * 2**20)
VECTOR_MEMORY_ELSEWHERE = 96 * 2**20


class Target(NamedTuple):
    """What programs are traced and compiled for.

    backend: "cpu", "gpu" or "tpu".
    devices: of all processes; devices of a topology, for a machine that is not at hand.
    loops:   whether layers that are alike are a loop. XLA counts the operations of its body once.
    kernel:  name of the fused kernel that alone is asked, see `KERNELS`; "": those measured to be
      the fastest.
    """

    backend: str
    devices: tuple[Any, ...]
    loops: bool = True
    kernel: str = ""


def target() -> Target:
    """The target that `compile_for` gave; by default JAX's own backend and devices."""
    chosen = _target.value
    return chosen or Target(jax.default_backend(), tuple(jax.devices()))


def compile_for(
    backend: str, devices: Sequence[Any] = (), loops: bool = True, kernel: str = ""
) -> AbstractContextManager[None]:
    """Traces and compiles what is inside for this backend, whatever machine this is.

    devices: by default those of this machine, which is enough to trace a program.
    loops, kernel: see `Target`.

    ValueError: a kernel that the backend does not have.
    """
    if kernel and kernel not in KERNELS[backend]:
        raise ValueError(f"kernel: {kernel!r} is none of {backend}: {', '.join(KERNELS[backend])}")
    if kernel == "triton" and lacks_triton():
        raise ValueError(f"kernel: 'triton' needs {TRITON}, which this JAX has not")
    return _target(Target(backend, tuple(devices or jax.devices()), loops, kernel))


def tuned_for(backend: str) -> bool:
    """Whether what is traced now is tuned for this backend."""
    return target().backend == backend


def lacks_triton() -> bool:
    """Whether this JAX has no Triton, which `attention.kernels.triton` is written in."""
    return importlib.util.find_spec(TRITON) is None


def compute_capability() -> str | None:
    """Of the target's GPU, such as "9.0"; None where its devices are not GPUs."""
    return getattr(target().devices[0], "compute_capability", None)


def kernel_names(measured: bool) -> tuple[str, ...]:
    """The fused kernels of the target, in the order in which they are asked.

    measured: only such as were measured to be faster than the other forms of attention.
    """
    backend, *_, kernel = target()
    if kernel:
        return (kernel,)
    if backend == "gpu":  # Mosaic's are not measured yet
        return ("cudnn", "mosaic" if lacks_triton() else "triton")
    return KERNELS[backend] if measured else ("tpu",)


def interpreted() -> bool:
    """Whether a GPU's kernels are interpreted, since the devices of the target are not GPUs."""
    return target().devices[0].platform == "cpu"


def vector_memory() -> int:
    """Bytes of a TPU core's vector memory that a kernel may use, three quarters of what it has."""
    return VECTOR_MEMORY.get(target().devices[0].device_kind, VECTOR_MEMORY_ELSEWHERE)
