"""Shared by relative methods: offsets D = i - j, and the float64 logits of their definitions."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.checks import with_axes


def offsets(q_placed, k_placed, axes: int = 1) -> jax.Array:
    """D = i - j: [B, Q, K] from [B, Q] and [B, K]; [B, Q, K, A] from [B, Q, A] and [B, K, A].

    FieldError: positions of another number of axes.
    """
    return with_axes(q_placed, axes)[:, :, None] - with_axes(k_placed, axes)[:, None]


def clipped_row(offset, distance: int) -> jax.Array:
    """Rows 0 to 2 `distance` of a table over clipped offsets; fractions are rounded."""
    return jnp.round(jnp.clip(offset, -distance, distance)).astype(jnp.int32) + distance


def refusing(made: jax.Array, offset: jax.Array) -> jax.Array:
    """`made` with NaN where an offset is NaN, because a position was refused."""
    if jnp.issubdtype(offset.dtype, jnp.integer):
        return made
    return jnp.where(jnp.isnan(offset), jnp.nan, made)


def layered(encoding: Encoding, shared: bool) -> Encoding:
    """The encoding, its parameters shared by all layers, or with parameters for each layer."""
    return encoding if shared else each_layer(encoding)


# Definitions in float64 NumPy.


def by_pair(score, q_THC):
    """Logits [H, T, T]: score(h, i, j)."""
    time, heads, _ = q_THC.shape
    s_HTT = np.zeros((heads, time, time))
    for h, i, j in np.ndindex(s_HTT.shape):
        s_HTT[h, i, j] = score(h, i, j)
    return s_HTT


def by_offset(value, q_THC, k_THC, pos_T):
    """Logits [H, T, T]: q.k / sqrt(C) + value(h, D)."""

    def score(h, i, j):
        dot = np.dot(q_THC[i, h], k_THC[j, h]) / np.sqrt(q_THC.shape[-1])
        return dot + value(h, pos_T[i] - pos_T[j])

    return by_pair(score, q_THC)
