"""A small vision Transformer with every kind of position: none, flattened, and by row and column.

Each method trains on images of one resolution and is tested at that and at larger ones, in the
three views of `posenc_jax.lab.tasks.images`. The control is the shuffled view: a model that reads
positions must be visibly worse there, and one without them as right as before.

A method of two axes is shown (row, column), every other the number of the patch, row after row.
A method with a table gets one as large as the grid it trains on (`length`, `window`), clamped
beyond it, unless the config says otherwise.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from experiments import checks
from experiments.images import pages
from experiments.stages import Reading, evaluate, fit
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.lab.training.evaluation import Evaluator, Scores, records


class EvalConfig(schema.Part):
    """Resolutions to test at, in patches a side; `tokens` bounds one forward pass."""

    lengths: tuple[schema.Few, ...] = Field(min_length=1)
    tokens: schema.Count = 8192


class Config(schema.TrainedConfig):
    eval: EvalConfig


def check(config: Config) -> None:
    """Refuses what cannot run, before anything is compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    if config.model.kind != "encoder":
        raise ValueError(f"model.kind: {config.model.kind!r} reads patches in order; use 'encoder'")
    if "order" in config.task.options:
        raise ValueError("task.order: each method is shown its own; leave it out")
    sizes = {
        "config.train.min_length": [config.train.min_length],
        "config.train.length": [config.train.length],
        "config.eval.lengths": config.eval.lengths,
    }
    tasks.check(config.task.name, sizes, "patches", **config.task.options)
    if config.train.length not in config.eval.lengths:
        raise ValueError(f"eval.lengths: must hold the trained one, {config.train.length}")
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        _check_method(config, name)


def run(config: Config, workdir: str) -> None:
    """Trains and tests every method, then writes and prints the report."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        task = _task(config, config.encoding.names[0])
        record.fact(task=dict(task.facts))
        _keep_shown(config, task, record)
        for name in config.encoding.names:
            _measure(config, name, record)
        summary = report.summarise(
            record.records(), metric=task.metric, better="higher",
            train_length=config.train.length, baselines=task.baselines(),
            not_measured=record.facts.get("not_measured", ()),
        )  # fmt: skip
        record.finish(summary)
        show(workdir)


def show(workdir: str) -> None:
    """The report of a finished run again, from its folder."""
    report.present(workdir, *pages.sections(runs.read(workdir)))


def sized(config: Config, name: str) -> Encoding:
    """The method of that name with tables that fit the grid it is trained on."""
    return encodings.make(name, **_options(config, name))


def _options(config: Config, name: str) -> dict[str, Any]:
    """The options of `sized`."""
    side = config.train.length
    flat = encodings.axes(name) < 2
    fits = {"length": side * side if flat else side, "beyond": "clamp"}
    if not flat:
        fits["window"] = side
    return encodings.taken_by(name, fits | config.encoding.options)


def _task(config: Config, name: str) -> tasks.Task:
    order = "line" if encodings.axes(name) < 2 else "grid"
    return tasks.make(config.task.name, **config.task.options, order=order)


def _model(config: Config, name: str, classes: int, features: int) -> Model:
    """The encoder with one answer an image, [B, 1, classes]."""
    model = transformer.build(
        config.model, sized(config, name), classes,
        pooled=True, axes=max(1, encodings.axes(name)), features=features,
    )  # fmt: skip

    def apply(params, patch_BTF, layout, placed=None, **promises):
        del promises  # positions do not count up along storage in every view
        return model.apply(params, patch_BTF, layout, placed)[:, None]

    return model._replace(apply=apply)


def _measure(config: Config, name: str, record: runs.Run) -> None:
    """Trains one method, and logs its scores in every view at every resolution."""
    task = _task(config, name)
    assert task.features is not None
    model = _model(config, name, task.vocab, task.features)
    limits = schema.EvalConfig(lengths=config.eval.lengths, tokens=config.eval.tokens)
    evaluator = Evaluator(model, task, limits)
    plan = [
        Reading(name, size, name, evaluator, f"{name}: read at {size}")
        for size in config.eval.lengths
    ]
    if all(record.ended(one.stage) for one in plan):
        return
    state = fit(config, model, task, name, plan, record)
    seeds = list(range(config.first_seed, config.first_seed + config.seeds))

    def read(one: Reading) -> None:
        scores = evaluator(state.params, one.length)
        for view, seen in zip(VIEWS, by_view(scores), strict=True):
            label = {"encoding": pages.row(name, view), "split": "test", "length": one.length}
            record.log(records(seen, task, seeds, step=config.train.steps, **label))

    evaluate(plan, record, read)


def _keep_shown(config: Config, task: tasks.Task, record: runs.Run) -> None:
    """Writes shown.npz: the first test image in patches, at every resolution and shuffled."""
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
    np.savez(record.path / "shown.npz", **panels)


def by_view(scores: Scores) -> list[Scores]:
    """The scores of each view; those by place in the window are of all together."""
    whole = scores._asdict()
    parts = {name: np.split(whole[name], len(VIEWS), axis=1) for name in Scores._fields[:4]}
    return [
        scores._replace(**{name: part[view] for name, part in parts.items()})
        for view in range(len(VIEWS))
    ]


def _check_method(config: Config, name: str) -> None:
    if (axes := encodings.axes(name)) > 2:
        raise ValueError(f"encoding.name: {name} reads positions of {axes} axes; images have 2")
    for part in encodings.cards(name):
        if part.groups is not None:
            raise ValueError(f"encoding.name: {part.name} reads groups; images state none")
    encoding, options = sized(config, name), _options(config, name)
    positions = lambda size: size if axes == 2 else size * size
    encodings.check(name, options, positions(config.train.length))
    most = encodings.reach(name, **options)
    for size in config.eval.lengths:
        last = positions(size)
        if most is not None and last > most:
            raise ValueError(
                f"eval.lengths: {size} shows positions up to {last - 1}, past what {name} reaches, "
                f"{most - 1}; shorten it, or set encoding.beyond"
            )
    checks.width("model.width", name, encoding, config.model)
