"""Parameters as a caller stores them, checked and with the structure that `encoding.init` makes."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.encoding import Dims, Encoding, Params
from posenc_jax.options import FieldError, shown

LISTED = 6  # keys in a message; of more it has these and how many there are


def check_shapes(encoding: Encoding, params: Params, dims: Dims) -> None:
    """FieldError: a parameter of another shape than `encoding.init` makes for dims.

    params: as from `structured_params`.
    """
    wanted = _by_key(_wanted(encoding.init, dims))
    for (key, leaf), value in zip(wanted.items(), jax.tree.leaves(params), strict=True):
        if not (hasattr(value, "shape") or isinstance(value, int | float)):
            raise FieldError((f"params{key}",), f"{shown(value)} is not an array")
        if leaf.shape != jnp.shape(value):
            raise FieldError(
                (f"params{key}",),
                f"shape {jnp.shape(value)}; the encoding has {leaf.shape} for {dims}",
            )


def structured_params(
    encoding: Encoding, params: Params, dims: Dims, all_layers: bool = True
) -> Params:
    """The parameters in dicts and tuples as `encoding.init` makes them.

    They may be stored in other containers that have the same keys, such as a FrozenDict or
    `nnx.State`, which an NNX model makes of a dict in an `nnx.Param` when it is updated.

    all_layers: whether dims has the model's layers; else it may have more, and parameters that have
      the keys of these layers among others are returned as they are.

    FieldError: other keys.
    """
    wanted = _wanted(encoding.init, dims)
    structure = jax.tree.structure(wanted)
    if jax.tree.structure(params) == structure:
        return params
    wanted_keys, by_key = _by_key(wanted), _by_key(params)
    if not all_layers and wanted_keys.keys() <= by_key.keys():
        return params
    if by_key.keys() != wanted_keys.keys():
        got = f"keys {_listed(by_key)}" if by_key else "no keys"
        if list(by_key) == [""]:
            got = f"{type(params).__name__}, no pytree of arrays by key"
        raise FieldError(
            "params",
            f"{got}; {encoding.name} has {_listed(wanted_keys)} for {dims}; make them by "
            "encoding.init(key, dims)",
        )
    return jax.tree.unflatten(structure, [by_key[key] for key in wanted_keys])


def _by_key(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their place in it, "[1]['table']".

    Flax's boxes of an array (`nnx.Param`, `nn.Partitioned`) hold it as `.value`, which is left out.
    """
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path).replace(".value", ""): leaf for path, leaf in named}


def _listed(keys: Mapping[str, Any]) -> str:
    """The first keys as text of one line, and how many there are if there are more."""
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return (", ".join(list(keys)[:LISTED]) or "none") + more


@functools.lru_cache(maxsize=256)
def _wanted(init: Callable, dims: Dims) -> Any:
    """The shapes and dtypes of the parameters."""
    return jax.eval_shape(lambda: init(jax.random.key(0), dims))
