"""The gradient of a loss over the rows of a batch: packed as the parameters are, and in parts."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.lab.hosts.devices import cores
from posenc_jax.lab.hosts.packing import Packed, pack, unpack
from posenc_jax.tuning import tuned_for_cpu

WIDEST = 2**19  # numbers in a core's share of the widest activation of a part; in float32 2 MB


def value_and_grad(loss_of: Callable, params: Any, *args: Any, has_aux: bool = False) -> Any:
    """`jax.value_and_grad` of what reads parameters; of packed ones the gradient is packed too."""
    value, grads = jax.value_and_grad(loss_of, has_aux=has_aux)(unpack(params), *args)
    return value, _packed_as(params, grads)


def value_and_grad_in_parts(loss_of: Callable, params: Any, rows: Any, *args: Any) -> Any:
    """`value_and_grad` of a loss that is a sum over rows, which on a CPU are taken in equal parts,
    as few as keep the widest activation within `WIDEST`: their work then stays in the caches.

    Args:
      loss_of: (params, rows, *args) -> loss.
      params: weights whose last axis is what they make of a token; may be packed.
      rows: leaves [B, T, ...].
    """
    tree = unpack(params)
    gradient = lambda part: jax.value_and_grad(loss_of)(tree, part, *args)
    value, grads = _sum_over_parts(gradient, rows, _part_count(tree, rows))
    return value, _packed_as(params, grads)


def _packed_as(params: Any, grads: Any) -> Any:
    return pack(grads, grads) if isinstance(params, Packed) else grads


def _part_count(params: Any, rows: Any) -> int:
    if not tuned_for_cpu():
        return 1
    count, time = jax.tree.leaves(rows)[0].shape[:2]
    widest = max(leaf.shape[-1] for leaf in jax.tree.leaves(params) if leaf.ndim)
    most = WIDEST * max(1, len(cores()) // jax.local_device_count())
    wanted = min(count, math.ceil(count * time * widest / most))
    return next(n for n in range(max(1, wanted), count + 1) if count % n == 0)


def _sum_over_parts(function: Callable, rows: Any, parts: int) -> Any:
    """function(rows), which is a sum over rows, added up over so many parts of them."""
    if parts == 1:
        return function(rows)
    split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), rows)
    values = jax.eval_shape(function, jax.tree.map(lambda x: x[0], split))
    zeros = jax.tree.map(lambda value: jnp.zeros(value.shape, value.dtype), values)
    add = lambda total, part: (jax.tree.map(jnp.add, total, function(part)), None)
    return jax.lax.scan(add, zeros, split)[0]
