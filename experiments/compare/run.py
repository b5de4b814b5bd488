"""Encoders that read whole sequences, each with one encoding."""

from collections.abc import Iterator
from functools import partial

from experiments.compare.comparison import Row, compare, lengths_and_control, model_of
from experiments.compare.fields import EncoderConfig, encoding_of
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary


def measure(config: EncoderConfig, run: runs.Run) -> Summary:
    """Trains and tests an encoder with every encoding; returns the summary."""
    return compare(config, run, make_task(config), partial(rows, config))


def make_task(config: EncoderConfig) -> tasks.Task:
    """The task that all rows have."""
    return tasks.make(config.task.name, **config.task.options)


def rows(config: EncoderConfig, task: tasks.Task) -> Iterator[Row]:
    """A row for each encoding."""
    for name in config.encoding.names:
        encoding = encoding_of(config, name)
        model = model_of(config, task, encoding, pooling=config.pooling)
        yield lengths_and_control(config, task, encoding, model, name)
