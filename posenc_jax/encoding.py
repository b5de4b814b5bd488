"""What a positional encoding is: its hooks.

An `Encoding` is a bundle of pure functions, as an optax optimizer is; a hook that is None costs
nothing. `combinators` has `chain`, `per_layer` and `each_layer`, which return the same type.

Letters in names: B batch, T time, Q query time, K key time, H heads, C head width, D model width.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import jax

from posenc_jax.layout import Layout

Params = Any  # a pytree of arrays; {} where nothing is learned
Placed = Any  # the positions a method reads: [B, T] or [B, T, A], or a pytree of [B, T, ...]
Table = Any  # a pytree of [B, T, H|1, ...], made once for a forward pass


class Dims(NamedTuple):
    """Sizes of a model: its width, the number of heads, the width of a head, and its layers."""

    model: int
    heads: int
    head: int
    layers: int = 1


class Side(NamedTuple):
    """Queries or keys as a `Walk` reads them.

    x_BTHC:   vectors, not rotated.
    placed:   positions.
    feat:     content features, from `Walk.prepare`.
    index_BT: order in storage, which tells tokens apart whose positions are equal.
    """

    x_BTHC: jax.Array
    placed: Placed
    feat: Any = None
    index_BT: jax.Array | None = None


class Extent(NamedTuple):
    """The lowest and highest position of a row's tokens, rounded down, among what `place` makes.

    In cross-attention a frame makes it that of both sides' tokens, so that both have one middle.
    """

    low_BT: jax.Array
    high_BT: jax.Array


class Init(Protocol):
    """Draws the parameters: a pytree of arrays alone. ValueError: sizes that do not fit."""

    def __call__(self, key: jax.Array, dims: Dims, /) -> Params: ...


class Place(Protocol):
    """Makes the positions that the other hooks read, in place of the layout's.

    The key is given in training, for methods that draw positions, and is None in evaluation.
    """

    def __call__(self, key: jax.Array | None, layout: Layout, /) -> Placed: ...


class Embed(Protocol):
    """Adds positions to the embeddings [B, T, D] at the model's input; same shape and dtype."""

    def __call__(self, params: Params, x_BTD: jax.Array, placed: Placed, /) -> jax.Array: ...


class Locate(Protocol):
    """Gives the positions that a layer reads, made of its input x [B, T, D] and those placed.

    Each token's are made of that token alone, since keys are kept with theirs for decoding.
    """

    def __call__(self, params: Params, x_BTD: jax.Array, placed: Placed, /) -> Placed: ...


class MakeTable(Protocol):
    """Makes the table that `rotate` reads, float32 or wider."""

    def __call__(self, params: Params, placed: Placed, dims: Dims, /) -> Table: ...


class Rotate(Protocol):
    """Maps queries (side "q") or keys (side "k") [B, T, H, C] to [B, T, H, C']; same dtype.

    Where an encoding turns values, also these ("v") and, by the queries' table, the output ("o").
    """

    def __call__(
        self, table: Table, x_BTHC: jax.Array, side: Literal["q", "k", "v", "o"], /
    ) -> jax.Array: ...


class Temper(Protocol):
    """Gives a factor of each query's products with keys, [B|1, Q, H|1], float32 or wider.

    count: makes the numbers of keys that queries see, float [B|1, Q], maybe 0.
    """

    def __call__(
        self, params: Params, count: Callable[[], jax.Array], q_placed: Placed, dims: Dims, /
    ) -> jax.Array: ...


class Bias(Protocol):
    """Gives what is added to the scaled logits: [B|1, H|1, Q, K], float32 or wider."""

    def __call__(
        self, params: Params, q_placed: Placed, k_placed: Placed, dims: Dims, /
    ) -> jax.Array: ...


class AtLayer(Protocol):
    """Gives (encoding, params, *placed) of one layer.

    It returns the same encoding each time it is asked for the same layer, so that nothing is
    compiled again. The layer may be traced where layers differ in their parameters alone.
    """

    def __call__(self, layer: int | jax.Array, params: Params, /, *placed: Placed) -> tuple: ...


class Prepare(Protocol):
    """Makes a token's features besides q and k, a pytree of [B, T, ...], from x [B, T, D]."""

    def __call__(self, params: Params, x_BTD: jax.Array, /) -> Any: ...


class Start(Protocol):
    """Makes the carry of queries that have met no key, a pytree of [B, H, Q, ...]."""

    def __call__(self, params: Params, q: Side, /) -> Any: ...


class Score(Protocol):
    """Changes the logits of a block of keys, [B, H, Q, K], and hands the carry on."""

    def __call__(
        self,
        params: Params,
        s_BHQK: jax.Array,
        q: Side,
        k: Side,
        visible_BHQK: jax.Array,
        carry: Any,
        /,
    ) -> tuple[jax.Array, Any]: ...


class Walk(NamedTuple):
    """Scores that depend on content, made block by block from the latest keys to the earliest.

    weighs: the scores are logarithms of weights, at most 0, which attention uses as they are;
      otherwise a softmax makes weights of them.
    summed: all that the score does is to add the features, a pytree of [B, T, H], of the later keys
      that the query sees. Where attention is causal it is a difference of two sums over storage.
    corrects: the score turns the product of q and k into another one, made of the same vectors.
    whole:   the score reads other keys' logits too, so it takes all keys at once: the dense form.
    """

    score: Score
    prepare: Prepare | None = None
    start: Start | None = None
    weighs: bool = False
    summed: bool = False
    corrects: bool = False
    whole: bool = False


class Encoding(NamedTuple):
    """A positional encoding: pure functions of explicit positions. Each hook's type documents it.

    walk:     see `Walk`; it comes after the bias.
    at:       gives one layer's encoding; None: all layers use the same.
    turns_values: `rotate` also turns values, and the output back.
    relative: `bias` depends on q_placed - k_placed alone, so a block of it can be made from one
      row of offsets.
    """

    init: Init = lambda key, dims: {}
    place: Place | None = None
    embed: Embed | None = None
    locate: Locate | None = None
    table: MakeTable | None = None
    rotate: Rotate | None = None
    temper: Temper | None = None
    bias: Bias | None = None
    walk: Walk | None = None
    at: AtLayer | None = None
    turns_values: bool = False
    relative: bool = False


def place(encoding: Encoding, key: jax.Array | None, layout: Layout) -> Placed:
    """`encoding.place(key, layout)`, or the layout's positions if `place` is None."""
    return layout.pos_BT if encoding.place is None else encoding.place(key, layout)


def at_layer(encoding: Encoding, layer: int | jax.Array, params: Params, *placed: Placed) -> tuple:
    """(encoding, params, *placed) as layer number `layer` uses them."""
    if encoding.at is None:
        return encoding, params, *placed
    return encoding.at(layer, params, *placed)
