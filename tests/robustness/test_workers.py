"""Ends the leaderboard's first process in several ways: its worker processes must end too."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.train_process import TrainProcess, lives, stat

pytestmark = pytest.mark.thorough
LIMIT = 10.0  # seconds
LONG = (
    "--config=configs/leaderboard.py:nope,rope,alibi,t5,quick", "--config.train.steps=100000",
)  # fmt: skip
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 75, signal.SIGINT: 75}  # -> its status


def _below(parent: int) -> list[int]:
    """Returns the worker processes of a process."""
    actual = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(path.parent.name)
        with contextlib.suppress(OSError):  # it has ended
            if "spawn_main" in path.read_text() and stat(pid)[1] == str(parent):
                actual.append(pid)
    return actual


def _busy(pid: int) -> bool:
    """Returns whether a process has used more processor time than its start takes."""
    try:
        return int(stat(pid)[11]) / os.sysconf("SC_CLK_TCK") > 15.0
    except OSError:
        return False


def end(workdir, name, group, without=""):
    """Sends a signal while workers train, to the first process alone or to all. Returns its status,
    the seconds until all had ended, and the processes that had not after LIMIT.
    """
    first = TrainProcess(workdir, config=LONG, cores=(0, 1), without=without)
    while len(workers := _below(first.process.pid)) < 2 or not all(map(_busy, workers)):
        assert first.process.poll() is None, first.output()
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
    return status, seconds, left


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("group", [False, True], ids=["alone", "all"])
def test_no_worker_outlives_the_first_process(tmp_path, name, group):
    status, _, left = end(tmp_path / "run", name, group)
    assert status == ENDS[name]
    assert not left


def test_the_control_workers_that_do_not_look_for_their_parent_stay(tmp_path):
    *_, left = end(tmp_path / "run", signal.SIGKILL, False, without="following")
    assert left
