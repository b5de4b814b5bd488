"""The tokens of one side of attention, and which of the other side they see."""

from typing import NamedTuple

import jax

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


def visible(q: Tokens, k: Tokens, causal: bool, mask_padding: bool) -> jax.Array:
    """Which keys each query sees: bool [B|1, 1, Q, K]. Reads index and segment, never positions."""
    q_segment, k_segment = q.segment_BT[:, None, :, None], k.segment_BT[:, None, None, :]
    seen = q_segment == k_segment
    if not mask_padding:
        seen |= (k_segment == 0) | (q_segment == 0)
    seen &= k_segment >= (1 if mask_padding else 0)
    if causal:
        seen &= q.index_BT[:, None, :, None] >= k.index_BT[:, None, None, :]
    return seen


def counts(q: Tokens, k: Tokens, causal: bool, mask_padding: bool) -> jax.Array:
    """How many keys each query sees, float [B|1, Q]; a few queries at a time."""

    def one(column):
        query = Tokens((), *(x_B[:, None] for x_B in column), token_BT=column[0][:, None])
        return visible(query, k, causal, mask_padding).sum(axis=(1, 2, 3))

    k, columns = k._replace(placed=()), (q.index_BT.T, q.segment_BT.T)
    few = max(1, min(counted(), len(columns[0])))
    return jax.lax.map(one, columns, batch_size=few).T.astype(float)
