"""Rotary encodings of released models that are another one, changed: on a part of the channels, by
axes, the other way, with another scale of the logits.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding, place
from posenc_jax.encodings import rotation
from posenc_jax.encodings.rotary_axes import Order, pair_axes, split_axes, turns_by_axis
from posenc_jax.encodings.rotary_scaling import by_parts, root_temperature
from posenc_jax.encodings.rotation import Pairing, Turn, with_length
from posenc_jax.options import FieldError
from posenc_jax.recipes import recorded


@recorded
def sharper_past(length: int) -> Encoding:
    """Multiplies logits by (1 + 0.1 ln max(1, n / length))^2 in a sequence of n tokens."""

    def temper(params, count, length_BQ, dims):
        stretch_BQ = jnp.maximum(length_BQ.astype(float) / length, 1)
        return jnp.square(1 + 0.1 * jnp.log(stretch_BQ))[..., None]

    return Encoding(place=lambda key, layout: layout.length_BT, temper=temper)


@recorded
def sharper(encoding: Encoding, factor: float) -> Encoding:
    """The encoding with the products of queries and keys multiplied by the factor."""
    return encoding._replace(temper=lambda *_: jnp.full((1, 1, 1), factor))


@recorded
def louder_by_length(encoding: Encoding, short: float, long: float, length: int) -> Encoding:
    """The rotary encoding with queries and keys each multiplied by `short` in sequences of up to
    `length` tokens, by `long` in longer ones. Its positions are (pos_BT, length_BT).
    """
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        longer_BT11 = (placed[1] > length)[:, :, None, None]
        factors = jnp.where(longer_BT11, long, short)
        return Turn(*(leaf * factors.astype(leaf.dtype) for leaf in plain(params, placed, dims)))

    return encoding._replace(place=with_length, table=table)


@recorded
def on_channels(encoding: Encoding, channels: float, last: bool = False) -> Encoding:
    """The rotary encoding on the first, or the last, channels of a head.

    channels: a whole number of them, or a share of the head's as a float.
    """
    table, rotate = encoding.table, encoding.rotate
    assert table is not None
    assert rotate is not None

    def cut(head: int) -> slice:
        width = channels if isinstance(channels, int) else int(head * channels)
        return slice(head - width, head) if last else slice(0, width)

    narrow = lambda dims: dataclasses.replace(dims, head=len(range(dims.head)[cut(dims.head)]))

    def turn_part(factors, x_BTHC, side):
        part = cut(x_BTHC.shape[-1])
        turned = rotate(factors, x_BTHC[..., part], side)
        ends = x_BTHC[..., : part.start], x_BTHC[..., part.stop :]
        return jnp.concatenate([ends[0], turned, ends[1]], axis=-1)

    return encoding._replace(
        init=lambda key, dims: encoding.init(key, narrow(dims)),
        table=lambda params, placed, dims: table(params, placed, narrow(dims)),
        rotate=turn_part,
    )


@recorded
def paired_across(encoding: Encoding) -> Encoding:
    """The rotary encoding whose pairs "half" are k and k + C/2 of the whole head, also where it has
    fewer than C/2 of them; the last pairs do not turn.
    """
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        turn = plain(params, placed, dims)
        still = [(0, 0)] * 3 + [(0, dims.head // 2 - turn.cos.shape[-1])]
        return Turn(jnp.pad(turn.cos, still, constant_values=1), jnp.pad(turn.sin, still))

    rotate = lambda factors, x_BTHC, side: rotation.turn(factors, x_BTHC, "half")
    return encoding._replace(table=table, rotate=rotate)


@recorded
def paired_by_axis(encoding: Encoding) -> Encoding:
    """The rotary encoding of two axes, whose pairs "half" are instead within an axis' half of the
    channels: k with k + C/4.
    """
    rotate = encoding.rotate
    assert rotate is not None

    def rotate_halves(table, x_BTHC, side):
        exchanged = lambda x: x.reshape(*x.shape[:-1], 2, 2, -1).swapaxes(-3, -2).reshape(x.shape)
        return exchanged(rotate(table, exchanged(x_BTHC), side))

    return encoding._replace(rotate=rotate_halves)


@recorded
def by_sections(encoding: Encoding, sections: tuple[int, ...], order: Order) -> Encoding:
    """The rotary encoding with positions of three axes: each pair turns by its section's axis.

    With rope it is `mrope`; the pairs of others, such as YaRN, have other frequencies.

    FieldError: as `mrope`.
    """
    plain = encoding.table
    assert plain is not None

    def init(key, dims):
        pair_axes(dims.head // 2, sections, order)
        return encoding.init(key, dims)

    def place_all(key, layout):
        axis = lambda n: layout.replace(pos_BT=layout.pos_BT[..., n])
        return tuple(place(encoding, key, axis(n)) for n in range(3))

    def table(params, placed, dims):
        axis_F = pair_axes(dims.head // 2, sections, order)
        rows_A = [np.flatnonzero(axis_F == n) for n in range(3)]
        back_F = np.argsort(np.concatenate(rows_A))
        turns_A = [plain(params, at, dims) for at in placed]
        picked = lambda leaves: [leaf[..., n] for leaf, n in zip(leaves, rows_A, strict=True)]
        joined = lambda leaves: jnp.concatenate(picked(leaves), axis=-1)[..., back_F]
        return Turn(*map(joined, zip(*turns_A, strict=True)))

    return encoding._replace(init=init, place=place_all, table=table)


@recorded
def backwards(encoding: Encoding) -> Encoding:
    """The rotary encoding that turns the other way: a key reads a query as that reads the key."""
    plain = encoding.table
    assert plain is not None

    def table(params, placed, dims):
        cos, sin = plain(params, placed, dims)
        return Turn(cos, -sin)

    return encoding._replace(table=table)


@recorded
def with_factors(encoding: Encoding) -> Encoding:
    """The rotary encoding whose pair k turns exp(alpha_k) times as fast, as Mistral Large 4's. All
    heads, and layers that are equal, share the learned alpha_F, [F], which starts at 0.

    FieldError: the frequencies of the encoding are not fixed by the width of a head.
    """
    amplitude, plain = 1.0, encoding
    while plain.name == "louder":
        amplitude, plain = amplitude * plain.options["amplitude"], plain.options["encoding"]
    options = dict(plain.options)
    pairing = options.pop("pairing", "half")
    if plain.name == "yarn":
        scales = options.pop("mscale"), options.pop("mscale_all_dim")
        amplitude *= root_temperature(options["factor"], *scales)
    if plain.name in ("ntk_by_parts", "yarn"):
        frequencies = by_parts(**options)
    elif plain.name == "rope" and not options["values"]:
        frequencies = lambda head: rotation.ladder(head, options["base"])
    else:
        reason = f"{plain!r} has no learned factors; choices: rope, ntk_by_parts, yarn"
        raise FieldError("encoding", reason)

    def init(key, dims):
        return {"alpha": jnp.zeros(len(frequencies(dims.head)), float)}

    def table(params, pos_BT, dims):
        alpha_F = params["alpha"].astype(float)
        freq_F = jnp.asarray(frequencies(dims.head), float) * jnp.exp(alpha_F)
        turn = rotation.turns_at(pos_BT, freq_F[None])
        return Turn(*(leaf * amplitude for leaf in turn))

    return rotation.rotary(pairing, table, frequencies, init=init)


@recorded
def louder_by_count() -> Encoding:
    """Multiplies the logits of a query that sees n keys by s ln n + b, with a scale s and an offset
    b of each layer and head, which start at 0 and 1. Without b it is `ssmax`.
    """

    def init(key, dims):
        return {"s": jnp.zeros(dims.heads, float), "b": jnp.ones(dims.heads, float)}

    def temper(params, count, q_placed, dims):
        log_BQ1 = jnp.log(jnp.maximum(count(), 1))[..., None]
        s_H, b_H = (params[name].astype(log_BQ1.dtype)[None, None] for name in ("s", "b"))
        return s_H * log_BQ1 + b_H

    return each_layer(Encoding(init=init, temper=temper))


@recorded
def values_too(encoding: Encoding) -> Encoding:
    """The rotary encoding that turns values as keys, and does not turn the output back."""
    plain = encoding.rotate
    assert plain is not None
    forth = lambda table, x_BTHC, side: x_BTHC if side == "o" else plain(table, x_BTHC, side)
    return encoding._replace(rotate=forth, turns_values=True)


@recorded
def values_and_back(encoding: Encoding) -> Encoding:
    """The rotary encoding that turns values as keys, and the output back by the query's position,
    as `rope(values=True)`.
    """
    return encoding._replace(turns_values=True)


@recorded
def on_first_head(encoding: Encoding) -> Encoding:
    """The `mhrope` encoding, of which one axis turns heads, with positions of one axis."""
    return encoding._replace(place=lambda key, layout: (layout.pos_BT,) * 3)


@recorded
def mrope_by_channel(sections: tuple[int, ...], base: float) -> Encoding:
    """HunYuan-VL's, which gives axes to channels in place of pairs, twice each section in turn.

    So the two channels of a pair may turn by different axes, and lengths of vectors change. Where
    all numbers of a position are equal, as of text, it is rope.
    """
    axis_C = np.repeat(np.arange(len(sections)), 2 * np.array(sections))
    return _by_channel(
        len(sections), lambda head: (axis_C, np.tile(rotation.ladder(head, base), 2)), "half"
    )


@recorded
def rope_3d_by_channel(base: float) -> Encoding:
    """V-JEPA 2's of (time, row, column), each with a third of the channels, paired as neighbours.

    Frequencies are repeated in halves of a third, as for other pairs: the two channels of a pair
    have different ones, and lengths of vectors change.
    """

    def plan(head):
        third = 2 * (head // 3 // 2)
        freq_C = np.tile(rotation.ladder(third, base), 2)
        return np.repeat(np.arange(3), third), np.tile(freq_C, 3)

    return _by_channel(3, plan, "interleaved")


def _by_channel(axes: int, plan: Callable, pairing: Pairing) -> Encoding:
    """x cos + y sin, where y is x a quarter turn on; each channel has a position and frequency.

    plan: head width -> axis and frequency of each channel that turns, [C'].
    """

    def init(key, dims):
        if len(plan(dims.head)[0]) > dims.head:
            raise FieldError("head", f"{dims.head} channels are less than those of the sections")
        return {}

    def table(params, placed, dims):
        axis_C, freq_C = plan(dims.head)
        return turns_by_axis(split_axes(placed, axes), freq_C, axis_C)

    def rotate(table, x_BTHC, side):
        width = table.cos.shape[-1]
        part = x_BTHC[..., :width]
        quarter = jnp.ones(width // 2, table.cos.dtype)
        by_pair = Turn(0 * quarter[None, None, None], quarter[None, None, None])
        wide = rotation.turn(by_pair, part.astype(table.cos.dtype), pairing)
        turned = part.astype(table.cos.dtype) * table.cos + wide * table.sin
        return jnp.concatenate([turned.astype(x_BTHC.dtype), x_BTHC[..., width:]], axis=-1)

    return Encoding(init=init, table=table, rotate=rotate)


@recorded
def without_attention() -> Encoding:
    """A layer without attention, among others in `per_layer`: convolutions, a recurrence, an MLP.

    ValueError, later: attention in such a layer.
    """

    def refuse(*_):
        raise ValueError("layer: the model has no attention in this layer")

    return Encoding(rotate=refuse)
