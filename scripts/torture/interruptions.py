"""Ends runs by signals at random moments and at failpoints: a resumed run must end in the same
bits. After SIGTERM and SIGINT a run must also leave a checkpoint, in seconds, with status 75.
"""

import itertools
import random
import shutil
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.signals import STOP_SIGNALS
from scripts.torture import unprotected
from scripts.torture.processes import (
    TrainProcess,
    complete,
    errors,
    own_compiled,
    side_by_side,
    whole,
)
from scripts.torture.results import Attempt, CheckResult

KILLS = 50
# Before, in and after each part of a save; in compiling, training, evaluating, and in the report.
KILLED_AT = (
    "compiling", "compiling+0.4", "compiling:2+0.8", "training", "training:3", "training:7",
    "saving", "saving:2+0.01", "saving:4+0.03", "saving:5+0.02", "writing", "writing:2+0.005",
    "writing:3+0.015", "writing:6+0.03", "committed", "committed:3", "committed:5", "sealed",
    "sealed:2", "sealed:4", "sealed:8", "deleting", "deleting:2", "deleting:3", "deleting:4",
    "evaluating", "evaluating:2", "evaluating:3", "finished", "finished+0.3",
)  # fmt: skip
# Switched off when a run is resumed that was killed in training.
CONTROLS = (unprotected.rollback, unprotected.optimizer)
SIGNALS, LIMIT = 20, 10.0  # runs; seconds
AT = ("compiling+0.3", "training:2", "saving:2", "writing:3+0.01", "committed:2", "evaluating:2")
LONG = ("--config.train.steps=60000", "--config.checkpoint.seconds=3600.0")


def check_kills(folder: Path) -> CheckResult:
    """Kills runs at failpoints and random moments, resumes and compares them."""
    started = time.monotonic()
    wanted = whole(TrainProcess(folder / "whole"))
    seconds = time.monotonic() - started
    rng = random.Random(0)
    ats = [*KILLED_AT, *(rng.uniform(0.1, 1.0) * seconds for _ in range(KILLS - len(KILLED_AT)))]
    cases = [(at, None) for at in ats] + [("training:3", without) for without in CONTROLS]

    def one(numbered: tuple[int, Any]) -> Attempt:
        number, (at, without) = numbered
        return attempt(folder / f"kill{number}", at, signal.SIGKILL, wanted, without)

    tried = side_by_side(one, enumerate(cases))
    return CheckResult(
        what="SIGKILL, then one restart: same parameters, optimizer states and records, bit by bit",
        attempts=tried[:KILLS],
        control="restart " + ", ".join(f"without {each.__name__}" for each in CONTROLS),
        control_found=[bool(control.wrong) for control in tried[KILLS:]],
        settings=f"{len(KILLED_AT)} at failpoints, {KILLS - len(KILLED_AT)} at random moments of "
        f"a run of {seconds:.0f} s; one pinned core each; two encodings, two seeds, a save after "
        "every 6 of 24 steps; these moments and those of compiling with nothing compiled before",
    )


def check_signals(folder: Path) -> CheckResult:
    """Interrupts runs at failpoints and random moments, resumes and compares them."""
    rng = random.Random(0)
    wanted = whole(TrainProcess(folder / "whole"))
    ats: list[str | float] = [at for at in AT for _ in STOP_SIGNALS]
    ats += [rng.uniform(0.0, 4.0) for _ in range(SIGNALS - len(ats))]

    def one(case: tuple[str | float, signal.Signals]) -> Attempt:
        at, name = case
        return attempt(folder / f"{name.name}-{at}", at, name, wanted)

    tried = side_by_side(one, zip(ats, itertools.cycle(STOP_SIGNALS), strict=False))
    took = [attempt.seconds for attempt in tried]
    return CheckResult(
        what=f"SIGTERM and SIGINT: status 75 within {LIMIT:.0f} s, a restart ends in the same bits",
        attempts=tried,
        control="no handler: what was trained is lost",
        control_found=[loses_work(folder / "control", without=unprotected.default_signals)],
        settings=f"at {', '.join(AT)} by either signal, then at random moments of "
        "compiling and training; two runs at a time, a core each",
        figures=f"{max(took):.1f} s at most, {statistics.median_high(took):.1f} s in the median",
    )


def attempt(
    workdir: Path,
    at: str | float,
    name: signal.Signals,
    wanted: dict[str, str],
    without: Callable[[], None] | None = None,
) -> Attempt:
    """Interrupts one run and resumes it, `without` a protection."""
    compiled = own_compiled(workdir, at)
    seconds, wrong = interrupt(workdir, at, name, compiled=compiled)
    wrong = wrong or complete(wanted, TrainProcess(workdir, without=without, compiled=compiled))
    return Attempt(f"{name.name} {at}", wrong, seconds, LIMIT)


def interrupt(
    workdir: Path, at: str | float, name: signal.Signals, *flags: str, **how: Any
) -> tuple[float, list[str]]:
    """Starts a run and sends it a signal at a failpoint, or after `at` seconds: of its life for
    SIGKILL, else from the moment when compiling began. If it has ended by then, it tries again
    with half of them.

    Returns the seconds from the signal to its end, and what went wrong.
    """
    killed = name == signal.SIGKILL
    if isinstance(at, str):
        failpoint = f"{at}@{name.name.removeprefix('SIG')}"
        process = TrainProcess(workdir, *flags, failpoint=failpoint, **how)
        process.wait_until(lambda: "leaving within" in process.output())
        sent = time.monotonic()
    else:
        process = TrainProcess(workdir, *flags, **how)
        process.wait_until(lambda: killed or (workdir / "progress.json").exists())
        time.sleep(at)
        sent = time.monotonic()
        process.process.send_signal(name)
    ended = process.wait()
    if ended.status == 0 and not isinstance(at, str):
        shutil.rmtree(workdir)
        return interrupt(workdir, at / 2, name, *flags, **how)
    return ended.at - sent, errors(ended, status=-name if killed else 75)


def loses_work(workdir: Path, without: Callable[[], None] | None = None) -> bool:
    """Returns whether a long run that is interrupted in training leaves no checkpoint.

    Raises:
      RuntimeError: it failed before it trained.
    """
    process = TrainProcess(workdir, *LONG, without=without)
    process.wait_until(lambda: "step" in process.output())
    if process.process.poll() is not None:
        raise RuntimeError(process.output())
    process.process.send_signal(signal.SIGTERM)
    process.wait()
    return not list(workdir.glob("checkpoints/*/*/sha256.json"))
