"""Activations of trained models: hidden states, attention weights, keys."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.claims.models import Trained, by_seed
from posenc_jax.attention import attend, frame
from posenc_jax.layout import Layout, full


def hidden(trained: Trained, tokens_BT: jax.Array) -> tuple:
    """Hidden states at each layer's input, float32 [S, B, T, D] for each of the N layers.

    The first is the embedding with what the encoding adds to it.
    """
    layout = full(*tokens_BT.shape)
    return by_seed(lambda params: _inputs(trained, params, tokens_BT, layout), trained.params)


def attention(trained: Trained, tokens_BT: jax.Array, layout: Layout | None = None) -> tuple:
    """Attention weights of each layer, [S, B, H, Q, K] for each of the N layers."""

    def weights(layer, q_BTHC, k_BTHC):
        # Attention to unit vectors as values returns its weights.
        batch, time, heads, _ = q_BTHC.shape
        unit_BKHK = jnp.broadcast_to(jnp.eye(time)[None, :, None], (batch, time, heads, time))
        return attend(q_BTHC, k_BTHC, unit_BKHK, layer).transpose(0, 2, 1, 3)

    return _each_layer(trained, tokens_BT, layout or full(*tokens_BT.shape), weights)


def keys(trained: Trained, tokens_BT: jax.Array) -> tuple:
    """Keys after any rotation, [S, B, T, H, C] for each of the N layers."""
    rotated = lambda layer, q_BTHC, k_BTHC: layer.rotated(q_BTHC, k_BTHC)[1]
    return _each_layer(trained, tokens_BT, full(*tokens_BT.shape), rotated)


def _inputs(trained: Trained, params: Any, tokens_BT: jax.Array, layout: Layout) -> tuple:
    """The input of each layer for one seed's parameters, [B, T, D]."""
    assert trained.model.extend is not None
    return trained.model.extend(params, tokens_BT, layout)[1].x


def _each_layer(trained: Trained, tokens_BT, layout: Layout, read: Callable) -> tuple:
    """read(layer, q_BTHC, k_BTHC) of each layer, with unrotated queries and keys."""
    c = trained.config

    def layer(params, x_BTD, n):
        own, causal = params["encoding"], c.kind == "decoder"
        view = frame(trained.encoding, own, layout, c.dims, causal=causal, form="dense")
        view.embed(x_BTD)  # `view.layer` asks for it; the hidden states have it already
        q_BTHC, k_BTHC, h_BTD = queries_and_keys(params[f"block_{n}"], x_BTD, c.heads)
        return read(view.layer(n, h_BTD), q_BTHC, k_BTHC)

    def run(params):
        inputs = _inputs(trained, params, tokens_BT, layout)
        return tuple(layer(params, x_BTD, n) for n, x_BTD in enumerate(inputs))

    return by_seed(run, trained.params)


def queries_and_keys(block: Any, x_BTD: jax.Array, heads: int) -> tuple:
    """Unrotated queries and keys [B, T, H, C] of a block, and the normed input they are made of."""
    h_BTD = normed(block["attention_norm"], x_BTD)
    return *(project(block, side, h_BTD, heads) for side in ("query", "key")), h_BTD


def normed(params: Any, x_BTD: jax.Array) -> jax.Array:
    """Layer normalisation with a block's own scale and bias."""
    x_BTD = x_BTD - x_BTD.mean(axis=-1, keepdims=True)
    x_BTD = x_BTD * jax.lax.rsqrt(jnp.square(x_BTD).mean(axis=-1, keepdims=True) + 1e-6)
    return x_BTD * params["scale"][None, None] + params["bias"][None, None]


def project(block: Any, name: str, h_BTD: jax.Array, heads: int) -> jax.Array:
    """Queries, keys or values [B, T, H, C] of a block before any rotation."""
    dense = block[name]
    y_BTD = h_BTD @ dense["kernel"] + dense["bias"][None, None]
    return y_BTD.reshape(*y_BTD.shape[:2], heads, -1)
