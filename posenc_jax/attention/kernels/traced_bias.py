"""A bias of any form as a list of equations, which both kernels' compilers read.

`trace` calls the bias function of an encoding for one query and one key, and sorts its equations:
those of parameters, or of parameters and a query, are computed by XLA before the kernel; those of a
key, or of both, are computed inside of it, in blocks. `tpu_bias` and `gpu_bias` compile the
latter. README.md in this folder has an example.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from posenc_jax.backends.target import compile_for, target
from posenc_jax.encoding import Bias, Dims, Params, Placed

# The equations that kernels have, by the names of JAX's primitives.
IDENTITIES = "copy", "pcast", "pvary"
MOVES = (
    *("broadcast_in_dim", "concatenate", "reshape", "rev", "slice", "squeeze", "stack"),
    *("transpose", "unstack"),
)
# How an axis of an array is reduced, and how two entries are joined.
REDUCTIONS = {
    "reduce_sum": (jnp.sum, jnp.add),
    "reduce_prod": (jnp.prod, jnp.multiply),
    "reduce_max": (jnp.max, jnp.maximum),
    "reduce_min": (jnp.min, jnp.minimum),
}
ELEMENTWISE = """abs add and ceil clamp convert_element_type cos div eq erf exp exp2 floor ge gt
integer_pow le log log1p logistic lt max min mul ne neg not or pow rem round rsqrt select_n sign sin
sqrt square stop_gradient sub tanh"""

FROM_PARAMS, FROM_QUERY, FROM_KEY = 0, 1, 2  # of what a variable is made, at most


class Reads(NamedTuple):
    """The variables that equations inside of kernels read, and that are made outside.

    whole:   made of parameters; the keys of a dict, in the order in which they are read.
    weights: parameters of a product: its result to (equation, which operand the parameters are).
    q:       made of parameters and a query; the keys of a dict.
    k:       the positions of a key.
    """

    whole: dict[Any, None]
    weights: dict[Any, tuple[Any, int]]
    q: dict[Any, None]
    k: list[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class TracedBias:
    """A bias as equations.

    closed:  all of them, a jaxpr of (params, q_placed, k_placed), the positions of one token each.
    outside: the equations that are computed before the kernel.
    inside:  those that are computed in it.
    reads:   what the latter read.
    dtype:   that of queries and keys.
    """

    closed: Any
    outside: list[Any]
    inside: list[Any]
    reads: Reads
    dtype: Any

    @property
    def result(self) -> Any:
        """The variable that is the bias, [1, H|1, 1, 1]."""
        return self.closed.jaxpr.outvars[0]


def trace(bias: Bias, dims: Dims, dtype, params: Params, q_placed, k_placed) -> TracedBias:
    """The equations of the bias for one query and one key.

    NotImplementedError: an equation that kernels do not have; the message is its name.
    """
    args = params, *(jax.tree.map(lambda x: x[:1, :1], x) for x in (q_placed, k_placed))

    def of_pair(params, q, k):
        with jax.disable_jit():  # the equations inside of other programs, one by one
            return bias(params, q, k, dims)

    with compile_for("tpu", target().devices):  # tables are read by products, not by gathers
        closed = jax.make_jaxpr(of_pair)(*args)
    levels = [n for n, x in enumerate(args) for _ in jax.tree.leaves(x)]  # FROM_PARAMS, ...
    level_of = dict(zip(closed.jaxpr.invars, levels, strict=True))
    level = lambda v: FROM_PARAMS if isinstance(v, Literal) else level_of.get(v, FROM_PARAMS)
    keys = [v for v in closed.jaxpr.invars if level(v) == FROM_KEY]
    traced = TracedBias(closed, [], [], Reads({}, {}, {}, keys), dtype)

    def read(v) -> None:
        if not isinstance(v, Literal) and level(v) < FROM_KEY:
            (traced.reads.whole, traced.reads.q)[level(v)][v] = None
            if v.aval.dtype == bool:
                raise NotImplementedError("a table of truth values")

    for eqn in closed.jaxpr.eqns:
        highest = max(map(level, eqn.invars), default=FROM_PARAMS)
        if highest == FROM_QUERY and any(v.aval.dtype == bool for v in eqn.outvars):
            highest = FROM_KEY  # kernels read no arrays of truth values, so these are made inside
        level_of |= dict.fromkeys(eqn.outvars, highest)
        if highest < FROM_KEY:
            traced.outside.append(eqn)
            continue
        traced.inside.append(eqn)
        is_product = eqn.primitive.name == "dot_general"
        weights = [n for n, v in enumerate(eqn.invars) if is_product and level(v) == FROM_PARAMS]
        _check(eqn, weights)
        for n, v in enumerate(eqn.invars):
            if n in weights:
                traced.reads.weights[eqn.outvars[0]] = eqn, n
            else:
                read(v)
    read(traced.result)
    return traced


def _check(eqn, weights: list[int]) -> None:
    """NotImplementedError: kernels do not have this equation, or not in this form.

    weights: the operand of a product that is made of parameters.
    """
    name, called = eqn.primitive.name, ""
    if "call_jaxpr" in eqn.params:
        called = eqn.params["call_jaxpr"].jaxpr.debug_info.func_name
    compiled = *IDENTITIES, *MOVES, *REDUCTIONS, *ELEMENTWISE.split(), "dot_general"
    if name not in compiled and called != "relu":
        raise NotImplementedError(called or name)
    for n, v in enumerate(eqn.invars) if name == "dot_general" else ():
        axes = eqn.params["dimension_numbers"][0][n]
        is_vector = v.aval.size == math.prod(v.aval.shape[a] for a in axes)
        if n not in weights and not (is_vector and list(axes) == sorted(axes)):
            raise NotImplementedError("a product of two matrices")


def value(values: dict[Any, Any], v) -> Any:
    """The value of a variable, or of a number that stands in an equation."""
    return v.val if isinstance(v, Literal) else values.get(v)


def run(eqns, values: dict[Any, Any], apply: Callable) -> None:
    """Adds the equations' results to `values`, in order; apply(equation, operands) makes them."""
    for eqn in eqns:
        operands = [value(values, v) for v in eqn.invars]
        values |= zip(eqn.outvars, apply(eqn, operands), strict=True)


