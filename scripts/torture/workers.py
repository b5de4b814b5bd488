"""Ends the leaderboard's first process in several ways: its worker processes must end too."""

import os
import signal
import time
from pathlib import Path

from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child

LIMIT = 10.0  # seconds
LONG = (
    "--config=configs/leaderboard.py:nope,rope,alibi,t5,quick", "--config.train.steps=100000",
)  # fmt: skip
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75, signal.SIGINT: 75}  # -> its status


def show(folder: Path) -> CheckResult:
    """Sends each signal to the first process alone, and to all processes at once."""
    cases = [(name, group) for name in ENDS for group in (False, True)]
    took, bad = [], []
    for name, group in cases:
        workdir = folder / f"{name.name}{'-all' if group else ''}"
        status, seconds, left = end(workdir, name, group)
        took.append(seconds)
        wrong = [f"status {status}"] if status != ENDS[name] else []
        wrong += [f"{left} left after {LIMIT:.0f} s"] if left else []
        bad += [f"{workdir.name}: {', '.join(wrong)}"] if wrong else []
    *_, orphans = end(folder / "control", signal.SIGKILL, False, without="following")
    return CheckResult(
        what="the leaderboard ended by SIGKILL, SIGTERM or SIGINT, alone or with its workers: no "
        f"process is left after {LIMIT:.0f} s",
        good=len(cases) - len(bad),
        tried=len(cases),
        control="workers that do not look for their parent: they stay",
        control_found=int(orphans > 0),
        control_tried=1,
        settings="two workers, training",
        figures=f"{max(took):.1f} s at most until all were gone",
        bad=tuple(bad),
    )


def end(
    workdir: Path, name: signal.Signals, group: bool, without: str = ""
) -> tuple[int, float, int]:
    """Sends a signal while workers train. Returns the first process's exit status, the seconds
    until all had ended, and how many still ran at the limit.
    """
    child = Child(workdir, config=LONG, cores=(0, 1), without=without)
    while len(workers := _below(child.process.pid)) < 2 or not all(map(_busy, workers)):
        time.sleep(0.2)
    sent = time.monotonic()
    for process in [child.process.pid, *(workers if group else [])]:
        os.kill(process, name)
    status = child.wait(2 * LIMIT).status
    while (left := [pid for pid in workers if lives(pid)]) and time.monotonic() - sent < LIMIT:
        time.sleep(0.1)
    seconds = time.monotonic() - sent
    for process in left:
        os.kill(process, signal.SIGKILL)
    return status, seconds, len(left)


def _below(parent: int) -> list[int]:
    """Returns the worker processes of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            command = (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if int(fields[1]) == parent and "spawn_main" in command:
            found.append(int(path.parent.name))
    return found


def _busy(pid: int) -> bool:
    """Returns whether a process has used more processor time than its start takes."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[11]) / os.sysconf("SC_CLK_TCK") > 15.0


def lives(pid: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
