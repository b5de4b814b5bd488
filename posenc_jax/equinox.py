"""Attention of Equinox's modules with any encoding. It needs Equinox, which nothing else imports.

Equinox's modules read one sequence, so a layer is of a frame of one row, made inside of `jax.vmap`.
"""

from collections.abc import Callable

import jax
from equinox import nn

from posenc_jax.attention import Layer, attend


def process_heads(layer: Layer) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """The `process_heads` of `eqx.nn.MultiheadAttention`, for a method that only turns.

    It takes [Q, H, C] and twice [K, H, C], and changes queries and keys. The module does not know
    which keys a query sees: give it the mask, as in the example. A query that sees no key, such as
    one of padding, gets the mean of all values from the module, where `attend` gives 0.

    ValueError: a method that does more, such as a bias; when it is called, a method that adds
    channels, or shapes that are not the frame's.

    Example:
      layer = frame.layer(n, x_TD[None])  # in a frame of one row
      mask_TT = layer.visible()[0, 0]
      y_TD = attention(x_TD, x_TD, x_TD, mask_TT, process_heads=process_heads(layer))
    """
    encoding = layer.encoding
    if encoding.bias is not None or encoding.walk is not None or encoding.turns_values:
        raise ValueError(
            "layer: this method does more than turn queries and keys; use "
            "posenc_jax.equinox.MultiheadAttention"
        )

    def turned(q_QHC: jax.Array, k_KHC: jax.Array, v_KHC: jax.Array):
        q_BQHC, k_BKHC = layer.rotate(q_QHC[None], k_KHC[None])
        if q_BQHC.shape[-1] != q_QHC.shape[-1]:
            raise ValueError(
                "layer: this method adds channels; use posenc_jax.equinox.MultiheadAttention"
            )
        return q_BQHC[0], k_BKHC[0], v_KHC

    return turned


class MultiheadAttention(nn.MultiheadAttention):
    """`eqx.nn.MultiheadAttention` with any encoding: the same parameters, and `attend` in its call.

    Example:
      attention = MultiheadAttention(heads, width, key=key)
      y_TD = attention(x_TD, x_TD, x_TD, frame.layer(n, x_TD[None]))  # in a frame of one row
    """

    def __call__(  # type: ignore[override]
        self,
        query: jax.Array,
        key_: jax.Array,
        value: jax.Array,
        layer: Layer,
        *,
        sink_H: jax.Array | None = None,
        cap: float | None = None,
    ) -> jax.Array:
        """The output [Q, D] of queries [Q, D] and of keys and values [K, D].

        Args:
          query, key_, value: as of the module that it extends.
          layer: from `frame.layer(n, x)`, of one row; it has the padding and the causality.
          sink_H, cap: as in `attend`.

        ValueError: dropout, which `attend` does not have, or shapes that are not the frame's.
        """
        if self.dropout.p > 0 and not self.dropout.inference:
            raise ValueError(f"dropout_p: {self.dropout.p}; attend does not take it, so give 0")
        split = lambda x_TD: x_TD.reshape(1, len(x_TD), self.num_heads, -1)
        q_BQHC = split(jax.vmap(self.query_proj)(query))
        k_BKHC = split(jax.vmap(self.key_proj)(key_))
        v_BKHC = split(jax.vmap(self.value_proj)(value))
        o_BQHC = attend(q_BQHC, k_BKHC, v_BKHC, layer, sink_H=sink_H, cap=cap)
        return jax.vmap(self.output_proj)(o_BQHC.reshape(len(query), -1))
