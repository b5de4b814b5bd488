"""What a positional encoding is, and how encodings combine.

An `Encoding` is a bundle of pure functions, as an optax optimizer is; a hook that is None costs
nothing. `chain`, `per_layer` and `each_layer` return the same type, so combinations combine.

Letters in names: B batch, T time, Q query time, K key time, H heads, C head width, D model width.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax

from posenc_jax.layout import Layout

Params = Any  # a pytree of arrays; {} where nothing is learned
Placed = Any  # what a method is shown: positions [B, T] or [B, T, A], or a pytree of [B, T, ...]
Table = Any  # a pytree with leading axes [B, T], made once for a forward pass


class Dims(NamedTuple):
    """Widths that an `init` needs."""

    model: int
    heads: int
    head: int
    layers: int = 1


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Heads:
    """How many heads a method serves: kept among parameters without being an array, so never
    trained."""

    count: int


class Side(NamedTuple):
    """Queries or keys as a `Walk` sees them.

    x_BTHC:   vectors, not rotated.
    placed:   positions.
    feat:     content features, from `Walk.prepare`.
    index_BT: order in storage, which tells a token from every other where positions may not.
    """

    x_BTHC: jax.Array
    placed: Placed
    feat: Any = None
    index_BT: jax.Array | None = None


class Walk(NamedTuple):
    """Scores that depend on content, made block by block, the latest keys first.

    prepare: (params, x_BTD) -> feat, a pytree of [B, T, ...]: what a token adds besides q and k.
    start:   (params, q: Side) -> carry, a pytree of [B, H, Q, ...]: handed from block to block.
    score:   (params, s_BHQK, q: Side, k: Side, visible_BHQK, carry) -> (s_BHQK, carry).
    weighs:  whether the scores are logarithms of weights already, at most 0, which attention uses
             as they are; otherwise a softmax makes weights of them.
    """

    score: Callable[..., tuple[jax.Array, Any]]
    prepare: Callable[[Params, jax.Array], Any] | None = None
    start: Callable[[Params, Side], Any] | None = None
    weighs: bool = False


class Encoding(NamedTuple):
    """A positional encoding: pure functions of explicit positions.

    init:   (key, dims) -> params.
    place:  (key | None, layout) -> placed. What the other hooks are shown instead of the layout's
            positions. The key is given in training alone.
    embed:  (params, x_BTD, placed) -> x_BTD. At the model's input.
    table:  (params, placed, head) -> table. What `rotate` reads on heads of `head` channels; made
            once, float32 or better.
    rotate: (table, x_BTHC, side) -> x_BTHC'. On queries (side "q") and keys (side "k").
    bias:   (params, q_placed, k_placed) -> [B|1, H|1, Q, K] float32. Added to the scaled logits.
    walk:   see `Walk`. After the bias.
    at:     (layer, params, *placed) -> (Encoding, params, *placed). What one layer uses; None: all
            layers use the same.

    relative: `bias` depends on q_pos - k_pos alone, which lets a block be made from one window.
    limit:  positions must be below this; None: any position. Past it the output is NaN.
    shows:  for an encoding that only places: every position it shows is below this.
    """

    init: Callable[[jax.Array, Dims], Params] = lambda key, dims: {}
    place: Callable[..., Placed] | None = None
    embed: Callable[[Params, jax.Array, Placed], jax.Array] | None = None
    table: Callable[[Params, Placed, int], Table] | None = None
    rotate: Callable[[Table, jax.Array, Literal["q", "k"]], jax.Array] | None = None
    bias: Callable[[Params, Placed, Placed], jax.Array] | None = None
    walk: Walk | None = None
    at: Callable[..., tuple] | None = None
    relative: bool = False
    limit: int | None = None
    shows: int | None = None


def only_places(encoding: Encoding) -> bool:
    """Whether the encoding does nothing but change which positions others are shown."""
    hooks = (encoding.embed, encoding.rotate, encoding.bias, encoding.walk, encoding.at)
    return encoding.place is not None and not any(hooks)


def place(encoding: Encoding, key: jax.Array | None, layout: Layout) -> Placed:
    """The positions as the encoding wants to see them; the layout's where it has no wish."""
    return layout.pos_BT if encoding.place is None else encoding.place(key, layout)


def unmoved(placed: Placed, layout: Layout) -> bool:
    """Whether `place` left the positions alone: it then hands on the very array."""
    return all(leaf is layout.pos_BT for leaf in jax.tree.leaves(placed))


def at_layer(encoding: Encoding, layer: int, params: Params, *placed: Placed) -> tuple:
    """(encoding, params, *placed) as layer number `layer` uses them."""
    if encoding.at is None:
        return encoding, params, *placed
    return encoding.at(layer, params, *placed)


