"""Helpers of rotary methods: angles that are exact at far positions, their cosines and sines, the
rotation.

The table is cosines and sines [B, T, 1|H, F], float32 or wider, made once for a forward pass. F is
the number of channel pairs of a head that turn.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.pair_rotation import turn_pairs
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import require, with_axes
from posenc_jax.layout import Layout
from posenc_jax.options import FieldError

Pairing = Literal["half", "interleaved"]
TURN = 2 * np.pi
# 1 / TURN as a sum of four numbers of 12 bits each, the largest first.
_CUTS = [np.floor(2.0 ** (14 + 12 * n) / TURN) / 2.0 ** (14 + 12 * n) for n in range(4)]
PIECES = np.diff([0.0, *_CUTS]).astype(np.float32)


class Turn(NamedTuple):
    """The factors of a rotation: cosines and sines [B, T, 1|H, F]."""

    cos: jax.Array
    sin: jax.Array


def angles(pos_BT: jax.Array, freq: np.ndarray | jax.Array) -> jax.Array:
    """The angles position * frequency, without whole turns unless 64-bit floats are enabled.

    A frequency is made a 64-bit fixed-point fraction of a turn. In its product with an integer
    position, int32 overflow drops the whole turns; the rest is exact to 2^-30 of a turn. The
    largest error for positions up to 1e3, 1e6 and 2^24 is 3.0e-7 radians (4.1e-7 for positions with
    a fraction); a float32 product has errors of 3.6e-5, 3.9e-2 and 0.62. With its cosines and sines
    this takes 1.5 to 2 times as long as the product: 0.1 ms more for 128 x 40 x 4.

    Args:
      pos_BT: positions, int or float (whole or not), of magnitude below 2^31.
      freq: radians per token, [1|H, F] or [B, T, 1|H, F]. All bits of a NumPy float64 are used,
        and all of a traced float32, so learned frequencies are as exact as fixed ones.

    Returns:
      [B, T, 1|H, F], float32, or float64 where that is enabled. Differentiable in float positions
      and in a traced frequency.
    """
    pos = pos_BT[:, :, None, None]
    freq = freq if freq.ndim == 4 else freq[None, None]
    if jnp.result_type(float) == jnp.float64:
        return pos.astype(float) * freq.astype(float)
    still = freq if isinstance(freq, np.ndarray) else jax.lax.stop_gradient(freq)
    angle = _phase(pos, *_words(still), still.astype(np.float32))
    if still is not freq:  # adds 0, but has the derivative that the int32 product has not
        angle = angle + pos.astype(jnp.float32) * (freq - still)
    return angle


# `_phase`, `turns` and `turn` are jitted so that each is one program where code runs op by op;
# inside of jit, `inline` makes them a part of the program around them.
@partial(jax.jit, inline=True)
def _phase(pos, word, residual, freq):
    """Position times frequency without whole turns, from the two words of the frequency, see
    `_words`.
    """
    whole = jnp.floor(pos).astype(jnp.int32)
    phase = whole * word + (whole.astype(jnp.float32) * residual).astype(jnp.int32)
    angle = phase.astype(jnp.float32) * np.float32(TURN / 2**32)
    if jnp.issubdtype(pos.dtype, jnp.floating):
        part = pos.astype(jnp.float32) - whole.astype(jnp.float32)
        angle = angle + part * freq
    return angle


def _words(freq):
    """The fraction of a turn per token, times 2^32, as the nearest int32 and the remainder as
    float32.
    """
    if isinstance(freq, np.ndarray):
        scaled = _fraction(np, freq / TURN) * 2.0**32
        word = np.minimum(np.round(scaled), 2.0**31 - 1)
        return word.astype(np.int32), (scaled - word).astype(np.float32)
    # The product of two 12-bit numbers is exact in float32; int32 sums drop whole turns.
    bits = jax.lax.bitcast_convert_type(freq, jnp.int32)
    high = jax.lax.bitcast_convert_type(bits & np.int32(-(2**12)), jnp.float32)
    word, residual = jnp.zeros_like(bits), jnp.zeros_like(freq)
    for part in (high, freq - high):
        for piece in PIECES:
            scaled = _fraction(jnp, part * piece) * np.float32(2.0**32)
            near = jnp.round(scaled)
            word, residual = word + near.astype(jnp.int32), residual + (scaled - near)
    near = jnp.round(residual)
    return word + near.astype(jnp.int32), residual - near


def _fraction(xp, turns):
    """The number of turns without the whole ones, in [-1/2, 1/2)."""
    fraction = turns - xp.round(turns)
    return xp.where(fraction == 0.5, -fraction, fraction)


def ladder(head: int, base: float) -> np.ndarray:
    """Frequencies base^(-2k / head) of the head / 2 pairs k, float64.

    FieldError: the width of the head is odd.
    """
    if head < 2 or head % 2:
        raise FieldError("head", f"{head} channels do not pair; rotary methods need an even width")
    return base ** (-np.arange(head // 2) / (head // 2))


def whole_turns(freq_F: np.ndarray, length: float) -> np.ndarray:
    """Whether each frequency makes a whole turn within `length` tokens: bool [F]. FieldError: none
    does.
    """
    whole_F = freq_F * length >= TURN
    require(bool(whole_F.any()), "length", length, "tokens are less than one turn of any pair")
    return whole_F


@partial(jax.jit, inline=True)
def turns(angle: jax.Array) -> Turn:
    """The cosines and sines of angles."""
    return Turn(jnp.cos(angle), jnp.sin(angle))


@partial(jax.jit, static_argnames="pairing", inline=True)
def turn(table: Turn, x_BTHC: jax.Array, pairing: Pairing) -> jax.Array:
    """Returns x with its first 2F channels rotated in pairs; same shape and dtype.

    Pair k is channels (k, k + F) for "half", (2k, 2k + 1) for "interleaved".
    """
    width = 2 * table.cos.shape[-1]
    turned = turn_pairs(*table, x_BTHC[..., :width], apart=pairing == "half")
    unturned = x_BTHC[..., width:]
    return jnp.concatenate([turned, unturned], axis=-1) if unturned.shape[-1] else turned


def with_length(key, layout: Layout) -> tuple[jax.Array, jax.Array]:
    """The hook `place` of methods that read the sequence's length n: (pos_BT, length_BT)."""
    return with_axes(layout.pos_BT), layout.length_BT


