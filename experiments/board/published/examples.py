"""The task, the examples and the models of a setting."""

from typing import Any

import jax.numpy as jnp

from experiments import method_options
from experiments.board.published.settings import HeldOut, Setting
from experiments.board.training import Examples, Plan
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.batches import TrainingBatches


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
    options: dict[str, Any] = {"length": reach, "limit": reach}
    options |= {"shift": reach // 2, "offset": reach // 2}
    if setting.task in tasks.names("patches"):
        options["beyond"] = "clamp"
    task = task_of(setting)
    tokens = int(task.width(setting.sizes[1]))
    causal, head = setting.kind == "decoder", setting.width // setting.heads
    here = method_options.Setting(tokens, reach, head, causal)
    return method_options.options(method, here, {}, options)


def examples_of(setting: Setting, train: Plan, examples: int) -> tuple[Task, Examples]:
    """The task of a setting and its examples; its tests are in the order of `setting.tests`."""
    task = task_of(setting)
    width = int(task.width(setting.sizes[1]))
    batches = TrainingBatches(task, train.batch, setting.sizes, width)
    valid = _held(task, HeldOut(setting.sizes), "valid", examples)
    test = tuple(
        _held(task_of(setting, held_out), held_out, "test", examples)
        for held_out in setting.tests.values()
    )
    return task, Examples(batches, valid, test)


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
