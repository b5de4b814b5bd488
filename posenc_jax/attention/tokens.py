"""The tokens of one side of attention, and which of the other side they see."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Placed
from posenc_jax.tuning import counted


class Tokens(NamedTuple):
    """One side, queries or keys: the positions that the encoding reads, the order, the sequence.

    token_BT: number of the token, the same for a query and a key that are one token: its column. In
        a frame that is given keys it is the index.
    """

    placed: Placed
    index_BT: jax.Array
    segment_BT: jax.Array
    token_BT: jax.Array


NO_SEGMENT = -(2**31)  # of a key that no query sees


def conditions(
    q_index, q_segment, k_index, k_segment, causal: bool, mask_padding: bool
) -> list[jax.Array]:
    """What is true of a query and a key that it sees, each condition over all pairs.

    This is the one rule of the mask: dense attention, blocks and kernels read it, of arrays whose
    axes broadcast to their own order of queries and keys. Segments below 0 are fillers.
    """
    if mask_padding:
        same = q_segment == jnp.where(k_segment > 0, k_segment, NO_SEGMENT)
    else:
        same = (q_segment == k_segment) | (q_segment == 0) | (k_segment == 0)
        same &= k_segment >= 0
    return [same, q_index >= k_index] if causal else [same]


def visible(q: Tokens, k: Tokens, causal: bool, mask_padding: bool) -> jax.Array:
    """Which keys each query sees: bool [B|1, 1, Q, K]. Reads index and segment, never positions."""
    of_q = lambda x_BQ: x_BQ[:, None, :, None]
    of_k = lambda x_BK: x_BK[:, None, None, :]
    same, *before = conditions(
        of_q(q.index_BT), of_q(q.segment_BT), of_k(k.index_BT), of_k(k.segment_BT),
        causal, mask_padding,
    )  # fmt: skip
    return same & before[0] if before else same


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

    def one(column):
        index_B, segment_B, mask_BHK = column
        query = Tokens((), index_B[:, None], segment_B[:, None], token_BT=index_B[:, None])
        mask_BH1K = mask_BHQK if shared else mask_BHK[:, :, None]
        return (visible(query, k, causal, mask_padding) & mask_BH1K).sum(axis=(2, 3))

    k = k._replace(placed=())
    columns = q.index_BT.T, q.segment_BT.T, None if shared else jnp.moveaxis(mask_BHQK, 2, 0)
    few = max(1, min(counted(), len(columns[0])))
    count_QBH = jax.lax.map(one, columns, batch_size=few)
    return jnp.moveaxis(count_QBH, 0, 1).astype(float)
