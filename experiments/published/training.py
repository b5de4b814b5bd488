"""Trains one method of a setting, and keeps its weights at each budget."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.convergence import Examples, Programs, rows_of
from experiments.published.settings import HeldOut, Setting
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.lab.tasks.task import Batch, Task


class Plan(NamedTuple):
    """The budget of a training.

    batch, chunk, average, warmup, decay, clip: see `convergence.Budget`.
    budgets: steps, ascending.
    """

    batch: int
    chunk: int
    average: int
    warmup: int
    budgets: tuple[int, ...]
    decay: float
    clip: float


def task_of(setting: Setting, test: HeldOut | None = None) -> Task:
    """The task in training, or with the options of a test."""
    return tasks.make(setting.task, **{**setting.options, **(test.options if test else {})})


def model_of(setting: Setting, method: str, task: Task) -> Model:
    """The model of a method; one for images gives one answer for each image."""
    config = ModelConfig(
        kind=setting.kind, width=setting.width, heads=setting.heads, layers=setting.layers, mlp=2
    )
    encoding = encodings.make(method, **options_of(setting, method))
    if task.features is None:
        return transformer.build(config, encoding, task.vocab)
    return transformer.classifier(
        config, encoding, task.vocab, axes=max(1, encodings.axes(method)), features=task.features
    )


def options_of(setting: Setting, method: str) -> dict[str, Any]:
    """The options of a method: tables have `setting.reach` rows, positions that are drawn are below
    it, and a random start is in its first half; of images the last row is repeated.
    """
    reach = setting.reach
    asked: dict[str, Any] = {"length": reach, "limit": reach}
    asked |= {"shift": reach // 2, "offset": reach // 2}
    if setting.task in tasks.names("patches"):
        asked["beyond"] = "clamp"
    return encodings.taken_by(method, asked)


def examples_of(setting: Setting, train: Plan, examples: int) -> tuple[Task, Examples]:
    """The task of a setting and its examples; its tests are in the order of `setting.tests`."""
    task = task_of(setting)
    rows = rows_of(task, train, setting.sizes, int(task.width(setting.sizes[1])))
    valid = _held(task, HeldOut(setting.sizes), "valid", examples)
    test = tuple(
        _held(task_of(setting, one), one, "test", examples) for one in setting.tests.values()
    )
    return task, Examples(rows, valid, test)


def _held(task: Task, test: HeldOut, split: str, examples: int) -> Batch:
    """Held-out examples whose sizes go through those of the test in turn."""
    least, most = test.sizes
    count, first = task.examples(most) or examples, 0
    if task.features is not None:  # each image is there once for each view
        count = task.facts["images"][split]
        first = VIEWS.index(test.view) * count
    index_B = first + jnp.arange(count, dtype=jnp.int32)
    size_B = least + index_B % (most - least + 1)
    width = int(task.width(most))
    draw = jit_quick(lambda data, i_B, n_B: task.numbered(data, i_B, n_B, width, split))
    return draw(task.data, index_B, size_B)


def trainings(
    programs: Programs,
    examples: Examples,
    train: Plan,
    rates: Sequence[float],
    seeds: Sequence[int],
) -> tuple[float, list[list[Any]]]:
    """The learning rate chosen, and the weights of each seed at each budget, without the axis S.

    The first seed tries all rates up to the first budget; the loss on validation examples chooses
    one for all seeds.
    """
    first, *others = seeds
    tried = {rate: at_budgets(programs, examples, train, rate, first) for rate in rates}
    begun = {rate: next(own) for rate, own in tried.items()}
    loss = lambda rate: float(programs.score(begun[rate], examples.valid)["loss"][0])
    rate = min(rates, key=loss)
    found = [[begun[rate], *tried[rate]]]
    found += [list(at_budgets(programs, examples, train, rate, seed)) for seed in others]
    return rate, found


def at_budgets(
    programs: Programs, examples: Examples, train: Plan, rate: float, seed: int
) -> Iterator[Any]:
    """The averaged weights [1, ...] at each budget, which are those of a training as short."""
    state = programs.start([rate], [seed])
    for budget in train.budgets:
        whole = -(-budget // train.chunk) * train.chunk  # all chunks share a program
        state = programs.fit(state, examples, whole)
        yield jax.tree.map(jnp.copy, state.average)
