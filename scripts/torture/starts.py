"""Starts many runs in one folder at the same instant: exactly one may win.

`python -m scripts.torture.starts N FOLDER [without]` prints "WINNERS REFUSALS-THAT-NAME-IT OTHERS".
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from posenc_jax.lab import runs
from scripts.torture.check_result import CheckResult
from scripts.torture.child import ROOT
from scripts.torture.unprotected import locking

CONFIG = {"experiment": "starts"}


def show(folder: Path, starts: int) -> CheckResult:
    won, refused, _ = count(starts, folder / "starts")
    free, *_ = count(starts, folder / "control", without=True)
    return CheckResult(
        what="simultaneous starts in one folder: one winner, the others name its process",
        good=refused + int(won == 1),
        tried=starts,
        control="no lock: more than one winner",
        control_found=int(free > 1),
        control_tried=1,
        settings="forked processes that wait for one instant",
        figures=f"{won} winner with the lock, {free} without",
    )


def count(starts: int, folder: Path, without: bool = False) -> tuple[int, int, int]:
    """Returns the numbers of winners, of refusals that name the winner, and of other ends.

    The starts are forked from a new process, which has no threads.
    """
    command = [sys.executable, "-m", "scripts.torture.starts", str(starts), str(folder)]
    done = subprocess.run(
        [*command, *(["without"] if without else [])], cwd=ROOT, capture_output=True, text=True,
        check=True, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    won, refused, other = map(int, done.stdout.split()[-3:])
    return won, refused, other


class Pipes(NamedTuple):
    """(read, write) ends of pipes: closing `go` starts all, closing `over` lets the winner end."""

    go: tuple[int, int]
    tried: tuple[int, int]
    over: tuple[int, int]


def _start(folder: Path, pipes: Pipes) -> int:
    """0: won, 1: refused by one line that names a process, 2: anything else."""
    os.close(pipes.go[1])
    os.close(pipes.over[1])
    os.read(pipes.go[0], 1)
    try:
        run = runs.Run(folder, CONFIG)
    except ValueError as refusal:
        line = str(refusal)
        return 1 if "is in use by process" in line and "\n" not in line else 2
    finally:
        os.write(pipes.tried[1], b".")
    os.read(pipes.over[0], 1)
    run.__exit__(None, None, None)
    return 0


def main(starts: int, folder: Path) -> None:
    pipes = Pipes(os.pipe(), os.pipe(), os.pipe())
    children = []
    for _ in range(starts):
        child = os.fork()
        if not child:
            status = 2
            try:
                status = _start(folder, pipes)
            finally:
                os._exit(status)
        children.append(child)
    os.close(pipes.go[1])
    for _ in children:
        os.read(pipes.tried[0], 1)
    os.close(pipes.over[1])
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(ends.count(0), ends.count(1), len(ends) - ends.count(0) - ends.count(1))


if __name__ == "__main__":
    if sys.argv[3:] == ["without"]:
        locking()
    main(int(sys.argv[1]), Path(sys.argv[2]))
