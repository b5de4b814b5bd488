"""Less time spent on compiling, for programs that run for about as long as they are compiled."""

import importlib.util
import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import jax

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"


def effort(level: int) -> dict[str, Any]:
    """XLA's options for compiling on a CPU with so much effort, 0 or 1, and no fusion emitters.

    From JAX 0.11 on XLA always uses its emitters, and ends a process that names the option.
    """
    optional = {EMITTERS: False} if jax.__version_info__ < (0, 11) else {}
    return {LEVEL: level, **optional}


def flags(level: int) -> str:
    """The same as words of XLA_FLAGS."""
    return " ".join(f"--{name}={str(value).lower()}" for name, value in effort(level).items())


def jit_quick(function: Callable) -> Callable:
    """The function under jit, with the least effort of compiling.

    On a CPU that takes a third of the time, and a program runs three times as long; elsewhere
    nothing changes.
    """
    options = effort(0) if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=options)


def compile_lightly() -> None:
    """All programs of this process with little effort, unless XLA_FLAGS says how much; before JAX
    starts its backend. Only where that is a CPU's: XLA for a GPU has no levels below 2.
    """
    given = os.environ.get("XLA_FLAGS", "")
    if LEVEL not in given and only_cpu():
        os.environ["XLA_FLAGS"] = f"{given} {flags(1)}".strip()


def only_cpu() -> bool:
    """Whether JAX can only take a CPU, known before it starts a backend: it is told to, or no
    plugin for anything else is installed.
    """
    if told := os.environ.get("JAX_PLATFORMS"):
        return told == "cpu"
    plugins = (importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return not entry_points(group="jax_plugins") and not any(plugins)
