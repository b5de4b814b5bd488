"""The trainer: all seeds in one program, many steps in one scan, the loop over these chunks.

`Trainer` makes the programs of a model, `fit` runs them, `train` does both for a task.
"""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax.backends.target import tuned_for
from posenc_jax.lab.config.schema import RematPolicy, TrainConfig
from posenc_jax.lab.hosts import devices, failpoints, processes
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.fast_training import over_seeds, pack, unpack
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.runs import StageCheckpoints
from posenc_jax.lab.tasks.task import Batch, Task
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.optimizers import Optimizer, by_step, optimizer, rates
from posenc_jax.lab.training.profile import traced
from posenc_jax.lab.training.step import State, initial, update
from posenc_jax.lab.training.throughput import Stopwatch, Timing

VALIDATIONS = 8


# (steps) -> their batches, leaves [S, N, B, ...].
Batches = Callable[[range], Batch]


class Trainer:
    """The programs that start and advance the trainings of one model, all seeds at once.

    Args:
      tx: the optimizer.
      average: steps over which the weights are averaged, see `State`; 0: they are not.
      loss_mask, fsdp, accumulate, remat: as for `update`.
    """

    def __init__(
        self,
        model: Model,
        tx: Optimizer,
        average: int = 0,
        loss_mask: bool = True,
        fsdp: bool = False,
        accumulate: int = 1,
        remat: RematPolicy | None = None,
    ):
        self._model, self._tx, self._average = model, tx, average
        self._update, self._fsdp = update(model, tx, loss_mask, fsdp, accumulate, remat), fsdp
        self._packed = tuned_for("cpu") and tx.elementwise and not fsdp
        self._packed &= devices.tensor_devices() == 1  # leaves are spread each in its way
        # The function (steps) -> their learning rates, [steps].
        self.rates = by_step(tx.schedule)
        # A jitted function (state, batches, rate_N) -> (state, metrics): a step of every seed on
        # each of its batches, leaves [S, N, B, ...], with these learning rates. The state is
        # donated; each metric is [S, N]. None: the state keeps its own shardings.
        shardings = (None, devices.replicated())
        self.advance = jax.jit(self._chunk, donate_argnums=0, out_shardings=shardings)

    def start(self, seed_S: Any, rate_S: Any = None, params: Any = None) -> State:
        """The state of each seed before its first step, on the devices that hold it.

        rate_S: factors of the seeds' updates. params: the weights to start from, leaves [S, ...],
        which stay as they are; None: initial ones.
        """
        # Of NumPy, because a program of several processes takes no arrays of one of them.
        rates = None if rate_S is None else np.asarray(rate_S, np.float32)
        state = self._start(np.asarray(seed_S, np.int32), rates, params)
        # A copy, because `advance` donates the state and a buffer cannot be donated twice.
        average = jax.tree.map(jnp.copy, state.params) if self._average else None
        return state._replace(average=average)

    def step(
        self, state: State, batch: Batch, rate: jax.Array
    ) -> tuple[State, dict[str, jax.Array]]:
        """The pure function of one step of one seed."""
        after, metrics = self._update(state, batch, rate)
        if self._average:
            average = optax.incremental_update(after.params, state.average, 1 / self._average)
            after = after._replace(average=average)
        return after, metrics

    @functools.cached_property
    def _start(self) -> Any:
        return jit_quick(self._initial)

    def _initial(self, seed_S, rate_S, params):
        def initial_state(seed, rate, seed_params):
            if seed_params is None:
                return initial(self._model, self._tx, seed, rate)
            return State(
                seed_params, self._tx.init(seed_params), jnp.zeros((), jnp.int32), seed, rate
            )

        return devices.by_seed(over_seeds(initial_state, seed_S, rate_S, params), self._fsdp)

    def _chunk(self, state: State, batches: Batch, rate_N: jax.Array):
        def seed_steps(rate_N, state, batches):
            step = lambda state, batch_rate: self.step(state, *batch_rate)
            return jax.lax.scan(step, state, (batches, rate_N))

        state = jax.vmap(lambda s: pack(s, s.params))(state) if self._packed else state
        state, metrics = over_seeds(seed_steps, state, batches, given=(rate_N,))
        state = jax.vmap(unpack)(state) if self._packed else state
        return devices.by_seed(state, self._fsdp), metrics


def fit(
    advance: Callable[..., tuple[State, Any]],
    rates: Callable[[range], np.ndarray],
    state: State,
    steps: int,
    chunk: int,
    batches: Batches,
    read: Callable[[dict[str, np.ndarray], Timing], None] | None = None,
    after: Callable[[State, int, dict[str, jax.Array]], bool | None] | None = None,
    checkpoints: StageCheckpoints | None = None,
    begun: Callable[[State], None] = lambda state: None,
    profile: Path | None = None,
) -> State:
    """Trains until `steps` steps are done or `after` returns True; returns the last state.

    Args:
      advance, rates: those of a `Trainer`.
      state: the state to start from, whose `step` counts towards `steps`.
      chunk: steps of one program.
      batches: makes the batches of the steps of a chunk. It is called while the device computes the
        chunk before.
      read: called as read(metrics, timing) with the metrics of each chunk, [S, steps of the chunk],
        and when it ran. It is called after the next chunk has been dispatched, so the device never
        waits for the host.
      after: called as after(state, step, metrics) after each chunk; the training ends where it
        returns True. The next chunk overwrites the state's arrays.
      checkpoints: save the state between chunks.
      begun: called once with the state after the first chunk has been dispatched.
      profile: the folder for a trace of the second chunk, or of the only one; see `traced`.
    """
    done = int(processes.fetch(state.step)[0])
    waiting: Any = None  # metrics and timing of the chunk before

    def read_waiting():
        nonlocal waiting
        if waiting is not None and read is not None:
            (metrics, timing), waiting = waiting, None
            read(processes.fetch(metrics), timing.result())

    failpoints.reach("compiling")
    sizes = chunk_sizes(steps, chunk, done)
    with Stopwatch() as stopwatch:
        for n, size in enumerate(sizes):
            numbers = range(done, done + size)
            with stopwatch.reading():
                args = batches(numbers), rates(numbers)
            compiles = size not in sizes[:n]
            if profile is not None and n == min(1, len(sizes) - 1):
                state, metrics = traced(profile, advance, state, *args)
                compiles = True  # once more, for the program's text
            else:
                state, metrics = advance(state, *args)
            timing = None if read is None else stopwatch.dispatched(metrics, compiles)
            if n == 0:
                begun(state)
            read_waiting()
            waiting, done = (metrics, timing), done + size
            with stopwatch.pause():
                ended = after is not None and after(state, done, metrics)
                failpoints.reach("training")
                if checkpoints and checkpoints.due(done):
                    read_waiting()
                    checkpoints.save(done, state)
            if ended:
                break
        read_waiting()
    if checkpoints:
        checkpoints.save(done, state)
    return state


