"""Arrays that XLA on a CPU leaves as they are written: behind a barrier, or computed once."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer

from posenc_jax.backends.target import tuned_for

T = TypeVar("T")


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
