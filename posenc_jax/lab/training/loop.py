"""Training: a pure step, many steps in one scan, all seeds in one program.

A batch is a function of (seed, step), so nothing about the data needs saving. Every random key is
`fold_in(fold_in(fold_in(root, seed), purpose), step)`.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posenc_jax.lab.config.schema import TrainConfig
from posenc_jax.lab.hosts import devices, failpoints, processes
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.tuning import over, pack, unpack, value_and_grad_in_parts
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks import Batch, Task

INIT, BATCH, PLACE, SIZE = range(4)  # purposes of a random key


class State(NamedTuple):
    """All that a run carries from step to step; with several seeds, every leaf leads with S."""

    params: Any
    opt: Any
    step: jax.Array
    seed: jax.Array


def random_key(seed: jax.Array | int, purpose: int, step: jax.Array | int = 0) -> jax.Array:
    """The key for one purpose at one step of one seed."""
    root = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    return jax.random.fold_in(jax.random.fold_in(root, purpose), step)


def optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """AdamW with linear warm-up, cosine decay to a tenth, and a bound on the gradient's norm."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, config.lr, config.warmup, max(config.steps, config.warmup + 1), config.lr / 10
    )
    decayed = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    return optax.chain(
        optax.clip_by_global_norm(config.clip),
        optax.adamw(schedule, b2=0.98, weight_decay=config.decay, mask=decayed),
    )


def mean_loss(
    logits_BTV: jax.Array,
    targets_BT: jax.Array,
    weights_BT: jax.Array,
    total: jax.Array | None = None,
) -> jax.Array:
    """Weighted mean cross entropy in nats; 0 where no target counts. Of rows that are a share of a
    batch, with the `total` weight of the batch, their share of its mean.
    """
    loss_BT = cross_entropy(logits_BTV, targets_BT)
    total = jnp.sum(weights_BT) if total is None else total
    return jnp.sum(loss_BT * weights_BT) / jnp.maximum(total, 1.0)


