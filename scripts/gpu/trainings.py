"""Training steps of a decoder of 12 layers, and the steps of many seeds of a small one."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax

from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import loop, optimizers
from posenc_jax.lab.training.batches import training_batches
from scripts.gpu.worker import Prepared, milliseconds, prepare


def prepared(job: dict[str, Any]) -> Prepared:
    """The milliseconds of a step, of each form or number of seeds."""
    cases = {form: partial(_case, job, {"form": form}, 1) for form in job.get("forms", ())}
    cases |= {str(seeds): partial(_case, job, {}, seeds) for seeds in job.get("seeds", ())}
    return prepare(job, cases)


def _case(job: dict[str, Any], form: dict[str, str], seeds: int) -> Callable[[], float]:
    task, shape = tasks.make("stdlib"), ModelConfig(**job["model"])
    config = TrainConfig(**job["train"], steps=100_000)
    model = transformer.build(shape, encodings.make(job["method"]), task.vocab)
    model = model._replace(apply=partial(model.apply, **form))
    run = loop.chunk_runner(model, config, loss_mask=True)
    state = loop.init_runner(model, optimizers.optimizer(config), seeds=seeds)()
    steps = range(job["steps"])
    batches, rate_N = (
        training_batches(task, config)(range(seeds), steps),
        optimizers.rates(config, steps),
    )

    def start():
        nonlocal state
        state, metrics = run(state, batches, rate_N)
        return metrics["loss"]

    def measure():
        return milliseconds(start, jax.block_until_ready) / job["steps"]

    jax.block_until_ready(start())
    return measure
