"""One training step: random keys, loss, gradient, update; `train_small` is a whole training.

Every random key is `fold_in(fold_in(fold_in(root, seed), purpose), step)`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from posenc_jax.lab.config.schema import RematPolicy
from posenc_jax.lab.hosts import devices
from posenc_jax.lab.hosts.fast_training import pack, unpack, value_and_grad, value_and_grad_in_parts
from posenc_jax.lab.metrics import cross_entropy
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch
from posenc_jax.lab.training.optimizers import Optimizer

INIT, BATCH, PLACE, SIZE = range(4)  # purposes of a random key


class State(NamedTuple):
    """The state of a training; with several seeds the first axis of each leaf is S.

    opt:     the state of the optimizer.
    rate:    multiplies every update, where seeds have rates of their own; None: 1.
    average: the weights averaged over the last steps, exponentially (Polyak and Juditsky 1992),
             which are as good as those of a rate that falls to 0; None: not averaged.
    """

    params: Any
    opt: Any
    step: jax.Array
    seed: jax.Array
    rate: jax.Array | None = None
    average: Any = None

    @property
    def weights(self) -> Any:
        """The weights to evaluate: their average, if they are averaged."""
        return self.params if self.average is None else self.average


def initial(model: Model, tx: Any, seed: jax.Array, rate: jax.Array | None = None) -> State:
    """The state of one seed before its first step."""
    params = model.init(random_key(seed, INIT))
    return State(params, tx.init(params), jnp.zeros((), jnp.int32), seed, rate)


def random_key(seed: jax.Array | int, purpose: int, step: jax.Array | int = 0) -> jax.Array:
    """The random key for one purpose at one step of one seed."""
    root = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), seed)
    return jax.random.fold_in(jax.random.fold_in(root, purpose), step)


def update(
    model: Model,
    tx: Optimizer,
    loss_mask: bool = True,
    fsdp: bool = False,
    accumulate: int = 1,
    remat: RematPolicy | None = None,
) -> Callable:
    """The pure function (state, batch, rate) -> (state, {"loss", "grad_norm", "step"}); see
    `advance`. The learning rate `rate` stands in for that of the optimizer's schedule.

    With FSDP the state is spread over the devices of its seed, and parameters are gathered during
    the step. A packed state stays packed. `accumulate` as in `TrainConfig`, `remat` as in
    `Model.apply`.
    """
    spread = devices.spread_parameters if fsdp else lambda tree: tree
    apply = partial(model.apply, remat=remat) if remat else model.apply

    def loss_fn(params, rows, total):
        batch, placed = rows
        logits_BTV = apply(params, batch.tokens_BT, batch.layout, placed)
        return mean_loss(logits_BTV, batch.targets_BT, batch.weights_BT, total)

    def part(shared, rows):
        params, total = shared
        return value_and_grad_in_parts(loss_fn, params, rows, total, least=accumulate)

    def step(state: State, batch: Batch, rate: jax.Array):
        if not loss_mask:
            counts_BT = jnp.where(batch.layout.segment_BT > 0, batch.weights_BT, 1.0)
            batch = batch._replace(weights_BT=counts_BT)
        placed = model.place(random_key(state.seed, PLACE, state.step), batch.layout)
        shared = state.params, batch.weights_BT.sum()
        loss, grads = devices.sum_over_rows(part, shared, (batch, placed), spread=fsdp)
        state, metrics = advance(tx.at(rate), state, loss, spread(grads))
        return spread(state), metrics

    return step


def mean_loss(
    logits_BTV: jax.Array,
    targets_BT: jax.Array,
    weights_BT: jax.Array,
    total: jax.Array | None = None,
) -> jax.Array:
    """Weighted mean cross entropy in nats; 0 if no target has a weight.

    total: the sum of weights to divide by, if the rows are only a part of a batch.
    """
    loss_BT = cross_entropy(logits_BTV, targets_BT)
    total = jnp.sum(weights_BT) if total is None else total
    return jnp.sum(loss_BT * weights_BT) / jnp.maximum(total, 1.0)


@jax.named_scope("update")
def advance(tx, state: State, loss: jax.Array, grads: Any) -> tuple[State, dict[str, jax.Array]]:
    """The state of one seed after an update, and the metrics {"loss", "grad_norm", "step"}.

    If the loss or the gradient is not finite, the state does not change, and so at every later
    step; `refuse_not_finite` then raises.
    """
    with jax.numpy_dtype_promotion("standard"):  # optax adds integers to floats
        updates, opt = tx.update(grads, state.opt, state.params)
    if state.rate is not None:
        updates = jax.tree.map(lambda leaf: state.rate * leaf, updates)
    params = optax.apply_updates(state.params, updates)
    metrics = {"loss": loss, "grad_norm": optax.tree.norm(grads), "step": state.step + 1}
    after = state._replace(params=params, opt=opt, step=state.step + 1)
    finite = jnp.isfinite(metrics["loss"]) & jnp.isfinite(metrics["grad_norm"])
    return jax.tree.map(partial(jnp.where, finite), after, state), metrics


def train_small(
    loss_fn: Callable, params: Any, seed: Any, config: Any, falls: int
) -> tuple[Any, Any, dict[str, jax.Array]]:
    """Trains with Adam for `config.steps` steps: (parameters, more, metrics).

    loss_fn: (params, step) -> (loss, more). `more` and the metrics of all steps are returned,
      stacked.
    falls: steps in which the learning rate falls from `config.lr` to 0, on a cosine.
    """
    tx = optax.adam(optax.cosine_decay_schedule(config.lr, falls))

    def step(state, _):
        (loss, more), grads = value_and_grad(loss_fn, state.params, state.step, has_aux=True)
        state, metrics = advance(tx, state, loss, grads)
        return state, (more, metrics)

    packed = pack(params, params)
    state = State(packed, tx.init(packed), jnp.zeros((), jnp.int32), seed)
    state, (more, metrics) = jax.lax.scan(step, state, length=config.steps)
    return unpack(state.params), more, metrics
