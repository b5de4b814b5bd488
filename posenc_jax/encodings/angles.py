"""What rotary methods share: angles that stay right far out, their table, and the turning itself.

The table is cosines and sines [B, T, 1|H, F], float32 or wider, made once for a forward pass; F is
the number of channel pairs of a head that turn.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding

Pairing = Literal["half", "interleaved"]
TURN = 2 * np.pi
# 1 / TURN in parts of 12 bits, the largest first: 48 bits in all.
_CUTS = [np.floor(2.0 ** (14 + 12 * n) / TURN) / 2.0 ** (14 + 12 * n) for n in range(4)]
PIECES = np.diff([0.0, *_CUTS]).astype(np.float32)


class Turn(NamedTuple):
    """What `turn` multiplies by: cosines and sines [B, T, 1|H, F]."""

    cos: jax.Array
    sin: jax.Array


def angles(pos_BT: jax.Array, freq: np.ndarray | jax.Array) -> jax.Array:
    """Angles position * frequency, less whole turns where float32 is the widest float enabled.

    A frequency becomes a 64-bit fixed-point fraction of a turn; multiplied by an integer position,
    int32 overflow drops the whole turns, and the phase that remains is right to 2^-30 of a turn.
    Largest error in radians for positions up to 1e3, 1e6, 2^24: 3.0e-7 at each (4.1e-7 for
    positions with a fraction), where a float32 product is off by 3.6e-5, 3.9e-2, 0.62. With the
    cosines and sines it takes 1.5 to 2 times as long as the product: 0.1 ms more for 128 x 40 x 4.

    Args:
      pos_BT: positions, int or float (whole or not), of magnitude below 2^31.
      freq: radians a token, [1|H, F] or [B, T, 1|H, F]. NumPy's float64 is used in full, and so is
        every bit of a traced float32: learned frequencies are as exact as fixed ones.

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
    if still is not freq:  # adds 0; its derivative is the position, which int32 has lost
        angle = angle + pos.astype(jnp.float32) * (freq - still)
    return angle


@partial(jax.jit, inline=True)
def _phase(pos, word, rest, freq):
    """Position times frequency, less whole turns, from the frequency's `_words`."""
    whole = jnp.floor(pos).astype(jnp.int32)
    phase = whole * word + (whole.astype(jnp.float32) * rest).astype(jnp.int32)
    angle = phase.astype(jnp.float32) * np.float32(TURN / 2**32)
    if jnp.issubdtype(pos.dtype, jnp.floating):
        part = pos.astype(jnp.float32) - whole.astype(jnp.float32)
        angle = angle + part * freq
    return angle


def _words(freq):
    """A token's fraction of a turn times 2^32: the nearest int32, and what it misses as float32."""
    if isinstance(freq, np.ndarray):
        scaled = _fraction(np, freq / TURN) * 2.0**32
        word = np.minimum(np.round(scaled), 2.0**31 - 1)
        return word.astype(np.int32), (scaled - word).astype(np.float32)
    # A product of two 12-bit parts is exact in float32, and a sum of int32 drops whole turns.
    bits = jax.lax.bitcast_convert_type(freq, jnp.int32)
    high = jax.lax.bitcast_convert_type(bits & np.int32(-(2**12)), jnp.float32)
    word, rest = jnp.zeros_like(bits), jnp.zeros_like(freq)
    for part in (high, freq - high):
        for piece in PIECES:
            scaled = _fraction(jnp, part * piece) * np.float32(2.0**32)
            near = jnp.round(scaled)
            word, rest = word + near.astype(jnp.int32), rest + (scaled - near)
    near = jnp.round(rest)
    return word + near.astype(jnp.int32), rest - near


def _fraction(xp, turns):
    """What is left of whole turns, in [-1/2, 1/2)."""
    left = turns - xp.round(turns)
    return xp.where(left == 0.5, -left, left)


def ladder(head: int, base: float, start: int = 0, of: int | None = None) -> np.ndarray:
    """Frequencies base^(-(start + k) / of) of the head / 2 pairs k; `of` is head / 2 unless given.

    Raises:
      ValueError: a head width that is odd.
    """
    if head < 2 or head % 2:
        raise ValueError(f"head: {head} channels do not pair; rotary methods need an even width")
    pairs = head // 2
    return base ** (-(start + np.arange(pairs)) / (of or pairs))


def whole_turns(freq_F: np.ndarray, length: float) -> np.ndarray:
    """Which frequencies make a whole turn within `length` tokens: bool [F].

    ValueError: none does.
    """
    whole_F = freq_F * length >= TURN
    if not whole_F.any():
        raise ValueError(f"encoding.length: {length} tokens are less than one turn of any pair")
    return whole_F


