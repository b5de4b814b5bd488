"""Methods measured side by side: a process for each core, which draws the examples once."""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from experiments.leaderboard.measure import draw_pools, measure
from posenc_jax import interrupts
from posenc_jax.stops import Diverged, Interrupted

_mine: dict[str, Any] = {}  # what this worker was started with


class Result(NamedTuple):
    """A method's records; or the reason why there are none."""

    name: str
    records: list[dict[str, Any]]
    reason: str


def measured(config: Any, names: Sequence[str]) -> Iterator[Result]:
    """Every method's result as it comes.

    Raises:
      Interrupted: a worker was ended from outside.
    """
    processes = min(config.processes, len(names))
    if processes <= 1:
        pools = draw_pools(config)
        yield from (_attempt(config, name, pools) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    cores = context.Queue()
    for core in range(processes):
        cores.put(core)
    with ProcessPoolExecutor(processes, context, _start, (config, cores)) as workers:
        futures = [workers.submit(_work, name) for name in names]
        try:
            yield from (future.result() for future in as_completed(futures))
        except BrokenProcessPool:
            raise Interrupted("a worker was lost; start it again to go on from here") from None
        finally:
            for future in futures:
                future.cancel()


def _start(config: Any, cores: Any) -> None:
    interrupts.follow_parent()
    core = cores.get()
    if hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[core % len(usable)]})
    _mine.update(config=config, pools=draw_pools(config))


def _work(name: str) -> Result:
    return _attempt(_mine["config"], name, _mine["pools"])


def _attempt(config: Any, name: str, pools: Any) -> Result:
    """The method's result; running out of memory and diverging are two, any other failure is a
    fault of ours."""
    try:
        return Result(name, list(measure(config, name, pools)), "")
    except Diverged as reason:
        return Result(name, [], str(reason))
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return Result(name, [], "out of memory")
