"""What a positional encoding is, and how encodings combine.

An `Encoding` is a bundle of pure functions, as an optax optimizer is; a hook that is None costs
nothing. `chain`, `per_layer` and `each_layer` return the same type, so combinations combine.

Letters in names: B batch, T time, Q query time, K key time, H heads, C head width, D model width.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax.core import Tracer

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
    """

    score: Score
    prepare: Prepare | None = None
    start: Start | None = None
    weighs: bool = False
    summed: bool = False
    corrects: bool = False


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


def only_places(encoding: Encoding) -> bool:
    """Whether the encoding does nothing but change the positions that others read."""
    return encoding.place is not None and not _hooks([encoding])


def place(encoding: Encoding, key: jax.Array | None, layout: Layout) -> Placed:
    """`encoding.place(key, layout)`, or the layout's positions if `place` is None."""
    return layout.pos_BT if encoding.place is None else encoding.place(key, layout)


def at_layer(encoding: Encoding, layer: int | jax.Array, params: Params, *placed: Placed) -> tuple:
    """(encoding, params, *placed) as layer number `layer` uses them."""
    if encoding.at is None:
        return encoding, params, *placed
    return encoding.at(layer, params, *placed)


def pick_layer(params: Sequence[Params], layer: int | jax.Array) -> Params:
    """One layer's parameters out of those of all layers, which have the same shapes."""
    if not isinstance(layer, Tracer):
        return params[int(layer)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves)[layer], *params)


def chain(*parts: Encoding) -> Encoding:
    """All parts together: embeddings, rotations and content scores in order, biases summed.

    A part that only places (`randomized`, `clamped`, `interpolated`) moves the positions for every
    part to its right. Parameters are a tuple with one entry for each part, and so are positions if
    a part places or locates.

    Raises:
      ValueError: no parts, or a part that makes attention weights before one that changes logits.
    """
    if not parts:
        raise ValueError("chain: no parts given; a chain takes one encoding or more")
    return _chain(parts, any(part.place is not None or part.locate is not None for part in parts))


def _chain(parts: Sequence[Encoding], places: bool) -> Encoding:
    """`places`: positions come as a tuple, one entry for each part."""
    has = _hooks(parts)

    def init(key, dims):
        keys = jax.random.split(key, len(parts))
        return tuple(part.init(k, dims) for part, k in zip(parts, keys, strict=True))

    def place_all(key, layout):
        placed = []
        for i, part in enumerate(parts):
            part_key = None if key is None else jax.random.fold_in(key, i)
            placed.append(place(part, part_key, layout))
            if only_places(part):
                layout = layout.replace(pos_BT=placed[-1])
        return tuple(placed) if has else layout.pos_BT

    def rows(params, *placed):
        """(part, its parameters, its positions) of each part."""
        columns = (each if places else (each,) * len(parts) for each in placed)
        return zip(parts, params, *columns, strict=True)

    def embed(params, x_BTD, placed):
        for part, p, at in rows(params, placed):
            x_BTD = x_BTD if part.embed is None else part.embed(p, x_BTD, at)
        return x_BTD

    def table(params, placed, dims):
        return tuple(part.table and part.table(p, at, dims) for part, p, at in rows(params, placed))

    def rotate(tables, x_BTHC, side):
        turning = list(zip(parts, tables, strict=True))
        for part, t in turning[::-1] if side == "o" else turning:
            if part.rotate is not None and (side in ("q", "k") or part.turns_values):
                x_BTHC = part.rotate(t, x_BTHC, side)
        return x_BTHC

    def locate(params, x_BTD, placed):
        every = rows(params, placed)
        return tuple(part.locate(p, x_BTD, at) if part.locate else at for part, p, at in every)

    def temper(params, count, placed, dims):
        every = rows(params, placed)
        made = [part.temper(p, count, at, dims) for part, p, at in every if part.temper]
        return functools.reduce(jnp.multiply, made)

    def bias(params, q_placed, k_placed, dims):
        every = rows(params, q_placed, k_placed)
        made = [part.bias(p, q, k, dims) for part, p, q, k in every if part.bias]
        return functools.reduce(jnp.add, made)

    of_layer = functools.cache(lambda narrowed: _chain(narrowed, places))

    def at(layer, params, *placed):
        narrowed, params, *placed = zip(
            *(at_layer(part, layer, *row) for part, *row in rows(params, *placed)), strict=True
        )
        placed = placed if places else (each[0] for each in placed)
        return of_layer(narrowed), params, *placed

    return Encoding(
        init=init,
        place=place_all if places else None,
        embed=embed if "embed" in has else None,
        table=table if "rotate" in has else None,
        rotate=rotate if "rotate" in has else None,
        locate=locate if "locate" in has else None,
        temper=temper if "temper" in has else None,
        turns_values=any(part.turns_values for part in parts),
        bias=bias if "bias" in has else None,
        walk=_chain_walk([part.walk for part in parts], places) if "walk" in has else None,
        at=at if "at" in has else None,
        relative=all(part.relative for part in parts if part.bias is not None),
    )


