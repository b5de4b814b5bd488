"""Parameters side by side in a few arrays, for loops that are compiled for a CPU.

There each array that a step updates is some kernels of its own, and compiling those takes longer
than running them; a model's few dozen leaves are a few hundred kernels.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Form(NamedTuple):
    """What a tree looks like: its structure, and the shape and group of each leaf."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    groups: tuple[str, ...]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["arrays"], meta_fields=["form"])
@dataclass(frozen=True)
class Packed:
    """A tree's leaves by group: a group's dtype is one, and what has axes [a, b, ...] lies in
    [1, n], what has one axis or none in [n], so that weight decay still tells them apart.
    """

    arrays: dict[str, jax.Array]
    form: Form


def pack(tree: Any, like: Any) -> Any:
    """The tree, with each subtree that has the structure of `like` as one `Packed`."""
    structure = jax.tree.structure(like)
    same = lambda node: jax.tree.structure(node) == structure
    return jax.tree.map(lambda node: _packed(node) if same(node) else node, tree, is_leaf=same)


def unpack(tree: Any) -> Any:
    """The tree, with each `Packed` as what it was made of."""
    packed = lambda node: isinstance(node, Packed)
    return jax.tree.map(lambda n: _unpacked(n) if packed(n) else n, tree, is_leaf=packed)


def _packed(tree: Any) -> Packed:
    leaves, structure = jax.tree.flatten(tree)
    group_of = lambda leaf: f"{leaf.dtype}{' matrices' if leaf.ndim > 1 else ''}"
    form = Form(structure, tuple(leaf.shape for leaf in leaves), tuple(map(group_of, leaves)))
    arrays: dict[str, Any] = {}
    for leaf, group in zip(leaves, form.groups, strict=True):
        arrays.setdefault(group, []).append(leaf.reshape((1,) * (leaf.ndim > 1) + (-1,)))
    return Packed({name: jnp.concatenate(a, axis=-1) for name, a in arrays.items()}, form)


def _unpacked(packed: Packed) -> Any:
    leaves, taken = [], dict.fromkeys(packed.arrays, 0)
    for shape, group in zip(packed.form.shapes, packed.form.groups, strict=True):
        start, size = taken[group], math.prod(shape)
        taken[group] += size
        leaves.append(packed.arrays[group][..., start : start + size].reshape(shape))
    return jax.tree.unflatten(packed.form.structure, leaves)
