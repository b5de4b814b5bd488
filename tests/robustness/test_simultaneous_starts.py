"""Starts many runs in one folder at the same instant: exactly one may win."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import jax
import pytest

from posenc_jax.lab import runs
from tests.support import unprotected

CONFIG = {"experiment": "starts"}


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


def test_one_of_many_simultaneous_starts_wins(tmp_path):
    assert count(5, tmp_path / "run") == (1, 4, 0)
    # The control: with no lock nobody is refused; they win, or fail over each other's files.
    assert count(3, tmp_path / "control", unprotected.locking) != (1, 2, 0)


@pytest.mark.thorough
def test_one_of_a_hundred_simultaneous_starts_wins(tmp_path):
    assert count(100, tmp_path / "run") == (1, 99, 0)
    winners, *_ = count(100, tmp_path / "control", unprotected.locking)
    assert winners > 1, "control"
