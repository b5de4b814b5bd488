"""A function traced once for all layers that are alike."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.core import Tracer

T = TypeVar("T")


class Constant(NamedTuple):
    """A number that is known when a program is traced, with its type: 1, 1.0 and True differ."""

    type: type
    number: Any


def traced_once(call: Callable[..., T], *args: Any) -> T:
    """call(*args); inside of a trace, of a function that JAX keeps and does not trace again.

    Most of the time in which JAX traces a model goes to attention, which each layer has. A
    `jax.jit` inside of another keeps its program by the shapes of its arguments, and that of its
    derivative and of its transpose; the twelfth layer is a call of what the first one made. XLA
    compiles the calls as if they were written out.

    Outside of a trace each operation runs alone, as ever: a program would be compiled again for
    each number among the arguments, such as the column of a token that is decoded.

    Args:
      call: a function of a module that reads arguments alone: it is a key of the cache.
      args: pytrees. Their numbers of Python and NumPy stay what they are, as `call` may choose by
        them; their static fields are keys of the cache.
    """
    leaves, tree = jax.tree.flatten(args)
    if not any(isinstance(leaf, Tracer) for leaf in leaves):
        return call(*args)
    is_number = lambda leaf: isinstance(leaf, bool | int | float | np.generic)
    constants = tuple(Constant(type(x), x) if is_number(x) else None for x in leaves)
    return _traced(call, tree, constants, [x for x in leaves if not is_number(x)])


@partial(jax.jit, static_argnums=(0, 1, 2))
def _traced(
    call: Callable, tree: Hashable, constants: tuple[Constant | None, ...], arrays: list[Any]
) -> Any:
    """call of the arguments with this structure: where they have no constant, the arrays."""
    rest = iter(arrays)
    leaves = [next(rest) if x is None else x.number for x in constants]
    return call(*jax.tree.unflatten(tree, leaves))


def forget() -> None:
    """The next call of each function is traced again: for tests that change what one reads."""
    _traced.clear_cache()  # pyright: ignore[reportAttributeAccessIssue]
