"""The catalogue of tasks, and `register`, which adds a function of any file to it."""

from collections.abc import Callable
from typing import Any, Literal

from posenc_jax import registry
from posenc_jax.lab.tasks.task import Plan, Task
from posenc_jax.options import checked_all

Reads = Literal["tokens", "patches", "whole", "clips", "canvas", "code"]

# Every registered task by its name, what its model reads, and what its sizes count.
CATALOG: dict[str, Callable[..., Task | Plan]] = {}
READS: dict[str, Reads] = {}
UNITS: dict[str, str] = {}


def register(
    reads: Reads = "tokens", unit: str = "symbols", name: str = ""
) -> Callable[[Any], Any]:
    """Makes a task of the function below it, which returns a `Task`; its arguments are the options.

    Configs, sweeps and reports find the task by the function's name. Its own module must have been
    imported; a config names it in `imports`. A task whose data takes long to read returns a `Plan`.

        @tasks.register()
        def ones(length: int = 4) -> Task:
            ...

    Each option needs a type and a default.

    Args:
      reads: what the model reads, see `tasks.input_of`.
      unit: what the sizes of the task count, in the plural, for reports.
      name: the task's name, if not the function's.

    ValueError: an input that does not exist, or a name or option that cannot be, see
      `registry.add`.
    """

    def decorate(function):
        task = name or function.__name__
        registry.add(CATALOG, task, function, function)
        READS[task], UNITS[task] = reads, unit
        return function

    checked_all("register", register, reads=reads, unit=unit, name=name)
    return decorate


def names(reads: Reads) -> list[str]:
    """The names of the registered tasks with this input."""
    return [name for name in CATALOG if READS[name] == reads]
