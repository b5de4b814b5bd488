"""What steers the kernels: which blocks of queries and of keys meet, and which need no mask."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.block_plan import NEVER, Plan, cut_tokens, fill
from posenc_jax.attention.tokens import Tokens


class Spans(NamedTuple):
    """Whole numbers for each block of queries (I) and of keys (J), which steer the kernels.

    first_I, end_I: the key blocks that query block i may see, first <= j < end.
    first_J, end_J: the query blocks that may see key block j.
    one_I, one_J:   the segment of all tokens of a block; below 0 if there is none.
    low_I, high_J:  the first index of a query block, the last one of a key block.
    """

    first_I: Any
    end_I: Any
    first_J: Any
    end_J: Any
    one_I: Any
    one_J: Any
    low_I: Any
    high_J: Any


def spans_of(plan: Plan, q: Tokens, k: Tokens) -> tuple[Spans, jax.Array, jax.Array]:
    """What steers the kernels, and what masks read of queries and keys: [B, 2, T]."""
    blocks = cut_tokens(plan, q._replace(placed=()), k._replace(placed=()))
    i, j = jnp.arange(len(blocks.q.index_BT))[:, None], jnp.arange(len(blocks.k.index_BT))[None]
    used_IJ = (blocks.first_I[:, None] <= j) & (j < blocks.end_I[:, None])
    some_J = used_IJ.any(axis=0)
    first_J = jnp.where(some_J, jnp.argmax(used_IJ, axis=0), 0)
    end_J = jnp.where(some_J, len(i) - jnp.argmax(used_IJ[::-1], axis=0), 0)

    def one(segment, none: int):
        low, high = segment.min(axis=(1, 2)), segment.max(axis=(1, 2))
        return jnp.where((low == high) & (low >= (1 if plan.mask_padding else 0)), low, none)

    spans = Spans(
        blocks.first_I,
        blocks.end_I,
        first_J,
        end_J,
        one(blocks.q.segment_BT, -1),
        one(blocks.k.segment_BT, -2),
        blocks.q.index_BT.min(axis=(1, 2)),
        blocks.k.index_BT.max(axis=(1, 2)),
    )
    seen = lambda side, size, never: jnp.stack(
        [fill(side.index_BT, size, never), fill(side.segment_BT, size, -1)], axis=1
    )
    spans = Spans(*(x.astype(jnp.int32) for x in spans))
    return spans, seen(q, plan.queries, -1), seen(k, plan.keys, NEVER)


def meet(spans: Spans, i, j):
    return (spans.first_I[i] <= j) & (j < spans.end_I[i])
