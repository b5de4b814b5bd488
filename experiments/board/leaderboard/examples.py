"""The examples of a task on the board: the largest sizes that fit its windows."""

from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from experiments.board.leaderboard import cancelling
from experiments.board.leaderboard.config import Config, posed
from experiments.board.leaderboard.overwritten import overwritten
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.training import Examples
from posenc_jax.lab import tasks
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.tasks import content_rules, task_floors
from posenc_jax.lab.tasks.content_rules import ContentFloor
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.batches import TrainingBatches

# Problems with few lines of a size: they are tested on the upper quarter of the sizes that fit.
FEW_LINES = ("count",)


def examples_of(task: Task, config: Config) -> Examples:
    """The examples of a task."""
    window, train = config.window, config.train
    least, most = trained_sizes(task, window, config.shortest)
    batches = TrainingBatches(task, train.batch, (least, most), window, train.pairs)
    problem = PROBLEMS.get(config.task.name)
    variants = {
        name: tests_of(task_of(config, name), config) for name in (problem.tests if problem else ())
    }
    valid, tests = _trained(task, config, "valid"), tests_of(task, config)
    return Examples(batches, valid, tests, variants, _followed(task, config))


def tests_of(task: Task, config: Config) -> tuple[Batch, ...]:
    """The test examples of a task in each window."""
    longer = [config.window * multiple for multiple in config.multiples[1:]]
    test = (_numbered(task, _tested_sizes(task, config, w), w, "test") for w in longer)
    return _trained(task, config, "test"), *test


def _tested_sizes(task: Task, config: Config, window: int) -> np.ndarray:
    """The sizes of the test examples in a longer window: the largest that fits."""
    most = largest(task.width, task.least, task.most, window)
    sizes = most // 4 if config.task.name in FEW_LINES else 1
    return most - np.arange(config.examples, dtype=np.int32) % sizes


def _followed(task: Task, config: Config) -> dict[str, tuple[Batch, ...]]:
    """Examples that tell what answers follow, the largest that fit the trained window and the next
    one: with overwritten symbols, or scored where cancelling reflections differ. None if the
    examples of a window are too few to differ.

    A quarter of the test examples, and as many for each look.
    """
    problem, looks = PROBLEMS.get(config.task.name), config.train.looks
    if problem is None or not (problem.overwrites or problem.cancels):
        return {}
    count = max(config.examples // 4 // looks, 1) * looks
    by_window = []
    for multiple in config.multiples[:2]:
        width = config.window * multiple
        size_B = np.full(count, largest(task.width, task.least, task.most, width), np.int32)
        batch = _numbered(task, size_B, width, "test")
        by_window.append(
            overwritten(batch, problem.overwrites) if problem.overwrites
            else cancelling.in_dispute(batch)
        )  # fmt: skip
    if not all(by_window):
        return {}
    return {what: tuple(batches[what] for batches in by_window) for what in by_window[0]}


def _trained(task: Task, config: Config, split: str) -> Batch:
    """Held-out examples of the sizes in training."""
    least, most = trained_sizes(task, config.window, config.shortest)
    size_B = least + np.arange(config.examples, dtype=np.int32) % (most - least + 1)
    return _numbered(task, size_B, config.window, split)


def _numbered(task: Task, size_B: np.ndarray, width: int, split: str) -> Batch:
    """The first examples of a split, with these sizes."""
    index_B = np.arange(len(size_B), dtype=np.int32)
    draw = lambda data, index_B, size_B: task.numbered(data, index_B, size_B, width, split)
    return jit_quick(draw)(task.data, index_B, size_B)


def trained_sizes(task: Task, window: int, shortest: int = 4) -> tuple[int, int]:
    """The sizes in training: from the largest that the window holds, divided by `shortest`, on."""
    most = largest(task.width, task.least, task.most, window)
    return max(task.least, most // shortest), most


def largest(width: Any, least: int, most: int | None, window: int) -> int:
    """The largest size whose width fits the window; `least - 1` if none fits."""
    size = least - 1
    while width(size + 1) <= window and size != most:
        size += 1
    return size


def task_of(config: Config, test: str = "") -> Task:
    """The task in training, or that of a further test of a problem."""
    task = posed(config.task)
    more = PROBLEMS[config.task.name].tests[test] if test else {}
    return tasks.make(task.name, **{**task.options, **more})


def content_floors(config: Config, test: str = "") -> dict[int, dict[str, ContentFloor]]:
    """window -> metric -> the best score of rules that look tokens up by content, on the test
    examples of the board.

    test: the name of a further test of a problem.
    """
    return _content_floors(*_examples_key(config), test)


def table_floor(config: Config, test: str, multiple: int, metric: str) -> tuple[str, float]:
    """The best table of the last tokens in a window and its score, see `task_floors`."""
    return _table_floors(*_examples_key(config), test, multiple)[metric]


def _examples_key(config: Config) -> tuple:
    """What sets the examples of a task, to be asked for once by a page of many runs."""
    task = tuple(sorted(config.task.model_dump().items()))
    return task, config.window, config.multiples, config.shortest, config.examples


def _from_key(task, window, multiples, shortest, examples) -> Config:
    return Config.model_validate({
        "experiment": "leaderboard", "encoding": {"name": "rope"}, "task": dict(task),
        "model": {}, "window": window, "multiples": multiples, "shortest": shortest,
        "examples": examples,
    })  # fmt: skip


@cache
def _content_floors(task, window, multiples, shortest, examples, test):
    config = _from_key(task, window, multiples, shortest, examples)
    trained, tested = task_of(config), task_of(config, test)
    fitted = content_rules.fit(trained, trained_sizes(trained, window, shortest))
    batches = zip(multiples, tests_of(tested, config), strict=True)
    return {
        window * multiple: content_rules.floors(content_rules.scores(batch, fitted))
        for multiple, batch in batches
    }


@cache
def _table_floors(task, window, multiples, shortest, examples, test, multiple):
    config = _from_key(task, window, multiples, shortest, examples)
    tested = task_of(config, test)
    size = largest(tested.width, tested.least, tested.most, window * multiple)
    sizes = trained_sizes(tested, window, shortest)
    by_name = task_floors.predictors(tested, sizes, size, examples)

    def best(metric: str) -> tuple[str, float]:
        scores = [(name, getattr(by_name[name], metric)) for name in task_floors.TABLES]
        return max(scores, key=itemgetter(1))

    return {metric: best(metric) for metric in task_floors.Score._fields}
