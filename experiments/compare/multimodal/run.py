"""Encoders on clips, with each encoding on the positions of each of its rows."""

from experiments.compare.comparison import compare, lengths_and_control, model_of
from experiments.compare.fields import encoding_of
from experiments.compare.multimodal.config import Config, rows_of
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every row; returns the summary."""

    def rows(task):
        for name in config.encoding.names:
            for label, ids in rows_of(name):
                placed = tasks.make(config.task.name, **config.task.options, ids=ids)
                model = model_of(
                    config, placed, encoding_of(config, name), encodings.axes(name), config.pooling
                )
                yield lengths_and_control(config, placed, model, label)

    return compare(config, run, tasks.make(config.task.name, **config.task.options), rows)
