"""Measures one method on the task: trains it with each rate and seed, tests it in each window."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.board.leaderboard import config as board
from experiments.board.leaderboard.config import Config
from experiments.board.leaderboard.examples import examples_of, task_of
from experiments.board.leaderboard.overwritten import LABEL
from experiments.board.training import Examples, Run, Trainings, stacked
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.task import Batch
from posenc_jax.lab.training.evaluation import batch_scorer

TOKEN_IDS = 32  # vocabularies are padded to multiples, so that more tasks share programs
SHUFFLED = ", shuffled positions"  # after the name of the reference: the control of the task
SPREAD = "standard deviation over late checkpoints"  # a record's label "statistic"
CLOSE = 0.01  # exact match; rates that are closer differ in the steps to learn only
NEAR = 0.01  # nats a token; no rate beyond an edge is tried for less


class Result(NamedTuple):
    """The records of a training's rows, or the reason why there are none."""

    records: list[dict[str, Any]]
    reason: str


def measurer(config: Config) -> Callable[[str], Result]:
    """A function from a method to the result of its training; the task is made once."""
    task = task_of(config)
    return partial(_attempt, config, task.vocab, examples_of(task, config))


def _attempt(config: Config, vocab: int, examples: Examples, name: str) -> Result:
    """The result, with a reason if memory runs out."""
    try:
        return Result(list(measure(config, name, vocab, examples)), "")
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error) and not isinstance(error, MemoryError):
            raise
        return Result([], "out of memory")


def measure(config: Config, name: str, vocab: int, examples: Examples) -> Iterator[runs.Record]:
    """The records of one training and of every row that its weights give."""
    started, train = time.perf_counter(), config.train
    rows, seeds = board.trained(config)[name], list(config.seed_range)
    build = partial(_model, config, vocab)
    trainer = Trainings(build(board.encoding_of(config, name)), train)
    rate, trainings = chosen_rate(trainer, examples, train, seeds[0])
    trainings += trainer.runs(examples, [(rate, seed) for seed in seeds[1:]])
    chosen = [run for run in trainings if run.rate == rate]
    for row in rows:
        if row == board.TRAINED_TWICE:
            again = Trainings(build(board.encoding_of(config, row)), train)
            weights = [{**run.params, "encoding": {}} for run in chosen]
            second = list(again.runs(examples, [(rate, seed) for seed in seeds], weights))
            yield from _row(config, build, row, rate, second, second, examples)
        else:
            yield from _row(config, build, row, rate, chosen, trainings, examples)
    took = (time.perf_counter() - started) / len(trainings)
    labels = {"encoding": name, "split": "train", "length": config.window}
    yield from runs.seed_records(0, seeds, labels, {"seconds": [took] * len(seeds)})


def best_rate(tried: Sequence[Run]) -> float:
    """The rate that learns the task best on validation examples, and of those the fastest."""
    best = max(run.valid for run in tried)
    return min((run for run in tried if run.valid >= best - CLOSE), key=lambda run: run.steps).rate


def chosen_rate(
    trainer: Trainings, examples: Examples, train: board.TrainConfig, seed: int
) -> tuple[float, list[Run]]:
    """The learning rate of a method, and all trainings that chose it.

    A rate at an edge of the grid is halved or doubled, unless its neighbour is as good.
    """
    trainings = list(trainer.tried(examples, train.rates, seed))
    if train.learned is not None:
        return best_rate(trainings), trainings
    for _ in range(train.widen):
        rate, loss = lowest_loss(trainings), {run.rate: run.loss for run in trainings}
        rates = sorted(loss)
        if len(rates) == 1 or rate not in (rates[0], rates[-1]):
            break
        neighbour = rates[1] if rate == rates[0] else rates[-2]
        if loss[neighbour] < loss[rate] + NEAR:
            break
        further = rate / 2 if rate == rates[0] else rate * 2
        trainings += trainer.runs(examples, [(further, seed)])
    return lowest_loss(trainings), trainings


def lowest_loss(tried: Sequence[Run]) -> float:
    """The rate with the lowest loss on validation examples; one that is not finite is the worst."""
    return min(tried, key=lambda run: run.loss if np.isfinite(run.loss) else np.inf).rate


