"""Fine-tuning of released weights under an extension of their context."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.pretrained.config import Config
from posenc_jax.backends.target import target
from posenc_jax.lab.config.schema import NamedConfig
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.devices import batch_sharding
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import Batch
from posenc_jax.lab.training import optimizers
from posenc_jax.lab.training.loop import Trainer, fit, refuse_not_finite
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
    train, adamw = config.train, NamedConfig.model_validate({"name": "adamw", "b2": 0.95})
    # A program is one step here: packing would copy all weights twice in each.
    tx = optimizers.make(schedule(config), CLIP, 0.0, adamw)._replace(elementwise=False)
    spread = len(target().devices) > 1  # weights that one device may not hold
    trainer = Trainer(
        model,
        tx,
        fsdp=spread,
        accumulate=train.accumulate,
        remat="nothing" if train.remat else None,
    )
    state = trainer.start([seed], params=jax.tree.map(lambda leaf: leaf[None], params))
    batches = lambda steps: _placed(_batch(rows(steps.start)))

    def each_step(state, step, metrics) -> None:
        values = processes.fetch(metrics)
        refuse_not_finite(values, [seed])
        read(step, float(values["loss"][0, 0]))

    state = fit(trainer.advance, trainer.rates, state, train.steps, 1, batches, after=each_step)
    return jax.tree.map(lambda leaf: leaf[0], state.params)


def _placed(batch: Batch) -> Batch:
    """The batch as those of one seed at one step, [1, 1, B, ...], spread over the devices of all
    processes if there are several.
    """

    def leaf_placed(leaf: jax.Array) -> jax.Array:
        of_step = leaf[None, None]
        if not processes.is_multiprocess():
            return of_step
        return processes.place(of_step, batch_sharding(of_step.shape))

    return jax.tree.map(leaf_placed, batch)


def _batch(id_BT: np.ndarray) -> Batch:
    inputs_BT, target_BT = jnp.asarray(id_BT[:, :-1]), jnp.asarray(id_BT[:, 1:])
    return Batch(inputs_BT, target_BT, jnp.ones(target_BT.shape), full(*target_BT.shape))
