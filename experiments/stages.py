"""The stages of a run that trains encodings: training one, and its evaluation at each length."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.hosts.files import folder_name
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.training.evaluation import DoesNotFit, Evaluator, records
from posenc_jax.lab.training.loop import train
from posenc_jax.lab.training.optimizers import schedule
from posenc_jax.lab.training.progress import Progress
from posenc_jax.lab.training.step import State


class Evaluation(NamedTuple):
    """The evaluation of trained weights at one length; `label` is the encoding in its records.

    evaluator: called as (params, length); its `compile`, with the same arguments, may run earlier,
      in a thread.
    """

    label: str
    length: int
    evaluator: Any
    stage: str


def train_stage(
    config: schema.TrainedConfig,
    model: Model,
    task: tasks.Task,
    name: str,
    plan: Sequence[Evaluation],
    run: runs.Run,
    limits: schema.EvalConfig | None = None,
) -> State:
    """Trains all seeds of the stage `name`, or resumes its training; returns the last state.

    With `limits` the weights are scored on validation examples of the trained length from time to
    time. The programs of the evaluations in `plan` are compiled meanwhile.

    Raises:
      Diverged: names the step and the seed of a loss that is not finite.
    """
    seeds = config.seed_range
    labels = {"encoding": name, "split": "train", "length": config.train.length}
    rate = schedule(config.train)

    def log(metrics, seconds):
        step, steps = int(metrics["step"].max()), metrics["step"].shape[1]
        values = {
            "loss": metrics["loss"].mean(axis=1),
            "grad_norm": metrics["grad_norm"].mean(axis=1),
            "learning_rate": np.full(len(seeds), rate(step - 1)),
            "steps_per_second": np.full(len(seeds), steps / seconds),  # of all seeds together
        }
        run.log(runs.seed_records(step, seeds, labels, values))
        progress.update(step, float(values["loss"].mean()))

    valid = Evaluator(model, task, limits, "valid") if limits else None
    validate = valid and partial(_validate, config, task, valid, {**labels, "split": "valid"}, run)

    def compile_ahead(state):
        like = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        params = jax.tree.map(like, state.params)
        if valid is not None:
            ahead.submit(valid.compile, params, config.train.length)
        for one in plan:
            if not run.ended(one.stage):
                ahead.submit(one.evaluator.compile, params, one.length)

    print(_described(config, model, task, name), flush=True)
    profile = run.path / "profile" / folder_name(name) if config.profile else None
    steps, ahead = config.train.steps, ThreadPoolExecutor(1, "compiling")
    with (
        runs.StageCheckpoints(run, name, steps, config.checkpoint) as checkpoints,
        Progress(steps, f"train {name}") as progress,
    ):
        try:
            state = train(
                model, task, config.train, config.seeds, config.first_seed,
                config.model.masks.loss, log, checkpoints, compile_ahead, validate, profile,
            )  # fmt: skip
        finally:  # an error in compiling is raised again by the evaluation
            ahead.shutdown(wait=False, cancel_futures=True)
        run.end(name)
    return state


def _validate(config, task, valid: Evaluator, labels, run: runs.Run, state: State, step: int):
    """Logs the scores on validation examples of the trained length."""
    with contextlib.suppress(DoesNotFit):  # the evaluation at this length then says so
        scores = valid(state.params, config.train.length)
        found = records(scores, task, step, config.seed_range, labels)
        run.log([record for record in found if "position" not in record["labels"]])


def _described(config: schema.TrainedConfig, model: Model, task: tasks.Task, name: str) -> str:
    """What is trained: the parameters of the model, and its batches."""
    params = jax.eval_shape(model.init, jax.random.key(0))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    train = config.train
    return (
        f"train {name}: {count:,} parameters; {train.steps:,} steps of {train.batch} x "
        f"{task.name}, sizes {train.min_length} to {train.length}"
    )


def summarise(
    config: schema.TrainedConfig,
    task: tasks.Task,
    run: runs.Run,
    baselines: Mapping[str, float],
    floors: Mapping[int, float] | None = None,
) -> LengthSummary:
    """The summary of all evaluations of the run; see `report.summarise`."""
    return report.summarise(
        run.records(),
        metric=task.metric,
        train_length=config.train.length,
        baselines=baselines,
        floors=floors,
        not_measured=run.facts.get("not_measured", ()),
    )


def evaluation_stages(
    plan: Sequence[Evaluation], run: runs.Run, evaluate: Callable[[Evaluation], None]
) -> None:
    """Calls `evaluate`, which logs the scores, for every evaluation that has not ended.

    If it raises DoesNotFit, the reason is added to the fact `not_measured` of the run.
    """
    with Progress(len(plan), f"evaluate {plan[0].label}") as progress:
        for done, one in enumerate(plan, 1):
            if run.ended(one.stage):
                continue
            run.begin(one.stage)
            try:
                evaluate(one)
            except DoesNotFit as reason:
                known = run.facts.get("not_measured", [])
                entry = {"encoding": one.label, "length": one.length, "reason": str(reason)}
                run.fact(not_measured=[*known, entry])
            failpoints.reach("evaluating")
            run.end(one.stage)
            progress.update(done)
            signals.stop_if_requested()
