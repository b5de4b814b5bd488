"""Ctrl-C in the first second, while a program still loads its modules."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import ROOT

HANDLED = 1 << (signal.SIGTERM - 1)  # Python itself handles SIGINT alone


def interrupted(number: signal.Signals, command: list[str]) -> tuple[int, list[str]]:
    """The status and the lines of a program that gets a signal when it begins to load."""
    child = subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    status = Path(f"/proc/{child.pid}/status")
    caught = lambda: int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
    while not caught() & HANDLED:
        time.sleep(0.005)
    child.send_signal(number)
    out, error = child.communicate(timeout=60)
    return child.returncode, [*out.splitlines(), *error.splitlines()]


@pytest.mark.parametrize("script", ["train.py", "scripts/evaluate.py", "scripts/sweep.py"])
def test_a_program_that_still_loads_ends_with_one_line(script):
    for number in (signal.SIGINT, signal.SIGTERM):
        said = [f"{number.name}: interrupted; start it again"]
        assert interrupted(number, [script, "--config=configs/extrap.py:quick"]) == (75, said)


def test_the_control_ends_in_a_traceback():
    handled = "import signal; signal.signal(signal.SIGTERM, lambda *_: None); import train"
    status, lines = interrupted(signal.SIGINT, ["-c", handled])
    assert status == -signal.SIGINT
    assert lines[-1] == "KeyboardInterrupt"
