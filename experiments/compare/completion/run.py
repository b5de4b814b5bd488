"""Decoders on code, asked about held-out files."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.compare.comparison import (
    Evaluation,
    Row,
    compare,
    lengths_and_control,
    model_of,
)
from experiments.compare.completion.config import Config
from experiments.compare.fields import encoding_of
from posenc_jax.lab import metrics, runs, tasks
from posenc_jax.lab.metrics import Scores, Sums
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.functions import offsets

EDGES = (0, 1024, 4096, 16384, 65536)  # bytes before an example
LEAST = 8  # examples of a range that is reported


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every encoding; returns the summary."""
    return compare(config, run, make_task(config), partial(rows, config))


def make_task(config: Config) -> tasks.Task:
    """The task that all rows have."""
    return tasks.make(config.task.name, **config.task.options)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """A row for each encoding."""
    more = partial(by_offset, config, offsets(task))
    for name in config.encoding.names:
        encoding = encoding_of(config, name)
        model = model_of(config, task, encoding)
        yield lengths_and_control(config, task, encoding, model, name, more)


def by_offset(
    config: Config, offset_E: np.ndarray, params: Any, evaluation: Evaluation, scores: Scores
) -> Iterator[runs.Record]:
    """The share of targets that are right in each range of places in the file."""
    bin_E = np.searchsorted(EDGES, offset_E, side="right") - 1
    for n, edge in enumerate(EDGES):
        here_E = bin_E == n
        if here_E.sum() >= LEAST:
            here = Sums(*(x_SE[:, here_E] for x_SE in scores.by_example["token_accuracy"]))
            labels = {
                "encoding": evaluation.label,
                "split": "test",
                "length": evaluation.length,
                "offset": edge,
            }
            values = {"completed": metrics.mean("token_accuracy", here)}
            yield from runs.seed_records(config.train.steps, config.seed_range, labels, values)
