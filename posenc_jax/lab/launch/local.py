"""Runs a sweep on this machine: its points one after another, each in its own process."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from posenc_jax.lab import runs
from posenc_jax.lab.config.sweeps import Point, Sweep

TICK, GRACE = 0.5, 60.0  # seconds between two checks of a running point; until it is killed
TAIL = 4096  # bytes at the end of a file that are read for its last line


class Status(NamedTuple):
    """How far a point is, a note for users, and its seconds in this process."""

    state: Literal["waiting", "running", "finished", "stopped", "failed"]
    note: str = ""
    seconds: float = 0.0


def statuses(
    sweep: Sweep, folder: Path, configs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Status]:
    """Returns which points are finished in the sweep's folder, and which wait to be run or resumed.

    Args:
      configs: the checked config of each point by name, as a run records it.

    Raises:
      ValueError: a folder holds a run with another config.
    """
    board = {}
    for point in sweep.points:
        workdir = folder / point.name
        there = runs.run_status(workdir, configs[point.name], flag="--folder")
        done = there == "finished" and (workdir / "report.html").is_file()
        begun = "" if there == "new" else "begun"
        board[point.name] = Status("finished", "before") if done else Status("waiting", begun)
    return board


def run(
    sweep: Sweep,
    folder: Path,
    script: Path,
    board: dict[str, Status],
    show: Callable[[], None],
) -> None:
    """Runs the points that are not finished, in order; updates `board` and then calls `show`.

    The output of a point is in FOLDER/NAME.log. If one fails, the others still run. If this process
    is stopped, it first ends the running point by SIGTERM.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for point in sweep.points:
        if board[point.name].state == "finished":
            continue

        def watch(status: Status, name: str = point.name) -> bool:
            board[name] = status
            show()
            return False

        board[point.name] = run_point(sweep, point, folder, script, watch)
        show()


def run_point(
    sweep: Sweep, point: Point, folder: Path, script: Path, watch: Callable[[Status], bool]
) -> Status:
    """Runs a point in its own process and returns its status; the output is in FOLDER/NAME.log.

    Args:
      watch: called with the status every TICK seconds; if it returns True, the run is stopped.
    """
    workdir, log = folder / point.name, folder / f"{point.name}.log"
    command = [sys.executable, str(script), *sweep.command(point, workdir)[1:]]
    started = time.monotonic()
    with _started(command, log) as child:
        while child.poll() is None:
            spent = time.monotonic() - started
            if watch(Status("running", _progress(workdir), spent)):
                return Status("stopped", _progress(workdir), spent)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(TICK)
    spent = time.monotonic() - started
    if child.returncode == 0 and (workdir / "summary.json").is_file():
        return Status("finished", "", spent)
    return Status("failed", f"status {child.returncode}: {_last_line(log)}", spent)


@contextlib.contextmanager
def _started(command: list[str], log: Path) -> Iterator[subprocess.Popen]:
    """Starts a command, whose output goes to the log; ends it if the block ends before it does."""
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.terminate()  # does nothing if it has ended
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _progress(workdir: Path) -> str:
    """Returns "rope: step 40" or "rope: tested at 128", from the last record."""
    try:
        record = json.loads(_last_line(workdir / "metrics.jsonl"))
        at, labels = f"step {record['step']}", record["labels"]
        if labels["split"] == "test":
            at = f"tested at {labels['length']}"
        return f"{labels['encoding']}: {at}"
    except (OSError, ValueError, KeyError, TypeError):
        return "starting"


def _last_line(path: Path) -> str:
    """Returns the last line that is not blank."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
