"""The first and the last part of a model: the embedding of its tokens, and the read-out."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.backends.barriers import transposed
from posenc_jax.dtypes import widest
from posenc_jax.lab.hosts.fast_training import linear
from posenc_jax.lab.model.layers.dense_norm import ACTIVATIONS, Dense, norm, weight
from posenc_jax.layout import Layout


def embedded(module: nn.Module, tokens_BT: jax.Array, layout: Layout) -> jax.Array:
    """The embeddings [B, T, D] of token ids, or a linear map of vectors [B, T, F].

    A token whose id is not in the vocabulary, or negative, has an embedding of NaN. Padding may
    have any id.
    """
    c = module.config
    if tokens_BT.ndim == 3:  # such as patches of an image
        return Dense(c.width, jnp.dtype(c.dtype), name="embed")(tokens_BT)
    inside_BT = jnp.clip(tokens_BT, 0, module.vocab - 1)
    id_BT = jnp.where(layout.segment_BT > 0, tokens_BT, inside_BT)
    rows = _table(module).astype(c.dtype).at[id_BT]
    x_BTD = rows.get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
    return x_BTD * jnp.asarray(c.width**0.5, x_BTD.dtype) if c.embedding == "scaled" else x_BTD


def _table(module: nn.Module) -> jax.Array:
    c = module.config
    init = nn.initializers.normal(c.width**-0.5 if c.tied else 1.0)
    return weight(module, "embed", init, (module.vocab, c.width))


def final(module: nn.Module, x_BTD: jax.Array) -> jax.Array:
    """The hidden states after the last layer, normalised unless each layer ends in a norm."""
    return x_BTD if module.config.norm_at == "post" else norm(module.config, "norm")(x_BTD)


def read_out(module: nn.Module, x_BTD: jax.Array, layout: Layout) -> jax.Array:
    """The logits of each token, or of the mean over tokens if pooled, in float32 or wider."""
    c, x_BTD = module.config, final(module, x_BTD)
    if c.transform:
        hidden = Dense(c.width, x_BTD.dtype, biased=c.transform_bias, name="transform")(x_BTD)
        x_BTD = norm(c, "transform_norm")(ACTIVATIONS[c.activation](hidden))
    real_BT1 = jnp.broadcast_to(layout.segment_BT, x_BTD.shape[:2])[..., None] > 0
    real_BT1 |= jnp.logical_not(c.masks.output)
    x_BTD = jnp.where(real_BT1, x_BTD, 0)
    if module.pooled:
        x_BTD = x_BTD.sum(axis=1) / jnp.maximum(real_BT1.sum(axis=1), 1).astype(x_BTD.dtype)
    logits = _logits(module, x_BTD)
    logits = logits.astype(widest(logits.dtype))
    logits = logits if c.logit_scale == 1.0 else c.logit_scale * logits
    return logits if c.logit_cap is None else c.logit_cap * jnp.tanh(logits / c.logit_cap)


def _logits(module: nn.Module, x: jax.Array) -> jax.Array:
    biased = "read_out" in module.config.biases
    if not module.config.tied:
        return Dense(module.vocab, x.dtype, biased=biased, name="read_out")(x)
    zeros = nn.initializers.zeros_init()
    b = weight(module, "read_out_bias", zeros, (module.vocab,)).astype(x.dtype) if biased else None
    return linear(x, transposed(_table(module).astype(x.dtype), merges=True), b)
