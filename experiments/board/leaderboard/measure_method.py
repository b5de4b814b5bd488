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
from experiments.board.leaderboard.examples import examples_of
from experiments.board.training import METRICS, Examples, Run, UntilLearned, stacked
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.task import Batch
from posenc_jax.lab.training.evaluation import batch_scorer

TOKEN_IDS = 32  # vocabularies are padded to multiples, so that more tasks share programs
SHUFFLED = ", shuffled positions"  # after the name of the reference: the control of the task
CLOSE = 0.01  # exact match; rates that are closer differ in the steps to learn only


class Result(NamedTuple):
    """The records of a training's rows, or the reason why there are none."""

    records: list[dict[str, Any]]
    reason: str


def measurer(config: Config) -> Callable[[str], Result]:
    """A function from a method to the result of its training; the task is made once."""
    posed = board.posed(config.task)
    task = tasks.make(posed.name, **posed.options)
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
    trainer = UntilLearned(build(board.encoding_of(config, name)), train)
    trainings = list(trainer.tried(examples, train.rates, seeds[0]))
    rate = best_rate(trainings)
    trainings += trainer.runs(examples, [(rate, seed) for seed in seeds[1:]])
    chosen = [run for run in trainings if run.rate == rate]
    for row in rows:
        if row == board.TRAINED_TWICE:
            again = UntilLearned(build(board.encoding_of(config, row)), train)
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
        yield from runs.seed_records(run.steps, [run.seed], tried, values)
    seeds, params = [run.seed for run in chosen], stacked([run.params for run in chosen])
    count = sum(leaf[0].size for leaf in jax.tree.leaves(params["encoding"]))
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
        score = batch_scorer(build(encoding), METRICS)
        if name in (*board.READ_ROPE, board.TRAINED_TWICE):  # no parameters, as a tree of its own
            params = {**params, "encoding": encoding.init(jax.random.key(0), config.model.dims)}
        yield from runs.seed_records(0, seeds, tested, score(params, examples.test[n]))
        if name == config.reference:
            tested["encoding"] = f"{name}{SHUFFLED}"
            scores = score(params, shuffled(examples.test[n]))
            yield from runs.seed_records(0, seeds, tested, scores)


def shuffled(batch: Batch) -> Batch:
    """The batch with the positions of each row's tokens in random order: the control of a task."""
    place = batch.layout
    noise_BT = jax.random.uniform(jax.random.key(0), place.pos_BT.shape)
    order_BT = jnp.where(place.segment_BT > 0, noise_BT, 2.0).argsort(axis=1)
    return batch._replace(layout=place.replace(pos_BT=order_BT.argsort(axis=1)))
