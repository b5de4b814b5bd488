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
    """[B, H, Q, K]: logits(which, skew(row) of these) of all queries, each of which is by itself.

    A TPU makes them for 128 queries at a time, and writes them to where all of them stand: the grid
    of a bias alone would take as much memory as they do.
    """
    rows = STACKS[-1]
    if not tuned_for("tpu") or queries <= rows:
        return logits(slice(None), skew(row_BHN, queries))
    keys, short = row_BHN.shape[-1] - queries, -queries % rows
    grid = _stacked(jnp.pad(row_BHN[..., :-1], [(0, 0), (0, 0), (short, 0)]), (8, rows))
    found = None
    for first in range(0, queries, rows):
        count, start = min(rows, queries - first), queries + short - rows - first
        part = logits(slice(first, first + count), grid[:, :, :count, start : start + keys])
        if found is None:
            shape, kind = (*part.shape[:2], queries, keys), jax.typeof(part)
            found = jax.lax.empty(shape, part.dtype, out_sharding=kind.sharding)
            found, _ = vary_alike((found, part))
        found = jax.lax.dynamic_update_slice_in_dim(found, part, first, axis=2)
    assert found is not None
    return found


def _by_slices(row_BHN: jax.Array, queries: int) -> jax.Array:
    """[B, H, Q + K - 1] to [B, H, Q, K], as `skew`: a few slices, then slices of all those.

    The last slices, which have all the bytes, begin at whole tiles of a TPU.
    """
    small = [rows for rows in STACKS if rows <= queries]
    whole = queries + -queries % small[-1]
    pads = [(0, 0)] * (row_BHN.ndim - 1) + [(whole - queries, 0)]
    return _stacked(jnp.pad(row_BHN, pads), (*small[1:], whole))[..., :queries, :]


def _stacked(row_BHN: jax.Array, counts: Sequence[int]) -> jax.Array:
    """[B, H, N] to [B, H, R, N - R + 1]: line r begins at entry R - 1 - r. R is the last count."""
    made, grid = 1, row_BHN[..., None, :]
    for rows in counts:
        size = grid.shape[-1] - (rows - made)
        starts = range(rows - made, -1, -made)
        grid = jnp.concatenate([grid[..., at : at + size] for at in starts], axis=-2)
        made = rows
    return grid
