"""Attention for Equinox's modules with any encoding. Only this module imports Equinox.

Equinox's modules read one sequence, so a layer is of a frame of one row, made inside of `jax.vmap`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from equinox import nn

from posenc_jax.attention import Layer, attend_with
from posenc_jax.attention.layers import check_layer
from posenc_jax.attention.score_options import (
    ScoreOptions,
    check_dropout,
    check_options,
    dropout_factor,
)


def process_heads(
    layer: Layer, mask: jax.Array | None = None
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """The `process_heads` of `eqx.nn.MultiheadAttention`, for a method that only turns queries and
    keys.

    It takes [Q, H, C] and twice [K, H, C], and changes queries and keys. The module does not know
    which keys a query sees: give it the mask, as in the example. A query that sees no key, such as
    one of padding, gets the mean of all values from the module, where `attend` gives 0. Dropout is
    the module's own.

    Args:
      layer: from `frame.layer(n, x)`, of one row.
      mask: a mask of your own, bool [Q, K] or [H, Q, K], where the module's hides more than the
        layer's. Methods that count the keys that a query sees (`ssmax`) count those.

    ValueError: a method that does more, such as a bias; when it is called, a method that adds
    channels, or shapes that are not the frame's. TypeError: a frame in place of its layer.

    Example:
      layer = frame.layer(n, x_TD[None])  # in a frame of one row
      mask_TT = layer.visible()[0, 0]
      y_TD = attention(x_TD, x_TD, x_TD, mask_TT, process_heads=process_heads(layer))
    """
    check_layer(layer)
    encoding = layer.encoding
    if encoding.bias is not None or encoding.walk is not None or encoding.turns_values:
        raise ValueError(
            "layer: this method does more than turn queries and keys; use "
            "posenc_jax.equinox.MultiheadAttention"
        )

    def turned(q_QHC: jax.Array, k_KHC: jax.Array, v_KHC: jax.Array):
        counting_layer = layer
        if mask is not None:
            check_options(_options(mask), layer, 1)
            counting_layer = layer.counting(_with_batch(mask))
        q_BQHC, k_BKHC = counting_layer.rotate(q_QHC[None], k_KHC[None])
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
        mask: jax.Array | None = None,
        key: jax.Array | None = None,
        inference: bool | None = None,
        sink_H: jax.Array | None = None,
        cap: float | None = None,
    ) -> jax.Array:
        """The output [Q, D] of queries [Q, D] and of keys and values [K, D].

        Args:
          query, key_, value: as of the module that it extends.
          layer: from `frame.layer(n, x)`, of one row; it has the padding and the causality.
          mask: a mask of your own, which holds beside them, bool [Q, K] or [H, Q, K].
          key, inference: of the module's dropout, as of the module that it extends, which draws the
            same. It needs a frame with form="dense".
          sink_H, cap: as in `attend`.

        ValueError: shapes that are not the frame's, dropout without a key, or in another form than
        the dense one.
        """
        still = self.dropout.inference if inference is None else inference
        rate, draw = self.dropout.p, None
        if not still and rate:
            check_dropout(rate, key, "key")
            draw = partial(_drawn, key, rate)
        split = lambda x_TD: x_TD.reshape(1, len(x_TD), self.num_heads, -1)
        q_BQHC = split(jax.vmap(self.query_proj)(query))
        k_BKHC = split(jax.vmap(self.key_proj)(key_))
        v_BKHC = split(jax.vmap(self.value_proj)(value))
        options = _options(mask, sink_H=sink_H, cap=cap)
        o_BQHC = attend_with(q_BQHC, k_BKHC, v_BKHC, layer, options, draw)
        return jax.vmap(self.output_proj)(o_BQHC.reshape(len(query), -1))


def _options(mask: jax.Array | None, **others: Any) -> ScoreOptions:
    return ScoreOptions(mask_BHQK=None if mask is None else _with_batch(mask), **others)


def _with_batch(mask: jax.Array) -> jax.Array:
    """The mask [Q, K] or [H, Q, K] as [1, H|1, Q, K]."""
    return mask[None, None] if mask.ndim == 2 else mask[None]


def _drawn(key: Any, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """The dropout factors as Equinox draws them: each head has its own key."""
    _, heads, queries, keys = shape
    head_factor = lambda key: dropout_factor(key, rate, (queries, keys))
    return jax.vmap(head_factor)(jax.random.split(key, heads))[None]