def turns_at(pos_BT: jax.Array, freq: np.ndarray | jax.Array) -> Turn:
    """Cosines and sines of position * frequency; freq: [1|H, F] or [B, T, 1|H, F], as `angles`.

    FieldError: positions of several axes.
    """
    return turns(angles(with_axes(pos_BT), freq))


def check_share(share: float) -> None:
    """Raises a FieldError for a share outside (0, 1]."""
    require(0 < share <= 1, "share", share, "must be above 0 and at most 1")


def pairs_of_share(head: int, share: float) -> int:
    """The number of pairs of a head that a share is, rounded down. FieldError: there is none, or
    the width of the head is odd.
    """
    pairs = int(len(ladder(head, 1.0)) * share)
    require(pairs > 0, "share", share, f"of the pairs of a head of {head} is none")
    return pairs


def turning(frequencies: Callable[[int], np.ndarray], pairing: Pairing, **hooks) -> Encoding:
    """A rotary encoding without parameters; frequencies: head width -> float64 [F]."""

    def table(params, pos_BT, dims):
        return turns_at(pos_BT, frequencies(dims.head)[None])

    return rotary(pairing, table, frequencies, **hooks)


def rotary(
    pairing: Pairing, table: Callable, frequencies=lambda head: ladder(head, 1.0), **hooks
) -> Encoding:
    """An encoding that rotates by `table`.

    Args:
      pairing: as for `turn`.
      table: as in `Encoding`; a `Turn`, or a dict of one for "q" and one for "k".
      frequencies: head width -> an array with an entry for each pair that turns, or an error.
      hooks: other hooks of the `Encoding`.
    """

    def init(key, dims):
        frequencies(dims.head)
        return {}

    def rotate(table, x_BTHC, side):
        factors = table[side] if isinstance(table, dict) else table
        factors = factors._replace(sin=-factors.sin) if side == "o" else factors
        check_width(factors, len(frequencies(x_BTHC.shape[-1])), "pairs")
        return turn(factors, x_BTHC, pairing)

    return Encoding(**{"init": init, "table": table, "rotate": rotate, **hooks})


def check_width(table: Turn, wanted: int, what: str) -> None:
    """Raises a FieldError unless the table has as many pairs (or channels) as queries and keys."""
    if (width := table.cos.shape[-1]) != wanted:
        raise FieldError(
            "head",
            f"a table of {width} {what} cannot turn vectors of {wanted}; make the table with the "
            "width of q and k",
        )