def chain(*parts: Encoding) -> Encoding:
    """All parts together: embeddings, rotations and content scores in order, biases summed.

    A part that only places (`randomized`, `clamped`, `interpolated`) moves the positions for every
    part to its right. Parameters, and what is placed, are tuples with one entry for each part.
    """
    if not parts:
        raise ValueError("chain: no parts given; a chain takes one encoding or more")
    has = _hooks(parts)

    def init(key, dims):
        keys = jax.random.split(key, len(parts))
        return tuple(part.init(k, dims) for part, k in zip(parts, keys, strict=True))

    def place_all(key, layout):
        shown = []
        for i, part in enumerate(parts):
            part_key = None if key is None else jax.random.fold_in(key, i)
            shown.append(place(part, part_key, layout))
            if only_places(part):
                layout = layout._replace(pos_BT=shown[-1])
        return tuple(shown) if has else layout.pos_BT

    def embed(params, x_BTD, placed):
        for part, p, seen in zip(parts, params, placed, strict=True):
            x_BTD = x_BTD if part.embed is None else part.embed(p, x_BTD, seen)
        return x_BTD

    def table(params, placed, head):
        rows = zip(parts, params, placed, strict=True)
        return tuple(part.table and part.table(p, seen, head) for part, p, seen in rows)

    def rotate(tables, x_BTHC, side):
        for part, t in zip(parts, tables, strict=True):
            x_BTHC = x_BTHC if part.rotate is None else part.rotate(t, x_BTHC, side)
        return x_BTHC

    def bias(params, q_placed, k_placed):
        rows = zip(parts, params, q_placed, k_placed, strict=True)
        first, *rest = [part.bias(p, q, k) for part, p, q, k in rows if part.bias is not None]
        return sum(rest, first)

    def at(layer, params, *placed):
        columns = zip(parts, params, *placed, strict=True)
        rows = [at_layer(part, layer, *row) for part, *row in columns]
        narrowed, *rest = zip(*rows, strict=True)
        return chain(*narrowed), *rest

    movers = [part for part in parts if only_places(part)]
    return Encoding(
        init=init,
        place=place_all,
        embed=embed if "embed" in has else None,
        table=table if "rotate" in has else None,
        rotate=rotate if "rotate" in has else None,
        bias=bias if "bias" in has else None,
        walk=_chain_walk([part.walk for part in parts]) if "walk" in has else None,
        at=at if "at" in has else None,
        relative=all(part.relative for part in parts if part.bias is not None),
        limit=_chain_limit(parts),
        shows=movers[-1].shows if movers and not has else None,
    )


def each_layer(encoding: Encoding) -> Encoding:
    """The encoding with parameters of its own in every layer, `dims.layers` in all."""

    def init(key, dims):
        return tuple(encoding.init(k, dims) for k in jax.random.split(key, dims.layers))

    def at(layer, params, *placed):
        return at_layer(encoding, layer, params[layer], *placed)

    return _by_layer("each_layer", [encoding], init, encoding.place, at)


def per_layer(parts: Sequence[Encoding]) -> Encoding:
    """A layout over layers: layer l uses parts[l % len(parts)].

    The same object given twice is one encoding with one set of parameters; two objects have two.
    """
    members: list[Encoding] = []
    for part in parts:
        if not any(part is member for member in members):
            members.append(part)
    slots = [next(i for i, m in enumerate(members) if m is part) for part in parts]
    if not slots:
        raise ValueError("per_layer: no parts given; a layout takes one encoding or more")

    def init(key, dims):
        keys = jax.random.split(key, len(members))
        return tuple(member.init(k, dims) for member, k in zip(members, keys, strict=True))

    def place_all(key, layout):
        keys = [None if key is None else jax.random.fold_in(key, i) for i in range(len(members))]
        rows = zip(members, keys, strict=True)
        return tuple(place(member, k, layout) for member, k in rows)

    def at(layer, params, *placed):
        slot = slots[layer % len(slots)]
        return at_layer(members[slot], layer, params[slot], *(seen[slot] for seen in placed))

    return _by_layer("per_layer", members, init, place_all, at)


def _by_layer(name, members, init, place_all, at) -> Encoding:
    """An encoding that must be asked `at_layer` before its hooks are used."""
    has = _hooks(members)
    if "embed" in has:
        raise ValueError(f"{name}: an encoding at the input has no layer; chain it instead")

    def ask(*_args):
        raise ValueError(f"{name}: hooks differ by layer; take a layer's own with at_layer")

    return Encoding(
        init=init,
        place=place_all,
        table=ask if "rotate" in has else None,
        rotate=ask if "rotate" in has else None,
        bias=ask if "bias" in has else None,
        walk=Walk(score=ask) if "walk" in has else None,
        at=at,
        relative=all(m.relative for m in members if m.bias is not None),
        limit=min((m.limit for m in members if m.limit is not None), default=None),
    )


def _hooks(parts: Sequence[Encoding]) -> set[str]:
    names = ("embed", "rotate", "bias", "walk", "at")
    return {name for name in names if any(getattr(part, name) is not None for part in parts)}


def _chain_walk(walks: Sequence[Walk | None]) -> Walk:
    *earlier, last = [w for w in walks if w is not None]
    if any(w.weighs for w in earlier):
        raise ValueError(
            "chain: a part that makes the attention weights stands before one that changes their "
            "logits; put it last"
        )

    def sides(side: Side) -> list[Side]:
        feats = [None] * len(walks) if side.feat is None else side.feat
        rows = zip(side.placed, feats, strict=True)
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
    return Walk(score, prepare if prepares else None, start, last.weighs)


def _chain_limit(parts: Sequence[Encoding]) -> int | None:
    """The smallest limit that plain positions can break, given who moves them before."""
    limits, shows = [], None
    for part in parts:
        if part.limit is not None and (shows is None or shows > part.limit):
            limits.append(part.limit)
        if only_places(part):
            shows = part.shows
    return min(limits, default=None)
