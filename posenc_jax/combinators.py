"""How encodings combine: functions that take encodings and return an `Encoding` again."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import encoding as hooks
from posenc_jax.encoding import (
    Dims,
    Encoding,
    InPeriod,
    Params,
    Placed,
    Side,
    Walk,
    at_layer,
    place,
)
from posenc_jax.heads import refuse_heads
from posenc_jax.layout import whole_number
from posenc_jax.options import shown
from posenc_jax.recipes import Recipe, recorded, with_recipe

ACTING = "embed", "locate", "rotate", "temper", "bias", "walk", "at"  # all but init and place


def only_places(encoding: Encoding) -> bool:
    """Whether the encoding does nothing but change the positions that others read."""
    return encoding.place is not None and not _has([encoding], *ACTING)


def acts_in_attention(encoding: Encoding) -> bool:
    """Whether a hook acts in the layers, not only at the model's input."""
    return _has([encoding], *ACTING[1:])


def bias_name(encoding: Encoding) -> str:
    """The name of the bias: of the function that made it, or of those of a chain's parts."""
    return getattr(encoding.bias, "__qualname__", repr(encoding.bias)).split(".<locals>")[0]


def pick_layer(params: Sequence[Params], layer: int | jax.Array | InPeriod) -> Params:
    """One layer's parameters out of those of all layers, which have the same shapes.

    A traced number of no layer gives NaN. ValueError: another number of no layer.
    """
    if isinstance(layer, InPeriod):
        return pick_layer(params[layer.place :: layer.period], layer.n)
    layer, layers = whole_number("layer", layer), len(params)
    if isinstance(layer, int):
        if not 0 <= layer < layers:
            raise ValueError(f"layer: no layer {layer} of {layers}, counted from 0")
        return params[layer]
    inside = (layer >= 0) & (layer < layers)

    def pick(*leaves):
        leaf = jnp.stack(leaves)[layer]
        return (
            jnp.where(inside, leaf, jnp.nan) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
        )

    return jax.tree.map(pick, *params)


def chain(*parts: Encoding) -> Encoding:
    """All parts as one encoding: embeddings, rotations and content scores in order, biases summed.

    A part that only places (`randomized`, `clamped`, `interpolated`) moves the positions for every
    part to its right. Parameters are a tuple with one entry for each part, and so are positions if
    a part places or locates.

    ValueError: no parts, a part that is no encoding, such as a method's name, one that makes
    attention weights before one that changes logits, or two of which one corrects the product of q
    and k that the other changes too.
    """
    _check("chain", parts)
    if both := changing_twice(parts):
        first, second = both
        raise ValueError(f"chain: parts {first + 1} and {second + 1} {CHANGING_TWICE}")
    places = any(part.place is not None or part.locate is not None for part in parts)
    return with_recipe(_chain(parts, places), Recipe(chain, (("parts", parts),)))


CHANGING_TWICE = (
    "both change the product of queries and keys, and one of them replaces the plain product, not "
    "what the other makes of it; keep one"
)


def changing_twice(parts: Sequence[Encoding]) -> tuple[int, int] | None:
    """The first two parts that change the product of q and k, if the walk of a part corrects it.

    A correction is made of q and k as they come in, and the product that it is added to would be
    that of vectors which the other part turned or scaled, or corrected already.
    """
    corrects = [part.walk is not None and part.walk.corrects for part in parts]
    changing = [n for n, part in enumerate(parts) if corrects[n] or part.rotate is not None]
    return (changing[0], changing[1]) if any(corrects) and len(changing) > 1 else None


