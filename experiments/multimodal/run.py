"""Trains and tests an encoder with each encoding, on the positions of each row."""

from experiments.controlled import train_and_test
from experiments.multimodal.config import Config, rows
from experiments.named import encoding_of
from experiments.stages import summarise
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import LengthSummary


def measure(config: Config, run: runs.Run) -> LengthSummary:
    """Trains and tests every row; returns the summary."""
    task = tasks.make(config.task.name, **config.task.options)
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        for label, ids in rows(name):
            placed = tasks.make(config.task.name, **config.task.options, ids=ids)
            axes = max(1, encodings.axes(name))
            model = transformer.classifier(
                config.model, encoding_of(config, name), task.vocab, axes=axes,
                pooling=config.pooling,
            )  # fmt: skip
            train_and_test(config, config.eval, placed, model, label, run)
    return summarise(config, task, run, task.baselines())