def cross_entropy(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """Cross entropy of each target, in nats, float32."""
    logits_BTV = logits_BTV.astype(jnp.float32)
    said_BT = jnp.take_along_axis(logits_BTV, targets_BT[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits_BTV, axis=-1) - said_BT


def make_batch(task: Task, data: Any, config: TrainConfig, state: State) -> Batch:
    """The batch of one step: sizes uniform in [min_length, length], padded to the widest."""
    size_B = jax.random.randint(
        random_key(state.seed, SIZE, state.step),
        (config.batch,),
        config.min_length,
        config.length + 1,
        dtype=jnp.int32,
    )
    key = random_key(state.seed, BATCH, state.step)
    data = data if task.feed is None else data.at(state.seed, state.step)
    return devices.spread_rows(task.sample(data, key, size_B, task.width(config.length)))


def train_step(model: Model, task: Task, tx, config: TrainConfig, loss_mask: bool) -> Callable:
    """The step (data, state) -> (state, {"loss", "grad_norm", "step"}), pure; see `advance`.

    With FSDP the state lies over the devices of its seed, and its parameters are put together for
    the length of a step. A packed state stays packed.
    """
    spread = devices.spread_parameters if config.fsdp else lambda tree: tree

    def loss_of(params, rows, total):
        batch, placed = rows
        logits_BTV = model.apply(params, batch.tokens_BT, batch.layout, placed)
        return mean_loss(logits_BTV, batch.targets_BT, batch.weights_BT, total)

    def own_rows(given, rows):
        params, total = given
        return value_and_grad_in_parts(loss_of, params, rows, total)

    def step(data, state: State):
        batch = make_batch(task, data, config, state)
        if not loss_mask:
            counts_BT = jnp.where(batch.layout.segment_BT > 0, batch.weights_BT, 1.0)
            batch = batch._replace(weights_BT=counts_BT)
        placed = model.place(random_key(state.seed, PLACE, state.step), batch.layout)
        given = state.params, batch.weights_BT.sum()
        loss, grads = devices.sum_over_rows(own_rows, given, (batch, placed))
        state, metrics = advance(tx, state, loss, spread(grads))
        return spread(state), metrics

    return step


def advance(tx, state: State, loss: jax.Array, grads: Any) -> tuple[State, dict[str, jax.Array]]:
    """One seed's state after an update, and the step's {"loss", "grad_norm", "step"}.

    Where loss or gradient is not finite the state stays as it was, and so at every step after it:
    `refuse_not_finite` then says so.
    """
    with jax.numpy_dtype_promotion("standard"):  # optax adds integers to floats
        updates, opt = tx.update(grads, state.opt, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {"loss": loss, "grad_norm": optax.tree.norm(grads), "step": state.step + 1}
    after = State(params, opt, state.step + 1, state.seed)
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
    return jax.tree.map(partial(jnp.where, finite), after, state), metrics


def over_seeds(function: Callable, *trees: Any, given: tuple = ()) -> Any:
    """function(*given, *leaves of one seed) for each seed, and the seeds spread over devices.

    A device computes its own seeds one after another on a CPU, else by vmap. Arrays that lie on
    every device, such as a task's data, must be `given`, not closed over.
    """

    own = lambda given, *trees: over(partial(function, *given), *trees)
    return devices.spread_seeds(own, given, *trees)


def init_states(model: Model, tx, seeds: int, first_seed: int = 0, fsdp: bool = False) -> State:
    """Fresh states for `seeds` seeds, stacked, made where they are to lie."""

    def init(seed):
        params = model.init(random_key(seed, INIT))
        return State(params, tx.init(params), jnp.zeros((), jnp.int32), seed)

    make = lambda: devices.by_seed(over_seeds(init, jnp.arange(seeds) + first_seed), fsdp)
    return jit_quick(make)()


def chunk_sizes(steps: int, chunk: int) -> list[int]:
    """Steps a compiled call does: whole chunks, and the rest at the end."""
    return [chunk] * (steps // chunk) + ([steps % chunk] if steps % chunk else [])


def chunk_runner(model: Model, task: Task, config: TrainConfig, loss_mask: bool) -> Any:
    """(state, data, steps) -> (state, metrics): that many steps of every seed in one program.

    The state is donated; each metric is [S, steps].
    """
    step = train_step(model, task, optimizer(config), config, loss_mask)

    packed = jax.default_backend() == "cpu" and not config.fsdp

    def run(state: State, data: Any, steps: int):
        one = lambda data, s: jax.lax.scan(lambda s, _: step(data, s), s, length=steps)
        state = jax.vmap(lambda s: pack(s, s.params))(state) if packed else state
        state, metrics = over_seeds(one, state, given=(data,))
        state = jax.vmap(unpack)(state) if packed else state
        return devices.by_seed(state, config.fsdp), metrics

    shardings = (None, devices.replicated())  # those of the state are what it came with
    return jax.jit(run, donate_argnums=0, static_argnums=2, out_shardings=shardings)


class Keeps(Protocol):
    """What `train` asks of something that keeps its state: see `runs.StageCheckpoints`."""

    def restore(self, fresh: Any) -> Any: ...
    def due(self) -> bool: ...
    def save(self, step: int, state: Any) -> None: ...


def train(
    model: Model,
    task: Task,
    config: TrainConfig,
    seeds: int,
    first_seed: int,
    loss_mask: bool,
    read: Callable[[dict[str, np.ndarray], float], None],
    keeper: Keeps | None = None,
    begun: Callable[[State], None] = lambda state: None,
) -> State:
    """Trains all seeds and returns their final state, stacked.

    `read(metrics, seconds)` gets each chunk's metrics, [S, steps of the chunk], once the next chunk
    has been dispatched, so the device never waits for the host; and the time since the last one.
    With a keeper, training goes on from the state it has, at the end of some chunk. `begun` gets
    the state once, when the first chunk is under way; its arrays do not outlive that.

    Raises:
      Diverged: names the first step, and the seed, whose loss or gradient is not finite, once it
        has been read.
    """
    run_chunk = chunk_runner(model, task, config, loss_mask)
    state = init_states(model, optimizer(config), seeds, first_seed, config.fsdp)
    state = keeper.restore(state) if keeper else state
    data = devices.on_every_device(task.data)
    done, started, waiting = int(processes.fetch(state.step)[0]), time.perf_counter(), None

    def read_waiting():
        nonlocal started, waiting
        if waiting is not None:
            metrics = processes.fetch(waiting)
            read(metrics, time.perf_counter() - started)
            refuse_not_finite(metrics, range(first_seed, first_seed + seeds))
            started, waiting = time.perf_counter(), None

    failpoints.reach("compiling")
    left = chunk_sizes(config.steps, config.chunk)[math.ceil(done / config.chunk) :]
    for n, steps in enumerate(left):
        if task.feed is not None:  # while the device is busy with the chunk before
            which = range(first_seed, first_seed + seeds), range(done, done + steps)
            rows = task.feed(*which, config.batch, task.width(config.length))
            data = devices.on_every_device(rows)
        state, metrics = run_chunk(state, data, steps)
        if n == 0:
            begun(state)
        read_waiting()
        waiting, done = metrics, done + steps
        failpoints.reach("training")
        if keeper and keeper.due():
            read_waiting()
            keeper.save(done, state)
    read_waiting()
    if keeper:
        keeper.save(done, state)
    return state


def refuse_not_finite(
    metrics: Mapping[str, np.ndarray], seeds: Sequence[int], where: str = ""
) -> None:
    """Looks at the metrics of `advance`, [S, steps], of these seeds; `where` begins the line.

    Raises:
      Diverged: names the first step, and the seed, whose loss or gradient is not finite.
    """
    bad_SN = ~(np.isfinite(metrics["loss"]) & np.isfinite(metrics["grad_norm"]))
    if bad_SN.any():
        row, at = min(zip(*np.nonzero(bad_SN), strict=True), key=lambda place: place[1])
        raise Diverged(
            f"{where}step {metrics['step'][row, at]}, seed {seeds[row]}: loss "
            f"{metrics['loss'][row, at]} with a gradient of norm "
            f"{metrics['grad_norm'][row, at]}; the update was not made"
        )
