"""Attention maps of small trained models, for the same text in and beyond the trained length."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encodings import make, taken_by
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.loop import train

METHODS = ("nope", "sinusoidal", "learned", "rope", "alibi", "t5")  # one of each kind, and none
LENGTH, WINDOWS = 64, 16  # bytes of a training window; windows that a map is the mean over
MODEL = ModelConfig(width=64, heads=4, layers=2)
TRAIN = TrainConfig(length=LENGTH, batch=16, steps=600, warmup=50, chunk=100)


class Maps(NamedTuple):
    """Attention weights of T = LENGTH queries, the mean over windows of text.

    within: of windows of T bytes, [N, H, T, T].
    beyond: of the same bytes after T other ones, with the keys of both, [N, H, T, 2 T].
    """

    within: np.ndarray
    beyond: np.ndarray


def maps(name: str) -> Maps:
    """Trains a decoder of two layers with the method on the standard library's source; its maps."""
    task = tasks.make("stdlib")
    encoding = make(name, **taken_by(name, {"length": LENGTH, "beyond": "clamp"}))
    model = transformer.build(MODEL, encoding, task.vocab)
    state = train(model, task, TRAIN, 1, 0, True, lambda metrics, seconds: None)
    params = jax.tree.map(lambda leaf: leaf[0], state.params)
    index_B = jnp.arange(WINDOWS, dtype=jnp.int32)
    long = task.test(task.data, index_B, 2 * LENGTH, 2 * LENGTH)
    second = slice(LENGTH, 2 * LENGTH)
    short = task.test(task.data, index_B, LENGTH, LENGTH)
    return Maps(
        _mean(model, params, long.tokens_BT[:, second], short.layout),
        _mean(model, params, long.tokens_BT, long.layout)[:, :, second],
    )


def _mean(model: transformer.Model, params, tokens_BT, layout) -> np.ndarray:
    assert model.attention is not None
    layers: Sequence[jax.Array] = jax.jit(model.attention)(params, tokens_BT, layout)
    return np.stack([np.asarray(w_BHQK, np.float64).mean(axis=0) for w_BHQK in layers])
