"""Parameters and attention maps of small trained models, within and beyond the trained length."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Dims, Params
from posenc_jax.encodings import axes, make, taken_by
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.loop import train

METHODS = ("nope", "sinusoidal", "learned", "rope", "alibi", "t5")  # one of each kind, and none
LENGTH, WINDOWS = 64, 16  # bytes of a training window; windows that a map is the mean over
MODEL = ModelConfig(width=64, heads=4, layers=2)
TRAIN = TrainConfig(length=LENGTH, batch=16, steps=600, warmup=50, chunk=100)

# Where parameters are learned: one layer, which without positions is a bag of tokens.
STEPS, BATCH, PATCHES = 200, 8, 8  # steps; windows or images of a step; patches along an image
RATE = 1e-2  # of learning; short trainings move parameters little
THIN = 16  # channels of a head where the parameters of a method do not depend on them


class Maps(NamedTuple):
    """Attention weights of T = LENGTH queries, the mean over windows of text.

    within: of windows of T bytes, [N, H, T, T].
    beyond: of the same bytes after T other ones, with the keys of both, [N, H, T, 2 T].
    """

    within: np.ndarray
    beyond: np.ndarray


def maps(name: str) -> Maps:
    """Trains a decoder of two layers with the method on the standard library's source; returns its
    attention maps.
    """
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


def parameters(name: str, dims: Dims, options: Mapping[str, Any]) -> Params:
    """Returns the parameters that a method learns in STEPS steps, from the same seed in each call;
    {} if it learns none.

    A method of two axes is trained on images of digits, any other on the next byte of the standard
    library's source, in windows of LENGTH bytes, or of as many as it is made for, if these are
    fewer.
    """
    return _learned(name, dims, tuple(sorted(options.items())))


@cache
def _learned(name: str, dims: Dims, options: tuple[tuple[str, Any], ...]) -> Params:
    """The trained parameters, kept for later calls."""
    encoding = make(name, **dict(options))
    first = encoding.init(jax.random.key(0), dims)
    if not jax.tree.leaves(first):
        return first
    thin = dataclasses.replace(dims, model=dims.heads * THIN, head=THIN)
    if _shapes(encoding.init(jax.random.key(0), thin)) == _shapes(first):
        dims = thin
    config = MODEL.model_copy(update={"width": dims.model, "heads": dims.heads,
                                      "head": dims.head, "layers": dims.layers})  # fmt: skip
    size = min(LENGTH, dict(options).get("length") or LENGTH)
    if axes(name) == 2:
        task = tasks.make("digits", patch=1, order="grid")
        config = config.model_copy(update={"kind": "encoder"})
        model = transformer.classifier(config, encoding, task.vocab, axes=2, features=task.features)
        size = PATCHES
    else:
        task = tasks.make("stdlib")
        model = transformer.build(config, encoding, task.vocab)
    sizes = {"length": size, "min_length": size, "batch": BATCH}
    plan = TRAIN.model_copy(update={**sizes, "steps": STEPS, "lr": RATE})
    state = train(model, task, plan, 1, 0, True, lambda metrics, seconds: None)
    return jax.tree.map(lambda leaf: leaf[0], state.params["encoding"])


def _shapes(params: Params) -> list[tuple[int, ...]]:
    """The shapes of all parameters."""
    return [leaf.shape for leaf in jax.tree.leaves(params)]


def _mean(model: transformer.Model, params, tokens_BT, layout) -> np.ndarray:
    """The attention weights of each layer, the mean over the batch, [N, H, Q, K]."""
    assert model.attention is not None
    layers: Sequence[jax.Array] = jax.jit(model.attention)(params, tokens_BT, layout)
    return np.stack([np.asarray(w_BHQK, np.float64).mean(axis=0) for w_BHQK in layers])
