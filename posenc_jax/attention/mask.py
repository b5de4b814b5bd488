"""Which keys a query sees: the one rule of the mask, which every form of attention reads."""

import functools

import jax
import jax.numpy as jnp

from posenc_jax.attention.tokens import Tokens
from posenc_jax.backends.form_choice import counted

NO_SEGMENT = -(2**31)  # stands for the segment of a key that no query sees


def conditions(
    q_index: jax.Array,
    q_segment: jax.Array,
    k_index: jax.Array,
    k_segment: jax.Array,
    causal: bool,
    mask_padding: bool,
) -> list[jax.Array]:
    """The conditions under which a query sees a key, a list of bool arrays that all must hold.

    This is the one rule of the mask: dense attention, blocks and the kernels for a TPU and a GPU
    call it. A query sees a key of its own segment; segment 0 is padding, which nobody sees, or with
    mask_padding=False everybody. If attention is causal, the key's index is at most the query's.

    The arrays broadcast: [B, 1, Q, 1] and [B, 1, 1, K] in dense attention, [Q, 1] and [1, K] in a
    block. Tokens that fill up a block have a segment below 0: no query sees such a key. They are a
    list, not one array, because a TPU's kernel selects by one condition after another.
    """
    if mask_padding:
        # Padding is told of the keys alone: one comparison of all pairs, in place of two.
        same_segment = q_segment == jnp.where(k_segment > 0, k_segment, NO_SEGMENT)
    else:
        same_segment = (q_segment == k_segment) | (q_segment == 0) | (k_segment == 0)
        same_segment &= k_segment >= 0
    return [same_segment, q_index >= k_index] if causal else [same_segment]


def visible(q: Tokens, k: Tokens, causal: bool, mask_padding: bool) -> jax.Array:
    """Which keys each query sees: bool [B|1, 1, Q, K]. Reads index and segment, never positions."""
    q_index, q_segment = (x_BQ[:, None, :, None] for x_BQ in (q.index_BT, q.segment_BT))
    k_index, k_segment = (x_BK[:, None, None, :] for x_BK in (k.index_BT, k.segment_BT))
    rule = conditions(q_index, q_segment, k_index, k_segment, causal, mask_padding)
    return functools.reduce(jnp.logical_and, rule)


def counts(
    q: Tokens,
    k: Tokens,
    causal: bool,
    mask_padding: bool,
    mask_BHQK: jax.Array | None = None,
) -> jax.Array:
    """How many keys each query sees, float [B|1, Q, H|1]; a few queries at a time."""
    mask_BHQK = jnp.ones((1, 1, 1, 1), bool) if mask_BHQK is None else mask_BHQK
    shared = mask_BHQK.shape[2] == 1

    def of_query(column):
        index_B, segment_B, mask_BHK = column
        query = Tokens((), index_B[:, None], segment_B[:, None], token_BT=index_B[:, None])
        mask_BH1K = mask_BHQK if shared else mask_BHK[:, :, None]
        return (visible(query, k, causal, mask_padding) & mask_BH1K).sum(axis=(2, 3))

    k = k._replace(placed=())
    columns = q.index_BT.T, q.segment_BT.T, None if shared else jnp.moveaxis(mask_BHQK, 2, 0)
    few = max(1, min(counted(), len(columns[0])))
    count_QBH = jax.lax.map(of_query, columns, batch_size=few)
    return jnp.moveaxis(count_QBH, 0, 1).astype(float)
