"""Stages that experiments share: to train an encoding, and to read its weights at many lengths.

What an earlier start of the run has done is not repeated.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.training.evaluation import DoesNotFit, Evaluator
from posenc_jax.lab.training.loop import train
from posenc_jax.lab.training.progress import Progress
from posenc_jax.lab.training.step import State


class Reading(NamedTuple):
    """The trained weights read at one length, as one label; `model` is what readings share."""

    label: str
    length: int
    model: Any
    evaluator: Evaluator
    stage: str


def fit(
    config: schema.TrainedConfig,
    model: Model,
    task: tasks.Task,
    name: str,
    plan: Sequence[Reading],
    record: runs.Run,
) -> State:
    """The state after the stage `name`, all seeds: trained, from where an earlier start left it.

    What the readings that follow run is compiled meanwhile.

    Raises:
      Diverged: names the step and the seed of a loss that is not finite.
    """
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    labels = {"encoding": name, "split": "train", "length": config.train.length}

    def read(metrics, seconds):
        step, steps = int(metrics["step"].max()), metrics["step"].shape[1]
        rate_S = np.full(len(seeds), steps * len(seeds) / seconds)
        values = {
            "loss": metrics["loss"].mean(axis=1),
            "grad_norm": metrics["grad_norm"].mean(axis=1),
            "steps_per_second": rate_S,
        }
        record.log(runs.seed_records(step, seeds, labels, values))
        progress.update(step, float(values["loss"].mean()))

    def begun(state):
        like = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        params = jax.tree.map(like, state.params)
        for one in plan:
            if not record.ended(one.stage):
                ahead.submit(one.evaluator.compile, params, one.length)

    steps, ahead = config.train.steps, ThreadPoolExecutor(1, "compiling")
    with (
        runs.StageCheckpoints(record, name, steps, config.checkpoint) as keeper,
        Progress(steps, f"train {name}") as progress,
    ):
        try:
            state = train(
                model, task, config.train, config.seeds, config.first_seed,
                config.model.masks.loss, read, keeper, begun,
            )  # fmt: skip
        finally:  # what failed to compile fails again, and is told, where it is read
            ahead.shutdown(wait=False, cancel_futures=True)
        record.end(name)
    return state


def evaluate(plan: Sequence[Reading], record: runs.Run, read: Callable[[Reading], None]) -> None:
    """Makes every reading that no earlier start has made; what does not fit is a fact of the run.

    `read` logs the scores of one, or raises DoesNotFit.
    """
    with Progress(len(plan), f"evaluate {plan[0].label}") as progress:
        for done, one in enumerate(plan, 1):
            if record.ended(one.stage):
                continue
            record.begin(one.stage)
            try:
                read(one)
            except DoesNotFit as reason:
                known = record.facts.get("not_measured", [])
                entry = {"encoding": one.label, "length": one.length, "reason": str(reason)}
                record.fact(not_measured=[*known, entry])
            failpoints.reach("evaluating")
            record.end(one.stage)
            progress.update(done)
            signals.stop_if_requested()
