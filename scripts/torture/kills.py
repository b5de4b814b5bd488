"""Kills runs at random moments and at failpoints: a resumed run must end in the same bits."""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from scripts.torture import unprotected
from scripts.torture.check_result import Attempt, CheckResult
from scripts.torture.processes import (
    Ended,
    TrainProcess,
    complete,
    errors,
    own_compiled,
    side_by_side,
    whole,
)

KILLS = 50
# Before, in and after each part of a save; in compiling, training, evaluating, and in the report.
POINTS = (
    "compiling", "compiling+0.4", "compiling:2+0.8", "training", "training:3", "training:7",
    "saving", "saving:2+0.01", "saving:4+0.03", "saving:5+0.02", "writing", "writing:2+0.005",
    "writing:3+0.015", "writing:6+0.03", "committed", "committed:3", "committed:5", "sealed",
    "sealed:2", "sealed:4", "sealed:8", "deleting", "deleting:2", "deleting:3", "deleting:4",
    "evaluating", "evaluating:2", "evaluating:3", "finished", "finished+0.3",
)  # fmt: skip
# Switched off when a run is resumed that was killed in training.
CONTROLS = (unprotected.rollback, unprotected.optimizer)


class Case(NamedTuple):
    """A kill at a failpoint or after some seconds, and the protection that is off at the resume."""

    at: str | float
    without: Callable[[], None] | None = None


def check(folder: Path) -> CheckResult:
    """Kills runs, at the failpoints first."""
    started = time.monotonic()
    wanted = whole(TrainProcess(folder / "whole"))
    seconds = time.monotonic() - started
    rng = random.Random(0)
    cases = [Case(point) for point in POINTS]
    cases += [Case(rng.uniform(0.1, 1.0) * seconds) for _ in range(KILLS - len(POINTS))]
    controls = [Case("training:3", without) for without in CONTROLS]

    def one(numbered: tuple[int, Case]) -> Attempt:
        number, case = numbered
        return attempt(folder / f"kill{number}", case, wanted)

    tried = side_by_side(one, enumerate([*cases, *controls]))
    return CheckResult(
        what="SIGKILL, then one restart: same parameters, optimizer states and records, bit by bit",
        attempts=tried[:KILLS],
        control="restart " + ", ".join(f"without {each.__name__}" for each in CONTROLS),
        control_found=[bool(control.wrong) for control in tried[KILLS:]],
        settings=f"{len(POINTS)} at failpoints, {KILLS - len(POINTS)} at random moments of a run "
        f"of {seconds:.0f} s; one pinned core each; two encodings, two seeds, a save after every "
        "6 of 24 steps; these moments and those of compiling with nothing compiled before",
    )


def attempt(workdir: Path, case: Case, wanted: dict[str, str]) -> Attempt:
    """Kills and resumes one run."""
    compiled = own_compiled(workdir, case.at)
    if isinstance(case.at, str):
        killed = TrainProcess(workdir, failpoint=case.at, compiled=compiled).wait()
    else:
        killed = _kill_after(workdir, case.at, compiled)
    wrong = errors(killed, status=-signal.SIGKILL)
    start = lambda: TrainProcess(workdir, without=case.without, compiled=compiled)
    return Attempt(str(case.at), wrong or complete(wanted, start()))


def _kill_after(workdir: Path, seconds: float, compiled: Path | None) -> Ended:
    """Kills a run after so many seconds; if it has ended by then, tries again with half of them."""
    process = TrainProcess(workdir, compiled=compiled)
    time.sleep(seconds)
    process.process.kill()
    ended = process.wait()
    if ended.status == -signal.SIGKILL:
        return ended
    shutil.rmtree(workdir)
    return _kill_after(workdir, seconds / 2, compiled)
