"""SIGTERM and SIGINT end a process in bounded time, whatever it is doing."""

import os
import signal
import subprocess
import sys
import time

import pytest

from posenc_jax.lab.hosts import signals
from posenc_jax.lab.hosts.exit_status import Interrupted
from tests.support.train_process import lives

# A loop in C that lets other threads run, as a compilation does; it takes longer than the test.
BUSY = """
import hashlib, sys
from posenc_jax.lab.hosts import signals
signals.GRACE = float(sys.argv[1])
if sys.argv[2] == "on":
    signals.install()
print("ready", flush=True)
hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""
LOOKING = """
import time
from posenc_jax.lab.hosts import signals
signals.install()
print("ready", flush=True)
while True:
    time.sleep(0.01)
    signals.stop_if_requested()
"""


# It saves for half a second after the first signal.
SAVING = """
import sys, time
from posenc_jax.lab.hosts import signals
signals.REPEATED = float(sys.argv[1])
signals.install()
print("ready", flush=True)
while not signals.stop_requested():
    time.sleep(0.01)
time.sleep(0.5)
sys.stderr.write("saved\\n")
"""


def ended(program, *arguments, signals=(signal.SIGTERM,), pause=0.2):
    child = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    since = time.monotonic()
    for name in signals:
        child.send_signal(name)
        time.sleep(pause)
    _, said = child.communicate(timeout=60)
    return child.returncode, said, time.monotonic() - since


@pytest.mark.thorough
def test_a_process_that_cannot_poll_ends_after_the_grace_period():
    status, said, seconds = ended(BUSY, "0.5", "on")
    assert status == Interrupted.status == 75
    assert said.splitlines()[0].startswith("SIGTERM: leaving within")
    assert 0.5 <= seconds < 10


@pytest.mark.thorough
def test_a_second_signal_ends_the_process_at_once():
    twice = signal.SIGINT, signal.SIGINT
    status, _, seconds = ended(BUSY, "300", "on", signals=twice, pause=1.2)
    assert status == 75
    assert seconds < 10
    status, said, _ = ended(BUSY, "300", "off")
    assert (status, said) == (-signal.SIGTERM, ""), "control: no handler"


def test_a_signal_that_is_sent_twice_at_once_is_one_signal():
    """As GNU `timeout` does. The control counts every signal, and does not save."""
    twice = {"signals": (signal.SIGTERM, signal.SIGTERM), "pause": 0.01}
    status, said, _ = ended(SAVING, "1.0", **twice)
    assert (status, said.splitlines()[1:]) == (0, ["saved"])
    status, said, _ = ended(SAVING, "0.0", **twice)
    assert status == 75
    assert "saved" not in said, "control"


@pytest.mark.thorough
def test_a_process_that_polls_gets_an_exception():
    status, said, _ = ended(LOOKING)
    assert status == 1
    assert "Interrupted: interrupted; start it again" in said.splitlines()[-1]


def test_without_a_signal_nothing_stops():
    assert not signals.stop_requested()
    signals.stop_if_requested()


@pytest.mark.parametrize("spec", ["training", "training:2", "writing:3+0.01", "saving@TERM"])
def test_a_failpoint_is_understood(spec, monkeypatch):
    from posenc_jax.lab.hosts import failpoints

    monkeypatch.setattr(failpoints, "_reached", 0)
    sent = []
    monkeypatch.setattr(failpoints.os, "kill", lambda pid, name: sent.append(name))
    monkeypatch.setenv("POSENC_JAX_FAILPOINT", spec)
    for _ in range(4):
        for name in ("training", "writing", "saving"):
            failpoints.reach(name)
    time.sleep(0.1)
    assert sent == [signal.SIGTERM if "@" in spec else signal.SIGKILL]
    monkeypatch.setenv("POSENC_JAX_FAILPOINT", "training?")
    with pytest.raises(ValueError, match="POSENC_JAX_FAILPOINT"):
        failpoints.reach("training")


PARENT = """
import multiprocessing, os, sys, time
from tests.support import followers
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=followers.work, args=(sys.argv[1],))
    child.start()
    print(child.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.thorough
def test_a_worker_ends_with_the_parent_that_is_killed(tmp_path):
    """And it ignores SIGINT, which its parent handles. The control does not follow, and stays."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    for follows in ("on", "off"):
        parent = subprocess.Popen(
            [sys.executable, str(script), follows], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
        worker, ready = int(parent.stdout.readline()), parent.stdout.readline()
        assert ready == "working\n"
        if follows == "on":
            os.kill(worker, signal.SIGINT)
        assert stays(worker, 0.3), "only the parent handles the signal"
        parent.kill()
        parent.wait()
        assert stays(worker, 10.0 if follows == "on" else 1.0) is (follows == "off")
        parent.stdout.close()
        if follows == "off":
            os.kill(worker, signal.SIGKILL)


def stays(process, seconds):
    """Whether a process is still alive after so many seconds."""
    until = time.monotonic() + seconds
    while (alive := lives(process)) and time.monotonic() < until:
        time.sleep(0.05)
    return alive
