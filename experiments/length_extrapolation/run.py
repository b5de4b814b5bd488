"""Trains and evaluates the encodings of a length extrapolation."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

from experiments import checks
from experiments.length_extrapolation.config import Config, trained_encoding, variants
from experiments.stages import Evaluation, evaluation_stages, summarise, train_stage
from posenc_jax.encoding import Encoding
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.training.evaluation import Evaluator, records
from posenc_jax.lab.training.step import State


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and evaluates every encoding; returns the summary, an empty one in a process that has
    no records.

    The baselines are computed meanwhile: compressors release Python's lock.
    """
    with ThreadPoolExecutor(1, "baselines") as meanwhile:
        task = tasks.make(config.task.name, **config.task.options)
        baselines = meanwhile.submit(task.baselines)
        run.fact(task=dict(task.facts))
        train_and_evaluate(config, task, run)
        if not run.is_writer:
            return Summary()
        sizes = config.train.min_length, config.train.length
        found = floors.by_metric(task, sizes, config.eval.lengths, config.eval.examples)
        return summarise(config, task, run, baselines.result(), found.get(task.metric))


def train_and_evaluate(config: Config, task: tasks.Task, run: runs.Run) -> None:
    """Trains and evaluates every encoding, without the stages that have ended."""
    programs = 0
    for name in config.encoding.names:
        plan = _plan(config, task, name)
        programs += len({(one.evaluator, one.evaluator.shape(one.length)) for one in plan})
        if not all(run.ended(one.stage) for one in plan):
            model = transformer.build(config.model, trained_encoding(config, name), task.vocab)
            state = train_stage(config, model, task, name, plan, run, config.eval)
            evaluation_stages(plan, run, partial(_evaluate, config, task, state, run))
    run.fact(evaluation_programs=programs)


def _reader(config: Config, encoding: Encoding, vocab: int) -> Model:
    """The model under an encoding that it may not have been trained with: the arrays of the trained
    encoding are used, in order, in this encoding's tree.
    """
    model = transformer.build(config.model, encoding, vocab)
    own = jax.tree.structure(checks.params(encoding, config.model))

    def apply(params, *given, **form):
        arrays = jax.tree.leaves(params.get("encoding", {}))[: own.num_leaves]
        return model.apply({**params, "encoding": own.unflatten(arrays)}, *given, **form)

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


def _evaluate(config: Config, task: tasks.Task, state: State, run: runs.Run, one: Evaluation):
    seeds, step = config.seed_range, config.train.steps
    started = time.perf_counter()
    scores = one.evaluator(state.params, one.length)
    seconds = time.perf_counter() - started
    labels = {"encoding": one.label, "split": "test", "length": one.length}
    run.log(records(scores, task, step, seeds, labels))
    took = {"evaluation_seconds": [seconds / len(seeds)] * len(seeds)}
    run.log(runs.seed_records(step, seeds, labels, took))
