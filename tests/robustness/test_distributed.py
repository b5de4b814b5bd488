"""Kills or interrupts one of two processes under jax.distributed on the CPU, and resumes both.

They share the rows of every batch and, with FSDP, the parameters and the optimizer's state, so
neither can do a step alone.
"""

import time
from pathlib import Path

import pytest

from tests.support.train_process import TINY, TrainProcess, complete, errors, shared, whole

pytestmark = pytest.mark.thorough
LIMIT, SIGNAL_LIMIT = 60.0, 10.0  # seconds: after a loss, after a signal
PROCESSES = 2
SHARED = (
    *TINY, "--config.encoding.name=rope", "--config.seeds=1", "--config.train.fsdp=True",
    "--config.eval.lengths=(8,)",
)  # fmt: skip
RARE_SAVES = ("--config.checkpoint.seconds=3600.0",)  # only when interrupted, and at the end


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def wanted(folder):
    """The outcome of a run that nothing interrupts; it saves as often as the killed ones."""
    return whole(*start(folder / "whole"))


def kill(workdir, lost, wanted, at="training:3", without=""):
    """Kills one process, then resumes both. Returns the seconds from the end of one process to that
    of the other, and what went wrong.
    """
    processes = start(workdir, which=(lost,), at=at)
    since = processes[lost].wait().at
    left = processes[1 - lost].wait()
    wrong = [] if left.status else ["status 0 of the process that lost the other"]
    return left.at - since, wrong + complete(wanted, *start(workdir, without=without))


@pytest.mark.parametrize("lost", range(PROCESSES))
def test_a_process_that_lost_the_other_leaves_and_both_end_in_the_same_bits(folder, wanted, lost):
    seconds, wrong = kill(folder / f"lost{lost}", lost, wanted)
    assert not wrong
    assert seconds < LIMIT


def test_the_control_of_kills_has_other_records_without_rollback(folder, wanted):
    """Killed where the records of a chunk are on disk and its state is not."""
    _, wrong = kill(folder / "control", 0, wanted, "writing:3", "rollback")
    assert "records" in wrong


def interrupt(workdir, which, without=""):
    """Sends SIGTERM to some processes. Returns the seconds until both ended, and their ends."""
    processes = start(workdir, RARE_SAVES, which, "training:2@TERM", without)
    signalled = [processes[n] for n in which]
    ended = lambda process: process.process.poll() is not None
    signalled[0].wait_until(lambda: any("SIGTERM" in p.output() or ended(p) for p in signalled))
    since = time.monotonic()
    ends = [process.wait() for process in processes]
    return max(end.at for end in ends) - since, ends


def checkpoints(workdir):
    return list(workdir.glob("checkpoints/*/*/sha256.json"))


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_after_sigterm_to_some_both_save_and_end_in_the_same_bits(folder, which):
    """Nothing else causes a save."""
    wanted = whole(*start(folder / f"whole{which}", RARE_SAVES))
    workdir = folder / f"signal{which}"
    seconds, ends = interrupt(workdir, which)
    assert not errors(*ends, status=75)
    assert checkpoints(workdir)
    assert not complete(wanted, *start(workdir, RARE_SAVES))
    assert seconds < SIGNAL_LIMIT


def test_the_control_of_signals_leaves_no_checkpoint_without_the_handler(folder):
    interrupt(folder / "unhandled", (1,), "default_signals")
    assert not checkpoints(folder / "unhandled")


def start(
    workdir: Path,
    flags: tuple[str, ...] = (),
    which: tuple[int, ...] = (),
    at: str = "",
    without: str = "",
) -> list[TrainProcess]:
    """Starts the processes of one run; those of `which` have the failpoint `at`."""
    failpoints = dict.fromkeys(which, at)
    return shared(workdir, *flags, count=PROCESSES, at=failpoints, config=SHARED, without=without)
