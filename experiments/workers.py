"""Rows of an experiment side by side: on a CPU in a process for each core, elsewhere one by one."""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import jax

from posenc_jax.lab.hosts import signals
from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.exit_status import Interrupted

T = TypeVar("T")
Prepare = Callable[[Any], Callable[[str], T]]
ROWS = 3  # a process that measures fewer takes longer to start than it saves

_mine: dict[str, Any] = {}  # what this process measures rows with, or why it cannot


def measured(prepare: Prepare[T], config: Any, names: Sequence[str]) -> Iterator[T]:
    """What `prepare(config)` gives for each name, in their order, each as soon as it is there.

    `prepare`, a function of a module, is called once in each process; what it gives for a name has
    to be picklable. What either raises is raised here.

    Raises:
      Interrupted: a process was ended from outside.
    """
    usable = cores() if jax.default_backend() == "cpu" else []
    count = min(len(usable), math.ceil(len(names) / ROWS))
    if count <= 1:
        yield from map(prepare(config), names)
        return
    context = multiprocessing.get_context("spawn")
    free = context.Queue()
    for core in usable[:count]:
        free.put(core)
    with ProcessPoolExecutor(count, context, _start, (prepare, config, free)) as pool:
        futures = [pool.submit(_measure, name) for name in names]
        try:
            yield from (future.result() for future in futures)
        except BrokenProcessPool:
            raise Interrupted("a worker was lost; start it again to go on from here") from None
        finally:
            for future in futures:
                future.cancel()


def _start(prepare: Prepare[Any], config: Any, free: Any) -> None:
    """What goes wrong here would break the pool, as if the process had been ended: it is kept."""
    signals.end_with_parent()
    core = free.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    try:
        _mine["measure"] = prepare(config)
    except Exception as error:
        _mine["error"] = error


def _measure(name: str) -> Any:
    if "error" in _mine:
        raise _mine["error"]
    return _mine["measure"](name)
