"""Ends the leaderboard's first process in several ways: its worker processes must end too."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from scripts.torture import unprotected
from scripts.torture.processes import TrainProcess
from scripts.torture.results import Attempt, CheckResult, slowest

LIMIT = 10.0  # seconds
LONG = (
    "--config=configs/leaderboard.py:nope,rope,alibi,t5,quick", "--config.train.steps=100000",
)  # fmt: skip
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75, signal.SIGINT: 75}  # -> its status


def check(folder: Path) -> CheckResult:
    """Sends each signal to the first process alone, and to all processes at once."""
    attempts = [
        end(folder / f"{name.name}{'-all' if group else ''}", name, group)
        for name in ENDS
        for group in (False, True)
    ]
    control = end(folder / "control", signal.SIGKILL, False, without=unprotected.following)
    return CheckResult(
        what="the leaderboard ended by SIGKILL, SIGTERM or SIGINT, alone or with its workers: no "
        f"process is left after {LIMIT:.0f} s",
        attempts=attempts,
        control="workers that do not look for their parent: they stay",
        control_found=[any("left after" in wrong for wrong in control.wrong)],
        settings="two workers, training",
        figures=f"{slowest(attempts):.1f} s at most until all were gone",
    )


def end(
    workdir: Path, name: signal.Signals, group: bool, without: Callable[[], None] | None = None
) -> Attempt:
    """Sends a signal while workers train, and waits until all have ended."""
    first = TrainProcess(workdir, config=LONG, cores=(0, 1), without=without)
    while len(workers := _below(first.process.pid)) < 2 or not all(map(_busy, workers)):
        time.sleep(0.2)
    sent = time.monotonic()
    for process in [first.process.pid, *(workers if group else [])]:
        os.kill(process, name)
    status = first.wait(2 * LIMIT).status
    while (left := [pid for pid in workers if lives(pid)]) and time.monotonic() - sent < LIMIT:
        time.sleep(0.1)
    seconds = time.monotonic() - sent
    for process in left:
        os.kill(process, signal.SIGKILL)
    wrong = [f"status {status}"] if status != ENDS[name] else []
    wrong += [f"{len(left)} left after {LIMIT:.0f} s"] if left else []
    return Attempt(workdir.name, wrong, seconds)


def _below(parent: int) -> list[int]:
    """Returns the worker processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(path.parent.name)
        with contextlib.suppress(OSError):  # it has ended
            if "spawn_main" in path.read_text() and _stat(pid)[1] == str(parent):
                found.append(pid)
    return found


def _stat(pid: int) -> list[str]:
    """Returns the fields of /proc/PID/stat, from the state on. OSError: the process is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _busy(pid: int) -> bool:
    """Returns whether a process has used more processor time than its start takes."""
    try:
        return int(_stat(pid)[11]) / os.sysconf("SC_CLK_TCK") > 15.0
    except OSError:
        return False


def lives(pid: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        return _stat(pid)[0] != "Z"
    except OSError:
        return False
