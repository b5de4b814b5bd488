"""Measures one method, or the floor, of a setting."""

import math
from collections.abc import Callable, Iterator, Mapping

import jax

from experiments.board.published.config import Config
from experiments.board.published.examples import examples_of, model_of, options_of, task_of
from experiments.board.published.settings import SETTINGS, Setting
from experiments.board.training import Plan, Programs, stacked, trainings
from posenc_jax import encodings
from posenc_jax.lab import runs
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.tasks.task_floors import floor

FLOOR = "floor"  # in place of a method: the best score that needs no positions
CHUNK = 100  # steps of one program


def measurer(config: Config) -> Callable[[str], list[runs.Record]]:
    """A function from "setting: method" to its records."""

    def measure(name):
        setting, method = name.split(": ")
        measured = floors if method == FLOOR else records
        return list(measured(config, setting, method))

    return measure


def plan(config: Config, setting: Setting) -> Plan:
    """The budget of a training: half of the steps and all of them, in whole chunks."""
    steps = max(round(setting.steps * config.budget), 4)
    chunk = min(CHUNK, max(steps // 4, 1))
    half = max(round(steps / 2 / chunk), 1) * chunk
    return Plan(setting.batch, chunk, chunk, chunk, (half, 2 * half), 0.01, 1.0)


def records(config: Config, name: str, method: str) -> Iterator[runs.Record]:
    """The scores of every seed in every test at both budgets, and the learning rate."""
    setting, seeds = SETTINGS[name], list(config.seed_range)
    train = plan(config, setting)
    task, examples = examples_of(setting, train, config.examples)
    programs = Programs(model_of(setting, method, task), train)
    rates = setting.rates or config.rates
    rate, weights = trainings(programs, examples, train, rates, seeds)
    labels = {"setting": name, "encoding": method}
    at = {**labels, "split": "train"}
    yield from runs.seed_records(0, seeds, at, {"rate": [rate] * len(seeds)})
    for budget, params in zip(train.budgets, zip(*weights, strict=True), strict=True):
        together = stacked([jax.tree.map(lambda leaf: leaf[0], params_1) for params_1 in params])
        for (test, held), batch in zip(setting.tests.items(), examples.test, strict=True):
            tokens = int(task.width(held.sizes[1]))
            most = encodings.reach(method, **options_of(setting, method))
            if most is not None and tokens > most:
                continue
            at = {**labels, "split": "test", "length": tokens, "test": test}
            scores = named(task, programs.score(together, batch))
            yield from runs.seed_records(budget, seeds, at, scores)


def names_of(task: Task) -> set[str]:
    """The names of the metrics of a task."""
    return {"exact_match", "token_accuracy"} if task.metric == "exact_match" else {task.metric}


def named(task: Task, scores: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """The scores by the names of the metrics of the task."""
    more = {"bits_per_byte": scores["loss"] / math.log(2), "accuracy": scores["exact_match"]}
    return {name: value for name, value in {**scores, **more}.items() if name in names_of(task)}


def floors(config: Config, name: str, method: str) -> Iterator[runs.Record]:
    """The best score without positions in every test, at its smallest size; seed 0."""
    setting = SETTINGS[name]
    for test, held in setting.tests.items():
        task = task_of(setting, held)
        tokens = int(task.width(held.sizes[1]))
        labels = {"setting": name, "encoding": method, "split": "test", "length": tokens}
        labels["test"] = test
        if task.metric == "exact_match":
            best = floor(task, setting.sizes, held.sizes[0], config.examples)
            values = {metric: value for metric, (_, value) in best._asdict().items()}
        else:
            values = {task.metric: list(_baselines(task).values())[-1]}
        yield from runs.seed_records(0, [0], labels, {m: [v] for m, v in values.items()})


def _baselines(task: Task) -> Mapping[str, float]:
    """Simple predictors, the best last: of text those that count bytes, of images the commonest
    label.
    """
    counted = ("unigram", "bigram", "trigram", "most_frequent")
    return {name: value for name, value in task.baselines().items() if name in counted}
