"""`python -m scripts.torture.unprotected PROTECTION FLAGS...`: train.py with one protection off.

The controls of the torture tests: what each protection prevents must then be seen to happen.
"""

import sys

import train
from experiments import job, workers
from posenc_jax.lab.hosts import signals
from posenc_jax.lab.runs import checkpoints, journal, lock, resume
from posenc_jax.lab.wandb import logger


def rollback() -> None:
    """New records come after whatever is in metrics.jsonl."""
    kept = journal.Journal.append

    def append(self, text):
        self._size = self._path.stat().st_size
        kept(self, text)

    journal.Journal.append = append


def optimizer() -> None:
    """Parameters come back, the optimizer's state does not."""

    def fill(tree, leaves):
        full = checkpoints.fill(tree, leaves)
        return full._replace(opt=tree.opt)

    resume.fill = fill


def manifest() -> None:
    """Every checkpoint is believed."""
    checkpoints.verify = lambda folder: ""


def default_signals() -> None:
    """SIGTERM is what it is by default."""
    signals.install = lambda: None


def locking() -> None:
    """Nobody looks whether somebody else is there."""
    lock.fcntl.flock = lambda file, how: None


def bounds() -> None:
    """W&B may take the time that it wants."""
    logger.FINISH_SECONDS = 0.0
    logger._with_timeout = lambda seconds, call, *arguments: call(*arguments)
    job.LEAVE_SECONDS = 3600.0


def following() -> None:
    """Workers do not look for their parent."""
    workers._start = _start_alone


def _start_alone(prepare, config, free):
    signals.end_with_parent = lambda: None
    workers._start(prepare, config, free)  # of the worker, where nothing is changed


PROTECTIONS = {
    made.__name__: made
    for made in (rollback, optimizer, manifest, default_signals, locking, bounds, following)
}

if __name__ == "__main__":
    PROTECTIONS[sys.argv.pop(1)]()
    sys.exit(train.main(sys.argv))
