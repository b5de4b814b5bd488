"""Sums over keys of what `Walk.summed` adds to logits (`fox`), as all our kernels read them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.layers import Layer
from posenc_jax.layout import rising


class KeySums(NamedTuple):
    """Sums over tokens in three parts: `until + after + between` is added to a logit.

    until:   over the query's block, from its first token up to the query, [B, H, 1, Q].
    after:   over the key's block, the tokens after the key, [B, H, 1, K].
    between: over the blocks between, [B, H, I, 1, J]. For a block and itself it is minus the sum of
      the block, since `until` and `after` then both have what lies outside of key to query.
    """

    until: Any
    after: Any
    between: Any


def summed_features(layer: Layer, size: int) -> jax.Array:
    """Each key's features that `Walk.summed` adds, [B, H, K], K filled up to whole blocks.

    NaN where columns are not stored in order: the sums are along storage.
    """
    assert layer.k_kept is not None
    fade_BKH = sum(jax.tree.leaves(layer.k_kept.feat))
    fade_BHK = jnp.where(layer.k.segment_BT[..., None] > 0, fade_BKH, 0).transpose(0, 2, 1)
    stored = rising(layer.k.segment_BT, layer.k.index_BT, strictly=True)
    fade_BHK = jnp.where(stored, fade_BHK, jnp.nan)
    pads = (0, 0), (0, 0), (0, -fade_BHK.shape[2] % size)
    return jnp.pad(fade_BHK.astype(jnp.float32), pads)


def key_sums(fade_BHK: jax.Array, size: int) -> KeySums:
    """The sums of features in blocks of `size` tokens.

    A difference of two running sums over the whole sequence would be shorter to write and loses
    digits: both are large. Here only a block and itself is a difference, of sums inside of it.
    """
    fade_BHNS = fade_BHK.reshape(*fade_BHK.shape[:2], -1, size)
    total_BHN = fade_BHNS.sum(axis=-1)
    flat = lambda x: x.reshape(*fade_BHK.shape[:2], 1, -1)
    after = lambda x: jnp.flip(jnp.cumsum(jnp.flip(x, -1), axis=-1), -1) - x
    i, j = (jnp.arange(total_BHN.shape[-1]).reshape(shape) for shape in ((-1, 1), (1, -1)))
    between = after(jnp.where((j < i)[None, None], total_BHN[:, :, None], 0))
    between = between - jnp.where((i == j)[None, None], total_BHN[:, :, None], 0)
    return KeySums(
        flat(jnp.cumsum(fade_BHNS, axis=-1)), flat(after(fade_BHNS)), between[:, :, :, None]
    )


def feature_gradient(d_until_BH1Q: jax.Array, d_after_BH1K: jax.Array) -> jax.Array:
    """The gradient of features, [B, H, K], of those of `until` and `after`.

    A token's feature is in the logits of keys before it and of queries from it on. Those are the
    pairs of all queries from it on, less the pairs of all keys from it on.
    """
    difference_BHK = (d_until_BH1Q - d_after_BH1K)[:, :, 0]
    return jnp.flip(jnp.cumsum(jnp.flip(difference_BHK, -1), axis=-1), -1)
