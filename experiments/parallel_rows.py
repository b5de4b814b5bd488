"""Measures the rows of an experiment, on a CPU with a process for each core, else one by one."""

import math
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import jax

from posenc_jax.lab import runs
from posenc_jax.lab.config import imports
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.hosts.compiling import ONE_PART
from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.exit_status import Interrupted
from posenc_jax.lab.training.progress import Progress

T = TypeVar("T")
Prepare = Callable[[Any], Callable[[str], T]]
ROWS = 3  # for each process at least; for fewer rows it takes longer to start than it saves

_prepared: list[Callable[[str], Any]] = []  # of this worker: what `prepare` returned, made once


def measure_rows(
    run: runs.Run,
    title: str,
    names: Sequence[str],
    prepare: Prepare[T],
    config: Any,
    keep: Callable[[str, T], None],
    stage: str = "{}",
) -> None:
    """Measures the rows that no earlier start of the run has measured, and keeps each as it ends.

    Args:
      title: shown with the progress.
      names: one for each row.
      prepare: `prepare(config)` returns the function that measures a row; see `measured`.
      keep: `keep(name, result)` writes a row's result to disk.
      stage: the name of a row's stage, with {} for the row's name.
    """
    missing = [name for name in names if not run.ended(stage.format(name))]
    for name in missing[:1]:
        run.begin(stage.format(name))
    with Progress(len(missing), title) as progress:
        results = measured(prepare, config, missing)
        for done, (name, result) in enumerate(zip(missing, results, strict=True), 1):
            keep(name, result)
            failpoints.reach("measured")
            run.end(stage.format(name))
            progress.update(done)
            signals.stop_if_requested()


def measured(prepare: Prepare[T], config: Any, names: Sequence[str]) -> Iterator[T]:
    """Yields `prepare(config)(name)` for each name, in their order, each as soon as it is known.

    `prepare`, a function of a module, is called once in each process; the results must be
    picklable. An error of either function is raised here.

    Raises:
      Interrupted: a worker was killed from outside.
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
    start = free, tuple(getattr(config, "imports", ()))
    with ProcessPoolExecutor(count, context, _start, start) as pool:
        futures = [pool.submit(_measure, prepare, config, name) for name in names]
        try:
            yield from (future.result() for future in futures)
        except BrokenProcessPool:
            raise Interrupted("a worker was lost; start it again to go on from here") from None
        finally:
            for future in futures:
                future.cancel()


def _start(free: Any, modules: Sequence[str]) -> None:
    """Keeps this worker on one of the free cores, and ends it with its parent.

    It imports the modules that the config names, whose methods and tasks it may measure.
    """
    signals.end_with_parent()
    imports.load(modules)
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_PART}"
    core = free.get()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def _measure(prepare: Prepare[T], config: Any, name: str) -> T:
    if not _prepared:
        _prepared.append(prepare(config))
    return _prepared[0](name)
