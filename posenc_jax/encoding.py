"""What a positional encoding is: its hooks, the call that made it, and calls of the hooks.

The functions `place` to `at_layer` call a hook, if there is one, and check what it returns.

An `Encoding` is a bundle of pure functions, as an optax optimizer is; a hook that is None costs
nothing. `combinators` has `chain`, `per_layer` and `each_layer`, which return the same type.

Letters in names: B batch, T time, Q query time, K key time, H heads, C head width, D model width.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax

from posenc_jax.hook_checks import FLOATS, checked_result
from posenc_jax.layout import Layout
from posenc_jax.options import Count, checked_all
from posenc_jax.recipes import Recipe, call

Params = Any  # a pytree of arrays; {} where nothing is learned
Placed = Any  # the positions a method reads: [B, T] or [B, T, A], or a pytree of [B, T, ...]
Table = Any  # a pytree of [B, T, H|1, ...], made once for a forward pass


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Dims:
    """Sizes of a model, static under `jit`. One that is not a whole number of 1 or more raises a
    `FieldError`.

    model:  width of the embeddings.
    heads:  number of query heads.
    head:   channels of a head.
    layers: number of layers.
    """

    model: Count
    heads: Count
    head: Count
    layers: Count = 1

    def __post_init__(self):
        vars(self).update(checked_all("dims", Dims, **vars(self)))


Bias = Callable[[Params, Placed, Placed, Dims], jax.Array]  # see `Encoding`


class Side(NamedTuple):
    """Queries or keys as a `Walk` reads them.

    x_BTHC:   vectors, not rotated.
    placed:   positions.
    feat:     content features, from `Walk.prepare`.
    token_BT: number of the token, the same for a query and a key that are one token.
    scale:    what products of queries and keys are multiplied with; None: C**-0.5.
    masked:   whether `visible_BHQK` has a mask of the user's own, so that it may be any.
    """

    x_BTHC: jax.Array
    placed: Placed
    feat: Any = None
    token_BT: jax.Array | None = None
    scale: float | jax.Array | None = None
    masked: bool = False

    @property
    def factor(self) -> float | jax.Array:
        """What products of queries and keys are multiplied with."""
        return self.x_BTHC.shape[-1] ** -0.5 if self.scale is None else self.scale


class Extent(NamedTuple):
    """The lowest and highest position of a row's tokens, rounded down, among what `place` makes.

    In cross-attention a frame makes it that of both sides' tokens, so that both have one middle.
    """

    low_BT: jax.Array
    high_BT: jax.Array


class InPeriod(NamedTuple):
    """A layer number, period * n + place, of which n is traced and the other two are known.

    A method whose layers repeat after `period` layers can tell what such a layer uses.
    """

    n: jax.Array
    period: int
    place: int

    @property
    def number(self) -> jax.Array:
        """The number of the layer."""
        return self.period * self.n + self.place


class Walk(NamedTuple):
    """Scores that depend on content, made block by block from the latest keys to the earliest.

    score:   (params, s_BHQK, q, k, visible_BHQK, carry) -> the changed logits of a block of keys,
      and the carry handed on. q and k are `Side`s; visible_BHQK is [B, H|1, Q, K].
    prepare: (params, x_BTD) -> a token's features besides q and k, a pytree of [B, T, ...].
    start:   (params, q) -> the carry of queries that have met no key, a pytree of [B, H, Q, ...].
    weighs:  the scores are logarithms of weights, at most 0, which attention uses as they are;
      otherwise a softmax makes weights of them.
    summed:  all that the score does is to add the features, a pytree of [B, T, H], of the later
      keys that the query sees. Where attention is causal it is a difference of two sums.
    corrects: the score turns the product of q and k into another one, made of the same vectors.
    whole:   the score reads other keys' logits too, so it takes all keys at once: the dense form.
    """

    score: Callable[[Params, jax.Array, Side, Side, jax.Array, Any], tuple[jax.Array, Any]]
    prepare: Callable[[Params, jax.Array], Any] | None = None
    start: Callable[[Params, Side], Any] | None = None
    weighs: bool = False
    summed: bool = False
    corrects: bool = False
    whole: bool = False


def no_params(key: jax.Array, dims: Dims) -> Params:
    """`Encoding.init` of encodings without parameters."""
    return {}


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Encoding:
    """A positional encoding: pure functions of explicit positions. A value, static under `jit`.

    One that `posenc_jax.make`, a combinator or `from_huggingface` makes shows its options as text,
    is equal to another made with the same ones, and pickles. One made of hooks is equal to another
    that has the same functions.

    init:   (key, dims) -> the parameters, a pytree of arrays alone. ValueError: sizes that do not
      fit.
    place:  (key, layout) -> the positions that the other hooks read, in place of the layout's. The
      key is given in training, for methods that draw positions, and is None in evaluation.
    embed:  (params, x_BTD, placed) -> the embeddings at the model's input with positions added;
      same shape and dtype.
    locate: (params, x_BTD, placed) -> the positions that a layer reads, made of its input. Each
      token's are made of that token alone, since keys are kept with theirs for decoding.
    table:  (params, placed, dims) -> what `rotate` reads, float32 or wider.
    rotate: (table, x_BTHC, side) -> queries (side "q") or keys ("k") as [B, T, H, C']; same dtype.
      Where `turns_values`, also values ("v") and, by the queries' table, the output ("o").
    temper: (params, count, q_placed, dims) -> a factor of each query's products with keys,
      [B|1, Q, H|1], float32 or wider. count() is how many keys each query sees, float [B|1, Q],
      maybe 0.
    bias:   (params, q_placed, k_placed, dims) -> what is added to the scaled logits,
      [B|1, H|1, Q, K], float32 or wider.
    walk:   scores that depend on content; they come after the bias.
    at:     (layer, params, *placed) -> (encoding, params, *placed) of one layer; None: all layers
      use the same. It returns equal encodings each time it is asked for the same layer, so that
      nothing is compiled again. The layer may be traced where layers differ in parameters alone,
      and an `InPeriod` where layers repeat.
    of_heads: (params, dims, start, total) -> the parameters for a device that has the heads
      start .. start + dims.heads - 1 of the model's `total` (see `frame`); the start may be traced.
      None: no hook reads a head's number. `posenc_jax.heads` has `tell_heads` and `by_head`.
    turns_values: `rotate` also turns values, and the output back.
    relative: `bias` depends on q_placed - k_placed alone, so a block of it can be made from one
      row of offsets.
    both_sides: `embed` makes a token's embedding of tokens on both sides of it, so in causal
      attention it shows a token what comes after it. A frame then asks for `causal`.
    """

    init: Callable[[jax.Array, Dims], Params] = no_params
    place: Callable[[jax.Array | None, Layout], Placed] | None = None
    embed: Callable[[Params, jax.Array, Placed], jax.Array] | None = None
    locate: Callable[[Params, jax.Array, Placed], Placed] | None = None
    table: Callable[[Params, Placed, Dims], Table] | None = None
    rotate: Callable[[Table, jax.Array, Literal["q", "k", "v", "o"]], jax.Array] | None = None
    temper: Callable[[Params, Callable[[], jax.Array], Placed, Dims], jax.Array] | None = None
    bias: Bias | None = None
    walk: Walk | None = None
    at: Callable[..., tuple] | None = None
    of_heads: Callable[[Params, Dims, Any, int], Params] | None = None
    turns_values: bool = False
    relative: bool = False
    both_sides: bool = False
    # Not an argument, so that `dataclasses.replace` drops it: other hooks are another encoding.
    recipe: Recipe | None = dataclasses.field(default=None, init=False)

    @property
    def name(self) -> str:
        """The name of the function that made it, "rope" or "chain"; "Encoding": made of hooks."""
        return self.recipe.function.__name__ if self.recipe else type(self).__name__

    @property
    def options(self) -> Mapping[str, Any]:
        """The arguments of the function that made it, by name; none if it was made of hooks."""
        return dict(self.recipe.arguments) if self.recipe else {}

    def _replace(self, **hooks: Any) -> "Encoding":
        """The encoding with other hooks, as of a named tuple."""
        return dataclasses.replace(self, **hooks)

    @property
    def _hooks(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}

    @functools.cached_property
    def _compared(self) -> Any:
        return self.recipe or tuple(self._hooks.values())

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._compared)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        return self is other or self._compared == other._compared

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.recipe:
            return repr(self.recipe)
        changed = {n: hook for n, hook in self._hooks.items() if hook != getattr(Encoding, n)}
        texts = (f"{n}={getattr(hook, '__qualname__', hook)}" for n, hook in changed.items())
        return f"Encoding({', '.join(texts)})"

    def __reduce__(self):
        if self.recipe:
            return call, (self.recipe,)
        return Encoding, tuple(self._hooks.values())


def place(encoding: Encoding, key: jax.Array | None, layout: Layout) -> Placed:
    """`encoding.place(key, layout)`, or the layout's positions if `place` is None."""
    if encoding.place is None:
        return layout.pos_BT
    rows, time = layout.index_BT.shape
    placed = encoding.place(key, layout)
    return checked_result("place", encoding.place, placed, "[B|1, T, ...]", ((rows, 1), time))


def embed(encoding: Encoding, params: Params, x_BTD: jax.Array, placed: Placed) -> jax.Array:
    """The embeddings with positions added; x_BTD if `embed` is None."""
    if encoding.embed is None:
        return x_BTD
    y_BTD = encoding.embed(params, x_BTD, placed)
    return checked_result("embed", encoding.embed, y_BTD, "[B, T, D]", x_BTD.shape, x_BTD.dtype)


def locate(encoding: Encoding, params: Params, x_BTD: jax.Array, placed: Placed) -> Placed:
    """The positions that a layer reads, made of its input; `placed` if `locate` is None."""
    if encoding.locate is None:
        return placed
    rows, time = x_BTD.shape[:2]
    placed = encoding.locate(params, x_BTD, placed)
    return checked_result("locate", encoding.locate, placed, "[B|1, T, ...]", ((rows, 1), time))


def table(encoding: Encoding, params: Params, placed: Placed, dims: Dims) -> Table:
    """What `rotate` reads; None if `table` is."""
    if encoding.table is None:
        return None
    table = encoding.table(params, placed, dims)
    return checked_result("table", encoding.table, table, "[...]", ())


def rotate(
    encoding: Encoding, table: Table, x_BTHC: jax.Array, side: Literal["q", "k", "v", "o"]
) -> jax.Array:
    """Queries, keys, values or the output, rotated; x_BTHC if `rotate` is None."""
    if encoding.rotate is None:
        return x_BTHC
    *rest, width = x_BTHC.shape
    letters, sizes = "[B, T, H, C]", (*rest, width)
    if side in ("q", "k"):
        letters, sizes = "[B, T, H, C']", (*rest, None)
    y_BTHC = encoding.rotate(table, x_BTHC, side)
    return checked_result("rotate", encoding.rotate, y_BTHC, letters, sizes, x_BTHC.dtype)


def temper(
    encoding: Encoding, params: Params, count: Callable[[], jax.Array], q_placed: Placed, dims: Dims
) -> jax.Array:
    """The factor of each query's products with keys, of an encoding that has one."""
    assert encoding.temper is not None
    factor_BQH = encoding.temper(params, count, q_placed, dims)
    sizes = None, (_time(q_placed), 1), (dims.heads, 1)
    return checked_result("temper", encoding.temper, factor_BQH, "[B|1, Q|1, H|1]", sizes, FLOATS)


def bias(
    encoding: Encoding, params: Params, q_placed: Placed, k_placed: Placed, dims: Dims
) -> jax.Array:
    """What is added to the scaled logits, of an encoding that has a bias."""
    assert encoding.bias is not None
    bias_BHQK = encoding.bias(params, q_placed, k_placed, dims)
    sizes = None, (dims.heads, 1), _time(q_placed), _time(k_placed)
    return checked_result("bias", encoding.bias, bias_BHQK, "[B|1, H|1, Q, K]", sizes, FLOATS)


def _time(placed: Placed) -> int | None:
    """Number of tokens at these positions; None if there are no positions."""
    leaves = jax.tree.leaves(placed)
    return leaves[0].shape[1] if leaves else None


def at_layer(
    encoding: Encoding, layer: int | jax.Array | InPeriod, params: Params, *placed: Placed
) -> tuple:
    """(encoding, params, *placed) as layer number `layer` uses them.

    FieldError: no encoding, such as a method's name.
    """
    if not isinstance(encoding, Encoding):
        checked_all("at_layer", at_layer, encoding=encoding)
    if encoding.at is None:
        return encoding, params, *placed
    return encoding.at(layer, params, *placed)
