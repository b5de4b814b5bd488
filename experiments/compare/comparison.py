"""Trains the rows of a comparison, and evaluates the weights of each under several conditions."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from experiments.compare import start
from experiments.compare.fields import Config, shuffled_row
from posenc_jax.encoding import Encoding
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.hosts.console import say
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings, Model
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks.shuffled import shuffled
from posenc_jax.lab.training.evaluation import CannotEvaluate, Evaluator, records
from posenc_jax.lab.training.loop import train
from posenc_jax.lab.training.optimizers import before_fall, rates
from posenc_jax.lab.training.progress import Progress
from posenc_jax.lab.training.step import State
from posenc_jax.lab.training.throughput import Meter, work


class Evaluation(NamedTuple):
    """The evaluation of trained weights under one condition.

    label: the encoding in its records.
    length: the size of its examples.
    evaluator: called as (params, length); its `compile`, with the same arguments, may run earlier,
      in a thread.
    stage: its stage of the run; one that has ended is not repeated.
    """

    label: str
    length: int
    evaluator: Any
    stage: str


class Row(NamedTuple):
    """What is trained once, and how its weights are evaluated.

    name: of the training, and of the encoding in its records.
    encoding: that of the model; of an encoder-decoder its `Encodings`.
    records: (params, evaluation) -> the records of one evaluation, which it makes.
    limits: if given, weights are scored on validation examples during the training.
    """

    name: str
    encoding: Encoding | Encodings
    task: tasks.Task
    model: Model
    plan: Sequence[Evaluation]
    records: Callable[[Any, Evaluation], Iterable[runs.Record]]
    limits: schema.EvalConfig | None = None


def compare(
    config: Config,
    run: runs.Run,
    task: tasks.Task,
    rows: Callable[[tasks.Task], Iterable[Row]],
    *,
    metric: str = "",
    baselines: Callable[[tasks.Task], Mapping[str, float]] = lambda task: task.baselines(),
    floors: Callable[[tasks.Task], Mapping[int, float] | None] = lambda task: None,
) -> Summary:
    """Trains and evaluates every row; returns the summary, an empty one in a process that has no
    records.

    Args:
      task: the task of the comparison; a row may have it with other positions.
      rows: the rows; each is made when those before it have ended.
      metric: the main metric; by default the task's.
      baselines: values to compare with. They are computed meanwhile: compressors release Python's
        lock.
      floors: the best score without positions by length, if it is known.
    """
    with ThreadPoolExecutor(1, "baselines") as meanwhile:
        values = meanwhile.submit(baselines, task)
        run.fact(task=dict(task.facts))
        train_and_evaluate(config, run, rows(task))
        if not run.is_writer:
            return Summary()
        return report.summarise(
            run.records(),
            metric=metric or task.metric,
            train_length=config.train.length,
            baselines=values.result(),
            floors=floors(task),
            not_measured=run.facts.get("not_measured", ()),
        )


def train_and_evaluate(config: schema.TrainedConfig, run: runs.Run, rows: Iterable[Row]) -> None:
    """Trains and evaluates every row, without the stages that have ended."""
    run.trainings(len(config.row_names) * config.seeds)
    for row in rows:
        if not all(run.ended(evaluation.stage) for evaluation in row.plan):
            if start.only_evaluates(config, row.name, run):
                params = start.trained_params(config, row, run)
            else:
                params = train_row(config, row, run).weights
            evaluate(row, run, params)
            run.end_trainings()


def lengths_and_control(
    config: Config,
    task: tasks.Task,
    encoding: Encoding | Encodings,
    model: Model,
    name: str,
    more: Callable[[Any, Evaluation, Scores], Iterable[runs.Record]] = lambda *_: (),
) -> Row:
    """The row whose weights are evaluated at every length, and on shuffled examples of the trained
    one, the control.

    more: (params, evaluation, scores) -> further records of an evaluation of examples in order.
    """
    evaluator, control = (Evaluator(model, t, config.eval) for t in (task, shuffled(task)))
    plan = [Evaluation(name, n, evaluator, f"{name}: read at {n}") for n in config.eval.lengths]
    trained = config.train.length
    plan.append(Evaluation(shuffled_row(name), trained, control, f"{name}: read shuffled"))

    def records_of(params: Any, evaluation: Evaluation) -> Iterable[runs.Record]:
        scores = evaluation.evaluator(params, evaluation.length)
        labels = {"encoding": evaluation.label, "split": "test", "length": evaluation.length}
        yield from records(scores, task, config.train.steps, config.seed_range, labels)
        if evaluation.evaluator is evaluator:
            yield from more(params, evaluation, scores)

    return Row(name, encoding, task, model, plan, records_of, config.eval)


def model_of(
    config: Config,
    task: tasks.Task,
    encoding: Encoding,
    axes: int = 1,
    pooling: Literal["mean", "first"] = "mean",
) -> Model:
    """The model of a row: it answers once for each sequence if the task has labels, else for each
    token.

    axes: of the positions; a method without positions has 0, and is given 1.
    """
    options: dict[str, Any] = {"axes": max(1, axes), "features": task.features}
    if task.metric != "accuracy":
        return transformer.build(config.model, encoding, task.vocab, **options)
    return transformer.classifier(config.model, encoding, task.vocab, pooling=pooling, **options)


def train_row(config: schema.TrainedConfig, row: Row, run: runs.Run) -> State:
    """Trains all seeds of a row, or resumes its training; returns the last state.

    The programs of its evaluations are compiled meanwhile.

    Raises:
      Diverged: names the step and the seed of a loss that is not finite.
    """
    name, _, task, model, plan, _, limits = row
    seeds = config.seed_range
    labels = {"encoding": name, "split": "train", "length": config.train.length}

    meter = Meter(work(model, config.model, task, config.train), len(seeds))

    def log(metrics, timing):
        step, steps = int(metrics["step"].max()), metrics["step"].shape[1]
        speed = meter(steps, timing)
        values = {
            "loss": metrics["loss"].mean(axis=1),
            "grad_norm": metrics["grad_norm"].mean(axis=1),
            "learning_rate": np.full(len(seeds), rates(config.train, range(step - 1, step))),
            **{name: np.full(len(seeds), value) for name, value in speed.values().items()},
        }
        run.log(runs.seed_records(step, seeds, labels, values))
        speed = meter.typical() if step == config.train.steps else speed
        progress.update(step, float(values["loss"].mean()), speed.words())

    valid = Evaluator(model, task, limits, "valid") if limits else None
    validate = valid and partial(_validate, config, task, valid, {**labels, "split": "valid"}, run)

    def compile_ahead(state):
        like = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        params = jax.tree.map(like, state.params)
        if valid is not None:
            ahead.submit(valid.compile, params, config.train.length)
        for evaluation in plan:
            if not run.ended(evaluation.stage):
                ahead.submit(evaluation.evaluator.compile, params, evaluation.length)

    say(_described(config, model, task, name))
    profile = run.path / "profile" / folder_name(name) if config.profile else None
    steps, ahead = config.train.steps, ThreadPoolExecutor(1, "compiling")
    with (
        runs.StageCheckpoints(run, name, steps, _checkpoints(config)) as checkpoints,
        Progress(steps, f"train {name}") as progress,
    ):
        try:
            state = train(
                model, task, config.train, config.seeds, config.first_seed,
                config.model.masks.loss, log, checkpoints, compile_ahead, validate, profile,
                partial(start.begin, config, row, run),
            )  # fmt: skip
        finally:  # an error in compiling is raised again by the evaluation
            ahead.shutdown(wait=False, cancel_futures=True)
        run.end(name)
    return state


def _checkpoints(config: schema.TrainedConfig) -> schema.CheckpointConfig:
    """Those of the config, and the one before the rate falls, from which a training is extended."""
    kept = {*config.checkpoint.at, before_fall(config.train)} - {0}
    return config.checkpoint.model_copy(update={"at": tuple(sorted(kept))})


def _validate(config, task, valid: Evaluator, labels, run: runs.Run, state: State, step: int):
    """Logs the scores on validation examples of the trained length."""
    with contextlib.suppress(CannotEvaluate):  # the evaluation at this length then says so
        scores = valid(state.weights, config.train.length)
        scored = records(scores, task, step, config.seed_range, labels)
        run.log([record for record in scored if "position" not in record["labels"]])


def _described(config: schema.TrainedConfig, model: Model, task: tasks.Task, name: str) -> str:
    """What is trained: the parameters of the model, and its batches."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    train = config.train
    least, most = train.min_length, train.length
    sizes = f"size {most}" if least == most else f"sizes {least} to {most}"
    return (
        f"train {name}: {count:,} parameters; {train.steps:,} steps of {train.batch} x "
        f"{task.name}, {sizes}"
    )


def evaluate(row: Row, run: runs.Run, params: Any) -> None:
    """Logs the records of every evaluation that has not ended.

    If one raises CannotEvaluate, the reason is added to the fact `not_measured` of the run.
    """
    plan = row.plan
    with Progress(len(plan), f"evaluate {plan[0].label}") as progress:
        for done, evaluation in enumerate(plan, 1):
            if run.ended(evaluation.stage):
                continue
            run.begin(evaluation.stage)
            try:
                run.log(row.records(params, evaluation))
            except CannotEvaluate as reason:
                entries = run.facts.get("not_measured", [])
                entry = {
                    "encoding": evaluation.label,
                    "length": evaluation.length,
                    "reason": str(reason),
                }
                run.fact(not_measured=[*entries, entry])
            failpoints.reach("evaluating")
            run.end(evaluation.stage)
            progress.update(done)
            signals.stop_if_requested()
