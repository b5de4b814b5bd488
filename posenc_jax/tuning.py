"""What programs for a CPU do differently, because of what XLA does to them there."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
from jax.core import Tracer

T = TypeVar("T")
_plain = ContextVar("plain", default=False)


def tuned_for_cpu() -> bool:
    """Whether what is traced now is to be tuned for a CPU."""
    return jax.default_backend() == "cpu" and not _plain.get()


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """What is traced inside is traced as for an accelerator: so its operations can be counted."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


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
    if not tuned_for_cpu() or not isinstance(leaf, Tracer):
        return make(*given)
    return jax.lax.cond(leaf.ravel()[0] > 0, make, make, *given)
