"""A row of offsets as the grid of all pairs, [.., Q + K] to [.., Q, K], without a gather."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from posenc_jax.backends.target import tuned_for
from posenc_jax.meshes import vary_alike

STACKS = 1, 8, 32, 128  # rows of a grid after each step; a tile of a TPU has 8 rows of 128 values


def skew(row_BHN: jax.Array, queries: int) -> jax.Array:
    """[B, H, Q + K] to [B, H, Q, K]: element (i, j) is entry Q - 1 - i + j of the row.

    On a CPU Q copies of the row are cut again into lines that are one value shorter. A TPU has its
    arrays in tiles of their last two axes; there that takes six times as many instructions as the
    rest of attention, and slices make the grid.
    """
    *lead, size = row_BHN.shape
    keys = size - queries
    if not tuned_for("cpu"):
        # XLA lays logits out on a TPU with queries last; the swapped grid is then in place.
        return jnp.swapaxes(_by_slices(row_BHN[..., -2::-1], keys), -1, -2)
    copies = jnp.broadcast_to(row_BHN[..., None, :], (*lead, queries, size))
    flat = copies.reshape(*lead, queries * size)[..., queries - 1 : queries * size - 1]
    return flat.reshape(*lead, queries, size - 1)[..., :keys]


def with_grid(
    logits: Callable[[slice, jax.Array], jax.Array], row_BHN: jax.Array, queries: int
) -> jax.Array:
    """The logits of all queries, [B, H, Q, K], where a bias is a row of offsets.

    A TPU makes them for 128 queries at a time, and writes them to where all of them stand: the grid
    of a bias alone would take as much memory as they do.

    Args:
      logits: of (which queries, their bias [B, H, q, K]) returns the logits of these queries, which
        depend on no other query.
      row_BHN: see `skew`.
      queries: Q.
    """
    rows = STACKS[-1]
    if not tuned_for("tpu") or queries <= rows:
        return logits(slice(None), skew(row_BHN, queries))
    keys, short = row_BHN.shape[-1] - queries, -queries % rows
    grid = _stacked(jnp.pad(row_BHN[..., :-1], [(0, 0), (0, 0), (short, 0)]), (8, rows))
    logits_BHQK = None
    for first in range(0, queries, rows):
        count, start = min(rows, queries - first), queries + short - rows - first
        part = logits(slice(first, first + count), grid[:, :, :count, start : start + keys])
        if logits_BHQK is None:
            shape, kind = (*part.shape[:2], queries, keys), jax.typeof(part)
            logits_BHQK = jax.lax.empty(shape, part.dtype, out_sharding=kind.sharding)
            logits_BHQK, _ = vary_alike((logits_BHQK, part))
        logits_BHQK = jax.lax.dynamic_update_slice_in_dim(logits_BHQK, part, first, axis=2)
    assert logits_BHQK is not None
    return logits_BHQK


def _by_slices(row_BHN: jax.Array, queries: int) -> jax.Array:
    """[B, H, Q + K - 1] to [B, H, Q, K], as `skew`, by slices of the row, then slices of those.

    The last slices, which have all the bytes, begin at whole tiles of a TPU.
    """
    small = [rows for rows in STACKS if rows <= queries]
    whole = queries + -queries % small[-1]
    pads = [(0, 0)] * (row_BHN.ndim - 1) + [(whole - queries, 0)]
    return _stacked(jnp.pad(row_BHN, pads), (*small[1:], whole))[..., :queries, :]


def _stacked(row_BHN: jax.Array, counts: Sequence[int]) -> jax.Array:
    """[B, H, N] to [B, H, R, N - R + 1]: line r begins at entry R - 1 - r.

    counts: of lines after each step; the last one is R.
    """
    lines, grid = 1, row_BHN[..., None, :]
    for rows in counts:
        size = grid.shape[-1] - (rows - lines)
        starts = range(rows - lines, -1, -lines)
        grid = jnp.concatenate([grid[..., at : at + size] for at in starts], axis=-2)
        lines = rows
    return grid