@recorded  # since layers are chains of their own, made here
def _chain(parts: tuple[Encoding, ...], places: bool) -> Encoding:
    """The chain of the parts; see `chain`.

    places: whether positions are a tuple with one entry for each part, else the same for all.
    """

    def rows(params, *placed):
        """(part, its parameters, its positions) of each part."""
        columns = (column if places else (column,) * len(parts) for column in placed)
        return zip(parts, params, *columns, strict=True)

    def embed(params, x_BTD, placed):
        for part, p, at in rows(params, placed):
            x_BTD = hooks.embed(part, p, x_BTD, at)
        return x_BTD

    def table(params, placed, dims):
        return tuple(hooks.table(part, p, at, dims) for part, p, at in rows(params, placed))

    def rotate(tables, x_BTHC, side):
        turning = list(zip(parts, tables, strict=True))
        for part, t in turning[::-1] if side == "o" else turning:
            if side in ("q", "k") or part.turns_values:
                x_BTHC = hooks.rotate(part, t, x_BTHC, side)
        return x_BTHC

    def locate(params, x_BTD, placed):
        return tuple(hooks.locate(part, p, x_BTD, at) for part, p, at in rows(params, placed))

    def temper(params, count, placed, dims):
        every = rows(params, placed)
        factors = [hooks.temper(part, p, count, at, dims) for part, p, at in every if part.temper]
        return functools.reduce(jnp.multiply, factors)

    def bias(params, q_placed, k_placed, dims):
        every = rows(params, q_placed, k_placed)
        biases = [hooks.bias(part, p, q, k, dims) for part, p, q, k in every if part.bias]
        return functools.reduce(jnp.add, biases)

    bias.__qualname__ = "+".join(bias_name(part) for part in parts if part.bias)
    of_layer = functools.cache(lambda narrowed: _chain(narrowed, places))

    def at(layer, params, *placed):
        narrowed, params, *placed = zip(
            *(at_layer(part, layer, *row) for part, *row in rows(params, *placed)), strict=True
        )
        placed = placed if places else (by_part[0] for by_part in placed)
        return of_layer(narrowed), params, *placed

    acting = {"embed": embed, "rotate": rotate, "locate": locate, "temper": temper, "bias": bias}
    return Encoding(
        init=lambda key, dims: _init_all(parts, key, dims),
        place=functools.partial(_place_all, parts) if places else None,
        table=table if _has(parts, "rotate") else None,
        walk=_chain_walk([part.walk for part in parts], places) if _has(parts, "walk") else None,
        **_of_parts(parts, **acting, at=at, of_heads=functools.partial(_of_heads, parts)),
    )


def _init_all(parts: Sequence[Encoding], key, dims) -> tuple:
    keys = jax.random.split(key, len(parts))
    return tuple(part.init(k, dims) for part, k in zip(parts, keys, strict=True))


def _of_heads(parts: Sequence[Encoding], params: Sequence[Params], *here: Any) -> tuple:
    """Each part's parameters for a device's heads."""
    every = zip(parts, params, strict=True)
    return tuple(p if part.of_heads is None else part.of_heads(p, *here) for part, p in every)


def _place_all(parts: Sequence[Encoding], key, layout) -> Placed:
    placed = []
    for i, part in enumerate(parts):
        part_key = None if key is None else jax.random.fold_in(key, i)
        placed.append(place(part, part_key, layout))
        if only_places(part):
            layout = layout.replace(pos_BT=placed[-1])
    return tuple(placed) if _has(parts, *ACTING) else layout.pos_BT


@recorded
def by_order(encoding: Encoding) -> Encoding:
    """The encoding, reading the order of tokens, `Layout.index_BT`, in place of their positions.

    So a window or chunks of tokens are those of a text with images, whose positions have three
    axes: `chain(make("mrope"), by_order(make("window")))`.
    """
    order = lambda key, at: place(encoding, key, at.replace(pos_BT=at.index_BT))
    return encoding._replace(place=order)


@recorded
def each_layer(encoding: Encoding) -> Encoding:
    """The encoding with parameters of its own in every layer, `dims.layers` in all.

    ValueError: it is no encoding, such as a method's name, or it acts at the input.
    """
    _check("each_layer", [encoding])
    init = lambda key, dims: _init_all([encoding] * dims.layers, key, dims)

    def at(layer, params, *placed):
        return at_layer(encoding, layer, pick_layer(params, layer), *placed)

    of_heads = lambda params, *here: _of_heads([encoding] * len(params), params, *here)
    return _by_layer("each_layer", [encoding], init, encoding.place, at, of_heads)


