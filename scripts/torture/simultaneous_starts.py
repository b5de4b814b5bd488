"""Starts many runs in one folder at the same instant: exactly one may win."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import jax

from posenc_jax.lab import runs
from scripts.torture import unprotected
from scripts.torture.results import Attempt, CheckResult

CONFIG = {"experiment": "starts"}
STARTS = 100


def check(folder: Path) -> CheckResult:
    """Starts runs with the lock and without it."""
    won, refused, _ = count(STARTS, folder / "starts")
    unlocked, *_ = count(STARTS, folder / "control", unprotected.locking)
    wrong = STARTS - refused - int(won == 1)
    return CheckResult(
        what="simultaneous starts in one folder: one winner, the others name its process",
        attempts=[
            Attempt("a start", ["neither the only winner nor refused"] if n < wrong else [])
            for n in range(STARTS)
        ],
        control="no lock: more than one winner",
        control_found=[unlocked > 1],
        settings="forked processes that wait for one instant",
        figures=f"{won} winner with the lock, {unlocked} without",
    )


def count(
    starts: int, folder: Path, without: Callable[[], None] | None = None
) -> tuple[int, int, int]:
    """Returns the numbers of winners, of refusals that name the winner, and of other ends.

    `without` is a function of unprotected.py, whose protection is switched off. The starts are
    forked from a process of their own, which has no threads.
    """
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload([__name__])
    barrier = fork.Barrier(starts)
    arguments = folder, barrier, without
    processes = [fork.Process(target=_start, args=arguments) for _ in range(starts)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    ends = [process.exitcode for process in processes]
    won, refused = ends.count(0), ends.count(1)
    return won, refused, starts - won - refused


def _start(folder: Path, barrier: Barrier, without: Callable[[], None] | None) -> None:
    """Ends this process with status 0: won, 1: refused by one line that names a process, or 2."""
    status = 2
    jax.config.update("jax_platforms", "cpu")
    if without:
        without()
    barrier.wait()
    try:
        _run = runs.Run(folder, CONFIG)  # the name keeps its lock
        status = 0
    except ValueError as refusal:
        line = str(refusal)
        status = 1 if "is in use by process" in line and "\n" not in line else 2
    finally:
        barrier.wait()  # the winner ends after all have tried
        os._exit(status)
