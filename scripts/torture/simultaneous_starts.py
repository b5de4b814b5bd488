"""Starts many runs in one folder at the same instant: exactly one may win.

`python -m scripts.torture.simultaneous_starts N FOLDER [without]` prints
"WINNERS REFUSALS-THAT-NAME-IT OTHERS".
"""

import multiprocessing
import os
import subprocess
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

from posenc_jax.lab import runs
from scripts.torture import unprotected
from scripts.torture.check_result import Attempt, CheckResult
from scripts.torture.processes import ROOT

CONFIG = {"experiment": "starts"}
STARTS = 100


def check(folder: Path) -> CheckResult:
    """Starts runs with the lock and without it."""
    won, refused, _ = count(STARTS, folder / "starts")
    unlocked, *_ = count(STARTS, folder / "control", without=True)
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


def count(starts: int, folder: Path, without: bool = False) -> tuple[int, int, int]:
    """Returns the numbers of winners, of refusals that name the winner, and of other ends.

    The starts are forked from a new process, which has no threads.
    """
    program = [sys.executable, "-m", "scripts.torture.simultaneous_starts"]
    done = subprocess.run(
        [*program, str(starts), str(folder), *(["without"] if without else [])], cwd=ROOT,
        capture_output=True, text=True, check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    won, refused, other = map(int, done.stdout.split()[-3:])
    return won, refused, other


def _start(folder: Path, barrier: Barrier) -> None:
    """Ends this process with status 0: won, 1: refused by one line that names a process, or 2."""
    status = 2
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


def main(starts: int, folder: Path) -> None:
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(starts)
    processes = [fork.Process(target=_start, args=(folder, barrier)) for _ in range(starts)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    ends = [process.exitcode for process in processes]
    print(ends.count(0), ends.count(1), len(ends) - ends.count(0) - ends.count(1))


if __name__ == "__main__":
    if sys.argv[3:] == ["without"]:
        unprotected.locking()
    main(int(sys.argv[1]), Path(sys.argv[2]))
