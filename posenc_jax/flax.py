"""Attention of Flax's modules, Linen's and NNX's, with any encoding; Flax is not imported."""

from collections.abc import Callable
from typing import Any

import jax

from posenc_jax.attention import Layer, attend


def attention_fn(layer: Layer, **options: Any) -> Callable[..., jax.Array]:
    """The `attention_fn` of a Flax module that attends with positions: `attend` in one layer.

    The layer has the positions, the padding, the segments and the causality, so the module is
    called without a mask. It takes what `attend` takes, fewer heads of keys and values included.

    Args:
      layer: from `frame.layer(n, x)`, in the same forward pass.
      options: `sink_H` and `cap` of `attend`.

    ValueError, when the module is called: a mask, a bias, dropout or another option of Flax that
    `attend` does not have.

    Example:
      attention = attention_fn(frame.layer(n, x))
      x = nn.MultiHeadDotProductAttention(heads, attention_fn=attention)(x)  # Linen, in @nn.compact

      module = copy.copy(self.attention)  # an nnx.MultiHeadAttention; it shares the parameters
      module.attention_fn = attention
      x = module(x, decode=False)
    """

    def attention(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        is_causal: bool = False,
        **unused: Any,
    ) -> jax.Array:
        dropout = dropout_rate if not deterministic and dropout_rate else None
        given = {"bias": bias, "mask": mask, "dropout": dropout, "precision": precision}
        given |= {"sow_weights": module, "is_causal": (is_causal and not layer.causal) or None}
        for name, found in given.items():
            if found is not None:
                raise ValueError(
                    f"{name}: attend does not take it; the frame has mask and causality"
                )
        q, k, v = (x if dtype is None else x.astype(dtype) for x in (query, key, value))
        return attend(q, k, v, layer, **options)

    return attention
