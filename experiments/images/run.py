"""Trains and tests the methods of an image experiment."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from experiments.images.config import Config, options_of
from experiments.images.page import row
from experiments.stages import Evaluation, evaluation_stages, summarise, train_stage
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.lab.training.evaluation import Evaluator, records


def measure(config: Config, run: runs.Run) -> LengthSummary:
    """Trains and tests every method; returns the summary."""
    task = _task(config, config.encoding.names[0])
    run.fact(task=dict(task.facts))
    _save_shown(config, task, run)
    for name in config.encoding.names:
        _measure_method(config, name, run)
    return summarise(config, task, run, task.baselines())


def _task(config: Config, name: str) -> tasks.Task:
    order = "line" if encodings.axes(name) < 2 else "grid"
    return tasks.make(config.task.name, **config.task.options, order=order)


def _model(config: Config, name: str, classes: int, features: int) -> Model:
    """The encoder with one output for each image, [B, 1, classes]."""
    encoding = encodings.make(name, **options_of(config, name))
    axes = max(1, encodings.axes(name))
    return transformer.classifier(config.model, encoding, classes, axes=axes, features=features)


def _measure_method(config: Config, name: str, run: runs.Run) -> None:
    """Trains one method, and logs its scores in every view at every resolution."""
    task = _task(config, name)
    assert task.features is not None
    model = _model(config, name, task.vocab, task.features)
    limits = schema.EvalConfig(lengths=config.eval.lengths, tokens=config.eval.tokens)
    evaluator = Evaluator(model, task, limits)
    plan = [
        Evaluation(name, size, evaluator, f"{name}: read at {size}") for size in config.eval.lengths
    ]
    if all(run.ended(one.stage) for one in plan):
        return
    state = train_stage(config, model, task, name, plan, run)

    def evaluate(one: Evaluation) -> None:
        scores = evaluator(state.params, one.length)
        for view, seen in zip(VIEWS, by_view(scores), strict=True):
            labels = {"encoding": row(name, view), "split": "test", "length": one.length}
            run.log(records(seen, task, config.train.steps, config.seed_range, labels))

    evaluation_stages(plan, run, evaluate)


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
