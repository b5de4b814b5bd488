"""One layer of a Transformer: attention, cross-attention and MLP."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.attention import attend, weights
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers.parts import ACTIVATIONS, Dense, Norm, added, entering, weight


class Block(nn.Module):
    """Attention, cross-attention if there is a source, and MLP, each added to x."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self,
        x_BTD,
        at_layer,
        at_cross=None,
        past_BMD=None,
        cached=(None, None),
        column=None,
        source_BKD=None,
    ):
        """The new hidden states, and what a cache keeps of attention and of cross-attention.

        Both are (keys, values, features): of all tokens that the new ones can see, and of the
        source; None if there is none.

        Args:
          x_BTD: hidden states of the tokens of the queries.
          at_layer: `frame.layer` of this layer's number.
          at_cross: the same of cross-attention.
          past_BMD: hidden states of earlier tokens, which are only keys and values.
          cached: of both attentions what was kept before: of earlier tokens, to which the new ones
            are written, and of the source.
          column: the first column of the new tokens in `cached`.
          source_BKD: the encoder's output; not read if something is kept of it.
        """
        c, start_BTD = self.config, x_BTD
        own, crossed = cached
        seen = x_BTD if past_BMD is None else jnp.concatenate([past_BMD, x_BTD], axis=1)
        h_BKD = entering(c, "attention", seen)
        h_BQD = h_BKD[:, -x_BTD.shape[1] :]
        layer = at_layer(h_BQD, None if past_BMD is None else h_BKD)
        kept = *_keys_values(self, "", h_BKD), layer.q_kept
        if own is not None:
            kept = jax.tree.map(partial(write, column=column), own, kept)
            layer = layer.with_keys(kept[2])
        x_BTD = added(c, "attention", x_BTD, _attended(self, "", h_BQD, kept, layer))
        if at_cross is not None:
            h_BQD = entering(c, "cross", x_BTD)
            if crossed is None:
                layer = at_cross(h_BQD, source_BKD)
                crossed = *_keys_values(self, "cross_", source_BKD), layer.k_kept
            else:
                layer = at_cross(h_BQD).with_keys(crossed[2])
            x_BTD = added(c, "cross", x_BTD, _attended(self, "cross_", h_BQD, crossed, layer))
        h_BTD = entering(c, "mlp", start_BTD if c.parallel else x_BTD)
        return added(c, "mlp", x_BTD, _mlp(c, h_BTD)), (kept, crossed)


def _mlp(config: ModelConfig, x_BTD):
    c, width = config, x_BTD.shape[-1]
    dense = partial(Dense, dtype=jnp.dtype(c.dtype), biased="mlp" in c.biases)
    hidden = c.mlp_width or c.mlp * width
    activation, made = ACTIVATIONS[c.activation], [dense(hidden, name="up")(x_BTD)]
    if c.gated:
        made.append(dense(hidden, name="gate")(x_BTD))
    of = (lambda h_BTF, gate_BTF: activation(gate_BTF) * h_BTF) if c.gated else activation
    return dense(width, gain=1 / (2 * c.layers), name="down", of=of)(*made)


def _keys_values(block: Block, prefix: str, h_BKD):
    """Keys and values [B, K, G, C] of one attention of a block."""
    heads = block.config.kv_heads or block.config.heads
    return tuple(_heads(block, f"{prefix}{name}", h_BKD, heads) for name in ("key", "value"))


def _attended(block: Block, prefix: str, h_BQD, kept, layer):
    """What one attention of a block adds to the stream, [B, Q, D].

    prefix: the names of its weights begin with it.
    """
    c, (k_BKGC, v_BKGC, _) = block.config, kept
    zeros = nn.initializers.zeros_init()
    sink_H = weight(block, f"{prefix}sink", zeros, (c.heads,)) if c.sinks else None
    options = {"sink_H": sink_H, "cap": c.cap}
    q_BQHC = _heads(block, f"{prefix}query", h_BQD, c.heads)
    with jax.named_scope("attend"):
        o_BQHC = attend(q_BQHC, k_BKGC, v_BKGC, layer, **options)
    if block.is_mutable_collection("intermediates"):  # see `Model.attention`
        block.sow("intermediates", f"{prefix}attention", weights(q_BQHC, k_BKGC, layer, **options))
    dtype, gain = jnp.dtype(c.dtype), 1 / (2 * c.layers)
    out = Dense(h_BQD.shape[-1], dtype, gain, "out" in c.biases, name=f"{prefix}out")
    return out(o_BQHC.reshape(*h_BQD.shape[:2], -1))


def _heads(block: Block, name: str, x_BTD, count: int):
    """An affine map of x to so many heads, [B, T, H, C]; of queries and keys with their norm."""
    c, head = block.config, block.config.dims.head
    made = Dense(count * head, jnp.dtype(c.dtype), biased="qkv" in c.biases, name=name)(x_BTD)
    normed = c.qk_norm if not name.endswith("value") else None
    if normed == "heads":
        made = Norm("rmsnorm", c.eps, False, name=f"{name}_norm")(made)
    made = made.reshape(*x_BTD.shape[:2], count, head)
    return Norm("rmsnorm", c.eps, False, name=f"{name}_norm")(made) if normed == "head" else made


def write(old, new, column):
    """The old array [B, K, ...] with new columns [B or 1, T, ...] from `column` on."""
    new = jnp.broadcast_to(new, old.shape[:1] + new.shape[1:])
    return jax.lax.dynamic_update_slice_in_dim(old, new, column, axis=1)
