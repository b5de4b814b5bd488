"""Operations of a training step that are written differently for CPUs and accelerators, for speed.

On the other kind of device each is the plain operation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.backends.barriers import barrier, transposed
from posenc_jax.backends.target import tuned_for
from posenc_jax.dtypes import widest
from posenc_jax.lab.hosts.devices import cores, spread_seeds

WIDEST = 2**19  # numbers in a core's share of the widest activation of a part; in float32 2 MB


def over(function: Callable, *trees: Any) -> Any:
    """Returns the function of each entry of the first axis, stacked.

    On a CPU entries are computed one after another: a step of several seeds under `vmap` takes up
    to 20% longer there, and memory for all of them. Elsewhere they are computed by `vmap`. A single
    entry loses the axis inside: with it XLA for a TPU turns the reduce-scatters of FSDP into
    all-reduces.
    """
    if tuned_for("cpu"):
        return jax.lax.map(lambda args: function(*args), trees)
    if len(jax.tree.leaves(trees)[0]) == 1:
        alone = function(*jax.tree.map(lambda x: x[0], trees))
        return jax.tree.map(lambda x: x[None], alone)
    return jax.vmap(function)(*trees)


def over_seeds(function: Callable, *trees: Any, given: tuple = ()) -> Any:
    """Calls function(*given, *leaves of one seed) for each seed; the seeds are spread over devices.

    A device computes its seeds one after another on a CPU, else by vmap. Arrays that are on every
    device, such as a task's data, must be `given`, not closed over.
    """
    on_device = lambda shared, *trees: over(partial(function, *shared), *trees)
    return spread_seeds(on_device, given, *trees)


def linear(x: jax.Array, w: jax.Array, b: jax.Array | None) -> jax.Array:
    """Returns x w + b over the last axis: [..., D], [D, F] and [F] give [..., F], all of one dtype.
    Without b it is x w.

    On a CPU its backward pass is written out. The gradient of the weights is a product whose
    contracted axis is the first one in both operands. XLA takes up to 1.6 times as long for it as
    for a product with the narrower operand transposed before. A barrier keeps XLA from merging that
    transpose into the product. Another barrier keeps the gradient of the output in two axes; with
    the axes of the heads the sum over rows is six times slower.
    """
    if not tuned_for("cpu"):
        return x @ w if b is None else x @ w + b.reshape((1,) * (x.ndim - 1) + (-1,))
    return _affine(x.reshape(-1, x.shape[-1]), w, b).reshape(*x.shape[:-1], w.shape[-1])


def recomputed(function: Callable) -> Callable:
    """Returns the function, for a loop over layers whose backward pass computes it again from its
    arguments instead of storing its intermediate values.

    Outside of loops XLA chooses by itself what to store, and on a CPU layers are not a loop.
    """
    return function if tuned_for("cpu") else jax.checkpoint(function, prevent_cse=False)


@jax.custom_vjp
def _affine(x_MD: jax.Array, w_DF: jax.Array, b_F: jax.Array | None) -> jax.Array:
    y_MF = _product(x_MD, w_DF)
    return y_MF if b_F is None else y_MF + b_F[None]


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b, accumulated in float32 or wider and rounded once.

    A CPU's product of bfloat16 matrices that gives bfloat16 takes over twice as long as one that
    gives float32.
    """
    return jnp.matmul(a, b, preferred_element_type=widest(a.dtype)).astype(a.dtype)


def _forward(x_MD, w_DF, b_F):
    return _affine(x_MD, w_DF, b_F), (x_MD, w_DF, b_F)


def _backward(residuals, g_MF):
    x_MD, w_DF, b_F = residuals
    g_MF = barrier(g_MF)
    g_F = None if b_F is None else g_MF.sum(axis=0)
    return _product(g_MF, transposed(w_DF, merges=True)), _weight_gradient(x_MD, g_MF), g_F


_affine.defvjp(_forward, _backward)


def _weight_gradient(x_MD: jax.Array, g_MF: jax.Array) -> jax.Array:
    # Barriers keep XLA from merging the transposes into the product; see `linear`.
    if x_MD.shape[1] <= g_MF.shape[1]:
        return _product(transposed(x_MD), barrier(g_MF))
    return barrier(_product(transposed(g_MF), barrier(x_MD))).T


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Packed:
    """The leaves of a tree in a few arrays: two for each dtype, of matrices and of other leaves.

    Leaves of two axes and more are in an array [1, n], others in one [n], so that weight decay can
    still distinguish them. `shapes` and `groups`, the names of the arrays, are of each leaf.
    """

    arrays: dict[str, jax.Array]
    structure: Any = field(metadata={"static": True})
    shapes: tuple[tuple[int, ...], ...] = field(metadata={"static": True})
    groups: tuple[str, ...] = field(metadata={"static": True})


