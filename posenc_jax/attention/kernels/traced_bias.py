"""A bias of any form as equations: its own function, traced for one query and one key."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from posenc_jax.backends.target import compile_for, target
from posenc_jax.encoding import Bias, Dims, Params, Placed

SAME = "copy", "pcast", "pvary"
MOVES = (
    *("broadcast_in_dim", "concatenate", "reshape", "rev", "slice", "squeeze", "transpose"),
    "unstack",
)
OVER = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min}
EACH = """abs add and ceil clamp convert_element_type cos div eq erf exp exp2 floor ge gt
integer_pow le log log1p logistic lt max min mul ne neg not or pow rem round rsqrt select_n sign sin
sqrt square stop_gradient sub tanh"""


class Made(NamedTuple):
    """What kernels read of a bias, each a list of arrays; or the variables that these are.

    whole:   entries made of parameters, each in all places of a vector, [N, 8, LANES].
    weights: matrices of products with parameters, [8 N', 8 N].
    q:       entries of each query, [B|1, N, 1, Q].
    k:       positions of keys, [B|1, N, K].
    """

    whole: Any
    weights: Any
    q: Any
    k: Any


@dataclasses.dataclass(frozen=True, eq=False)
class TracedBias:
    """A bias's equations before and inside of kernels; `dtype` is that of queries and keys."""

    closed: Any
    before: list[Any]
    inside: list[Any]
    read: Made
    dtype: Any


def trace(bias: Bias, dims: Dims, dtype, params: Params, q_placed, k_placed) -> TracedBias:
    """The equations of the bias for one query and one key.

    NotImplementedError: an equation that kernels do not have; the message is its name.
    """
    given = params, *(jax.tree.map(lambda x: x[:1, :1], x) for x in (q_placed, k_placed))

    def one(params, q, k):
        with jax.disable_jit():  # the equations inside of other programs, one by one
            return bias(params, q, k, dims)

    with compile_for("tpu", target().devices):  # tables are read by products, not by gathers
        closed = jax.make_jaxpr(one)(*given)
    # 0: made of parameters; 1: of a query too; 2: a key's, or made inside of kernels.
    levels = [n for n, x in enumerate(given) for _ in jax.tree.leaves(x)]
    level = dict(zip(closed.jaxpr.invars, levels, strict=True))
    of = lambda v: 0 if isinstance(v, Literal) else level.get(v, 0)
    keys = [v for v in closed.jaxpr.invars if of(v) == 2]
    traced = TracedBias(closed, [], [], Made({}, {}, {}, keys), dtype)

    def read(v) -> None:
        if not isinstance(v, Literal) and of(v) < 2:
            (traced.read.whole, traced.read.q)[of(v)][v] = None
            if v.aval.dtype == bool:
                raise NotImplementedError("a table of truth values")

    for eqn in closed.jaxpr.eqns:
        most = max(map(of, eqn.invars), default=0)
        if most == 1 and any(v.aval.dtype == bool for v in eqn.outvars):
            most = 2
        level |= dict.fromkeys(eqn.outvars, most)
        (traced.inside if most == 2 else traced.before).append(eqn)
        if most == 2:
            is_product = eqn.primitive.name == "dot_general"
            weighed = [n for n, v in enumerate(eqn.invars) if is_product and of(v) == 0]
            _check(eqn, weighed)
            for n, v in enumerate(eqn.invars):
                if n in weighed:
                    traced.read.weights[eqn.outvars[0]] = eqn, n
                else:
                    read(v)
    read(closed.jaxpr.outvars[0])
    return traced


def _check(eqn, weighed: list[int]) -> None:
    """NotImplementedError: kernels do not have this equation, or not in this form.

    weighed: the operand of a product that is made of parameters.
    """
    name = eqn.primitive.name
    own = eqn.params["call_jaxpr"].jaxpr.debug_info.func_name if "call_jaxpr" in eqn.params else ""
    if name not in (*SAME, *MOVES, *OVER, *EACH.split(), "dot_general") and own != "relu":
        raise NotImplementedError(own or name)
    for n, v in enumerate(eqn.invars) if name == "dot_general" else ():
        axes = eqn.params["dimension_numbers"][0][n]
        alone = v.aval.size == math.prod(v.aval.shape[a] for a in axes)
        if n not in weighed and not (alone and list(axes) == sorted(axes)):
            raise NotImplementedError("a product of two matrices")


def _value(env: dict[Any, Any], v) -> Any:
    return v.val if isinstance(v, Literal) else env.get(v)


def _run(eqns, env: dict[Any, Any], apply: Callable) -> None:
    """Adds the equations' results to `env`, in order."""
    for eqn in eqns:
        env |= zip(eqn.outvars, apply(eqn, [_value(env, v) for v in eqn.invars]), strict=True)


def bind(eqn, values: Sequence[Any]) -> list[Any]:
    found = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    return found if eqn.primitive.multiple_results else [found]


def before(bias: TracedBias, params: Params, q: Placed, k: Placed) -> dict[Any, Any]:
    """The values of variables that are made outside of kernels, for one query's positions."""
    one = lambda x: jax.tree.map(lambda leaf: leaf[None, None], x)
    jaxpr, consts = bias.closed.jaxpr, bias.closed.consts
    given = *consts, *jax.tree.leaves((params, one(q), one(k)))
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))
    _run(bias.before, env, bind)
    return env


def floats(tree: Any) -> list[Any]:
    """The arrays that have gradients."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
