"""Common masks by name: a prefix that all tokens see, blocks that see each other, trees of drafts.

Causality reads `Layout.index_BT`: a query sees the keys up to its own index. So a prefix and blocks
are layouts in which tokens share an index. A tree is a mask for `attend`, because no order of the
tokens says what its branches see.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.layout import (
    INDEX,
    Layout,
    before,
    contiguous,
    goes_on,
    order_of,
    rising,
    sequences,
    whole_array,
)
from posenc_jax.meshes import partitioned


def prefix(layout: Layout, length: Any) -> Layout:
    """The layout in which the first tokens of each sequence see each other; later ones are causal.

    The mask of a prefix-LM (T5, arXiv 1910.10683), and of a picture and a question before the
    answer (PaliGemma, arXiv 2407.07726). Positions stay as they are: a bias gives keys ahead of the
    query what it gives them in an encoder, which `t5` has as an option. For methods that sum over
    keys (`fox`, `stick_breaking`) tokens of a prefix follow each other all the same. Where a prompt
    comes into a cache in several calls, its earlier tokens do not see the later ones: they were
    computed before.

    Args:
      layout: of all tokens; of a ring before they are spread over devices.
      length: tokens of the prefix, one whole number or [B], of each sequence of a row. Lengths of
        packed documents that differ are a mask for `blocks`.

    ValueError: a length of another type or shape, or below 0. A traced one below 0 is 0.

    Example:
      frame = posenc_jax.frame(encoding, params, masks.prefix(layout, length_B), dims)
    """
    length_B = whole_array("length", length)
    rows = layout.segment_BT.shape[0]
    if length_B.shape not in ((), (rows,)):
        raise ValueError(f"length: shape {length_B.shape}; give one number, or one a row, [{rows}]")
    if not isinstance(length_B, Tracer) and np.any(np.asarray(length_B) < 0):
        raise ValueError(f"length: {np.asarray(length_B).min()}; give 0 or more tokens")
    return _with_index(layout, _of_prefix, length_B.reshape(-1, 1))


def blocks(layout: Layout, block_BT: Any) -> Layout:
    """The layout in which the tokens of one block see each other; later tokens see the whole block.

    A block is a run of equal numbers above 0 in a sequence: a picture among text, as Gemma 3 and
    PaliGemma (arXiv 2407.07726) read it, or a chunk. Tokens with 0 are causal. Two blocks that
    touch need two numbers. Blocks and a prefix that share tokens become one.

    Args:
      layout: of all tokens; of a ring before they are spread over devices.
      block_BT: int or bool, [B, T] or [1, T]. Between the tokens of a block may stand padding and
        tokens of other sequences.

    ValueError: another dtype or shape.

    Example:
      layout = masks.blocks(posenc_jax.layout(segment_BT), tokens_BT == PICTURE)
    """
    block_BT, shape = whole_array("block_BT", block_BT), layout.segment_BT.shape
    if block_BT.shape not in (shape, (1, shape[1])):
        raise ValueError(f"block_BT: shape {block_BT.shape}; give that of the layout, {shape}")
    return _with_index(layout, _of_blocks, block_BT)


def draft_tree(
    parent_BN: Any, start: Any = 0, keys: int | None = None
) -> tuple[jax.Array, jax.Array]:
    """(mask_BHQK, depth_BN): what each draft of a tree sees, and its distance from the root.

    In speculative decoding a small model proposes N tokens that form a tree, and one call checks
    all (SpecInfer, arXiv 2305.09781; Medusa, arXiv 2401.10774). A draft sees itself, its ancestors
    and the tokens before the tree.

    The mask is bool [B|1, 1, N, K], for `attend`, and True outside of the drafts' columns, where
    the frame decides. Depths are int32 [B|1, N], 0 for drafts without a parent: the position of a
    draft is that of the next token plus its depth. A method that reads the length of the sequence
    reads that of the layout.

    Args:
      parent_BN: int [N] or [B, N], the number of each draft's parent among the drafts; -1 for those
        that follow the last token before the tree. Parents come before their children.
      start: column of the first draft among the keys, one whole number or [B], as in `frame`'s
        `queries`.
      keys: K, the number of columns, such as the capacity of a cache; None: the drafts are all.

    ValueError: shapes or dtypes that do not fit; a parent that does not come before its child. A
    draft with such a parent that is traced sees no key, and so does what follows it.

    Example:
      mask, depth = masks.draft_tree([-1, 0, 0, 1], start=filled, keys=capacity)
      pos_BT = pos_BT.at[:, filled : filled + 4].set(filled + depth)
      frame = posenc_jax.frame(
          encoding, params, posenc_jax.layout(segment_BT, pos_BT), dims, queries=(filled, 4)
      )
      out = posenc_jax.attend(q, k, v, frame.layer(n, x), mask_BHQK=mask)
    """
    parent_BN = whole_array("parent_BN", parent_BN)
    parent_BN = parent_BN[None] if parent_BN.ndim == 1 else parent_BN
    start_B = whole_array("start", start)
    if parent_BN.ndim != 2:
        raise ValueError(f"parent_BN: shape {parent_BN.shape} is not [N] or [B, N]")
    rows = parent_BN.shape[0]
    if start_B.ndim > 1 or (start_B.ndim == 1 and rows not in (1, start_B.shape[0])):
        raise ValueError(f"start: shape {start_B.shape}; give one number, or one a row")
    drafts = parent_BN.shape[1]
    keys = drafts if keys is None else keys
    if keys < drafts:
        raise ValueError(f"keys: {keys} columns for {drafts} drafts")
    valid_BN = (parent_BN >= -1) & (parent_BN < jnp.arange(drafts)[None])
    if not isinstance(valid_BN, Tracer) and not valid_BN.all():
        row, n = np.argwhere(~np.asarray(valid_BN))[0]
        raise ValueError(
            f"parent_BN: draft {n} has parent {parent_BN[row, n]}; give the number of an earlier "
            "draft, or -1"
        )
    arrays = parent_BN, valid_BN, start_B.reshape(-1, 1)
    return partitioned(partial(_tree, keys), parent_BN, 1, *arrays)


# `_tree`, `_of_prefix` and `_of_blocks` are jitted so that each is one program where code runs op
# by op; inside of jit, `inline` makes them a part of the program around them.
@partial(jax.jit, static_argnums=0, inline=True)
def _tree(keys: int, parent_BN, valid_BN, start_B1) -> tuple[jax.Array, jax.Array]:
    batch, drafts = parent_BN.shape

    def descend(n, state):
        sees_BNM, whole_BN = state  # whose parents up to the root are valid
        parent_B, root_B = parent_BN[:, n], parent_BN[:, n] < 0
        from_parent = lambda x: jnp.take_along_axis(
            x, jnp.expand_dims(jnp.clip(parent_B, 0), range(1, x.ndim)), axis=1
        )[:, 0]
        whole_B = valid_BN[:, n] & (root_B | from_parent(whole_BN))
        row_BM = (~root_B[:, None] & from_parent(sees_BNM)) | (jnp.arange(drafts) == n)[None]
        return sees_BNM.at[:, n].set(row_BM), whole_BN.at[:, n].set(whole_B)

    nothing = jnp.zeros((batch, drafts, drafts), bool), jnp.zeros((batch, drafts), bool)
    sees_BNM, whole_BN = jax.lax.fori_loop(0, drafts, descend, nothing)
    depth_BN = sees_BNM.sum(axis=2, dtype=jnp.int32) - 1
    number_BK = jnp.arange(keys, dtype=jnp.int32)[None] - start_B1
    rows = max(batch, len(number_BK))
    at_BNK = jnp.broadcast_to(jnp.clip(number_BK, 0, drafts - 1)[:, None], (rows, drafts, keys))
    sees_BNM = jnp.broadcast_to(sees_BNM, (rows, drafts, drafts))
    outside_BK = (number_BK < 0) | (number_BK >= drafts)
    mask_BNK = outside_BK[:, None] | jnp.take_along_axis(sees_BNM, at_BNK, axis=2)
    return (mask_BNK & whole_BN[..., None])[:, None], depth_BN


def _with_index(layout: Layout, index_fn: Callable, argument: jax.Array) -> Layout:
    """The layout with another index, index_fn(segment_BT, index_BT, argument)."""
    arrays = layout.segment_BT, layout.index_BT, argument
    return layout.replace(index_BT=partitioned(index_fn, layout.index_BT, 2, *arrays))


@partial(jax.jit, inline=True)
def _of_prefix(segment_BT, index_BT, length_B1) -> jax.Array:
    """The index with which the first tokens of each sequence form one block."""
    order = order_of(rising(segment_BT, index_BT), segment_BT, index_BT)
    number_BT = order.restored(sequences(order.arranged(segment_BT)).rank_BT)
    return _of_blocks(segment_BT, index_BT, number_BT < length_B1)


@partial(jax.jit, inline=True)
def _of_blocks(segment_BT, index_BT, block_BT) -> jax.Array:
    """The index with which all tokens of a block have the index of its last token."""

    def last_index(segment_BT, index_BT, block_BT):
        joined_BT = (block_BT > 0) & (before(block_BT, 0) == block_BT)
        joined_BT |= before(index_BT, -INDEX) == index_BT  # joined by an earlier call
        real_BT = segment_BT > 0
        begins_BT = real_BT & ~(joined_BT & goes_on(segment_BT))
        run_BT = jnp.cumsum(begins_BT, axis=1, dtype=jnp.int32)
        real_index_BT = jnp.where(real_BT, index_BT, -INDEX)
        run_max = partial(jax.ops.segment_max, num_segments=segment_BT.shape[1] + 1)
        last_BT = jax.vmap(lambda index_T, run_T: run_max(index_T, run_T)[run_T])(
            real_index_BT, run_BT
        )
        return jnp.where(real_BT, last_BT, index_BT)

    block_BT = jnp.broadcast_to(block_BT, segment_BT.shape).astype(jnp.int32)
    stored = rising(segment_BT, index_BT) & contiguous(segment_BT)
    order = order_of(stored, segment_BT, index_BT)
    return order.restored(last_index(*order.arranged((segment_BT, index_BT, block_BT))))