def each_layer(encoding: Encoding) -> Encoding:
    """The encoding with parameters of its own in every layer, `dims.layers` in all."""

    def init(key, dims):
        return tuple(encoding.init(k, dims) for k in jax.random.split(key, dims.layers))

    def at(layer, params, *placed):
        return at_layer(encoding, layer, pick_layer(params, layer), *placed)

    return _by_layer("each_layer", [encoding], init, encoding.place, at)


def per_layer(parts: Sequence[Encoding]) -> Encoding:
    """Layer n uses parts[n % len(parts)].

    The same object given twice is one encoding with one set of parameters; two objects have two.

    Raises:
      ValueError: no parts, or a part that acts at the input; later, a traced layer number where
        layers use different encodings.
    """
    members: list[Encoding] = []
    for part in parts:
        if not any(part is member for member in members):
            members.append(part)
    slots = [next(i for i, m in enumerate(members) if m is part) for part in parts]
    if not slots:
        raise ValueError("per_layer: no parts given; it takes one encoding or more")
    places = any(member.place is not None for member in members)

    def init(key, dims):
        keys = jax.random.split(key, len(members))
        return tuple(member.init(k, dims) for member, k in zip(members, keys, strict=True))

    def place_all(key, layout):
        keys = [None if key is None else jax.random.fold_in(key, i) for i in range(len(members))]
        rows = zip(members, keys, strict=True)
        return tuple(place(member, k, layout) for member, k in rows)

    def at(layer, params, *placed):
        if isinstance(layer, Tracer) and len(members) > 1:
            raise ValueError(
                "per_layer: the layer is traced, and layers use different encodings; loop over "
                "them in Python"
            )
        slot = 0 if len(members) == 1 else slots[int(layer) % len(slots)]
        placed = (each[slot] for each in placed) if places else placed
        return at_layer(members[slot], layer, params[slot], *placed)

    return _by_layer("per_layer", members, init, place_all if places else None, at)


def _by_layer(name, members, init, place_all, at) -> Encoding:
    """An encoding of which `at_layer` gives each layer's hooks."""
    has = _hooks(members)
    if "embed" in has:
        raise ValueError(f"{name}: an encoding at the input has no layer; chain it instead")

    walks = [member.walk for member in members if member.walk is not None]

    def ask(*_args):
        raise ValueError(f"{name}: hooks differ by layer; take a layer's own with at_layer")

    return Encoding(
        init=init,
        place=place_all,
        table=ask if "rotate" in has else None,
        rotate=ask if "rotate" in has else None,
        bias=ask if "bias" in has else None,
        locate=ask if "locate" in has else None,
        temper=ask if "temper" in has else None,
        turns_values=any(m.turns_values for m in members),
        walk=_combined(walks)._replace(score=ask) if walks else None,
        at=at,
        relative=all(m.relative for m in members if m.bias is not None),
    )


def _hooks(parts: Sequence[Encoding]) -> set[str]:
    names = ("embed", "locate", "rotate", "temper", "bias", "walk", "at")
    return {name for name in names if any(getattr(part, name) is not None for part in parts)}


def _chain_walk(walks: Sequence[Walk | None], places: bool) -> Walk:
    *earlier, last = [w for w in walks if w is not None]
    if any(w.weighs for w in earlier):
        raise ValueError(
            "chain: a part that makes the attention weights stands before one that changes their "
            "logits; put it last"
        )

    def sides(side: Side) -> list[Side]:
        placed = side.placed if places else [side.placed] * len(walks)
        feats = [None] * len(walks) if side.feat is None else side.feat
        rows = zip(placed, feats, strict=True)
        return [side._replace(placed=placed, feat=feat) for placed, feat in rows]

    def prepare(params, x_BTD):
        rows = zip(walks, params, strict=True)
        return tuple(w.prepare(p, x_BTD) if w and w.prepare else None for w, p in rows)

    def start(params, q):
        rows = zip(walks, params, sides(q), strict=True)
        return tuple(w.start(p, side) if w and w.start else None for w, p, side in rows)

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        carries = []
        for w, p, q_i, k_i, c in zip(walks, params, sides(q), sides(k), carry, strict=True):
            if w is not None:
                s_BHQK, c = w.score(p, s_BHQK, q_i, k_i, visible_BHQK, c)
            carries.append(c)
        return s_BHQK, tuple(carries)

    prepares = any(w is not None and w.prepare is not None for w in walks)
    made = _combined([*earlier, last])._replace(score=score, start=start)
    return made._replace(prepare=prepare if prepares else None)


def _combined(walks: Sequence[Walk]) -> Walk:
    """What is true of several walks in one."""
    return Walk(
        score=walks[-1].score,
        weighs=walks[-1].weighs,
        summed=all(w.summed for w in walks),
        corrects=any(w.corrects for w in walks),
    )
