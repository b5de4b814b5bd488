"""What the tasks that claims are measured on share."""

from collections.abc import Callable

import numpy as np

from experiments.claims.lab import Lab, Trained
from posenc_jax.lab.tasks.task import Batch, Task


def relabelled(task: Task, label: Callable[[Batch], Batch], name: str = "") -> Task:
    """A task whose batches are changed: other answers, or other positions, for the same tokens.

    `name` sets it apart from the task it was made of, where both are in use.
    """
    return task._replace(
        name=name or task.name,
        sample=lambda *args: label(task.sample(*args)),
        test=lambda *args: label(task.test(*args)),
        valid=lambda *args: label(task.valid(*args)),
    )


def accuracy(lab: Lab, trained: Trained, size: int) -> np.ndarray:
    """The share of targets that is right at one size of the task: [S]."""
    scores = lab.scores(trained, size)
    return scores.right_SE.sum(axis=1) / scores.count_SE.sum(axis=1)