def _model(config: Config, vocab: int, encoding: Encoding) -> transformer.Model:
    return transformer.build(config.model, encoding, -(-vocab // TOKEN_IDS) * TOKEN_IDS)


def _row(
    config: Config,
    build: Callable[[Encoding], transformer.Model],
    name: str,
    rate: float,
    chosen: Sequence[Run],
    trainings: Sequence[Run],
    examples: Examples,
) -> Iterator[runs.Record]:
    """The records of one row: every run's validation, and the tests of the chosen ones."""
    labels = {"encoding": name, "length": config.window}
    for run in trainings:
        tried = {**labels, "split": "valid", "rate": f"{run.rate:g}"}
        values = {"exact_match": [run.valid], "learned": [run.learned]}
        if config.train.learned is None:
            values["loss"] = [run.loss]
        yield from runs.seed_records(run.steps, [run.seed], tried, values)
    seeds = [run.seed for run in chosen]
    looks = [stacked(at_look) for at_look in zip(*(run.late for run in chosen), strict=True)]
    count = sum(leaf[0].size for leaf in jax.tree.leaves(looks[-1]["encoding"]))
    facts = {"parameters": [count] * len(seeds), "rate": [rate] * len(seeds)}
    facts["steps_to_learn"] = [run.steps if run.learned else np.nan for run in chosen]
    yield from runs.seed_records(0, seeds, {**labels, "split": "train"}, facts)
    for n, multiple in enumerate(config.multiples):
        window = config.window * multiple
        most = encodings.reach(name, **board.options_of(config, name, multiple))
        if most is not None and window > most:
            continue
        tested = {**labels, "split": "test", "length": window}
        encoding = board.encoding_of(config, name, multiple)
        score = batch_scorer(build(encoding), examples.metrics)
        score_copies = batch_scorer(build(encoding), ("token_accuracy",))
        if name in (*board.READ_ROPE, board.TRAINED_TWICE):  # no parameters, as a tree of its own
            none = encoding.init(jax.random.key(0), config.model.dims)
            looks = [{**params, "encoding": none} for params in looks]
        scored = partial(_scores, score, looks)
        yield from _tested(seeds, tested, scored(examples.test[n]))
        for variant, tests in examples.variants.items():
            yield from _tested(seeds, {**tested, "test": variant}, scored(tests[n]))
        for what, copies in examples.followed.items():
            for batch in copies[n : n + 1]:
                followed = _scores(score_copies, looks, batch)
                yield from _tested(seeds, {**tested, LABEL: what}, followed)
        if name == config.reference:
            control = {**tested, "encoding": f"{name}{SHUFFLED}"}
            yield from _tested(seeds, control, scored(shuffled(examples.test[n])))


def _scores(score: Callable[..., Any], looks: Sequence[Any], batch: Batch) -> dict[str, np.ndarray]:
    """metric -> [looks, S]: the weights at each look, scored on a part of the examples of its own,
    the same for all methods.
    """
    parts = [
        jax.tree.map(lambda leaf, n=n: leaf[n :: len(looks)], batch) for n in range(len(looks))
    ]
    by_look = [score(params, part) for params, part in zip(looks, parts, strict=True)]
    return {name: np.array([scores[name] for scores in by_look]) for name in by_look[0]}


def _tested(
    seeds: Sequence[int], labels: dict[str, Any], value_LS: dict[str, np.ndarray]
) -> Iterator[runs.Record]:
    """The records of a test: the means over looks, and with a label of their own the standard
    deviations over looks, if there are several.
    """
    means = {name: values.mean(axis=0) for name, values in value_LS.items()}
    yield from runs.seed_records(0, seeds, labels, means)
    if len(next(iter(value_LS.values()))) > 1:
        spreads = {name: values.std(axis=0, ddof=1) for name, values in value_LS.items()}
        yield from runs.seed_records(0, seeds, {**labels, "statistic": SPREAD}, spreads)


def shuffled(batch: Batch) -> Batch:
    """The batch with the positions of each row's tokens in random order: the control of a task."""
    place = batch.layout
    noise_BT = jax.random.uniform(jax.random.key(0), place.pos_BT.shape)
    order_BT = jnp.where(place.segment_BT > 0, noise_BT, 2.0).argsort(axis=1)
    return batch._replace(layout=place.replace(pos_BT=order_BT.argsort(axis=1)))
