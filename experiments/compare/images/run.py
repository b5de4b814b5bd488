"""Vision Transformers with each method, on images in three views."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.compare.comparison import Evaluation, Row, compare, model_of
from experiments.compare.grids import options_of, task_of
from experiments.compare.images.config import Config, row_of
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.lab.training.evaluation import Evaluator, records


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every method; returns the summary."""
    task = make_task(config)
    if run.is_writer:
        _save_shown(config, task, run)
    return compare(config, run, task, partial(rows, config))


def make_task(config: Config) -> tasks.Task:
    """The task of the first row; others may have it with other positions."""
    return task_of(config, encodings.axes(config.encoding.names[0]))


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """A row for each method, with the task in its positions."""
    for name in config.encoding.names:
        yield _row(config, name)


def _row(config: Config, name: str) -> Row:
    """A method, whose weights see every view at every resolution."""
    axes = encodings.axes(name)
    task = task_of(config, axes)
    encoding = encodings.make(name, **options_of(config, name, config.train.length))
    model = model_of(config, task, encoding, axes)
    limits = schema.EvalConfig(lengths=config.eval.lengths, tokens=config.eval.tokens)
    evaluator = Evaluator(model, task, limits)
    plan = [
        Evaluation(name, size, evaluator, f"{name}: read at {size}") for size in config.eval.lengths
    ]
    return Row(name, encoding, task, model, plan, partial(_records, config, task))


def _records(
    config: Config, task: tasks.Task, params: Any, evaluation: Evaluation
) -> Iterator[runs.Record]:
    """The scores in each view at one resolution."""
    scores = evaluation.evaluator(params, evaluation.length)
    for view, seen in zip(VIEWS, by_view(scores), strict=True):
        labels = {
            "encoding": row_of(evaluation.label, view),
            "split": "test",
            "length": evaluation.length,
        }
        yield from records(seen, task, config.train.steps, config.seed_range, labels)


def _save_shown(config: Config, task: tasks.Task, run: runs.Run) -> None:
    """Writes shown.npz: the patches of the first test image, at every resolution and shuffled."""
    mean_C, deviation_C = (np.asarray(task.data[name]).ravel() for name in ("mean", "deviation"))
    images, panels = (task.examples(config.train.length) or 0) // len(VIEWS), {}
    read = jax.jit(task.test, static_argnums=(2, 3))
    for view, size in [*((0, n) for n in config.eval.lengths), (2, config.train.length)]:
        index_B = jnp.asarray([view * images], jnp.int32)
        patch_TF = np.asarray(read(task.data, index_B, size, size * size).tokens_BT[0])
        side = math.isqrt(patch_TF.shape[-1] // len(mean_C))
        pixels = patch_TF.reshape(size, size, side, side, -1) * deviation_C + mean_C
        title = f"{size} × {size}" + (f", {VIEWS[view]}" if view else "")
        panels[title] = np.clip(pixels / pixels.max(), 0, 1)
    np.savez(run.path / "shown.npz", **panels)


def by_view(scores: Scores) -> list[Scores]:
    """The scores of each view; the scores by position are those of all views together."""
    part = lambda view: lambda x_SE: np.split(x_SE, len(VIEWS), axis=1)[view]
    return [
        scores._replace(by_example=jax.tree.map(part(view), scores.by_example))
        for view in range(len(VIEWS))
    ]
