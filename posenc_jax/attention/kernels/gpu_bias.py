"""Compiles a traced bias for a GPU: one head's bias of a pair of blocks, number by number.

Each entry of an array of the bias function becomes a block, [Q, K] or what broadcasts to it. To
move entries then costs nothing, and an entry that a head does not need is never computed. Heads
differ in which numbers they read, not in what is done with them. `traced_bias` has the equations.
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

from posenc_jax.attention.kernels.traced_bias import (
    IDENTITIES,
    MOVES,
    REDUCTIONS,
    TracedBias,
    bind,
    moved_entries,
    outside_values,
    reduced_entries,
)
from posenc_jax.encoding import Params, Placed

MOST = 256  # numbers that a head may read
LIGHT = 16  # operations for a pair of tokens, up to which a bias is light
# Functions that a GPU computes in several instructions.
SLOW = {
    *("cos", "div", "erf", "exp", "exp2", "log", "log1p", "logistic", "pow", "rem", "rsqrt"),
    *("sin", "sqrt", "tanh"),
}


class Numbers(NamedTuple):
    """What the kernels read of a bias, each a list of arrays, one for each dtype or leaf.

    whole: made of parameters, one array for each dtype, [H|1, N].
    q:     made of parameters and a query, one for each dtype, [B|1, H|1, N, Q].
    k:     positions of keys, one for each leaf of them, [B|1, N, K].
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


def head_bias(bias: TracedBias, read: Callable[[Any, int], Any], head: int = 0) -> Any:
    """The bias of a head for a pair of blocks; read(v, n): entry n of a variable made outside."""
    made_by = {v: (eqn, n) for eqn in bias.inside for n, v in enumerate(eqn.outvars)}

    @functools.cache
    def computed(v, n: int):
        return read(v, n) if v not in made_by else _entry(*made_by[v], n, entry)

    def entry(v, n: int):
        return v.val if isinstance(v, Literal) else computed(v, n)

    return entry(bias.result, head if bias.result.aval.size > 1 else 0)


def _entry(eqn, result: int, n: int, entry: Callable[[Any, int], Any]) -> Any:
    """Entry n of a result of an equation, its number `result`; entry(v, m): that of an operand."""
    name, operands = eqn.primitive.name, eqn.invars
    if name in IDENTITIES:
        return entry(operands[result], n)
    if name in MOVES:
        ends = np.cumsum([v.aval.size for v in operands])
        number = int(moved_entries(eqn)[result][n])
        which = int(np.searchsorted(ends, number, side="right"))
        return entry(operands[which], number - int(ends[which - 1] if which else 0))
    if name == "dot_general":
        return _product(eqn, n, entry)
    if name in REDUCTIONS:
        column = reduced_entries(eqn)[:, n]
        _, join = REDUCTIONS[name]
        return functools.reduce(join, (entry(operands[0], int(m)) for m in column))
    values = [entry(v, n if v.aval.size > 1 else 0) for v in operands]
    if name == "custom_jvp_call":
        return jax.nn.relu(*values)
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in values))
    return bind(eqn, [jnp.broadcast_to(x, shape) for x in values])[result]


def _product(eqn, n: int, entry: Callable[[Any, int], Any]) -> Any:
    """Entry n of a product: the sum over the axes that the operands share."""
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
    heads, operations = bias.result.aval.size, ()
    reads_H: list[dict[Any, None]] = []  # of each head (variable, entry), in order
    for head in range(heads):
        reads_H.append({})

        def read(v, n: int, reads=reads_H[-1]):
            reads[v, n] = None
            return jnp.zeros((), v.aval.dtype)

        of_head = jax.make_jaxpr(lambda head=head, read=read: head_bias(bias, read, head))()
        names = (eqn.primitive.name for eqn in of_head.eqns)
        operations = tuple(name for name in names if name != "broadcast_in_dim")
    variables_H = [[v for v, _ in reads] for reads in reads_H]
    if any(variables != variables_H[0] for variables in variables_H):
        raise NotImplementedError("other equations in each head")
    if len(variables_H[0]) > MOST:
        raise NotImplementedError(f"{len(variables_H[0])} numbers for a head, more than {MOST}")
    places: dict[Any, Place] = {}
    sources: dict[str, dict[Any, list]] = {"whole": {}, "q": {}}
    for (v, n), *others in zip(*reads_H, strict=True):
        at_H = np.array([n, *(m for _, m in others)])
        if v in bias.reads.k:
            places[v, n] = Place("k", bias.reads.k.index(v), n)
            continue
        side = "q" if v in bias.reads.q else "whole"
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

    def of_side(values, side: str) -> list[jax.Array]:  # [N, H|1] each
        heads = [max(len(at_H) for _, at_H in array) for array in how.sources[side]]
        return [
            jnp.stack([jnp.broadcast_to(flat(values[v])[at_H], (size,)) for v, at_H in array])
            for array, size in zip(how.sources[side], heads, strict=True)
        ]

    values = outside_values(how.bias, params, first_q, first_k)
    of_query = lambda q: of_side(outside_values(how.bias, params, q, first_k), "q")
    q_BQNH = jax.vmap(jax.vmap(of_query))(q) if how.sources["q"] else []
    tokens_last = lambda x: jnp.swapaxes(x.reshape(*x.shape[:2], -1), 1, 2)
    return Numbers(
        [x.T for x in of_side(values, "whole")],
        [x.transpose(0, 3, 2, 1) for x in q_BQNH],
        [tokens_last(x) for x in jax.tree.leaves(k)],
    )


def bias_of_blocks(how: Reading, whole: Sequence, q: Sequence, k: Sequence) -> Any:
    """The bias of a pair of blocks, of numbers as blocks [Q|1, 1] and [1, K] in lists of lists."""
    sides = {"whole": whole, "q": q, "k": k}

    def read(v, n: int):
        place = how.places[v, n]
        return sides[place.side][place.array][place.entry]

    return head_bias(how.bias, read)
