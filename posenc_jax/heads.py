"""Heads spread over devices: methods that depend on a head's number, and the parameters of each
device.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.sharding import PartitionSpec

from posenc_jax.encoding import Dims, Encoding, Params
from posenc_jax.layout import whole_number
from posenc_jax.options import checked_all

T = TypeVar("T")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HeadsHere:
    """The heads of a device, stored among the parameters of a method that reads heads' numbers.

    start: number of its first head; float32, since all parameters get a gradient, which is 0.
    total: number of the model's heads.
    """

    start: jax.Array
    total: int = dataclasses.field(metadata={"static": True})


def tell_heads(params: dict, dims: Dims, start: int | jax.Array, total: int) -> dict:
    """The hook `of_heads` of a method that reads its heads' numbers by `by_head`."""
    return {**params, "heads_here": HeadsHere(jnp.asarray(start, jnp.float32), total)}


def by_head(make: Callable[[Dims], T], params: dict, dims: Dims, axis: int = 0) -> T:
    """make(dims), a pytree of arrays with the heads along `axis`, restricted to the heads of this
    device.

    On a device with some of the heads it is made for all, and cut; NaN for heads that the model
    does not have.
    """
    here = params.get("heads_here")
    if here is None:
        return make(dims)
    number_H = jnp.round(here.start).astype(jnp.int32) + jnp.arange(dims.heads, dtype=jnp.int32)
    number_H = jnp.where(number_H < 0, here.total, number_H)
    cut = lambda x: jnp.take(x, number_H, axis=axis, mode="fill", fill_value=jnp.nan)
    return jax.tree.map(cut, make(dataclasses.replace(dims, heads=here.total)))


def refuse_heads(params: Params, dims: Dims, start: int | jax.Array, total: int) -> Params:
    """The hook `of_heads` of a method that mixes the heads of the model: raises a ValueError."""
    if dims.heads == total:
        return params
    raise ValueError("heads: this method mixes all heads of a model, so a device needs all of them")


def of_heads(encoding: Encoding, params: Params, dims: Dims, heads: Any) -> Params:
    """The parameters for the heads (start, total) of a device; `dims.heads` is their number.

    ValueError: a pair that is not that, or heads that the model does not have.
    """
    if not isinstance(heads, tuple | list) or len(heads) != 2:
        raise ValueError(f"heads: {heads!r} is not (start, total)")
    start, total = (whole_number("heads", number) for number in heads)
    if not isinstance(total, int):
        raise ValueError("heads: the total is traced; give the model's number of heads, an int")
    if total < 1 or total % dims.heads:
        raise ValueError(
            f"heads: a model of {total} heads is not shared by devices of dims.heads={dims.heads}"
        )
    if not isinstance(start, Tracer) and not 0 <= start <= total - dims.heads:
        raise ValueError(
            f"heads: {start} to {start + dims.heads - 1} of a model of {total}, counted from 0"
        )
    return params if encoding.of_heads is None else encoding.of_heads(params, dims, start, total)


def head_specs(encoding: Encoding, dims: Dims, axis: str) -> Any:
    """How each parameter is spread over a mesh axis of heads: a pytree of `PartitionSpec`.

    An array with an axis of the model's heads is cut there, others are whole on each device. It is
    for `in_specs` and `out_specs` of `jax.shard_map`, inside of which `frame` gets the cut ones.

    Args:
      dims: sizes of the whole model, as for `encoding.init`.
      axis: name of the mesh axis.

    FieldError: an argument of another type.
    """
    checked_all("head_specs", head_specs, encoding=encoding, dims=dims)

    def shapes(heads: int):
        sizes = dataclasses.replace(dims, heads=heads)
        return jax.eval_shape(lambda: encoding.init(jax.random.key(0), sizes))

    def spec(here, twice) -> PartitionSpec:
        sizes = zip(here.shape, twice.shape, strict=True)
        return PartitionSpec(*(axis if size != doubled else None for size, doubled in sizes))

    return jax.tree.map(spec, shapes(dims.heads), shapes(2 * dims.heads))
