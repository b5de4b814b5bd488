"""Which blocks of queries and of keys meet, and which need no mask: this steers all our kernels."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posenc_jax.attention.block_plan import NEVER, Plan, cut_tokens, fill
from posenc_jax.attention.tokens import Tokens


class BlockRanges(NamedTuple):
    """Whole numbers for each block of queries (I) and of keys (J), which steer the kernels.

    first_I, end_I: the key blocks that query block i may see, first <= j < end.
    first_J, end_J: the query blocks that may see key block j.
    segment_I, segment_J: the segment of all tokens of a block; if they have several, or padding
      among them, a number below 0, which differs for queries and keys.
    low_I, high_J:  the lowest index of a query block, the highest one of a key block.
    """

    first_I: Any
    end_I: Any
    first_J: Any
    end_J: Any
    segment_I: Any
    segment_J: Any
    low_I: Any
    high_J: Any


def block_ranges(plan: Plan, q: Tokens, k: Tokens) -> tuple[BlockRanges, jax.Array, jax.Array]:
    """The ranges; and for the mask the index and segment of queries and of keys, [B, 2, T]."""
    blocks = cut_tokens(plan, q._replace(placed=()), k._replace(placed=()))
    i, j = jnp.arange(len(blocks.q.index_BT))[:, None], jnp.arange(len(blocks.k.index_BT))[None]
    used_IJ = (blocks.first_I[:, None] <= j) & (j < blocks.end_I[:, None])
    used_J = used_IJ.any(axis=0)
    first_J = jnp.where(used_J, jnp.argmax(used_IJ, axis=0), 0)
    end_J = jnp.where(used_J, len(i) - jnp.argmax(used_IJ[::-1], axis=0), 0)

    def segment_of_all(segment, several: int):
        low, high = segment.min(axis=(1, 2)), segment.max(axis=(1, 2))
        return jnp.where((low == high) & (low >= (1 if plan.mask_padding else 0)), low, several)

    ranges = BlockRanges(
        blocks.first_I,
        blocks.end_I,
        first_J,
        end_J,
        segment_of_all(blocks.q.segment_BT, -1),
        segment_of_all(blocks.k.segment_BT, -2),
        blocks.q.index_BT.min(axis=(1, 2)),
        blocks.k.index_BT.max(axis=(1, 2)),
    )
    read_by_mask = lambda side, size, filler: jnp.stack(
        [fill(side.index_BT, size, filler), fill(side.segment_BT, size, -1)], axis=1
    )
    ranges = BlockRanges(*(x.astype(jnp.int32) for x in ranges))
    return ranges, read_by_mask(q, plan.queries, -1), read_by_mask(k, plan.keys, NEVER)


def meet(ranges: BlockRanges, i, j):
    """Whether query block i may see key block j."""
    return (ranges.first_I[i] <= j) & (j < ranges.end_I[i])


def unmasked(plan: Plan, q_segment, k_segment, q_low, k_high):
    """Whether all queries of a block see all keys of another, so that nothing need be masked.

    It is so for blocks of one segment in the order of the index. Where a relative bias's row has
    -inf for keys ahead (`Plan.hidden`), that hides them, and their order is not asked.

    Args:
      q_segment, q_low: `segment_I` and `low_I` of the block of queries.
      k_segment, k_high: `segment_J` and `high_J` of that of keys.
    """
    visible = q_segment == k_segment
    if plan.causal and not plan.hidden:
        visible &= q_low >= k_high
    return visible
