"""What XLA on a CPU would otherwise work out again and again."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.core import Tracer

T = TypeVar("T")


def once(make: Callable[..., T], *given: Any) -> T:
    """make(*given), worked out once in a program that is compiled for a CPU.

    There XLA moves what makes an array into every operation that reads it, cosines and all: those
    of a rotary table once a head, layer and direction. It leaves a conditional where it is, and
    does not see that this one's branches are the same.

    Args:
      make: reads what it is given, and maybe arrays that it closes over.
      given: pytrees of arrays.
    """
    leaf = jax.tree.leaves(given)[0]
    if jax.default_backend() != "cpu" or not isinstance(leaf, Tracer):
        return make(*given)
    return jax.lax.cond(leaf.ravel()[0] > 0, make, make, *given)
