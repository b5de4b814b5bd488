"""A bias of any form for a pair of blocks on a GPU: one head's, number by number.

The bias is traced for one query and one key, see `traced_bias`. Each entry of its arrays becomes a
block of its own, [Q, K] or what broadcasts to it; to move entries then costs nothing, and what one
head does not need is never made. Heads differ in which numbers they read, not in what they do.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from posenc_jax.attention.kernels.traced_bias import MOVES, OVER, SAME, TracedBias, before, bind
from posenc_jax.encoding import Params, Placed

MOST = 256  # numbers that a head may read
LIGHT = 16  # operations for a pair of tokens, up to which a bias is light
# Functions that a GPU computes in several instructions.
SLOW = {
    *("cos", "div", "erf", "exp", "exp2", "log", "log1p", "logistic", "pow", "rem", "rsqrt"),
    *("sin", "sqrt", "tanh"),
}


class Numbers(NamedTuple):
    """What a bias reads, each a list of arrays, one for each dtype or for each leaf of positions.

    whole: made of parameters, [H|1, N].
    q:     made of parameters and a query, [B|1, H|1, N, Q].
    k:     positions of keys, [B|1, N, K].
    """

    whole: list[Any]
    q: list[Any]
    k: list[Any]


class Place(NamedTuple):
    """Where a number is: side "whole", "q" or "k", which of its arrays, which entry N."""

    side: str
    array: int
    entry: int


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """How the numbers of a bias are read.

    bias:    its equations.
    places:  of each number, by its variable and entry for head 0.
    sources: of "whole" and of "q" for each array the variables and the entries of each head, [H|1].
    operations: the names of those that a pair of tokens takes.
    """

    bias: TracedBias
    places: dict[Any, Place]
    sources: dict[str, list[list[tuple[Any, np.ndarray]]]]
    operations: tuple[str, ...]

    @property
    def heavy(self) -> bool:
        """Whether the bias costs more than its masks."""
        return len(self.operations) > LIGHT

    @property
    def fast(self) -> bool:
        """Whether the bias is computed faster than it is looked up in a row: on an H100 `alibi` is,
        and `kerple_log`, which takes a logarithm, is not.
        """
        return not self.heavy and not SLOW.intersection(self.operations)


def block(bias: TracedBias, read: Callable[[Any, int], Any], head: int = 0) -> Any:
    """The bias of a head for a pair of blocks; read(v, n): entry n of a variable made elsewhere."""
    made_by = {v: eqn for eqn in bias.inside for v in eqn.outvars}
    out = bias.closed.jaxpr.outvars[0]

    @functools.cache
    def made(v, n: int):
        return read(v, n) if v not in made_by else _entry(made_by[v], n, entry)

    def entry(v, n: int):
        return v.val if isinstance(v, Literal) else made(v, n)

    return entry(out, head if out.aval.size > 1 else 0)


def _entry(eqn, n: int, entry: Callable[[Any, int], Any]) -> Any:
    """Entry n of an equation's result; entry(v, m): that of an operand."""
    name, operands = eqn.primitive.name, eqn.invars
    own = lambda v: n if v.aval.size > 1 else 0
    if name in SAME:
        return entry(operands[0], n)
    if name in MOVES:
        ends = np.cumsum([v.aval.size for v in operands])
        number = int(_moved(eqn, ends)[n])
        which = int(np.searchsorted(ends, number, side="right"))
        return entry(operands[which], number - int(ends[which - 1] if which else 0))
    if name == "dot_general":
        return _product(eqn, n, entry)
    if name in OVER:
        shape, axes = operands[0].aval.shape, eqn.params["axes"]
        at = np.moveaxis(np.arange(math.prod(shape)).reshape(shape), axes, range(len(axes)))
        column = at.reshape(-1, eqn.outvars[0].aval.size)[:, n]
        join = {"reduce_sum": jnp.add, "reduce_max": jnp.maximum, "reduce_min": jnp.minimum}[name]
        return functools.reduce(join, (entry(operands[0], int(m)) for m in column))
    values = [entry(v, own(v)) for v in operands]
    if name == "custom_jvp_call":
        return jax.nn.relu(*values)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in values))
    return bind(eqn, [jnp.broadcast_to(x, shape) for x in values])[0]


