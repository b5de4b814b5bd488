"""Arrays on the devices of a mesh: axes that they vary over, and code that XLA partitions."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

T = TypeVar("T")


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


def cond(which: jax.Array, yes: Callable[..., T], no: Callable[..., T], *operands: Any) -> T:
    """`jax.lax.cond` whose branches may differ in the mesh axes that their results vary over.

    In `jax.shard_map` a branch that returns what is the same on all devices, such as `arange`, has
    another type than one that returns what it made of its operands. The branches read no other
    arrays that vary.
    """
    which, operands = vary_alike((which, operands))
    alike = lambda branch: lambda *args: vary_alike((branch(*args), args))[0]
    return jax.lax.cond(which, alike(yes), alike(no), *operands)


def explicit_mesh(tree: Any) -> AbstractMesh | None:
    """The mesh with Explicit axes that an array of the tree lies on; None if none does."""
    meshes = (jax.typeof(leaf).sharding.mesh for leaf in jax.tree.leaves(tree))
    return next((mesh for mesh in meshes if mesh.explicit_axes), None)


def partitioned(call: Callable[..., T], like: jax.Array, axes: int, *args: Any) -> T:
    """The results of call(*args), inside of which Explicit axes of a mesh are Auto ones.

    `jax.make_mesh` makes Explicit axes: how an array is spread over devices is a part of its type,
    and an operation that could spread its result in several ways is an error. Inside of this XLA
    decides. What comes out is spread along its first `axes` axes as `like` is, where it has the
    size of `like`; along others it is whole on each device.

    Args:
      call: a function of `args` that returns a pytree of arrays, and reads no other arrays.
      args: pytrees of arrays.
    """
    mesh = explicit_mesh(args)
    if mesh is None:
        return call(*args)
    places = jax.typeof(like).sharding.spec[:axes]

    def enter(leaf):
        explicit = jax.typeof(leaf).sharding.mesh.explicit_axes
        return jax.sharding.reshard(leaf, PartitionSpec()) if explicit else leaf

    def leave(leaf):
        sizes = zip(places, leaf.shape, like.shape, strict=False)
        spec = PartitionSpec(*(place if size == wanted else None for place, size, wanted in sizes))
        return jax.sharding.reshard(leaf, NamedSharding(mesh, spec))

    auto = mesh.update_axis_types(dict.fromkeys(mesh.explicit_axes, AxisType.Auto))
    with jax.sharding.use_abstract_mesh(auto):
        results = call(*jax.tree.map(enter, args))
    return jax.tree.map(leave, results)
