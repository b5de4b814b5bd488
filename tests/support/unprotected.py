"""Runs train.py with one protection switched off, for the controls of tests.

python -m tests.support.unprotected PROTECTION FLAGS...

The failure that the protection prevents must then occur.
"""

import sys

import train
from experiments import job, parallel_rows
from posenc_jax.lab.hosts import signals
from posenc_jax.lab.runs import checkpoints, journal, lock
from posenc_jax.lab.wandb import client


def rollback() -> None:
    """New records are appended after the lines of a stage that did not end."""
    append_after_rollback = journal.Journal.append

    def append(self, text):
        self._size = len(self._content)
        append_after_rollback(self, text)

    journal.Journal.append = append


def optimizer() -> None:
    """Only the parameters are restored, not the optimizer's state."""

    restore = checkpoints.Checkpoints.restore

    def restore_without(self, step, like):
        return restore(self, step, like)._replace(opt=like.opt)

    checkpoints.Checkpoints.restore = restore_without


def default_signals() -> None:
    """SIGTERM has its default effect."""
    signals.install = lambda: None


def locking() -> None:
    """The folder is not locked."""
    lock.fcntl.flock = lambda file, how: None


def bounds() -> None:
    """Calls of W&B have no time limit."""
    client.FINISH_SECONDS = 0.0
    client.within = lambda seconds, result: result.result()
    job.LEAVE_SECONDS = 3600.0


def following() -> None:
    """Workers do not end with their parent."""
    parallel_rows._start = _start_alone


def _start_alone(free, modules):
    signals.end_with_parent = lambda: None
    parallel_rows._start(free, modules)  # the worker imports its own modules, without this change


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    sys.exit(train.main(sys.argv))