@recorded
def on_heads(encoding: Encoding, start: int, stop: int) -> Encoding:
    """The encoding in the heads start .. stop - 1 of a model, and no positions in the others.

    In those heads it is the encoding of a model with `stop - start` heads, so ALiBi has the slopes
    of so many. Its parameters are of so many heads, too.

    ValueError: it is no encoding, such as a method's name; it acts at the input or makes the
    attention weights itself; not 0 <= start < stop; later, a model of fewer heads, or a rotation
    that changes the width of a head.
    """
    _check("on_heads", [encoding])
    for number in (start, stop):
        whole_number("on_heads", number)
    if encoding.embed is not None:
        raise ValueError("on_heads: an encoding at the input has no heads; chain it instead")
    if encoding.walk is not None and encoding.walk.weighs:
        raise ValueError("on_heads: the encoding makes weights, which a softmax makes elsewhere")
    if not 0 <= start < stop:
        raise ValueError(f"on_heads: heads {start} to {stop - 1} are none; give 0 <= start < stop")
    here, number = slice(start, stop), stop - start

    def few(dims: Dims) -> Dims:
        if stop > dims.heads:
            raise ValueError(f"on_heads: heads {start} to {stop - 1} of a model of {dims.heads}")
        return dataclasses.replace(dims, heads=number)

    def among_all(x: jax.Array, axis: int, heads: int, other: float) -> jax.Array:
        """The array with the other heads' constant before and behind these heads."""
        shape = [number if n == axis else size for n, size in enumerate(x.shape)]
        pads = [(start, heads - stop) if n == axis else (0, 0) for n in range(x.ndim)]
        return jnp.pad(jnp.broadcast_to(x, shape), pads, constant_values=other)

    def table(params, placed, dims):
        # Keys of fewer heads than queries are repeated where a table has an axis of heads.
        each_head = jnp.ones((1, 1, dims.heads, 1))
        return hooks.table(encoding, params, placed, few(dims)), each_head

    def rotate(table, x_BTHC, side):
        turned_BTHC = hooks.rotate(encoding, table[0], x_BTHC[:, :, here], side)
        if turned_BTHC.shape[-1] != x_BTHC.shape[-1]:
            raise ValueError("on_heads: the encoding changes the width of heads, all or none")
        return x_BTHC.at[:, :, here].set(turned_BTHC)

    def temper(params, count, placed, dims):
        factor_BQH = hooks.temper(encoding, params, count, placed, few(dims))
        return among_all(factor_BQH, 2, dims.heads, 1.0)

    def bias(params, q_placed, k_placed, dims):
        bias_BHQK = hooks.bias(encoding, params, q_placed, k_placed, few(dims))
        return among_all(bias_BHQK, 1, dims.heads, 0.0)

    bias.__qualname__ = f"{bias_name(encoding)} on heads {start} to {stop - 1}"

    def at(layer, params, *placed):
        of_layer, params, *placed = at_layer(encoding, layer, params, *placed)
        return on_heads(of_layer, start, stop), params, *placed

    acting = {"rotate": rotate, "locate": encoding.locate, "temper": temper, "bias": bias}
    return Encoding(
        init=lambda key, dims: encoding.init(key, few(dims)),
        place=encoding.place,
        table=table if encoding.rotate is not None else None,
        walk=None if encoding.walk is None else _walk_on_heads(encoding.walk, here),
        **_of_parts([encoding], **acting, at=at),
        of_heads=refuse_heads,
    )


def _walk_on_heads(walk: Walk, here: slice) -> Walk:
    """A walk that changes the logits of some heads."""
    of = lambda side: side._replace(x_BTHC=side.x_BTHC[:, :, here])
    start = walk.start

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        seen_BHQK = visible_BHQK if visible_BHQK.shape[1] == 1 else visible_BHQK[:, here]
        changed, carry = walk.score(params, s_BHQK[:, here], of(q), of(k), seen_BHQK, carry)
        return s_BHQK.at[:, here].set(changed), carry

    starts = None if start is None else lambda params, q: start(params, of(q))
    return walk._replace(score=score, start=starts, summed=False)


def per_layer(parts: Sequence[Encoding]) -> Encoding:
    """The encoding whose layer n is parts[n % len(parts)].

    The same object given twice is one encoding with one set of parameters; two objects have two.

    ValueError: no parts, a part that is no encoding, such as a method's name, or that acts at the
    input; later, a traced layer number where layers use different encodings.
    """
    _check("per_layer", parts)
    members: list[Encoding] = []
    for part in parts:
        if not any(part is member for member in members):
            members.append(part)
    slots = [next(i for i, m in enumerate(members) if m is part) for part in parts]
    places = any(member.place is not None for member in members)
    init = lambda key, dims: _init_all(members, key, dims)

    def place_all(key, layout):
        keys = [None if key is None else jax.random.fold_in(key, i) for i in range(len(members))]
        rows = zip(members, keys, strict=True)
        return tuple(place(member, k, layout) for member, k in rows)

    def at(layer, params, *placed):
        slot = _slot_of(slots, layer)
        placed = (placed_by_member[slot] for placed_by_member in placed) if places else placed
        return at_layer(members[slot], layer, params[slot], *placed)

    of_heads = functools.partial(_of_heads, members)
    encoding = _by_layer("per_layer", members, init, place_all if places else None, at, of_heads)
    return with_recipe(encoding, Recipe(per_layer, (("parts", _Pattern(parts)),)))


