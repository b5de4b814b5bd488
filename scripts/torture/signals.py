"""Interrupts runs by SIGTERM and SIGINT: a checkpoint, exit status 75, and an end in seconds."""

import itertools
import random
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.signals import STOP_SIGNALS
from scripts.torture import unprotected
from scripts.torture.check_result import Attempt, CheckResult
from scripts.torture.processes import (
    TrainProcess,
    complete,
    errors,
    own_compiled,
    side_by_side,
    whole,
)

SIGNALS, LIMIT = 20, 10.0  # runs; seconds
AT = ("compiling+0.3", "training:2", "saving:2", "writing:3+0.01", "committed:2", "evaluating:2")
LONG = ("--config.train.steps=60000", "--config.checkpoint.seconds=3600.0")

Case = tuple[str | float, signal.Signals]  # a failpoint, or seconds after compiling began


def check(folder: Path) -> CheckResult:
    """Interrupts runs at failpoints and random moments, resumes and compares them."""
    rng = random.Random(0)
    wanted = whole(TrainProcess(folder / "whole"))
    ats: list[str | float] = [at for at in AT for _ in STOP_SIGNALS]
    ats += [rng.uniform(0.0, 4.0) for _ in range(SIGNALS - len(ats))]

    def attempt(case: Case) -> Attempt:
        at, name = case
        workdir = folder / f"{name.name}-{at}"
        compiled = own_compiled(workdir, at)
        seconds, wrong = interrupt(workdir, at, name, compiled=compiled)
        wrong += complete(wanted, TrainProcess(workdir, compiled=compiled))
        return Attempt(f"{name.name} {at}", wrong, seconds, LIMIT)

    tried = side_by_side(attempt, zip(ats, itertools.cycle(STOP_SIGNALS), strict=False))
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


def interrupt(
    workdir: Path, at: str | float, name: signal.Signals, *flags: str, **how: Any
) -> tuple[float, list[str]]:
    """Starts a run and interrupts it at a failpoint, or `at` seconds after compiling began.

    Returns the seconds from the signal to its end, and what went wrong.
    """
    if isinstance(at, str):
        failpoint = f"{at}@{name.name.removeprefix('SIG')}"
        process = TrainProcess(workdir, *flags, failpoint=failpoint, **how)
        process.wait_until(lambda: "leaving within" in process.output())
        sent = time.monotonic()
    else:
        process = TrainProcess(workdir, *flags, **how)
        process.wait_until((workdir / "progress.json").exists)
        time.sleep(at)
        sent = time.monotonic()
        process.process.send_signal(name)
    ended = process.wait()
    return ended.at - sent, errors(ended, status=75)


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
