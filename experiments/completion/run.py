"""Trains decoders on code, and asks them about held-out files."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from experiments.completion.config import Config
from experiments.controlled import train_and_test
from experiments.named import encoding_of
from experiments.stages import Evaluation, summarise
from posenc_jax.lab import metrics, runs, tasks
from posenc_jax.lab.metrics import Scores, Sums
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks.functions import offsets

EDGES = (0, 1024, 4096, 16384, 65536)  # bytes before an example
LEAST = 8  # examples of a range that is reported


def measure(config: Config, run: runs.Run) -> LengthSummary:
    """Trains and tests every encoding; returns the summary."""
    task = tasks.make(config.task.name, **config.task.options)
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        model = transformer.build(config.model, encoding_of(config, name), task.vocab)
        more = partial(by_offset, config, offsets(task))
        train_and_test(config, config.eval, task, model, name, run, more)
    return summarise(config, task, run, task.baselines())


def by_offset(
    config: Config, offset_E: np.ndarray, params: Any, one: Evaluation, scores: Scores
) -> Iterator[runs.Record]:
    """The share of targets that are right in each range of places in the file."""
    bin_E = np.searchsorted(EDGES, offset_E, side="right") - 1
    for n, edge in enumerate(EDGES):
        here_E = bin_E == n
        if here_E.sum() >= LEAST:
            here = Sums(*(x_SE[:, here_E] for x_SE in scores.by_example["token_accuracy"]))
            labels = {"encoding": one.label, "split": "test", "length": one.length, "offset": edge}
            values = {"completed": metrics.mean("token_accuracy", here)}
            yield from runs.seed_records(config.train.steps, config.seed_range, labels, values)
