"""One layer of a Transformer: attention, cross-attention and MLP."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp

from posenc_jax.attention import attend, weights
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model.layers.dense_norm import ACTIVATIONS, Dense, Norm, added, entering, weight


class Block(nn.Module):
    """Attention, cross-attention if there is a source, and MLP, each added to x.

    normed: attention's input is normalised, if the config has norms at inputs.
    """

    config: ModelConfig
    normed: bool = True

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
        """Returns the new hidden states, and what a cache stores for attention and for
        cross-attention.

        Both are (keys, values, features): of all tokens that the new ones can see, and of the
        source; None if there is none.

        Args:
          x_BTD: hidden states of the tokens of the queries.
          at_layer: `frame.layer` of this layer's number.
          at_cross: the same of cross-attention.
          past_BMD: hidden states of earlier tokens, which are only keys and values.
          cached: the cache entries of both attentions: of earlier tokens, to which the new ones are
            written, and of the source; None if there are none.
          column: the first column of the new tokens in `cached`.
          source_BKD: the encoder's output; not read if `cached` has entries of the source.
        """
        c, start_BTD = self.config, x_BTD
        cached_kv, cross_kv = cached
        seen = x_BTD if past_BMD is None else jnp.concatenate([past_BMD, x_BTD], axis=1)
        h_BKD = entering(c, "attention", seen) if self.normed else seen
        h_BQD = h_BKD[:, -x_BTD.shape[1] :]
        layer = at_layer(h_BQD, None if past_BMD is None else h_BKD)
        self_kv = *_keys_values(self, "", h_BKD), layer.q_kept
        if cached_kv is not None:
            self_kv = jax.tree.map(partial(write, column=column), cached_kv, self_kv)
            layer = layer.with_keys(self_kv[2])
        x_BTD = added(c, "attention", x_BTD, _attended(self, "", h_BQD, self_kv, layer))
        if at_cross is not None:
            h_BQD = entering(c, "cross", x_BTD)
            if cross_kv is None:
                layer = at_cross(h_BQD, source_BKD)
                cross_kv = *_keys_values(self, "cross_", source_BKD), layer.k_kept
            else:
                layer = at_cross(h_BQD).with_keys(cross_kv[2])
            x_BTD = added(c, "cross", x_BTD, _attended(self, "cross_", h_BQD, cross_kv, layer))
        h_BTD = entering(c, "mlp", start_BTD if c.parallel else x_BTD)
        return added(c, "mlp", x_BTD, _mlp(c, h_BTD)), (self_kv, cross_kv)


def _mlp(config: ModelConfig, x_BTD):
    c, width = config, x_BTD.shape[-1]
    dense = partial(Dense, dtype=jnp.dtype(c.dtype), biased="mlp" in c.biases)
    hidden = c.mlp_width or c.mlp * width
    activation, inputs = ACTIVATIONS[c.activation], [dense(hidden, name="up")(x_BTD)]
    if c.gated:
        inputs.append(dense(hidden, name="gate")(x_BTD))
    activate = (lambda h_BTF, gate_BTF: activation(gate_BTF) * h_BTF) if c.gated else activation
    return dense(width, gain=1 / (2 * c.layers), name="down", activate=activate)(*inputs)


def _keys_values(block: Block, prefix: str, h_BKD):
    """The keys and values [B, K, G, C] of one attention of a block."""
    heads = block.config.kv_heads or block.config.heads
    return tuple(_heads(block, f"{prefix}{name}", h_BKD, heads) for name in ("key", "value"))


def _attended(block: Block, prefix: str, h_BQD, self_kv, layer):
    """The output of one attention of a block, which is added to the hidden states, [B, Q, D].

    prefix: the names of its weights begin with it.
    """
    c, (k_BKGC, v_BKGC, _) = block.config, self_kv
    zeros = nn.initializers.zeros_init()
    sink_H = weight(block, f"{prefix}sink", zeros, (c.heads,)) if c.sinks else None
    options = {"sink_H": sink_H, "cap": c.cap}
    q_BQHC = _heads(block, f"{prefix}query", h_BQD, c.heads)
    with jax.named_scope("attend"):
        o_BQHC = attend(q_BQHC, k_BKGC, v_BKGC, layer, **options)
    # See `Model.attention` and `Model.projections`; a compiled program makes what is read of them.
    if block.is_mutable_collection("intermediates"):
        block.sow("intermediates", f"{prefix}attention", weights(q_BQHC, k_BKGC, layer, **options))
        block.sow("intermediates", f"{prefix}projections", (q_BQHC, k_BKGC, v_BKGC))
    dtype, gain = jnp.dtype(c.dtype), 1 / (2 * c.layers)
    out = Dense(h_BQD.shape[-1], dtype, gain, "out" in c.biases, name=f"{prefix}out")
    return out(o_BQHC.reshape(*h_BQD.shape[:2], -1))


def _heads(block: Block, name: str, x_BTD, count: int):
    """An affine map of x to `count` heads, [B, T, H, C], followed by the norm of queries and
    keys.
    """
    c, head = block.config, block.config.dims.head
    projected = Dense(count * head, jnp.dtype(c.dtype), biased="qkv" in c.biases, name=name)(x_BTD)
    normed = c.qk_norm if not name.endswith("value") else None
    if normed == "heads":
        projected = Norm("rmsnorm", c.eps, False, name=f"{name}_norm")(projected)
    projected = projected.reshape(*x_BTD.shape[:2], count, head)
    return (
        Norm("rmsnorm", c.eps, False, name=f"{name}_norm")(projected)
        if normed == "head"
        else projected
    )


def write(old, new, column):
    """Returns the array [B, K, ...] with the new columns [B or 1, T, ...] written from `column`
    on.
    """
    new = jnp.broadcast_to(new, old.shape[:1] + new.shape[1:])
    return jax.lax.dynamic_update_slice_in_dim(old, new, column, axis=1)
