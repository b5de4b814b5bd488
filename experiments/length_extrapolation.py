"""Train at one length, evaluate the same weights at many longer ones.

Each encoding named in the config is trained in turn, on the same batches for the same seeds. With
`eval.variants` the trained weights are read under other encodings as well, such as RoPE's context
extensions: one that takes a `factor` gets what the length asks for, one that takes a `length` the
trained one.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax

from experiments import checks
from experiments.stages import Reading, evaluate, fit
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.training.evaluation import Evaluator, records
from posenc_jax.lab.training.loop import State


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
    checks.kind("config.model.kind", config.model, config.task)
    names, variants = config.encoding.names, config.eval.variants
    encodings.check_used(names, config.encoding.options)
    if variants and len(names) > 1:
        raise ValueError(
            f"config.eval.variants: {', '.join(variants)} read the weights of one encoding, not of "
            f"{', '.join(names)}; train one"
        )
    for name in names:
        trained = trained_encoding(config, name)
        _check_method(config, name, trained)
        for label in variants:
            _check_variant(config, name, label)
        for field, lengths in sizes.items():
            in_training = field != "config.eval.lengths"
            longest = field == "config.train.length"
            check_length = checks.training if longest else checks.reach
            for length in lengths:
                for label in (name,) if in_training else variants or (name,):
                    options = _options_as(config, name, label, length)
                    check_length(field, label, options, width(length))


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
    for label in config.eval.variants or (name,):
        yield label, _read_as(config, name, label, length)


def _read_as(config: Config, name: str, label: str, length: int) -> Encoding:
    """The encoding `label` as it reads the weights trained with `name` at one length."""
    return encodings.make(label, **_options_as(config, name, label, length))


def _options_as(config: Config, name: str, label: str, length: int) -> dict[str, Any]:
    """The options of `_read_as`."""
    stretch = {"factor": max(1.0, length / config.train.length), "length": config.train.length}
    options: dict[str, Any] = dict(config.encoding.options)
    if label != name:
        options = {**stretch, **options}
    return encodings.taken_by(label, options)


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
        for label, encoding in _variants(config, name, length):
            shared = label if label == name else (label, length)
            if shared not in evaluators:
                model = _reader(config, encoding, task.vocab)
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


def _check_method(config: Config, name: str, encoding: Encoding, field: str = "") -> None:
    """`field` is to blame; or that of each reason where none is given."""
    checks.sequence(field or "config.encoding.name", name)
    checks.groups(field or "config.task.groups", name, config.task)
    checks.width(field or "config.model.width", name, encoding, config.model)


def _check_variant(config: Config, name: str, label: str) -> None:
    field = "config.eval.variants"
    try:
        encoding = _read_as(config, name, label, max(config.eval.lengths))
    except ValueError as error:
        reason = str(error).removeprefix("encoding.name: ")
        raise ValueError(f"{field}: {label}: {reason}") from None
    _check_method(config, label, encoding, field)
    if config.model.kind != "lstm":
        trained = (name, trained_encoding(config, name))
        checks.weights(field, (label, encoding), trained, config.model)
