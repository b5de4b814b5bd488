"""Types of arrays: the dtype that sums are kept in, and the mesh axes that arrays vary over."""

from typing import TypeVar

import jax
import jax.numpy as jnp

T = TypeVar("T")


def widest(dtype: jax.typing.DTypeLike) -> jnp.dtype:
    """float32, or the dtype itself where that is wider: what sums and logits are kept in."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def vary_alike(tree: T) -> T:
    """The arrays, each varying over all mesh axes that any of them varies over in `shard_map`.

    There an array that is the same on all devices has another type than one that is not, and a
    loop's carry must keep its type.
    """
    axes_of = lambda leaf: jax.typeof(leaf).manual_axis_type.varying
    axes = frozenset().union(*map(axes_of, jax.tree.leaves(tree)))
    if not axes:
        return tree

    def cast(leaf):
        missing = tuple(sorted(axes - axes_of(leaf)))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(cast, tree)