def pack(tree: Any, like: Any) -> Any:
    """Returns the tree with each subtree that has the structure of `like` replaced by a `Packed`.

    On a CPU each array that a step updates takes several kernels, whose compilation takes longer
    than their run; the few dozen leaves of a model take a few hundred kernels.
    """
    structure = jax.tree.structure(like)
    same = lambda node: jax.tree.structure(node) == structure
    return jax.tree.map(lambda node: _packed(node) if same(node) else node, tree, is_leaf=same)


def unpack(tree: Any) -> Any:
    """Returns the tree with each `Packed` replaced by the subtree that it was made of."""
    packed = lambda node: isinstance(node, Packed)
    return jax.tree.map(lambda n: _unpacked(n) if packed(n) else n, tree, is_leaf=packed)


def _packed(tree: Any) -> Packed:
    leaves, structure = jax.tree.flatten(tree)
    group_name = lambda leaf: f"{leaf.dtype}{' matrices' if leaf.ndim > 1 else ''}"
    shapes, groups = tuple(leaf.shape for leaf in leaves), tuple(map(group_name, leaves))
    parts: dict[str, Any] = {}
    for leaf, group in zip(leaves, groups, strict=True):
        parts.setdefault(group, []).append(leaf.reshape((1,) * (leaf.ndim > 1) + (-1,)))
    arrays = {group: jnp.concatenate(flat, axis=-1) for group, flat in parts.items()}
    return Packed(arrays, structure, shapes, groups)


def _unpacked(packed: Packed) -> Any:
    leaves, taken = [], dict.fromkeys(packed.arrays, 0)
    for shape, group in zip(packed.shapes, packed.groups, strict=True):
        start, size = taken[group], math.prod(shape)
        taken[group] += size
        leaves.append(packed.arrays[group][..., start : start + size].reshape(shape))
    return jax.tree.unflatten(packed.structure, leaves)


def value_and_grad(loss_fn: Callable, params: Any, *args: Any, has_aux: bool = False) -> Any:
    """Returns the value and the gradients of a loss; those of packed parameters are packed."""
    value, grads = jax.value_and_grad(loss_fn, has_aux=has_aux)(unpack(params), *args)
    return value, _packed_as(params, grads)


def value_and_grad_in_parts(
    loss_fn: Callable, params: Any, rows: Any, *args: Any, least: int = 1
) -> Any:
    """Returns `value_and_grad` of a loss that is a sum over rows.

    The rows are split into at least `least` equal parts, computed one after another. On a CPU there
    are as many as keep the widest activation within `WIDEST` numbers a core, so that a part fits
    into the caches.

    Args:
      loss_fn: (params, rows, *args) -> loss.
      params: weights, whose last axis is that of their output; may be packed.
      rows: leaves [B, T, ...].
      least: the fewest parts.
    """
    tree = unpack(params)
    gradient = lambda part: jax.value_and_grad(loss_fn)(tree, part, *args)
    value, grads = _sum_over_parts(gradient, rows, _part_count(tree, rows, least))
    return value, _packed_as(params, grads)


def _packed_as(params: Any, grads: Any) -> Any:
    return pack(grads, grads) if isinstance(params, Packed) else grads


def _part_count(params: Any, rows: Any, least: int) -> int:
    count, time = jax.tree.leaves(rows)[0].shape[:2]
    if tuned_for("cpu"):
        widest = max(leaf.shape[-1] for leaf in jax.tree.leaves(params) if leaf.ndim)
        most = WIDEST * max(1, len(cores()) // jax.local_device_count())
        least = max(least, math.ceil(count * time * widest / most))
    return next(n for n in range(min(count, least), count + 1) if count % n == 0)


def _sum_over_parts(function: Callable, rows: Any, parts: int) -> Any:
    """Returns the sum of function(part) over `parts` equal parts of the rows."""
    if parts == 1:
        return function(rows)
    split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), rows)
    values = jax.eval_shape(function, jax.tree.map(lambda x: x[0], split))
    zeros = jax.tree.map(jnp.zeros_like, values)
    add = lambda total, part: (jax.tree.map(jnp.add, total, function(part)), None)
    return jax.lax.scan(add, zeros, split)[0]
