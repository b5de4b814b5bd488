"""Arrays that XLA on a CPU leaves as they are written: behind a barrier, or computed once."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from posenc_jax.backends.target import tuned_for

T = TypeVar("T")
ROWS = 16


def barrier(x: T) -> T:
    """The arrays as they are, behind a barrier that XLA for a CPU moves no operation across.

    A transpose then stays outside of a product. XLA would fuse it into the product, which runs
    several times slower so. Elsewhere there is no barrier.
    """
    return jax.lax.optimization_barrier(x) if tuned_for("cpu") else x


def transposed(x: jax.Array, merges: bool = False) -> jax.Array:
    """The last two axes of an operand of a product exchanged.

    XLA for a CPU computes a product of bfloat16 in float32 if an operand is a transpose, which
    takes more than twice as long. It does not see one in an exchange by blocks of ROWS.

    merges: XLA may merge the transpose into a product of other dtypes; otherwise there is a
      barrier.
    """
    *lead, rows, columns = x.shape
    if x.dtype == jnp.bfloat16 and tuned_for("cpu") and rows % ROWS == 0:
        blocks = x.reshape(*lead, rows // ROWS, ROWS, columns)
        return barrier(jnp.moveaxis(blocks, -1, -3)).reshape(*lead, columns, rows)
    exchanged = jnp.swapaxes(x, -1, -2)
    return exchanged if merges else barrier(exchanged)


def once(make: Callable[..., T], *args: Any) -> T:
    """make(*args), computed once in a program that is compiled for a CPU.

    There XLA moves what makes an array into every operation that reads it, cosines and all: those
    of a rotary table are computed once a head, layer and direction. It leaves a conditional where
    it is, and does not see that the two branches of this one are the same.

    Args:
      make: a function of `args`; it may also read arrays that it closes over.
      args: pytrees of arrays.
    """
    leaf = jax.tree.leaves(args)[0]
    if not tuned_for("cpu") or not isinstance(leaf, Tracer) or leaf.size == 0:
        return make(*args)
    first = leaf.ravel()[0]
    return jax.lax.cond(first if first.dtype == bool else first > 0, make, make, *args)
