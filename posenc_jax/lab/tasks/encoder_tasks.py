"""Tasks for encoders, which read a whole sequence: to predict its label, or tokens hidden in it.

    kind      input                            target
    labelled  BOS x1 .. xm                     one number for each row, [B, 1]
    hidden    BOS x1 .. xm, some of them MASK  the hidden tokens, each at its own place

Labels are numbers from 0 on, and predicted by the logits of these token ids. Padding is on the
right. Unlike in `masked`, the line itself says which tokens are hidden, so that what remains can
determine them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.lab.tasks.task import EXTRA, PAD, SYMBOL, Batch, Task, example_keys, index_keys
from posenc_jax.layout import layout

MASK = EXTRA


def labelled(
    name: str,
    line: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    width: Callable[[Any], Any],
    *,
    symbols: int,
    least: int = 1,
    baselines: Mapping[str, float],
) -> Task:
    """A task of random sequences with one label each; its metric is the accuracy.

    Args:
      name: of the task.
      line: (key, size, place_T) -> (token_T, label): the token at each place, PAD after the end.
      width: (size) -> tokens in the longest sequence of a size.
      symbols: number of symbols, without the special tokens.
      least: the smallest size.
      baselines: accuracies that need no positions, by name.
    """

    def rows(key_B, size_B, width):
        place_T = jnp.arange(width, dtype=jnp.int32)
        token_BT, label_B = jax.vmap(line, (0, 0, None))(key_B, size_B, place_T)
        return label_batch(token_BT, label_B, jnp.ones(label_B.shape, bool))

    return _generated(name, rows, width, symbols, least, baselines)._replace(metric="accuracy")


def hidden(
    name: str,
    line: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]],
    width: Callable[[Any], Any],
    *,
    symbols: int,
    least: int = 1,
    baselines: Mapping[str, float],
) -> Task:
    """A task of random sequences with hidden tokens; its metric is the share of them predicted.

    line: (key, size, place_T) -> (token_T, hidden_T): the token at each place, PAD after the end,
      and whether it is hidden.
    Other arguments as of `labelled`.
    """

    def rows(key_B, size_B, width):
        place_T = jnp.arange(width, dtype=jnp.int32)
        token_BT, hidden_BT = jax.vmap(line, (0, 0, None))(key_B, size_B, place_T)
        hidden_BT &= token_BT != PAD
        shown_BT = jnp.where(hidden_BT, MASK, token_BT)
        at = layout((token_BT != PAD).astype(jnp.int32))
        return Batch(shown_BT, token_BT, hidden_BT.astype(jnp.float32), at)

    task = _generated(name, rows, width, symbols, least, baselines)
    return task._replace(metric="token_accuracy")


def label_batch(token_BT: jax.Array, label_B: jax.Array, counts_B: jax.Array) -> Batch:
    """The batch of sequences with one label each; `counts_B`: whether a row counts."""
    at = layout((token_BT != PAD).astype(jnp.int32))
    return Batch(token_BT, label_B[:, None], counts_B[:, None].astype(jnp.float32), at)


def _generated(name, rows, width, symbols, least, baselines) -> Task:
    """The task whose batches are `rows(key_B, size_B, width)`."""

    def sample(data, key, size_B, width):
        row_B = jnp.arange(len(size_B), dtype=jnp.int32)
        return rows(index_keys(key, row_B), size_B, width)

    def numbered(data, index_B, size_B, width, split):
        return rows(example_keys(name, split, index_B, size_B), size_B, width)

    return Task(
        name=name, vocab=SYMBOL + symbols, metric="accuracy", least=least, most=None,
        width=width, examples=lambda size: None, data=(), sample=sample, numbered=numbered,
        baselines=lambda: baselines, facts={},
    )  # fmt: skip
