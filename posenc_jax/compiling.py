"""Less time spent on compiling, for programs that run for about as long as they are compiled."""

import os
from collections.abc import Callable
from typing import Any

import jax

LEVEL, EMITTERS = "xla_backend_optimization_level", "xla_cpu_use_fusion_emitters"


def brief(function: Callable) -> Callable:
    """The function under jit, with the least effort of compiling.

    On a CPU that takes a third of the time, and a program runs three times as long; elsewhere
    nothing changes.
    """
    options: dict[str, Any] = {LEVEL: 0, EMITTERS: False}
    return jax.jit(function, compiler_options=options if jax.default_backend() == "cpu" else None)


def compile_lightly() -> None:
    """All programs of this process with little effort, unless XLA_FLAGS says how much; before JAX
    starts its backend.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if LEVEL not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --{LEVEL}=1 --{EMITTERS}=false".strip()
