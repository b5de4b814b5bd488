"""What goes on inside a trained model: hidden states, and who attends to whom."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from experiments.claims.lab import Trained
from posenc_jax.attention import attend, frame
from posenc_jax.lab.training.loop import over_seeds
from posenc_jax.layout import Layout, full


def hidden(trained: Trained, tokens_BT: jax.Array, layout: Layout | None = None) -> tuple:
    """Hidden states at each layer's input, float32 [S, B, T, D] for each of the N layers.

    The first is the embedding with what the encoding adds to it.
    """
    layout = layout or full(*tokens_BT.shape)
    assert trained.model.extend is not None
    extend = trained.model.extend
    run = lambda params: extend(params, tokens_BT, layout)[1].x
    return jax.device_get(jax.jit(lambda p: over_seeds(run, p))(trained.params))


def attention(trained: Trained, tokens_BT: jax.Array, layout: Layout | None = None) -> tuple:
    """Attention weights of each layer, [S, B, H, Q, K] for each of the N layers."""

    def weights(layer, q_BTHC, k_BTHC):
        # What attention returns for values that are unit vectors.
        batch, time, heads, _ = q_BTHC.shape
        unit_BKHK = jnp.broadcast_to(jnp.eye(time)[None, :, None], (batch, time, heads, time))
        return attend(q_BTHC, k_BTHC, unit_BKHK, layer).transpose(0, 2, 1, 3)

    return _each_layer(trained, tokens_BT, layout or full(*tokens_BT.shape), weights)


def keys(trained: Trained, tokens_BT: jax.Array, layout: Layout | None = None) -> tuple:
    """Keys as queries meet them, after any rotation: [S, B, T, H, C] for each of the N layers."""

    def turned(layer, q_BTHC, k_BTHC):
        return layer.rotated(q_BTHC, k_BTHC)[1]

    return _each_layer(trained, tokens_BT, layout or full(*tokens_BT.shape), turned)


def _each_layer(trained: Trained, tokens_BT, layout: Layout, read: Callable) -> tuple:
    """read(layer, q_BTHC, k_BTHC) of each layer, with unrotated queries and keys."""
    c, extend = trained.config, trained.model.extend
    assert extend is not None

    def layer(params, x_BTD, n):
        block = params[f"block_{n}"]
        view = frame(
            trained.encoding, params["encoding"], layout, c.dims, causal=c.kind == "decoder",
            form="dense",
        )  # fmt: skip
        view.embed(x_BTD)  # done already in the hidden states of the first layer
        h_BTD = normed(block["attention_norm"], x_BTD)
        q_BTHC, k_BTHC = (project(block, side, h_BTD, c.heads) for side in ("query", "key"))
        return read(view.layer(n, h_BTD), q_BTHC, k_BTHC)

    def run(params):
        inputs = extend(params, tokens_BT, layout)[1].x
        return tuple(layer(params, x_BTD, n) for n, x_BTD in enumerate(inputs))

    return jax.device_get(jax.jit(lambda p: over_seeds(run, p))(trained.params))


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
