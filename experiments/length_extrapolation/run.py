"""Trains and evaluates the encodings of a length extrapolation, and reports the results."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

from experiments import checks
from experiments.length_extrapolation.config import Config, trained_encoding, variants
from experiments.stages import Reading, evaluate, fit
from posenc_jax.encoding import Encoding
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.training.evaluation import Evaluator, records
from posenc_jax.lab.training.step import State


def run(config: Config, workdir: str) -> None:
    """Trains and evaluates every encoding, then writes and prints the report."""
    wandb = config.wandb.model_dump()
    with (
        runs.Run(workdir, config.model_dump(), wandb) as record,
        ThreadPoolExecutor(1, "baselines") as meanwhile,  # compressors leave Python to others
    ):
        task = tasks.make(config.task.name, **config.task.options)
        baselines = meanwhile.submit(task.baselines)
        record.fact(task=dict(task.facts))
        measure(config, task, record)
        if record.is_writer:
            summary = report.summarise(
                record.records(),
                metric=task.metric,
                better="lower" if task.metric == "bits_per_byte" else "higher",
                train_length=config.train.length,
                baselines=baselines.result(),
                not_measured=record.facts.get("not_measured", ()),
            )
            record.finish(summary)
            report.show(workdir)


def measure(config: Config, task: tasks.Task, record: runs.Run) -> None:
    """Trains and evaluates every encoding into the record; what an earlier start did stays."""
    programs = 0
    for name in config.encoding.names:
        plan = _plan(config, task, name)
        programs += len({(one.model, one.evaluator.shape(one.length)) for one in plan})
        if not all(record.ended(one.stage) for one in plan):
            model = transformer.build(config.model, trained_encoding(config, name), task.vocab)
            state = fit(config, model, task, name, plan, record)
            evaluate(plan, record, partial(_read, config, task, state, record))
    record.fact(evaluation_programs=programs)


def _reader(config: Config, encoding: Encoding, vocab: int) -> Model:
    """The model under an encoding that its weights may not have been trained with: what arrays
    there are stand where this one looks for them.
    """
    model = transformer.build(config.model, encoding, vocab)
    if config.model.kind == "lstm":
        return model
    own = jax.tree.structure(checks.params(encoding, config.model))

    def apply(params, *given, **form):
        arrays = jax.tree.leaves(params["encoding"])[: own.num_leaves]
        return model.apply({**params, "encoding": own.unflatten(arrays)}, *given, **form)

    return model._replace(apply=apply)


def _plan(config: Config, task: tasks.Task, name: str) -> list[Reading]:
    evaluators: dict[Any, Evaluator] = {}
    plan = []
    for length in config.eval.lengths:
        for label, encoding in variants(config, name, length):
            shared = label if label == name else (label, length)
            if shared not in evaluators:
                model = _reader(config, encoding, task.vocab)
                evaluators[shared] = Evaluator(model, task, config.eval)
            stage = f"{name}: read as {label} at {length}"
            plan.append(Reading(label, length, shared, evaluators[shared], stage))
    return plan


def _read(config: Config, task: tasks.Task, state: State, record: runs.Run, one: Reading) -> None:
    seeds, step = range(config.first_seed, config.first_seed + config.seeds), config.train.steps
    started = time.perf_counter()
    scores = one.evaluator(state.params, one.length)
    seconds = time.perf_counter() - started
    labels = {"encoding": one.label, "split": "test", "length": one.length}
    record.log(records(scores, task, step, seeds, labels))
    took = {"evaluation_seconds": [seconds / len(seeds)] * len(seeds)}
    record.log(runs.seed_records(step, seeds, labels, took))
