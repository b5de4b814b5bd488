"""Training: all seeds in one program, many steps in one scan, the loop over these chunks."""

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.lab.config.schema import TrainConfig
from posenc_jax.lab.hosts import devices, failpoints, processes
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.tuning import over, pack, unpack
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs import StageCheckpoints
from posenc_jax.lab.tasks.task import Task
from posenc_jax.lab.training.optimizers import optimizer
from posenc_jax.lab.training.profile import traced
from posenc_jax.lab.training.step import INIT, State, random_key, train_step
from posenc_jax.tuning import tuned_for

VALIDATIONS = 8


def train(
    model: Model,
    task: Task,
    config: TrainConfig,
    seeds: int,
    first_seed: int,
    loss_mask: bool,
    read: Callable[[dict[str, np.ndarray], float], None],
    checkpoints: StageCheckpoints | None = None,
    begun: Callable[[State], None] = lambda state: None,
    validate: Callable[[State, int], None] | None = None,
    profile: Path | None = None,
) -> State:
    """Trains all seeds and returns their final state, stacked.

    Args:
      read: called as read(metrics, seconds) with the metrics of each chunk, [S, steps of the
        chunk], and the time since the chunk before. It is called after the next chunk has been
        dispatched, so the device never waits for the host.
      checkpoints: restore the state of the newest checkpoint, and save it between chunks.
      begun: called once with the state after the first chunk has been dispatched. The next chunk
        overwrites these arrays.
      validate: called as validate(state, step) at about VALIDATIONS steps, evenly apart, and at the
        last one; the device waits for it.
      profile: the folder for a trace of the second chunk, or of the only one; see `traced`.

    Raises:
      Diverged: names the first step and the seed whose loss or gradient is not finite.
    """
    run_chunk = chunk_runner(model, task, config, loss_mask)
    every_seed = range(first_seed, first_seed + seeds)
    state = init_runner(model, optimizer(config), seeds, first_seed, config.fsdp)()
    state = checkpoints.restore(state) if checkpoints else state
    data = devices.on_every_device(task.data)
    done, started, waiting = int(processes.fetch(state.step)[0]), time.perf_counter(), None

    def read_waiting():
        nonlocal started, waiting
        if waiting is not None:
            metrics, waiting = processes.fetch(waiting), None
            now = time.perf_counter()  # before `read`, which may wait for the next chunk
            seconds, started = now - started, now
            read(metrics, seconds)
            refuse_not_finite(metrics, every_seed)

    failpoints.reach("compiling")
    left = chunk_sizes(config.steps, config.chunk)[math.ceil(done / config.chunk) :]
    for n, steps in enumerate(left):
        if task.feed is not None:  # while the device computes the chunk before
            data = _fed(task, config, every_seed, range(done, done + steps))
        if profile is not None and n == min(1, len(left) - 1):
            state, metrics = traced(profile, run_chunk, state, data, steps)
        else:
            state, metrics = run_chunk(state, data, steps)
        if n == 0:
            begun(state)
        read_waiting()
        waiting, done = metrics, done + steps
        if validate is not None and done in validation_steps(config.steps, config.chunk):
            validate(state, done)
        failpoints.reach("training")
        if checkpoints and checkpoints.due():
            read_waiting()
            checkpoints.save(done, state)
    read_waiting()
    if checkpoints:
        checkpoints.save(done, state)
    return state


def _fed(task: Task, config: TrainConfig, seeds: range, steps: range) -> Any:
    """The rows of these steps, from a task that reads them one batch after another."""
    assert task.feed is not None
    return devices.on_every_device(task.feed(seeds, steps, config.batch, task.width(config.length)))


def init_runner(model: Model, tx, seeds: int, first_seed: int = 0, fsdp: bool = False) -> Any:
    """The jitted function () -> initial states of `seeds` seeds, stacked, on the devices that hold
    them.
    """

    def init(seed):
        params = model.init(random_key(seed, INIT))
        return State(params, tx.init(params), jnp.zeros((), jnp.int32), seed)

    make = lambda: devices.by_seed(over_seeds(init, jnp.arange(seeds) + first_seed), fsdp)
    return jit_quick(make)


def chunk_runner(model: Model, task: Task, config: TrainConfig, loss_mask: bool) -> Any:
    """The jitted function (state, data, steps) -> (state, metrics): so many steps of every seed.

    The state is donated; each metric is [S, steps].
    """
    tx = optimizer(config)
    step = train_step(model, task, tx, config, loss_mask)
    packed = tuned_for("cpu") and tx.elementwise and not config.fsdp

    def run(state: State, data: Any, steps: int):
        one = lambda data, s: jax.lax.scan(lambda s, _: step(data, s), s, length=steps)
        state = jax.vmap(lambda s: pack(s, s.params))(state) if packed else state
        state, metrics = over_seeds(one, state, given=(data,))
        state = jax.vmap(unpack)(state) if packed else state
        return devices.by_seed(state, config.fsdp), metrics

    shardings = (None, devices.replicated())  # None: the state keeps its own
    return jax.jit(run, donate_argnums=0, static_argnums=2, out_shardings=shardings)


def chunk_sizes(steps: int, chunk: int) -> list[int]:
    """The number of steps in each compiled call: whole chunks, then the rest."""
    return [chunk] * (steps // chunk) + ([steps % chunk] if steps % chunk else [])


def validation_steps(steps: int, chunk: int) -> set[int]:
    """The steps after which a training is validated, each the end of a chunk."""
    ends = [*itertools.accumulate(chunk_sizes(steps, chunk))]
    every = math.ceil(len(ends) / VALIDATIONS)
    return {*ends[every - 1 :: every], ends[-1]}


def over_seeds(function: Callable, *trees: Any, given: tuple = ()) -> Any:
    """function(*given, *leaves of one seed) of each seed, with the seeds spread over devices.

    A device computes its own seeds one after another on a CPU, else by vmap. Arrays that are on
    every device, such as a task's data, must be `given`, not closed over.
    """
    on_device = lambda given, *trees: over(partial(function, *given), *trees)
    return devices.spread_seeds(on_device, given, *trees)


def refuse_not_finite(
    metrics: Mapping[str, np.ndarray], seeds: Sequence[int], where: str = ""
) -> None:
    """Raises Diverged if a loss or a gradient is not finite: names the first step and its seed.

    Args:
      metrics: those of `advance`, [S, steps], of these seeds.
      where: the beginning of the message.
    """
    bad_SN = ~(np.isfinite(metrics["loss"]) & np.isfinite(metrics["grad_norm"]))
    if bad_SN.any():
        row, at = min(zip(*np.nonzero(bad_SN), strict=True), key=lambda place: place[1])
        raise Diverged(
            f"{where}step {metrics['step'][row, at]}, seed {seeds[row]}: loss "
            f"{metrics['loss'][row, at]} with a gradient of norm "
            f"{metrics['grad_norm'][row, at]}; the update was not made"
        )
