"""Attention for Flax's modules, Linen's and NNX's, with any encoding; Flax is not imported."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.attention import Layer, attend_with
from posenc_jax.attention.layers import check_layer
from posenc_jax.attention.score_options import ScoreOptions, check_dropout, dropout_factor


def attention_fn(
    layer: Layer,
    *,
    sink_H: jax.Array | None = None,
    cap: float | None = None,
    scale: float | jax.Array | None = None,
) -> Callable[..., jax.Array]:
    """The `attention_fn` of a Flax module that attends with positions: `attend` in one layer.

    The layer has the positions, the padding, the segments and the causality. A mask that the module
    is called with holds beside them. Dropout is what Flax draws from the same key, and needs a
    frame with form="dense". Keys may have fewer heads. A query that sees no key gets 0, where
    Flax's own attention gives the mean of all values.

    With decode=True the module keeps keys and values itself, not rotated, and takes one token at a
    time. Make the layer in a frame of all columns of its cache, whose query is the next one, as in
    the example; past the end the output is NaN. Methods that read a layer's input (`fox`) need
    `layer.with_keys` besides, see docs/caches.md.

    Args:
      layer: from `frame.layer(n, x)`, in the same forward pass.
      sink_H, cap, scale: as in `attend`.

    ValueError, when the module is called: an option of Flax that `attend` does not have, or one
    that does not fit. TypeError: a frame in place of its layer.

    Example:
      attention = attention_fn(frame.layer(n, x))
      x = nn.MultiHeadDotProductAttention(heads, attention_fn=attention)(x)  # Linen, in @nn.compact

      module = copy.copy(self.attention)  # an nnx.MultiHeadAttention; it shares the parameters
      module.attention_fn = attention
      x = module(x, decode=False)

      layout = posenc_jax.full(batch, capacity)  # decode=True; `step` counts the tokens so far
      frame = posenc_jax.frame(encoding, params, layout, dims, queries=(step, 1))
    """

    check_layer(layer)

    # Linen leaves out what the signature does not name.
    def attention(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: jax.Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        is_causal: bool = False,
        qk_attn_weights_einsum: Any = None,
        attn_weights_value_einsum: Any = None,
        input_positions: Any = None,  # of NNX from 0.12.12 on
        force_fp32_for_softmax: bool = False,  # as `attend` always does
        **others: Any,
    ) -> jax.Array:
        untaken = {
            "precision": (precision, "use jax.default_matmul_precision"),
            "sow_weights": (module, "use posenc_jax.weights(q, k, layer)"),
            "is_causal": ((is_causal and not layer.causal) or None, "make the frame causal=True"),
            "input_positions": (input_positions, "give them to the frame's layout"),
            "qk_attn_weights_einsum": (qk_attn_weights_einsum, "leave it out"),
            "attn_weights_value_einsum": (attn_weights_value_einsum, "leave it out"),
            **{name: (argument, "leave it out") for name, argument in others.items()},
        }
        for name, (argument, advice) in untaken.items():
            if argument is not None:
                raise ValueError(f"{name}: attend does not take it; {advice}")
        q, k, v = (x if dtype is None else x.astype(dtype) for x in (query, key, value))
        # Flax's masks are of any dtype, and both may have fewer axes than the weights.
        mask_BHQK = None if mask is None else _four_axes(mask).astype(bool)
        bias_BHQK = None if bias is None else _four_axes(bias)
        draw = None
        if dropout_rate and not deterministic:
            check_dropout(dropout_rate, dropout_rng, "dropout_rng")
            draw = partial(_drawn, dropout_rng, dropout_rate, broadcast_dropout)
        chosen = ScoreOptions(sink_H, mask_BHQK, bias_BHQK, scale, cap=cap)
        return attend_with(q, k, v, layer, chosen, draw)

    return attention


def _four_axes(x: jax.Array) -> jax.Array:
    """The array with axes of size 1 in front, four in all."""
    return jnp.reshape(x, (*[1] * (4 - jnp.ndim(x)), *jnp.shape(x)))


def _drawn(key, rate: float, shared: bool, shape: tuple[int, ...]) -> jax.Array:
    """The dropout factors as Flax draws them: if `shared`, one number for all rows and heads of a
    pair of tokens.
    """
    return dropout_factor(key, rate, (1, 1, *shape[2:]) if shared else shape)
