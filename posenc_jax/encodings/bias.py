"""Helpers of methods that change logits: offsets D = i - j, rows of tables, NaN for refused
offsets.
"""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import with_axes


def offsets(q_placed, k_placed, axes: int = 1) -> jax.Array:
    """D = i - j: [B, Q, K] from [B, Q] and [B, K]; [B, Q, K, A] from [B, Q, A] and [B, K, A].

    FieldError: positions of another number of axes.
    """
    return with_axes(q_placed, axes)[:, :, None] - with_axes(k_placed, axes)[:, None]


def clipped_row(offset, ahead: int, distance: int | None = None) -> jax.Array:
    """The row of a table over whole offsets clipped to -ahead .. distance, from 0; see `refusing`.

    distance: None: `ahead`.
    """
    return whole(offset, -ahead, ahead if distance is None else distance) + ahead


def whole(offset, least: int, most: int) -> jax.Array:
    """Offsets, clipped, as int32. An offset with a fraction has no row of a table; see
    `refusing`.
    """
    return jnp.clip(offset, least, most).astype(jnp.int32)


def refusing(
    logits_BHQK: jax.Array, offset: jax.Array, most: float = np.inf, fractions: bool = False
) -> jax.Array:
    """The logits that were read from a table at offsets [B, Q, K(, A)], NaN where the table has no
    row for an offset.

    It has none for an offset that is NaN, of a refused position, or above `most`; nor, without
    `fractions`, for one that is no whole number, since papers define tables at whole offsets.
    """
    integers = jnp.issubdtype(offset.dtype, jnp.integer)
    if integers and most == np.inf:
        return logits_BHQK
    held = jnp.abs(offset) <= most
    if not (integers or fractions):
        held &= offset == jnp.round(offset)
    held_BQK = held if held.ndim == 3 else held.all(-1)
    return jnp.where(held_BQK[:, None], logits_BHQK, jnp.nan)


def per_head(x_H: jax.Array) -> jax.Array:
    """One number for each head, as float [1, H, 1, 1]."""
    return x_H.astype(float)[None, :, None, None]


def layered(encoding: Encoding, shared: bool) -> Encoding:
    """The encoding itself if its parameters are shared by all layers, else with parameters for each
    layer.
    """
    return encoding if shared else each_layer(encoding)
