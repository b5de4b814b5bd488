"""Encoders on clips, with each encoding on the positions of each of its rows."""

from collections.abc import Iterator
from functools import partial

from experiments.compare.comparison import Row, compare, lengths_and_control, model_of
from experiments.compare.fields import encoding_of
from experiments.compare.multimodal.config import Config, rows_of
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every row; returns the summary."""
    return compare(config, run, make_task(config), partial(rows, config))


def make_task(config: Config) -> tasks.Task:
    """The task; each row has it with positions of its own."""
    return tasks.make(config.task.name, **config.task.options)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """The rows of each encoding, see `rows_of`."""
    for name in config.encoding.names:
        for label, ids in rows_of(name):
            placed = tasks.make(config.task.name, **config.task.options, ids=ids)
            encoding, axes = encoding_of(config, name), encodings.axes(name)
            model = model_of(config, placed, encoding, axes, config.pooling)
            yield lengths_and_control(config, placed, encoding, model, label)