def _moved(eqn, ends: np.ndarray) -> np.ndarray:
    """The numbers of the entries of all operands, as the equation moves them."""
    numbers = [
        np.arange(end - v.aval.size, end, dtype=np.int32).reshape(v.aval.shape)
        for end, v in zip(ends, eqn.invars, strict=True)
    ]
    with jax.ensure_compile_time_eval():
        return np.asarray(bind(eqn, numbers)[0]).ravel()


def _product(eqn, n: int, entry: Callable[[Any, int], Any]) -> Any:
    """Entry n of a product: the sum over what the operands share."""
    rows = []
    for v, axes in zip(eqn.invars, eqn.params["dimension_numbers"][0], strict=True):
        at = np.arange(v.aval.size).reshape(v.aval.shape)
        at = np.moveaxis(at, axes, range(len(axes)))
        rows.append(at.reshape(math.prod(at.shape[: len(axes)]), -1))
    left, right = divmod(n, rows[1].shape[1])
    pairs = zip(rows[0][:, left], rows[1][:, right], strict=True)
    a, b = eqn.invars
    return functools.reduce(jnp.add, (entry(a, int(m)) * entry(b, int(o)) for m, o in pairs))


def reading(bias: TracedBias) -> Reading:
    """How the bias is read. NotImplementedError: it reads too much, or heads read differently."""
    heads, operations = bias.closed.jaxpr.outvars[0].aval.size, ()
    found: list[dict[Any, None]] = []
    for head in range(heads):
        found.append({})

        def read(v, n: int, seen=found[-1]):
            seen[v, n] = None
            return jnp.zeros((), v.aval.dtype)

        one = jax.make_jaxpr(lambda head=head, read=read: block(bias, read, head))()
        names = (eqn.primitive.name for eqn in one.eqns)
        operations = tuple(name for name in names if name != "broadcast_in_dim")
    kinds = [[v for v, _ in seen] for seen in found]
    if any(kind != kinds[0] for kind in kinds):
        raise NotImplementedError("other equations in each head")
    if len(kinds[0]) > MOST:
        raise NotImplementedError(f"{len(kinds[0])} numbers for a head, more than {MOST}")
    places: dict[Any, Place] = {}
    sources: dict[str, dict[Any, list]] = {"whole": {}, "q": {}}
    for (v, n), *others in zip(*found, strict=True):
        at_H = np.array([n, *(m for _, m in others)])
        if v in bias.read.k:
            places[v, n] = Place("k", bias.read.k.index(v), n)
            continue
        side = "q" if v in bias.read.q else "whole"
        of_dtype = sources[side].setdefault(v.aval.dtype, [])
        places[v, n] = Place(side, [*sources[side]].index(v.aval.dtype), len(of_dtype))
        of_dtype.append((v, at_H[:1] if (at_H == n).all() else at_H))
    of_side = {side: [*arrays.values()] for side, arrays in sources.items()}
    return Reading(bias, places, of_side, operations)


def gather(how: Reading, params: Params, q: Placed, k: Placed) -> Numbers:
    """The numbers that are read. They have gradients by the parameters, none by positions."""
    q, k = jax.lax.stop_gradient((q, k))
    first_q, first_k = jax.tree.map(lambda x: x[0, 0], (q, k))
    flat = lambda x: jnp.asarray(x).ravel()

    def of(env, side: str) -> list[jax.Array]:  # [N, H|1] each
        heads = [max(len(at_H) for _, at_H in array) for array in how.sources[side]]
        return [
            jnp.stack([jnp.broadcast_to(flat(env[v])[at_H], (size,)) for v, at_H in array])
            for array, size in zip(how.sources[side], heads, strict=True)
        ]

    env = before(how.bias, params, first_q, first_k)
    of_query = lambda q: of(before(how.bias, params, q, first_k), "q")
    q_BQNH = jax.vmap(jax.vmap(of_query))(q) if how.sources["q"] else []
    last = lambda x: jnp.swapaxes(x.reshape(*x.shape[:2], -1), 1, 2)
    return Numbers(
        [x.T for x in of(env, "whole")],
        [x.transpose(0, 3, 2, 1) for x in q_BQNH],
        [last(x) for x in jax.tree.leaves(k)],
    )


def of_pair(how: Reading, whole: Sequence, q: Sequence, k: Sequence) -> Any:
    """The bias of a pair of blocks, of numbers as blocks [Q|1, 1] and [1, K] in lists of lists."""
    sides = {"whole": whole, "q": q, "k": k}

    def read(v, n: int):
        place = how.places[v, n]
        return sides[place.side][place.array][place.entry]

    return block(how.bias, read)
