"""What programs are compiled for, and what XLA does badly on a CPU.

No other file of the library knows of it: attention reads as the mathematics.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

T = TypeVar("T")
_given = jax.make_user_context(None)  # a part of the keys of `jax.jit`'s caches
# Logits of one sequence, all heads, up to which `form="auto"` is dense. A CPU is faster in blocks
# from about 1,024 tokens on; elsewhere memory decides: 2^25 float32 logits are 128 MB.
DENSE_LOGITS = {"cpu": 2**21}
DENSE_LOGITS_ELSEWHERE = 2**25
CHOICES = 64  # columns among which `look_up_each` chooses by bits in one pass; a power of 2


class Target(NamedTuple):
    """What programs are traced and compiled for.

    backend: "cpu", "gpu" or "tpu".
    devices: of all processes; devices of a topology, for a machine that is not at hand.
    """

    backend: str
    devices: tuple[Any, ...]


def target() -> Target:
    """The target that `compile_for` gave; by default JAX's own backend and devices."""
    given = _given.value
    return given or Target(jax.default_backend(), tuple(jax.devices()))


def compile_for(backend: str, devices: Sequence[Any] = ()) -> AbstractContextManager[None]:
    """Traces and compiles what is inside for this backend, whatever machine this is.

    devices: by default those of this machine, which is enough to trace a program.
    """
    return _given(Target(backend, tuple(devices or jax.devices())))


def tuned_for_cpu() -> bool:
    """Whether what is traced now is tuned for a CPU."""
    return target().backend == "cpu"


def tuned_for_tpu() -> bool:
    """Whether what is traced now is tuned for a TPU."""
    return target().backend == "tpu"


def kernels_fit() -> bool:
    """Whether what is traced now may hold a kernel: XLA does not partition one over devices.

    So it is for one TPU, or for each of several alone, inside of `jax.shard_map`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    alone = bool(mesh.manual_axes) and set(mesh.manual_axes) == set(mesh.axis_names)
    return tuned_for_tpu() and (alone or len(target().devices) == 1)


def most_dense_logits() -> int:
    """Logits of one sequence, all heads, up to which dense attention is the better form."""
    return DENSE_LOGITS.get(target().backend, DENSE_LOGITS_ELSEWHERE)


def barrier(x: T) -> T:
    """The arrays as they are. XLA on a CPU moves nothing across: a transpose stays outside of a
    product, which runs several times slower with it inside.
    """
    return jax.lax.optimization_barrier(x) if tuned_for_cpu() else x


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
    if not tuned_for_cpu() or not isinstance(leaf, Tracer) or leaf.size == 0:
        return make(*given)
    return jax.lax.cond(leaf.ravel()[0] > 0, make, make, *given)


def look_up(table_RH: jax.Array, row_BQK: jax.Array) -> jax.Array:
    """The rows of a table, [B, H, Q, K], in the table's dtype.

    A CPU gathers: forward and backward at 128 x 128 and 512 x 512 this is 2 to 8 times faster than
    a product with one-hot rows, which take longer to write than the scatter-add that they avoid. An
    accelerator makes them within the product, where a gather moves number by number.
    """
    if tuned_for_cpu():
        return jnp.moveaxis(table_RH[row_BQK], -1, 1)
    hot_BQKR = jax.nn.one_hot(row_BQK, len(table_RH), dtype=table_RH.dtype)
    return jnp.einsum("rh,bqkr->bhqk", table_RH, hot_BQKR, precision="highest")


def look_up_each(x_BHQR: jax.Array, column_BHQK: jax.Array) -> jax.Array:
    """For each query the entries at its columns, [B, H, Q, K]; columns [B, H|1, Q, K].

    A CPU gathers: with the backward pass this is 4 to 10 times faster than a one-hot product. On an
    accelerator the columns' bits choose within one pass over the result, of `CHOICES` columns at a
    time: a program for 512 takes minutes to compile.
    """
    if tuned_for_cpu():
        return jnp.take_along_axis(x_BHQR, column_BHQK, axis=-1)
    if x_BHQR.shape[-1] <= CHOICES:
        return _chosen(x_BHQR, column_BHQK)
    x_BHQR = jnp.pad(x_BHQR, [(0, 0)] * 3 + [(0, -x_BHQR.shape[-1] % CHOICES)])

    def take_in(n, found_BHQK):
        part = jax.lax.dynamic_slice_in_dim(x_BHQR, n * CHOICES, CHOICES, axis=-1)
        return jnp.where(column_BHQK // CHOICES == n, _chosen(part, column_BHQK), found_BHQK)

    zeros_BHQK = jnp.zeros_like(x_BHQR[..., :1]) + jnp.zeros_like(column_BHQK, x_BHQR.dtype)
    return jax.lax.fori_loop(0, x_BHQR.shape[-1] // CHOICES, take_in, zeros_BHQK)


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
    if not tuned_for_cpu() or jax.sharding.get_abstract_mesh().explicit_axes:
        return x_BHQK.sum(axis=0, keepdims=True)
    rows_BN = x_BHQK.reshape(x_BHQK.shape[0], -1)
    sum_1N = jnp.matmul(jnp.ones_like(rows_BN[None, :, 0]), rows_BN, precision="highest")
    return sum_1N.reshape(1, *x_BHQK.shape[1:])
