"""Models with each encoding, evaluated at every length, also under other encodings."""

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import jax

from experiments import config_checks
from experiments.compare.comparison import Evaluation, Row, compare
from experiments.compare.fields import encoding_of
from experiments.compare.length_extrapolation.config import Config, variants
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.training.evaluation import Evaluator, records


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and evaluates every encoding; returns the summary, an empty one in a process that has
    no records.
    """

    def floor(task):
        sizes = config.train.min_length, config.train.length
        by_metric = floors.by_metric(task, sizes, config.eval.lengths, config.eval.examples)
        return by_metric.get(task.metric)

    counted_rows = lambda task: counted(rows(config, task), run)
    return compare(config, run, make_task(config), counted_rows, floors=floor)


def make_task(config: Config) -> tasks.Task:
    """The task that all rows have."""
    return tasks.make(config.task.name, **config.task.options)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """A row for each encoding."""
    for name in config.encoding.names:
        encoding, plan = encoding_of(config, name), _plan(config, task, name)
        model = transformer.build(config.model, encoding, task.vocab)
        yield Row(name, encoding, task, model, plan, partial(_records, config, task), config.eval)


def counted(rows: Iterable[Row], run: runs.Run) -> Iterator[Row]:
    """The rows; after the last one the run's fact `evaluation_programs` says how many programs
    their evaluations compile.
    """
    programs = 0
    for row in rows:
        shapes = ((e.evaluator, e.evaluator.shape(e.length)) for e in row.plan)
        programs += len({*shapes})
        yield row
    run.fact(evaluation_programs=programs)


def _reader(config: Config, encoding: Encoding, vocab: int) -> Model:
    """The model under an encoding that it may not have been trained with: the arrays of the trained
    encoding are used, in order, in this encoding's tree.
    """
    model = transformer.build(config.model, encoding, vocab)
    structure = jax.tree.structure(config_checks.params(encoding, config.model))

    def apply(params, *inputs, **form):
        arrays = jax.tree.leaves(params.get("encoding", {}))[: structure.num_leaves]
        return model.apply({**params, "encoding": structure.unflatten(arrays)}, *inputs, **form)

    return model._replace(apply=apply)


def _plan(config: Config, task: tasks.Task, name: str) -> list[Evaluation]:
    evaluators: dict[Any, Evaluator] = {}
    plan = []
    for length in config.eval.lengths:
        for label, encoding in variants(config, name, length):
            shared = label if label == name else (label, length)
            if shared not in evaluators:
                model = _reader(config, encoding, task.vocab)
                evaluators[shared] = Evaluator(model, task, config.eval)
            stage = f"{name}: read as {label} at {length}"
            plan.append(Evaluation(label, length, evaluators[shared], stage))
    return plan


def _records(
    config: Config, task: tasks.Task, params: Any, evaluation: Evaluation
) -> Iterator[runs.Record]:
    """The scores of one evaluation, and the seconds that it took."""
    seeds, step = config.seed_range, config.train.steps
    started = time.perf_counter()
    scores = evaluation.evaluator(params, evaluation.length)
    seconds = time.perf_counter() - started
    labels = {"encoding": evaluation.label, "split": "test", "length": evaluation.length}
    yield from records(scores, task, step, seeds, labels)
    took = {"evaluation_seconds": [seconds / len(seeds)] * len(seeds)}
    yield from runs.seed_records(step, seeds, labels, took)
