"""Train at one length, evaluate the same weights at many longer ones.

Each encoding named in the config is trained in turn, on the same batches for the same seeds. With
`eval.variants` the trained weights are read under other encodings as well, such as RoPE's context
extensions: one that takes a `factor` gets what the length asks for, and the trained length.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

from experiments.stages import Reading, evaluate, fit
from posenc_jax import encodings, report, runs, schema, tasks, transformer
from posenc_jax.encoding import Encoding
from posenc_jax.evaluation import Evaluator, records
from posenc_jax.training import State


class Config(schema.TrainedConfig):
    eval: schema.EvalConfig


def check(config: Config) -> None:
    """Refuses what cannot run, before data is read or anything compiled.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    sizes = {
        "config.train.min_length": [config.train.min_length],
        "config.train.length": [config.train.length],
        "config.eval.lengths": config.eval.lengths,
    }
    width = tasks.check(config.task.name, sizes, **config.task.options)
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        if (axes := encodings.axes(name)) > 1:
            raise ValueError(f"config.encoding.name: {name} reads positions of {axes} axes; the "
                             f"task {config.task.name} is a sequence, with 1")  # fmt: skip
        for field, lengths in sizes.items():
            for length in lengths:
                for label, encoding in _variants(config, name, length):
                    _check_reach(field, label, encoding, width(length))
        _check_groups(config, name)
        _check_width(config, name)


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
        if record.leads:
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


def trained_encoding(config: Config, name: str) -> Encoding:
    """The encoding that `name` is trained with."""
    return encodings.make(name, **encodings.taken_by(name, config.encoding.options))


def _variants(config: Config, name: str, length: int) -> Iterator[tuple[str, Encoding]]:
    """What the weights trained with `name` are read under at one length, and its label."""
    stretch = {"factor": max(1.0, length / config.train.length), "length": config.train.length}
    for label in config.eval.variants or (name,):
        options: dict[str, Any] = dict(config.encoding.options)
        if label != name and "factor" in encodings.options([label]):
            options = {**stretch, **options}
        yield label, encodings.make(label, **encodings.taken_by(label, options))


def _plan(config: Config, task: tasks.Task, name: str) -> list[Reading]:
    evaluators: dict[Any, Evaluator] = {}
    plan = []
    for length in config.eval.lengths:
        for label, encoding in _variants(config, name, length):
            shared = label if label == name else (label, length)
            if shared not in evaluators:
                model = transformer.build(config.model, encoding, task.vocab)
                evaluators[shared] = Evaluator(model, task, config.eval)
            stage = f"{name}: read as {label} at {length}"
            plan.append(Reading(label, length, shared, evaluators[shared], stage))
    return plan


def _read(config: Config, task: tasks.Task, state: State, record: runs.Run, one: Reading) -> None:
    seeds = list(range(config.first_seed, config.first_seed + config.seeds))
    started = time.perf_counter()
    scores = one.evaluator(state.params, one.length)
    seconds = time.perf_counter() - started
    labels = {
        "step": config.train.steps, "encoding": one.label, "split": "test", "length": one.length
    }  # fmt: skip
    record.log(records(scores, task, seeds, **labels))
    took = {"metric": "time/evaluation_seconds", "value": seconds / len(seeds)}
    record.log({**labels, "seed": seed, **took} for seed in seeds)


def _check_groups(config: Config, name: str) -> None:
    task, wanted = config.task, {part.name: part.groups for part in encodings.cards(name)}
    stated = (tasks.options(task.name) | task.options).get("groups")
    for part, groups in wanted.items():
        if groups is not None and groups != stated:
            raise ValueError(
                f"config.task.groups: {part} reads the groups {groups!r}; the task {task.name} "
                f"states {repr(stated) if stated else 'none'}"
            )


def _check_width(config: Config, name: str) -> None:
    model = transformer.build(config.model, trained_encoding(config, name), 256)
    try:
        jax.eval_shape(model.init, jax.random.key(0))
    except ValueError as error:
        width, heads = config.model.width, config.model.heads
        raise ValueError(
            f"config.model.width: {width} over {heads} heads does not suit {name}: {error}"
        ) from None


def _check_reach(field: str, label: str, encoding: Encoding, length: int) -> None:
    if encoding.limit is not None and length > encoding.limit:
        raise ValueError(
            f"{field}: {length} is past what {label} reaches, {encoding.limit}; shorten it, or let "
            "the method clamp or interpolate where it has the option `beyond`"
        )
