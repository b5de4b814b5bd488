"""A decoder that reads documents one window after the other, in one of three ways.

memory  attends to the hidden states of the last M tokens, which were made in their own windows
cache   attends to the keys and values of all tokens before, as in decoding
alone   attends to no earlier window, the control
"""

from functools import partial

import jax
import jax.numpy as jnp

from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.transformer import Memory, Model

WAYS = ("memory", "cache", "alone")


def row_of(name: str, way: str) -> str:
    """The label `encoding` of a method's records in one way of reading."""
    return f"{name}, {way}"


def reader(model: Model, config: ModelConfig, way: str, window: int, memory: int) -> Model:
    """The model whose `apply` reads windows of so many tokens in one of the ways.

    Args:
      model, config: a decoder.
      memory: tokens that are remembered.
    """
    read = _read_from_cache if way == "cache" else partial(_read_from_memory, config=config)

    def apply(params, tokens_BT, layout, placed=None, remat=None, **form):
        del placed, remat, form
        time = tokens_BT.shape[1]
        fill = lambda x: jnp.pad(x, ((0, 0), (0, -time % window), *((0, 0),) * (x.ndim - 2)))
        tokens_BT = fill(tokens_BT)
        layout = jax.tree.map(fill, layout.replace(counted=False))
        remembered = memory if way == "memory" else 0
        logits_BTV = read(model, params, tokens_BT, layout, window=window, memory=remembered)
        return logits_BTV[:, :time]

    return model._replace(apply=apply, place=lambda key, layout: None)


def _read_from_memory(model, params, tokens_BT, layout, *, config, window, memory):
    """The logits [B, T, V] of all windows; with a memory of 0 tokens each window is read alone."""
    batch = len(tokens_BT)
    nothing = jax.tree.map(lambda x: jnp.zeros((batch, memory, *x.shape[2:]), x.dtype), layout)
    state_BMD = jnp.zeros((batch, memory, config.width), jnp.dtype(config.dtype))
    start = Memory(nothing, (state_BMD,) * config.layers)

    def step(before, inputs):
        logits, after = model.extend(params, *inputs, before if memory else None, memory)
        return after, logits

    return _in_windows(step, start, tokens_BT, layout, window)


def _read_from_cache(model, params, tokens_BT, layout, *, window, memory):
    """The logits [B, T, V] of all windows, each decoded at once after those before it."""
    del memory
    start = model.start(params, *tokens_BT.shape)

    def step(cache, inputs):
        tokens_BW, at = inputs
        logits, cache = model.decode(params, tokens_BW, at, cache)
        return cache, logits

    return _in_windows(step, start, tokens_BT, layout, window)


def _in_windows(step, start, tokens_BT, layout, window):
    """Scans `step` over windows: (carry, (tokens [B, W], layout)) -> (carry, logits [B, W, V])."""

    def cut(x_BT):
        """[B, T, ...] to [N, B, W, ...]."""
        shape = len(x_BT), -1, window, *x_BT.shape[2:]
        return jnp.moveaxis(x_BT.reshape(shape), 1, 0)

    _, logits_NBWV = jax.lax.scan(step, start, jax.tree.map(cut, (tokens_BT, layout)))
    return jnp.moveaxis(logits_NBWV, 0, 1).reshape(*tokens_BT.shape, -1)
