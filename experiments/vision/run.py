"""Trains and tests a model with each method on one question about a canvas."""

import math

from experiments.controlled import train_and_test
from experiments.stages import summarise
from experiments.vision.config import Config, draws, options_of, rows
from experiments.vision.windows import shifted_windows
from posenc_jax import encodings
from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks.canvas import ink_share


def measure(config: Config, run: runs.Run) -> LengthSummary:
    """Trains and tests every row; returns the summary."""
    task = _task(config, "grid")
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        own = _task(config, "line" if encodings.axes(name) < 2 else "grid")
        for label, windowed in rows(config, name):
            model = _model(config, own, name, windowed)
            train_and_test(config, config.eval, own, model, label, run)
    return summarise(config, task, run, _baselines(config, task))


def encoding_of(config: Config, name: str, windowed: bool) -> Encoding:
    """The encoding of a row."""
    encoding = encodings.make(name, **options_of(config, name, windowed))
    return chain(shifted_windows(config.window), encoding) if windowed else encoding


def _task(config: Config, order: str) -> tasks.Task:
    return tasks.make(config.task.name, **config.task.options, order=order)


def _model(config: Config, task: tasks.Task, name: str, windowed: bool) -> Model:
    """The model of one row: it answers for each token, or once for the canvas."""
    build = transformer.classifier if task.metric == "accuracy" else transformer.build
    axes = max(1, encodings.axes(name))
    encoding = encoding_of(config, name, windowed)
    return build(config.model, encoding, task.vocab, axes=axes, features=task.features)


def _baselines(config: Config, task: tasks.Task) -> dict[str, float]:
    """Those of the task; of `draw` the bits of a pixel that is ink as often as on average."""
    if not draws(config):
        return dict(task.baselines())
    size = config.train.length
    share = ink_share(task, size)
    bits = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    return {f"share of ink, size {size}": bits}
