"""Decoders with recurrence memory; the same weights read documents in three ways."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from experiments.compare.comparison import Evaluation, Row, compare, model_of
from experiments.compare.fields import encoding_of
from experiments.compare.long_memory.config import Config
from experiments.compare.long_memory.documents import Documents, metric_of, records
from experiments.compare.long_memory.reading import WAYS, reader, row_of
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every encoding; returns the summary."""
    task = make_task(config)
    return compare(config, run, task, partial(rows, config), metric=metric_of(task))


def make_task(config: Config) -> tasks.Task:
    """The task that all rows have."""
    return tasks.make(config.task.name, **config.task.options)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """A row for each encoding."""
    for name in config.encoding.names:
        yield _row(config, task, name)


def _row(config: Config, task: tasks.Task, name: str) -> Row:
    """An encoding, trained with a memory, whose weights read the longest documents in every way."""
    encoding = encoding_of(config, name)
    model = model_of(config, task, encoding)
    read = {way: reader(model, config.model, way, config.window, config.memory) for way in WAYS}
    longest = max(config.eval.lengths)
    plan = [Evaluation(name, longest, Documents(config, task, read), f"{name}: read")]
    return Row(name, encoding, task, read["memory"], plan, partial(_records, config, task))


def _records(
    config: Config, task: tasks.Task, params: Any, evaluation: Evaluation
) -> Iterator[runs.Record]:
    recalled = evaluation.evaluator(params, evaluation.length)
    for way in WAYS:
        yield from records(config, task, recalled[way], row_of(evaluation.label, way))