def _slot_of(slots: Sequence[int], layer: int | jax.Array | InPeriod) -> int:
    """The slot of a layer: entry `layer` of the slots, which repeat. ValueError: it is not one."""
    if isinstance(layer, InPeriod):
        numbers = [layer.place + layer.period * n for n in range(len(slots))]
    else:
        layer = whole_number("layer", layer)
        if isinstance(layer, int) and layer < 0:
            raise ValueError(f"layer: no layer {layer}, counted from 0")
        numbers = [layer] if isinstance(layer, int) else range(len(slots))
    used = {slots[int(n) % len(slots)] for n in numbers}
    if len(used) > 1:
        raise ValueError(
            "per_layer: the layer is traced, and layers use different encodings; loop over them in "
            "Python, or scan over periods with frame.layer((n, i), x)"
        )
    return used.pop()


class _Pattern(tuple):
    """The parts of `per_layer`: equal to others that have equal parts and share the same ones."""

    @functools.cached_property
    def _shared(self) -> tuple[int, ...]:
        """For each part the first place at which the same object stands."""
        return tuple(next(i for i, p in enumerate(self) if p is part) for part in self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Pattern):
            return NotImplemented
        return self._shared == other._shared and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash((self._shared, tuple(self)))

    def __repr__(self) -> str:
        """As a list, in which a part that stands n times in a row is [part] * n."""
        runs = [list(run) for _, run in itertools.groupby(self, id)]
        texts = (f"[{run[0]!r}]" + (f" * {len(run)}" if len(run) > 1 else "") for run in runs)
        return " + ".join(texts)


def _by_layer(name, members, init, place_all, at, of_heads) -> Encoding:
    """An encoding of which `at_layer` gives each layer's hooks."""
    if _has(members, "embed"):
        raise ValueError(f"{name}: an encoding at the input has no layer; chain it instead")

    walks = [member.walk for member in members if member.walk is not None]

    def ask(*_args):
        raise ValueError(f"{name}: hooks differ by layer; take a layer's own with at_layer")

    return Encoding(
        init=init,
        place=place_all,
        walk=_combined(walks)._replace(score=ask) if walks else None,
        at=at,
        table=ask if _has(members, "rotate") else None,
        **_of_parts(members, rotate=ask, locate=ask, temper=ask, bias=ask, of_heads=of_heads),
    )


def _check(name: str, parts: Sequence[Encoding]) -> None:
    if isinstance(parts, Encoding | str):
        raise ValueError(f"{name}: {shown(parts)} is no list of encodings")
    if not parts:
        raise ValueError(f"{name}: no parts given; it takes one encoding or more")
    for part in parts:
        if not isinstance(part, Encoding):
            raise ValueError(f"{name}: {shown(part)} is not an Encoding; make(name) makes one")


def _has(parts: Sequence[Encoding], *hooks: str) -> bool:
    """Whether a part has one of the hooks."""
    return any(getattr(part, hook) is not None for part in parts for hook in hooks)


def _of_parts(parts: Sequence[Encoding], **hooks: Callable) -> dict[str, Any]:
    """Fields of an `Encoding`: the hooks that some part has, and what the parts claim of theirs."""
    return {
        **{name: hook for name, hook in hooks.items() if _has(parts, name)},
        "turns_values": any(part.turns_values for part in parts),
        "relative": all(part.relative for part in parts if part.bias is not None),
        "both_sides": any(part.both_sides for part in parts),
    }


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
    walk = _combined([*earlier, last])._replace(score=score, start=start)
    return walk._replace(prepare=prepare if prepares else None)


def _combined(walks: Sequence[Walk]) -> Walk:
    """The fields of one walk that does what several walks do; the score is the last one's."""
    return Walk(
        score=walks[-1].score,
        weighs=walks[-1].weighs,
        summed=all(w.summed for w in walks),
        corrects=any(w.corrects for w in walks),
        whole=any(w.whole for w in walks),
    )
