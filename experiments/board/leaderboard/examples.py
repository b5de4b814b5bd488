"""The examples of a task on the board: the largest sizes that fit its windows."""

from functools import cache, partial
from typing import Any

import jax.numpy as jnp

from experiments.board.leaderboard.config import Config, posed
from experiments.board.training import Examples
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import content_rules
from posenc_jax.lab.tasks.content_rules import ContentFloor
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.training.batches import TrainingBatches


def examples_of(task: Task, config: Config) -> Examples:
    """The examples of a task."""
    window, train = config.window, config.train
    fits = partial(largest, task.width, task.least, task.most)
    least, most = trained_sizes(task, window)
    index_B = jnp.arange(config.examples, dtype=jnp.int32)
    trained_B = least + index_B % (most - least + 1)
    trained = lambda split: task.numbered(task.data, index_B, trained_B, window, split)
    longer = [window * multiple for multiple in config.multiples[1:]]
    test = (task.test(task.data, index_B, fits(width), width) for width in longer)
    batches = TrainingBatches(task, train.batch, (least, most), window)
    return Examples(batches, trained("valid"), (trained("test"), *test))


def trained_sizes(task: Task, window: int) -> tuple[int, int]:
    """The sizes in training: from a quarter of the largest that the window holds on."""
    most = largest(task.width, task.least, task.most, window)
    return max(task.least, most // 4), most


def largest(width: Any, least: int, most: int | None, window: int) -> int:
    """The largest size whose width fits the window; `least - 1` if none fits."""
    size = least - 1
    while width(size + 1) <= window and size != most:
        size += 1
    return size


def content_floors(config: Config) -> dict[int, dict[str, ContentFloor]]:
    """window -> metric -> the best score of rules that look tokens up by content, on the test
    examples of the board.
    """
    task = config.task
    # What sets the examples; a page asks for them once for each run.
    return _content_floors(
        task.name, tuple(sorted(posed(task).options.items())), config.window, config.multiples,
        config.examples,
    )  # fmt: skip


@cache
def _content_floors(name, options, window, multiples, examples):
    posed_task = {"name": name, **dict(options)}
    config = Config.model_validate({
        "experiment": "leaderboard", "encoding": {"name": "rope"}, "task": posed_task,
        "model": {}, "window": window, "multiples": multiples, "examples": examples,
    })  # fmt: skip
    task = tasks.make(name, **dict(options))
    after = content_rules.best_after(task, trained_sizes(task, window))
    batches = zip(multiples, examples_of(task, config).test, strict=True)
    return {
        window * multiple: content_rules.floors(content_rules.scores(batch, task.vocab, after))
        for multiple, batch in batches
    }