def train(
    model: Model,
    task: Task,
    config: TrainConfig,
    seeds: int,
    first_seed: int,
    loss_mask: bool,
    read: Callable[[dict[str, np.ndarray], Timing], None],
    checkpoints: StageCheckpoints | None = None,
    begun: Callable[[State], None] = lambda state: None,
    validate: Callable[[State, int], None] | None = None,
    profile: Path | None = None,
    start: Callable[[State], State] = lambda fresh: fresh,
) -> State:
    """Trains all seeds on batches of a task; returns their final state.

    Args:
      start: (the initial state) -> the state to start from; not called if there is a checkpoint.
      checkpoints: restore the state of the newest checkpoint, and save it between chunks.
      validate: called as validate(state, step) at about VALIDATIONS steps, evenly apart, and at the
        last one; the device waits for it.
      read, begun, profile: as for `fit`.

    Raises:
      Diverged: names the first step and the seed whose loss or gradient is not finite.
    """
    every_seed = range(first_seed, first_seed + seeds)
    advance = chunk_runner(model, config, loss_mask)
    state = init_runner(model, optimizer(config), seeds, first_seed, config.fsdp)()
    state = state._replace(average=_average(config, state.params))
    state = checkpoints.restore(state) if checkpoints else state
    if not (checkpoints and checkpoints.step):
        state = start(state)
    batches = partial(training_batches(task, config), every_seed)
    validated = validation_steps(config.steps, config.chunk)

    def read_finite(metrics, timing):
        read(metrics, timing)
        refuse_not_finite(metrics, every_seed)

    def after(state, step, metrics):
        if validate is not None and step in validated:
            validate(state, step)

    programs = advance, partial(rates, config)
    return fit(*programs, state, config.steps, config.chunk, batches, read_finite, after,
               checkpoints, begun, profile)  # fmt: skip


def init_runner(model: Model, tx, seeds: int, first_seed: int = 0, fsdp: bool = False) -> Any:
    """The jitted function () -> initial states of `seeds` seeds, stacked, on the devices that hold
    them.
    """
    start = partial(initial, model, tx)
    make = lambda: devices.by_seed(over_seeds(start, jnp.arange(seeds) + first_seed), fsdp)
    return jit_quick(make)


def params_shapes(model: Model, seeds: int, fsdp: bool = False) -> Any:
    """The shapes of the weights of `seeds` seeds, and the devices that hold them."""
    init = lambda: over_seeds(model.init, jax.random.split(jax.random.key(0), seeds))
    params = jax.eval_shape(init)
    shaped = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return jax.tree.map(shaped, params, devices.state_shardings(params, fsdp))


def from_weights(config: TrainConfig, fresh: State, params: Any) -> State:
    """The state of a training that begins with these weights, leaves [S, ...].

    fresh: an initial state of the same seeds.
    """
    init = lambda params: over_seeds(optimizer(config).init, params)
    opt = jit_quick(lambda params: devices.by_seed(init(params), config.fsdp))(params)
    return fresh._replace(params=params, opt=opt, average=_average(config, params))


def _average(config: TrainConfig, params: Any) -> Any:
    """The average of the weights before the first step."""
    # A copy, because the state is donated and a buffer cannot be donated twice.
    return jax.tree.map(jnp.copy, params) if config.average else None


def chunk_runner(model: Model, config: TrainConfig, loss_mask: bool) -> Any:
    """`Trainer.advance` of a config: the jitted function (state, batches, rate_N) ->
    (state, metrics)."""
    saving = config.fsdp, config.accumulate, config.remat_policy if config.remat else None
    return Trainer(model, optimizer(config), config.average, loss_mask, *saving).advance


def chunk_sizes(steps: int, chunk: int, done: int = 0) -> list[int]:
    """The number of steps in each compiled call after `done` steps; calls end at multiples of
    `chunk`, and at `steps`.
    """
    ends = [*range(done - done % chunk + chunk, steps, chunk), steps] if done < steps else []
    return [end - start for start, end in itertools.pairwise([done, *ends])]


def validation_steps(steps: int, chunk: int) -> set[int]:
    """The steps after which a training is validated, each the end of a chunk."""
    ends = [*itertools.accumulate(chunk_sizes(steps, chunk))]
    every = math.ceil(len(ends) / VALIDATIONS)
    return {*ends[every - 1 :: every], ends[-1]}


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
