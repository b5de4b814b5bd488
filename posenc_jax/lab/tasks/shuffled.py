"""The control of a task: its test examples with their tokens in random order."""

from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import Batch, Pair, Task, draw, example_keys

STEPS = 2**30


def shuffled(task: Task) -> Task:
    """Returns the task with the tokens of each test example in random order, at the same positions.

    The first token of a sequence stays where it is. Targets of tokens, such as hidden ones, move
    with them; the label of a sequence does not change. Of a `Pair` only the source is shuffled. A
    model without positions that reads both sides scores as on the examples in order.
    """

    def numbered(data, index_B, size_B, width, split):
        batch = task.numbered(data, index_B, size_B, width, split)
        key_B = example_keys("shuffled", split, index_B, size_B)
        return _in_order(batch, key_B)

    return task._replace(numbered=numbered)


def _in_order(batch: Any, key_B: jax.Array) -> Batch:
    """The batch with the tokens of each row in an order drawn with the row's key."""
    if isinstance(batch.tokens_BT, Pair):
        source, target = batch.tokens_BT
        order_BT = jax.vmap(_order)(key_B, batch.layout.source.segment_BT)
        return batch._replace(tokens_BT=Pair(_taken(source, order_BT), target))
    order_BT = jax.vmap(_order)(key_B, batch.layout.segment_BT)
    moved = batch._replace(tokens_BT=_taken(batch.tokens_BT, order_BT))
    if batch.targets_BT.shape != order_BT.shape:  # one label for each row
        return moved
    return moved._replace(
        targets_BT=_taken(batch.targets_BT, order_BT),
        weights_BT=_taken(batch.weights_BT, order_BT),
    )


def _order(key: jax.Array, segment_T: jax.Array) -> jax.Array:
    """A random order of a row's places that keeps each run of equal segments, and its first token,
    in place.
    """
    first_T = segment_T != jnp.pad(segment_T, (1, 0), constant_values=-1)[:-1]
    place_T = jnp.arange(len(segment_T), dtype=jnp.int32)
    random_T = jnp.where(first_T, -1, draw(key, place_T, STEPS))
    run_T = jnp.cumsum(first_T, dtype=jnp.int32)
    return jnp.lexsort((random_T, run_T))


def _taken(x_BT: jax.Array, order_BT: jax.Array) -> jax.Array:
    """The tokens [B, T], or patches [B, T, F], in the order order_BT."""
    return jax.vmap(lambda x_T, order_T: x_T[order_T])(x_BT, order_BT)
