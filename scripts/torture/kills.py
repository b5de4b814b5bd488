"""Kills runs at random moments and at failpoints: a resumed run must end in the same bits."""

import random
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, outcome, pinned, side_by_side, uninterrupted

# Before, in and after each part of a save; in compiling, training, evaluating, and in the report.
POINTS = (
    "compiling", "compiling+0.4", "compiling:2+0.8", "training", "training:3", "training:7",
    "saving", "saving:2+0.01", "saving:4+0.03", "saving:5+0.02", "writing", "writing:2+0.005",
    "writing:3+0.015", "writing:6+0.03", "committed", "committed:3", "committed:5", "sealed",
    "sealed:2", "sealed:4", "sealed:8", "deleting", "deleting:2", "deleting:3", "deleting:4",
    "evaluating", "evaluating:2", "evaluating:3", "finished", "finished+0.3",
)  # fmt: skip
CONTROLS = ("rollback", "optimizer")  # switched off at the restart, after a kill in training


class Case(NamedTuple):
    """A kill at a failpoint or after some seconds, and the protection that is off at the resume."""

    at: str | float
    without: str = ""


def show(folder: Path, kills: int, seed: int = 0) -> CheckResult:
    """Kills `kills` runs, at the failpoints first."""
    started = time.monotonic()
    wanted = uninterrupted(folder / "whole")
    seconds = time.monotonic() - started
    rng = random.Random(seed)
    cases = [Case(point) for point in POINTS[:kills]]
    cases += [Case(rng.uniform(0.1, 1.0) * seconds) for _ in range(kills - len(cases))]
    controls = [Case("training:3", without) for without in CONTROLS]

    def one(numbered: tuple[int, Case], core: int) -> str:
        number, case = numbered
        return attempt(folder / f"kill{number}", case, core, wanted)

    tried = side_by_side(one, enumerate([*cases, *controls]))
    bad = [f"{case.at}: {what}" for case, what in zip(cases, tried, strict=False) if what]
    points = sum(isinstance(case.at, str) for case in cases)
    return CheckResult(
        what="SIGKILL, then one restart: same parameters, optimizer states and records, bit by bit",
        good=len(cases) - len(bad),
        tried=len(cases),
        control="restart without " + ", without ".join(CONTROLS),
        control_found=sum(bool(what) for what in tried[len(cases) :]),
        control_tried=len(controls),
        settings=f"{points} at failpoints, {len(cases) - points} at random moments of a run of "
        f"{seconds:.0f} s; one pinned core each; two encodings, two seeds, a save after every 6 of "
        "24 steps; these moments and those of compiling with nothing compiled before",
        bad=tuple(bad),
    )


def _kill_after(workdir: Path, seconds: float, **how: Any) -> None:
    """Kills a run after so many seconds; if it has ended by then, tries again with half of them."""
    child = Child(workdir, **how)
    time.sleep(seconds)
    child.process.kill()
    if child.wait().status != -9:
        shutil.rmtree(workdir)
        _kill_after(workdir, seconds / 2, **how)


def attempt(workdir: Path, case: Case, core: int, wanted: dict[str, str]) -> str:
    """Kills and resumes one run; returns what was wrong, or ""."""
    how = pinned(workdir, core, case.at)
    if isinstance(case.at, str):
        killed = Child(workdir, failpoint=case.at, **how).wait()
        if killed.status != -9:
            return f"not killed: status {killed.status} {killed.err}"
    else:
        _kill_after(workdir, case.at, **how)
    again = Child(workdir, without=case.without, **how).wait()
    if again.status or again.traceback:
        return f"status {again.status} at the restart: {again.err}"
    found = outcome(workdir)
    return ", ".join(name for name in wanted if wanted[name] != found.get(name))