def bind(eqn, operands: Sequence[Any]) -> list[Any]:
    """The equation's results, as JAX computes them."""
    results = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return results if eqn.primitive.multiple_results else [results]


def outside_values(bias: TracedBias, params: Params, q: Placed, k: Placed) -> dict[Any, Any]:
    """The values of variables that are made outside of kernels, for one query's positions."""
    one_token = lambda x: jax.tree.map(lambda leaf: leaf[None, None], x)
    jaxpr, consts = bias.closed.jaxpr, bias.closed.consts
    args = *consts, *jax.tree.leaves((params, one_token(q), one_token(k)))
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], args, strict=True))
    run(bias.outside, values, bind)
    return values


def moved_entries(eqn) -> list[np.ndarray]:
    """For each result of an equation that moves entries, which entries of its operands it has.

    Entries are numbered through all operands, flat. JAX moves these numbers when it traces, so that
    kernels need not move anything when they run.
    """
    ends = np.cumsum([v.aval.size for v in eqn.invars])
    numbers = [
        np.arange(end - v.aval.size, end, dtype=np.int32).reshape(v.aval.shape)
        for end, v in zip(ends, eqn.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        return [np.asarray(moved).ravel() for moved in bind(eqn, numbers)]


def reduced_entries(eqn) -> np.ndarray:
    """Which entries of its operand a reduction puts into each entry n of its result, [:, n]."""
    shape, axes = eqn.invars[0].aval.shape, eqn.params["axes"]
    at = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axes, range(len(axes)))
    return at.reshape(-1, eqn.outvars[0].aval.size)


def floats(tree: Any) -> list[Any]:
    """The arrays that have gradients."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
