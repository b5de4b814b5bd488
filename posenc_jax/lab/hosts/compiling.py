"""Reduces the time to compile programs that run for about as long as they compile."""

import importlib.util
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import jax

from posenc_jax.backends.target import target

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"
# By default XLA splits each program for a CPU into parts that it compiles in parallel.
ONE_PART = "--xla_cpu_parallel_codegen_split_count=1"
# XLA for a GPU makes one kernel of the initial weights of many layers, since they read one key.
# Those of 12 layers took ptxas ten times as long as small kernels do.
SMALL_KERNELS = {"xla_disable_hlo_passes": "multi_output_fusion"}


def effort(level: int) -> dict[str, Any]:
    """Returns XLA's options for compiling on a CPU at optimization level 0 or 1, without fusion
    emitters.

    From JAX 0.11 on XLA always uses its emitters, and aborts if the option is given.
    """
    optional = {EMITTERS: False} if jax.__version_info__ < (0, 11) else {}
    return {LEVEL: level, **optional}


def flags(level: int) -> str:
    """Returns the options of `effort` as text for XLA_FLAGS."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in effort(level).items())


def jit_quick(function: Callable, **jit_options: Any) -> Callable:
    """Returns jax.jit(function, **jit_options) that compiles with the least effort.

    On a CPU compiling takes a third of the time, and running three times as long; on a GPU kernels
    stay small; on a TPU nothing changes.
    """
    options = {"cpu": effort(0), "gpu": SMALL_KERNELS}.get(target().backend)
    return jax.jit(function, compiler_options=options, **jit_options)


def jit_whole(function: Callable, **jit_options: Any) -> Callable:
    """Returns jax.jit(function, **jit_options) that optimizes as XLA does by default, also after
    `compile_lightly`.
    """
    options = {LEVEL: 3} if target().backend == "cpu" else None
    return jax.jit(function, compiler_options=options, **jit_options)


def compile_lightly() -> None:
    """Makes all programs of this process compile at level 1, unless XLA_FLAGS sets a level.

    Call it before JAX starts a backend. Does nothing if that may not be a CPU: XLA for a GPU has no
    levels below 2.
    """
    xla_flags = os.environ.get("XLA_FLAGS", "")
    if LEVEL not in xla_flags and only_cpu():
        os.environ["XLA_FLAGS"] = f"{xla_flags} {flags(1)}".strip()


def only_cpu() -> bool:
    """Returns whether JAX can only use a CPU, without starting a backend: JAX_PLATFORMS says so, or
    no plugin for another device is installed.
    """
    if platforms := os.environ.get("JAX_PLATFORMS"):
        return platforms == "cpu"
    plugins = (importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return not entry_points(group="jax_plugins") and not any(plugins)