@partial(jax.jit, inline=True)
def turns(angle: jax.Array) -> Turn:
    return Turn(jnp.cos(angle), jnp.sin(angle))


@partial(jax.jit, static_argnames="pairing", inline=True)
def turn(table: Turn, x_BTHC: jax.Array, pairing: Pairing) -> jax.Array:
    """The first 2F channels turned in pairs, the rest as they are; x's shape and dtype.

    Pair k is channels (k, k + F) for "half", (2k, 2k + 1) for "interleaved".
    """
    width = 2 * table.cos.shape[-1]
    x = x_BTHC[..., :width].astype(table.cos.dtype)
    if pairing == "half":
        a, b = jnp.split(x, 2, axis=-1)
    else:
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        a, b = pairs[..., 0], pairs[..., 1]
    ends = (a * table.cos - b * table.sin, b * table.cos + a * table.sin)
    if pairing == "half":
        x = jnp.concatenate(ends, axis=-1)
    else:
        x = jnp.stack(ends, axis=-1).reshape(x.shape)
    x = x.astype(x_BTHC.dtype)
    return x if width == x_BTHC.shape[-1] else jnp.concatenate([x, x_BTHC[..., width:]], axis=-1)


def turning(
    frequencies: Callable[[int], np.ndarray], pairing: Pairing, amplitude: float = 1.0
) -> Encoding:
    """A rotary encoding without parameters from frequencies: head width -> float64 [F].

    `amplitude` multiplies queries and keys alike, so the logits carry its square.
    """

    def table(params, pos_BT, dims):
        made = turns(angles(one_axis(pos_BT), frequencies(dims.head)[None]))
        return made if amplitude == 1.0 else Turn(*(leaf * amplitude for leaf in made))

    return rotary(frequencies, pairing, table)


def rotary(
    frequencies: Callable[[int], np.ndarray], pairing: Pairing, table: Callable, **hooks
) -> Encoding:
    """An encoding that turns by `table`; `frequencies` counts the pairs of a head, or refuses."""
    check_pairing(pairing)

    def init(key, dims):
        frequencies(dims.head)
        return {}

    def rotate(table, x_BTHC, side):
        made = table[side] if isinstance(table, dict) else table
        pairs, wanted = made.cos.shape[-1], len(frequencies(x_BTHC.shape[-1]))
        if pairs != wanted:
            raise ValueError(
                f"head: a table of {pairs} pairs cannot turn vectors of {wanted}; "
                "make the table with the width of q and k"
            )
        return turn(made, x_BTHC, pairing)

    return Encoding(**{"init": init, "table": table, "rotate": rotate, **hooks})


def one_axis(pos_BT: jax.Array) -> jax.Array:
    if pos_BT.ndim != 2:
        raise ValueError(
            f"positions: shape {pos_BT.shape} is not [B, T]; for (row, column) choose axial"
        )
    return pos_BT


def check_positive(**options: float) -> None:
    for option, value in options.items():
        if not 0 < value < np.inf:
            raise ValueError(f"encoding.{option}: {value} must be positive and finite")


def check_pairing(pairing: str) -> None:
    if pairing not in ("half", "interleaved"):
        raise ValueError(f"encoding.pairing: {pairing!r} is not one of: 'half', 'interleaved'")


def turned_scores(q_THC, k_THC, angle_QKHF, pairing, gain_QKHF: float | np.ndarray = 1.0):
    """Definition in float64: Re sum_f q_f conj(k_f) gain_f e^(i angle_f) / sqrt(C).

    Channels past the last pair add their plain product.
    """
    width = 2 * angle_QKHF.shape[-1]
    real, imaginary = {
        "half": (slice(0, width // 2), slice(width // 2, width)),
        "interleaved": (slice(0, width, 2), slice(1, width, 2)),
    }[pairing]
    q, k = (x[..., real] + 1j * x[..., imaginary] for x in (q_THC, k_THC))
    power_QKHF = gain_QKHF * np.exp(1j * angle_QKHF)
    power_QKHF = np.broadcast_to(power_QKHF, (len(q), *k.shape))
    turned_HQK = np.einsum("qhf,khf,qkhf->hqk", q, k.conj(), power_QKHF).real
    rest_HQK = np.einsum("qhc,khc->hqk", q_THC[..., width:], k_THC[..., width:])
    return (turned_HQK + rest_HQK) / np.sqrt(q_THC.shape[-1])


def offsets(pos_T):
    """Definition in float64: D = i - j, [Q, K, 1, 1]."""
    pos_T = np.asarray(pos_T, np.float64)
    return (pos_T[:, None] - pos_T[None, :])[:, :, None, None]


def powers(base, width):
    """Definition in float64: theta_k = base^(-2k / width), [F]."""
    return np.array([float(base) ** (-2 * k / width) for k in range(width // 2)])
