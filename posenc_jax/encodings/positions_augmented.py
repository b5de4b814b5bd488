"""Positions augmented in training: a random shift, or shifts and a scale.

All tokens of a sequence share their draw; packed documents have draws of their own, and padding on
either side changes none.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Range, method
from posenc_jax.encodings.checks import at_least, with_axes
from posenc_jax.layout import Layout


def sequence_keys(key: jax.Array, layout: Layout, each_row: bool = True) -> jax.Array:
    """A key for each token, [B, T], the same in a sequence; rows share keys unless `each_row`."""
    row_B = jnp.arange(len(layout.segment_BT), dtype=jnp.int32)
    fold = jax.vmap(jax.random.fold_in, (None, 0))
    key_B = fold(key, row_B if each_row else 0 * row_B)
    return jax.vmap(fold)(key_B, layout.segment_BT)


def each(draw: Callable, key_BT: jax.Array, *args_BT: jax.Array) -> jax.Array:
    """draw(key, *args) for each token."""
    return jax.vmap(jax.vmap(draw))(key_BT, *args_BT)


@method(
    kind="positions",
    formula="t -> t + k, in training with one k for each sequence, uniform over 0 .. shift",
    paper="Kiyono et al. 2021, arXiv 2109.05644",
    places=lambda o, pos_T, n: pos_T + o.still,
    moves=lambda o, n, given, training: (
        Range(given.low, given.below + o.shift)
        if training
        else Range(given.low + o.still, given.below + o.still)
    ),
    vary={"still": 3},
)
def shifted(shift: int = 500, still: int = 0) -> Encoding:
    """SHAPE: absolute positions moved by one random offset for each training sequence.

    A table to its right needs `shift` rows more than the longest training sequence has tokens.

    Args:
      shift: the largest offset, itself included; the public code draws from 0 .. shift - 1.
      still: the offset in evaluation; `shift` in the public code.

    FieldError: shift or still is negative.
    """
    at_least(0, shift=shift, still=still)

    def place(key, layout):
        pos_BT = with_axes(layout.pos_BT)
        if key is None:
            return pos_BT + still
        draw = lambda k: jax.random.randint(k, (), 0, shift + 1, jnp.int32)
        return pos_BT + each(draw, sequence_keys(key, layout)).astype(pos_BT.dtype)

    return Encoding(place=place)


def _cape_moves(o, n, given, training):
    low, below = (end - (n - 1) / 2 if o.normalize else end for end in given)
    if not training:
        return Range(low, below)
    low, below = low - o.shift - o.jitter, below + o.shift + o.jitter
    return Range(min(low * o.scale, low / o.scale), max(below * o.scale, below / o.scale))


@method(
    kind="positions",
    formula="t -> s (t - (n - 1)/2 + k + e_t), in training |k| <= shift, |e_t| <= jitter, "
    "|ln s| <= ln scale",
    paper="Likhomanenko et al. 2021, arXiv 2106.03143",
    places=lambda o, pos_T, n: pos_T - (n - 1) / 2 if o.normalize else pos_T,
    moves=_cape_moves,
)
def cape(
    shift: float = 5.0, jitter: float = 0.5, scale: float = 1.03, normalize: bool = True
) -> Encoding:
    """CAPE: positions from the sequence's middle, in training shifted, jittered and stretched.

    All draws are uniform: k and ln s for each sequence, e_t for each token. In the paper sinusoidal
    codes read these positions. The defaults are its settings for text; those for speech and images
    differ.

    Args:
      shift: the largest shift of a sequence, in tokens.
      jitter: the largest shift of a token, in tokens; up to 0.5 it keeps the order.
      scale: the largest factor; the smallest is 1 / scale.
      normalize: positions count from the middle of the sequence. False: from its start, which
        decoding needs if the length is not known in advance, as in the paper's translation.

    FieldError: shift or jitter is negative, or scale is below 1.
    """
    at_least(0, shift=shift, jitter=jitter)
    at_least(1, scale=scale)

    def place(key, layout):
        pos_BT = with_axes(layout.pos_BT).astype(float)
        if normalize:
            pos_BT = pos_BT - (layout.length_BT - 1).astype(float) / 2
        if key is None:
            return pos_BT
        uniform = lambda k: jax.random.uniform(k, (), float, -1.0, 1.0)
        keys = [sequence_keys(k, layout) for k in jax.random.split(key, 3)]
        token_keys = each(jax.random.fold_in, keys[2], layout.pos_BT.astype(jnp.int32))
        moved_BT = pos_BT + shift * each(uniform, keys[0]) + jitter * each(uniform, token_keys)
        return jnp.exp(np.log(scale) * each(uniform, keys[1])) * moved_BT

    return Encoding(place=place)
