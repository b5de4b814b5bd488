"""Operations that differ by backend, because of how XLA compiles them.

With them methods and attention read as the mathematics.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.meshes import vary_alike
from posenc_jax.tuning import tuned_for

T = TypeVar("T")
STACKS = 1, 8, 32, 128  # rows of a grid after each step; a tile of a TPU has 8 rows of 128 values
CHOICES = 64  # columns among which `look_up_each` chooses by bits in one pass
SHARED_CHOICES = 40  # if heads share columns: of 49 XLA writes each candidate to memory


def barrier(x: T) -> T:
    """The arrays as they are. XLA on a CPU moves nothing across: a transpose stays outside of a
    product, which runs several times slower with it inside.
    """
    return jax.lax.optimization_barrier(x) if tuned_for("cpu") else x


def once(make: Callable[..., T], *given: Any) -> T:
    """make(*given), computed once in a program that is compiled for a CPU.

    There XLA moves what makes an array into every operation that reads it, cosines and all: those
    of a rotary table are computed once a head, layer and direction. It leaves a conditional where
    it is, and does not see that the two branches of this one are the same.

    Args:
      make: reads what it is given, and maybe arrays that it closes over.
      given: pytrees of arrays.
    """
    leaf = jax.tree.leaves(given)[0]
    if not tuned_for("cpu") or not isinstance(leaf, Tracer) or leaf.size == 0:
        return make(*given)
    return jax.lax.cond(leaf.ravel()[0] > 0, make, make, *given)


def look_up(table_RH: jax.Array, row_BQK: jax.Array) -> jax.Array:
    """The rows of a table, [B, H, Q, K], in the table's dtype.

    A CPU gathers: forward and backward at 128 x 128 and 512 x 512 this is 2 to 8 times faster than
    a product with one-hot rows, which take longer to write than the scatter-add that they avoid. An
    accelerator makes them within the product, where a gather moves number by number; integers, for
    which it has no fast products, it chooses as `look_up_each` does.
    """
    if tuned_for("cpu"):
        return jnp.moveaxis(table_RH[row_BQK], -1, 1)
    if not jnp.issubdtype(table_RH.dtype, jnp.floating):
        return look_up_each(table_RH.T[None, :, None], row_BQK[:, None])
    hot_BQKR = jax.nn.one_hot(row_BQK, len(table_RH), dtype=table_RH.dtype)
    return jnp.einsum("rh,bqkr->bhqk", table_RH, hot_BQKR, precision="highest")


def look_up_each(x_BHQR: jax.Array, column_BHQK: jax.Array) -> jax.Array:
    """For each query the entries at its columns, [B, H, Q, K]; columns [B, H|1, Q, K].

    A CPU gathers: with the backward pass this is 4 to 10 times faster than a one-hot product. On an
    accelerator the columns' bits choose within one pass over the result, of up to `CHOICES` columns
    at a time: a program for 512 takes minutes to compile. If heads share many columns, a TPU makes
    one-hot rows within a product: `content_bias` and its gradient take a twelfth of the instruction
    bundles. A GPU would write these rows to memory.
    """
    if tuned_for("cpu"):
        return jnp.take_along_axis(x_BHQR, column_BHQK, axis=-1)
    columns, shared = x_BHQR.shape[-1], column_BHQK.shape[1] == 1
    rounds = -(-columns // (SHARED_CHOICES if shared else CHOICES))
    if rounds == 1:
        return _chosen(x_BHQR, column_BHQK)
    if shared and tuned_for("tpu"):
        hot_BQKR = jax.nn.one_hot(column_BHQK[:, 0], columns, dtype=x_BHQR.dtype)
        return jnp.einsum("bhqr,bqkr->bhqk", x_BHQR, hot_BQKR, precision="highest")
    each = -(-columns // rounds)
    x_BHQR = jnp.pad(x_BHQR, [(0, 0)] * 3 + [(0, rounds * each - columns)])

    @jax.checkpoint  # the backward pass would keep which half each bit chose, in every round
    def take_in(n, found_BHQK):
        part = jax.lax.dynamic_slice_in_dim(x_BHQR, n * each, each, axis=-1)
        chosen_BHQK = _chosen(part, column_BHQK - n * each)
        return jnp.where(column_BHQK // each == n, chosen_BHQK, found_BHQK)

    zeros_BHQK = jnp.zeros_like(x_BHQR[..., :1]) + jnp.zeros_like(column_BHQK, x_BHQR.dtype)
    return jax.lax.fori_loop(0, rounds, take_in, zeros_BHQK)


def _chosen(x_BHQR: jax.Array, column_BHQK: jax.Array) -> jax.Array:
    """See `look_up_each`: each bit, from the lowest on, halves the candidates."""
    left = [x_BHQR[..., n : n + 1] for n in range(x_BHQR.shape[-1])]
    bit = 0
    while len(left) > 1:
        odd_BHQK = (column_BHQK >> bit) & 1 == 1
        pairs = zip(left[::2], left[1::2], strict=False)
        last = left[len(left) - len(left) % 2 :]
        left, bit = [*(jnp.where(odd_BHQK, b, a) for a, b in pairs), *last], bit + 1
    return jnp.broadcast_to(left[0], jnp.broadcast_shapes(left[0].shape, column_BHQK.shape))


def sum_rows(x_BHQK: jax.Array) -> jax.Array:
    """The sum over the first axis, kept as an axis of size 1.

    On a CPU a product with ones takes up to a tenth of the time of XLA's sum.
    """
    if not tuned_for("cpu"):
        return x_BHQK.sum(axis=0, keepdims=True)
    rows_BN = x_BHQK.reshape(x_BHQK.shape[0], -1)
    sum_1N = jnp.matmul(jnp.ones_like(rows_BN[None, :, 0]), rows_BN, precision="highest")
    return sum_1N.reshape(1, *x_BHQK.shape[1:])


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
