"""Interrupts runs by SIGTERM and SIGINT: a checkpoint, exit status 75, and an end in seconds."""

import itertools
import random
import signal
import time
from pathlib import Path
from typing import Any

from posenc_jax.lab.hosts.signals import STOP_SIGNALS
from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, outcome, pinned, side_by_side, uninterrupted

LIMIT = 10.0  # seconds
AT = ("compiling+0.3", "training:2", "saving:2", "writing:3+0.01", "committed:2", "evaluating:2")
LONG = ("--config.train.steps=60000", "--config.checkpoint.seconds=3600.0")

Case = tuple[str | float, signal.Signals]  # a failpoint, or seconds after compiling began


def show(folder: Path, signals: int, seed: int = 0) -> CheckResult:
    """Interrupts `signals` runs at failpoints and random moments, resumes and compares them."""
    rng = random.Random(seed)
    wanted = uninterrupted(folder / "whole")
    moments = [rng.uniform(0.0, 4.0) for _ in range(signals - 2 * len(AT))]
    ats = [*(at for at in AT for _ in STOP_SIGNALS), *moments]
    cases: list[Case] = list(zip(ats, itertools.cycle(STOP_SIGNALS), strict=False))

    def one(case: Case, core: int) -> tuple[float, str]:
        return attempt(folder / f"{case[1].name}-{case[0]}", case, core, wanted)

    tried = side_by_side(one, cases)
    took = [seconds for seconds, _ in tried]
    bad = [
        f"{name.name} {at}: {seconds:.1f} s {wrong}"
        for (at, name), (seconds, wrong) in zip(cases, tried, strict=True)
        if wrong or seconds > LIMIT
    ]
    return CheckResult(
        what=f"SIGTERM and SIGINT: status 75 within {LIMIT:.0f} s, a restart ends in the same bits",
        good=signals - len(bad),
        tried=signals,
        control="no handler: what was trained is lost",
        control_found=int(loses_work(folder / "control", without="signals")),
        control_tried=1,
        settings=f"at {', '.join(AT)} by either signal, then at random moments of "
        "compiling and training; two runs at a time, a core each",
        figures=f"{max(took):.1f} s at most, {sorted(took)[len(took) // 2]:.1f} s in the median",
        bad=tuple(bad),
    )


def attempt(workdir: Path, case: Case, core: int, wanted: dict[str, str]) -> tuple[float, str]:
    """Returns the seconds from a signal to the end of the run, and what was wrong, then or after
    the run was resumed.
    """
    at, name = case
    how = pinned(workdir, core, at)
    if isinstance(at, str):
        seconds, wrong = at_point(workdir, at, name, **how)
    else:
        seconds, wrong = at_moment(workdir, at, name, **how)
    again = Child(workdir, **how).wait()
    if again.status or outcome(workdir) != wanted:
        wrong += " other bits after the restart"
    return seconds, wrong


def at_point(
    workdir: Path, point: str, name: signal.Signals, *flags: str, **how: Any
) -> tuple[float, str]:
    """Makes the run signal itself at a failpoint; returns the seconds to its end and what was
    wrong.
    """
    spec = f"{point}@{name.name.removeprefix('SIG')}"
    child = Child(workdir, *flags, failpoint=spec, **how)
    while "leaving within" not in child.said() and child.process.poll() is None:
        time.sleep(0.02)
    return _leaves(child, time.monotonic())


def at_moment(workdir: Path, after: float, name: signal.Signals, **how: Any) -> tuple[float, str]:
    """Sends a signal `after` seconds after the first compilation began; returns the same."""
    child = Child(workdir, **how)
    while not (workdir / "progress.json").exists() and child.process.poll() is None:
        time.sleep(0.02)
    time.sleep(after)
    sent = time.monotonic()
    child.process.send_signal(name)
    return _leaves(child, sent)


def _leaves(child: Child, since: float) -> tuple[float, str]:
    ended = child.wait()
    wrong = "" if ended.status == 75 else f"status {ended.status}"
    return ended.at - since, wrong + (" a traceback" if ended.traceback else "")


def loses_work(workdir: Path, without: str = "") -> bool:
    """Returns whether a long run that is interrupted in training leaves no checkpoint."""
    child = Child(workdir, *LONG, without=without)
    while "step" not in child.said() and child.process.poll() is None:
        time.sleep(0.02)
    child.process.send_signal(signal.SIGTERM)
    child.wait()
    return not list(workdir.glob("checkpoints/*/*/sha256.json"))
