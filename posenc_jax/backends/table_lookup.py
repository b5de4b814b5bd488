"""Operations that differ by backend, because of how XLA compiles them.

With them methods and attention read as the mathematics.
"""

import jax
import jax.numpy as jnp

from posenc_jax.backends.target import tuned_for

CHOICES = 64  # columns among which `look_up_each` chooses by bits in one pass
SHARED_CHOICES = 40  # if heads share columns: of 49 XLA writes each candidate to memory


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
    width = -(-columns // rounds)
    x_BHQR = jnp.pad(x_BHQR, [(0, 0)] * 3 + [(0, rounds * width - columns)])

    @jax.checkpoint  # the backward pass would keep which half each bit chose, in every round
    def take_in(n, entries_BHQK):
        part = jax.lax.dynamic_slice_in_dim(x_BHQR, n * width, width, axis=-1)
        chosen_BHQK = _chosen(part, column_BHQK - n * width)
        return jnp.where(column_BHQK // width == n, chosen_BHQK, entries_BHQK)

    zeros_BHQK = jnp.zeros_like(x_BHQR[..., :1]) + jnp.zeros_like(column_BHQK, x_BHQR.dtype)
    return jax.lax.fori_loop(0, rounds, take_in, zeros_BHQK)


def _chosen(x_BHQR: jax.Array, column_BHQK: jax.Array) -> jax.Array:
    """The entries of x at the columns: each bit of a column, from the lowest on, halves them."""
    left = [x_BHQR[..., n : n + 1] for n in range(x_BHQR.shape[-1])]
    bit = 0
    while len(left) > 1:
        odd_BHQK = (column_BHQK >> bit) & 1 == 1
        pairs = zip(left[::2], left[1::2], strict=False)
        last = left[len(left) - len(left) % 2 :]
        left, bit = [*(jnp.where(odd_BHQK, b, a) for a, b in pairs), *last], bit + 1
    return jnp.broadcast_to(left[0], jnp.broadcast_shapes(left[0].shape, column_BHQK.shape))
