"""Fine-tuning of released weights under an extension of their context."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.pretrained.config import Config
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch
from posenc_jax.lab.training.loop import refuse_not_finite
from posenc_jax.lab.training.step import State, update
from posenc_jax.layout import full

CLIP = 1.0  # the largest norm of a gradient


def schedule(config: Config) -> optax.Schedule:
    """The learning rate by step: it rises from a tenth, then is constant or falls to 0."""
    train, rate = config.train, config.rate
    rise = optax.linear_schedule(rate / 10, rate, train.warmup)
    left = max(train.steps - train.warmup, 1)
    then = optax.linear_schedule(rate, 0.0 if train.falls else rate, left)
    return optax.join_schedules([rise, then], [train.warmup])


def tuned(
    config: Config,
    model: Model,
    params: Any,
    rows: Callable[[int], np.ndarray],
    seed: int,
    read: Callable[[int, float], None],
) -> Any:
    """The weights after fine-tuning; the given ones stay as they are.

    Args:
      rows: (step) -> the windows of a step, int32 [B, T + 1].
      read: called as read(step, loss) after each step.

    Raises:
      Diverged: a loss or a gradient is not finite.
    """
    tx = optax.chain(
        optax.clip_by_global_norm(CLIP),
        optax.adamw(schedule(config), b1=0.9, b2=0.95, weight_decay=0.0),
    )
    train = config.train
    step = update(model, tx, accumulate=train.accumulate, remat=train.remat)
    run = jax.jit(lambda state, id_BT: step(state, _batch(id_BT)), donate_argnums=0)
    start = lambda params: State(params, tx.init(params), jnp.int32(0), jnp.int32(seed))
    state = jax.jit(start)(jax.tree.map(jnp.copy, params))
    for n in range(train.steps):
        state, metrics = run(state, rows(n))
        each = {name: np.asarray(value)[None, None] for name, value in metrics.items()}
        refuse_not_finite(each, [seed])
        read(n + 1, float(metrics["loss"]))
    return state.params


def _batch(id_BT: jax.Array) -> Batch:
    inputs_BT, target_BT = id_BT[:, :-1], id_BT[:, 1:]
    return Batch(inputs_BT, target_BT, jnp.ones(target_BT.shape), full(*target_BT.shape))
