"""Operations that differ by backend, because of how XLA compiles them.

With them methods and attention read as the mathematics.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from posenc_jax.dtypes import vary_alike
from posenc_jax.tuning import target, tuned_for

T = TypeVar("T")
STACKS = 1, 8, 32, 128  # rows of a grid after each step; a tile of a TPU has 8 rows of 128 values
TOGETHER = {"tpu": 128}  # tokens whose matrices are exponentiated at once; a row of a TPU's tile
TOGETHER_ELSEWHERE = 1024
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
    at a time: a program for 512 takes minutes to compile.
    """
    if tuned_for("cpu"):
        return jnp.take_along_axis(x_BHQR, column_BHQK, axis=-1)
    columns = x_BHQR.shape[-1]
    rounds = -(-columns // (SHARED_CHOICES if column_BHQK.shape[1] == 1 else CHOICES))
    if rounds == 1:
        return _chosen(x_BHQR, column_BHQK)
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
    if not tuned_for("cpu") or jax.sharding.get_abstract_mesh().explicit_axes:
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


def turn_pairs(cos: jax.Array, sin: jax.Array, x_BTHC: jax.Array, apart: bool) -> jax.Array:
    """Pairs turned, in the shape and dtype of x: (a, b) to (a cos - b sin, b cos + a sin).

    An accelerator writes the result once. XLA for a TPU would write the two halves of a head, and
    then both again side by side; and it would keep float32 copies of x and of the gradient.

    Args:
      cos, sin: [B, T, 1|H, C / 2]; their dtype is that of the sums.
      apart: a pair is channels (k, k + C / 2), else (2k, 2k + 1).
    """
    if not tuned_for("cpu"):
        return _turned(apart, cos, sin, x_BTHC)
    axis = -2 if apart else -1
    pairs = x_BTHC.reshape(*x_BTHC.shape[:-1], *((2, -1) if apart else (-1, 2)))
    a, b = (half.astype(cos.dtype) for half in jnp.unstack(pairs, axis=axis))
    turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=axis)
    return turned.astype(x_BTHC.dtype).reshape(x_BTHC.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _turned(apart, cos, sin, x_BTHC):
    """See `turn_pairs`. A pair is swapped before it is float32, or XLA would keep it in float32."""
    cos, sin, x = _views(apart, cos, sin, x_BTHC)
    wide, other = x.astype(cos.dtype), _swapped(apart, x).astype(cos.dtype)
    turned = wide * cos + other * (_signs(apart, sin) * sin)
    return turned.astype(x.dtype).reshape(x_BTHC.shape)


@_turned.defjvp
def _turned_jvp(apart, primals, tangents):
    """Its transpose, which turns a gradient back, swaps before float32 as well: signs in the dtype
    of x stand between the two casts, which XLA would make one.
    """
    (cos, sin, x_BTHC), (dcos, dsin, dx_BTHC) = primals, tangents
    cos, sin, dx = _views(apart, cos, sin, dx_BTHC)
    wide = dx.astype(cos.dtype)
    quarter = _signs(apart, dx) * _swapped(apart, (wide * sin).astype(dx.dtype))
    by_x = ((wide * cos).astype(dx.dtype) + quarter).reshape(dx_BTHC.shape)
    return _turned(apart, *primals), by_x + _by_table(apart, dcos, dsin, x_BTHC)


def _by_table(apart, dcos, dsin, x_BTHC):
    """How turned pairs change with their table. See `side_by_side`; no axis of two is summed."""
    if not apart:
        return _turned(apart, dcos, dsin, x_BTHC)
    a, b = (half.astype(dcos.dtype) for half in jnp.split(x_BTHC, 2, axis=-1))
    return _cast_apart(x_BTHC.dtype, a * dcos - b * dsin, b * dcos + a * dsin)


def _views(apart, cos, sin, x_BTHC):
    """Cosines, sines and x as a product reads them: pairs that are apart on an axis of their own,
    which costs a TPU nothing.
    """
    if apart:
        halves = x_BTHC.reshape(*x_BTHC.shape[:-1], 2, -1)
        return cos[..., None, :], sin[..., None, :], halves
    return jnp.repeat(cos, 2, axis=-1), jnp.repeat(sin, 2, axis=-1), x_BTHC


def _swapped(apart, x):
    """The other one of each pair. A TPU takes neighbours of its matrix unit, which are exact: to
    move them is a copy for each of several steps.
    """
    if apart:
        return jnp.flip(x, axis=-2)
    if not tuned_for("tpu"):
        return jnp.flip(x.reshape(*x.shape[:-1], -1, 2), axis=-1).reshape(x.shape)
    swap_CC = np.kron(np.eye(x.shape[-1] // 2), np.eye(2)[::-1]).astype(x.dtype)
    return jnp.matmul(x, swap_CC, precision="highest")


def _signs(apart, x):
    """-1 for the first of a pair, 1 for the second one."""
    sign = np.array([-1, 1], x.dtype)
    sign = sign[:, None] if apart else np.tile(sign, x.shape[-1] // 2)
    return np.expand_dims(sign, [*range(x.ndim - sign.ndim)])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def side_by_side(dtype, a: jax.Array, b: jax.Array) -> jax.Array:
    """Both along the last axis, cast to dtype, which is the narrower one.

    Its transpose halves a gradient before it casts it: XLA for a TPU would keep the whole of it in
    the dtype of a and b.
    """
    return jnp.concatenate([a, b], axis=-1).astype(dtype)


@side_by_side.defjvp
def _side_by_side_jvp(dtype, primals, tangents):
    return side_by_side(dtype, *primals), _cast_apart(dtype, *tangents)


def _cast_apart(dtype, a, b):
    return jnp.concatenate([a.astype(dtype), b.astype(dtype)], axis=-1)


def exponentials(a_BTHGUV: jax.Array) -> jax.Array:
    """exp(A) of the small matrices in the last two axes.

    `jax.scipy.linalg.expm` solves linear systems, for which a TPU needs 900 MB at 256 tokens. There
    Taylor's series is summed entry by entry. A norm above 2^17 is too large for both.
    """
    if tuned_for("cpu"):
        return jax.scipy.linalg.expm(a_BTHGUV)
    batch, time, *rest = a_BTHGUV.shape
    tokens = batch * time
    together = min(tokens, TOGETHER.get(target().backend, TOGETHER_ELSEWHERE))
    a_NHGUV = a_BTHGUV.reshape(tokens, *rest)
    a_NHGUV = jnp.pad(a_NHGUV, [(0, -tokens % together), *[(0, 0)] * 4])
    a_SNHGUV = a_NHGUV.reshape(-1, together, *rest)
    # Groups of tokens one after another: the backward pass keeps each step of a group's series.
    series = jax.lax.map(jax.checkpoint(_series), a_SNHGUV.transpose(0, 4, 5, 2, 3, 1))
    found_NHGUV = series.transpose(0, 5, 3, 4, 1, 2).reshape(-1, *rest)
    return found_NHGUV[:tokens].reshape(a_BTHGUV.shape)


def _series(a_UVN: jax.Array) -> jax.Array:
    """exp(A), [U, V, ..., tokens]: the series of A / 2^s, whose norm is at most 2, squared s times.

    Tokens are last because they fill the tiles of a TPU.
    """
    most, terms = 16, 24  # the next term is below 3e-18
    eye_UV = jnp.eye(len(a_UVN), dtype=a_UVN.dtype)
    eye_UVN = eye_UV.reshape(*eye_UV.shape, *[1] * (a_UVN.ndim - 2))
    norm_N = jnp.abs(a_UVN).sum(axis=0).max(axis=0)
    halvings_N = jnp.clip(jnp.ceil(jnp.log2(jnp.maximum(norm_N, 0.5))) - 1, 0, most)
    a_UVN = a_UVN * jnp.exp2(-halvings_N)[None, None]

    def product(a_UVN, b_VWN):
        return sum(a_UVN[:, v, None] * b_VWN[None, v] for v in range(len(b_VWN)))

    def horner(n, sum_UVN):
        return eye_UVN + product(a_UVN, sum_UVN) / (terms - n).astype(a_UVN.dtype)

    def square(n, x_UVN):
        more_N = n.astype(halvings_N.dtype) < halvings_N
        return jnp.where(more_N[None, None], product(x_UVN, x_UVN), x_UVN)

    series = jax.lax.fori_loop(0, terms, jax.checkpoint(horner), eye_UVN + jnp.zeros_like(a_UVN))
    return jax.lax.fori_loop(0, most, jax.checkpoint(square), series)


def each_times(matrix_BTHGUV: jax.Array, x_BTHC: jax.Array) -> jax.Array:
    """Each small matrix times its block of channels, shape and dtype of x; G or H may be 1.

    On accelerators it is summed entry by entry, apart from what reads the result: as a part of a
    concatenation XLA for a TPU compiles it for many minutes.
    """
    x_BTHGV = x_BTHC.reshape(*x_BTHC.shape[:3], -1, matrix_BTHGUV.shape[-1])
    x_BTHGV = x_BTHGV.astype(matrix_BTHGUV.dtype)
    if tuned_for("cpu"):
        y_BTHGU = jnp.matmul(matrix_BTHGUV, x_BTHGV[..., None], precision="highest")
    else:
        y_BTHGU = (matrix_BTHGUV * x_BTHGV[..., None, :]).sum(axis=-1)
        y_BTHGU = jax.lax.optimization_barrier(y_BTHGU.astype(x_BTHC.dtype))
    return y_BTHGU.reshape(x_BTHC.shape).astype(x_BTHC.dtype)
