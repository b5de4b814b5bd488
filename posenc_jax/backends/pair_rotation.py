"""Rotations that differ by backend, because of how XLA compiles them: pairs and small matrices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.target import tuned_for

Angle = tuple[jax.Array, jax.Array]  # its cosines and sines


def turn_pairs(cos: jax.Array, sin: jax.Array, x_BTHC: jax.Array, apart: bool) -> jax.Array:
    """Pairs turned, in the shape and dtype of x: (a, b) to (a cos - b sin, b cos + a sin).

    An accelerator writes the result once. XLA for a TPU would write the two halves of a head, and
    then both again side by side; and it would keep float32 copies of x and of the gradient.

    Args:
      cos, sin: [B, T, 1|H, C / 2]; their dtype is that of the sums.
      apart: a pair is channels (k, k + C / 2), else (2k, 2k + 1).
    """
    if not tuned_for("cpu"):
        return _turned(apart, cos, sin, x_BTHC)
    axis = -2 if apart else -1
    pairs = x_BTHC.reshape(*x_BTHC.shape[:-1], *((2, -1) if apart else (-1, 2)))
    a, b = (half.astype(cos.dtype) for half in jnp.unstack(pairs, axis=axis))
    turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=axis)
    return turned.astype(x_BTHC.dtype).reshape(x_BTHC.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _turned(apart, cos, sin, x_BTHC):
    """`turn_pairs` for an accelerator.

    A pair is swapped before it is cast to float32: otherwise XLA keeps the swapped copy in float32.
    """
    cos, sin, x = _views(apart, cos, sin, x_BTHC)
    wide, other = x.astype(cos.dtype), _swapped(apart, x).astype(cos.dtype)
    turned = wide * cos + other * (_signs(apart, sin) * sin)
    return turned.astype(x.dtype).reshape(x_BTHC.shape)


@_turned.defjvp
def _turned_jvp(apart, primals, tangents):
    """The derivative, written so that its transpose also swaps a gradient before it is float32.

    Signs in the dtype of x stand between the two casts; without them XLA would make both one cast,
    and keep a float32 copy.
    """
    (cos, sin, x_BTHC), (dcos, dsin, dx_BTHC) = primals, tangents
    cos, sin, dx = _views(apart, cos, sin, dx_BTHC)
    wide = dx.astype(cos.dtype)
    quarter = _signs(apart, dx) * _swapped(apart, (wide * sin).astype(dx.dtype))
    by_x = ((wide * cos).astype(dx.dtype) + quarter).reshape(dx_BTHC.shape)
    return _turned(apart, *primals), by_x + _by_table(apart, dcos, dsin, x_BTHC)


def _by_table(apart, dcos, dsin, x_BTHC):
    """How turned pairs change with the table.

    Halves are put together by `side_by_side`, for its reason; nothing sums over an axis of two.
    """
    if not apart:
        return _turned(apart, dcos, dsin, x_BTHC)
    a, b = (half.astype(dcos.dtype) for half in jnp.split(x_BTHC, 2, axis=-1))
    return _cast_apart(x_BTHC.dtype, a * dcos - b * dsin, b * dcos + a * dsin)


def _views(apart, cos, sin, x_BTHC):
    """Cosines, sines and x in shapes whose product is elementwise.

    The halves of pairs that are apart get an axis, which costs a TPU nothing.
    """
    if apart:
        halves = x_BTHC.reshape(*x_BTHC.shape[:-1], 2, -1)
        return cos[..., None, :], sin[..., None, :], halves
    return jnp.repeat(cos, 2, axis=-1), jnp.repeat(sin, 2, axis=-1), x_BTHC


def _swapped(apart, x):
    """x with the two channels of each pair exchanged.

    On a TPU neighbours are exchanged by a product with a permutation, which is exact: moved as
    channels they would be copied in several steps.
    """
    if apart:
        return jnp.flip(x, axis=-2)
    if not tuned_for("tpu"):
        return jnp.flip(x.reshape(*x.shape[:-1], -1, 2), axis=-1).reshape(x.shape)
    swap_CC = np.kron(np.eye(x.shape[-1] // 2), np.eye(2)[::-1]).astype(x.dtype)
    return jnp.matmul(x, swap_CC, precision="highest")


def _signs(apart, x):
    """-1 for the first channel of a pair, 1 for the second one."""
    sign = np.array([-1, 1], x.dtype)
    sign = sign[:, None] if apart else np.tile(sign, x.shape[-1] // 2)
    return np.expand_dims(sign, [*range(x.ndim - sign.ndim)])


def polar(turn: Angle, by: Angle | None, x_BTHC: jax.Array) -> jax.Array:
    """softplus(x) times cosine and sine of both angles' sum, [B, T, H, 2 C] in the dtype of x.

    A TPU writes the result once: XLA for it would write both halves, and then both again side by
    side, of which it would hold all at once.

    Args:
      turn: cosines and sines [B, T, 1, C]; their dtype is that of products.
      by: of an angle of each head, [1, 1, H, C]; None: 0.
    """
    return _polar(turn, by, x_BTHC) if tuned_for("tpu") else _polar_halves(turn, by, x_BTHC)


@jax.custom_jvp
def _polar(turn, by, x_BTHC):
    """`polar` for a TPU: a product with two unit matrices repeats x, which is exact."""
    both = lambda a, b: jnp.concatenate([a, b], axis=-1)
    cos, sin = turn
    factors = both(cos, sin)
    if by is not None:
        factors = factors * both(by[0], by[0]) + both(-sin, cos) * both(by[1], by[1])
    twice_CE = np.tile(np.eye(x_BTHC.shape[-1]), 2).astype(x_BTHC.dtype)
    x_BTHE = jnp.matmul(x_BTHC, twice_CE, precision="highest")
    return (jax.nn.softplus(x_BTHE.astype(cos.dtype)) * factors).astype(x_BTHC.dtype)


@_polar.defjvp
def _polar_jvp(primals, tangents):
    return _polar(*primals), jax.jvp(_polar_halves, primals, tangents)[1]


def _polar_halves(turn, by, x_BTHC):
    cos, sin = turn
    if by is not None:  # no head needs cosines of its own
        cos, sin = cos * by[0] - sin * by[1], sin * by[0] + cos * by[1]
    size = jax.nn.softplus(x_BTHC.astype(cos.dtype))
    return side_by_side(x_BTHC.dtype, size * cos, size * sin)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def side_by_side(dtype, a: jax.Array, b: jax.Array) -> jax.Array:
    """a and b side by side along the last axis, cast to `dtype`, which is not wider than theirs.

    Its transpose halves a gradient before it casts it: XLA for a TPU would keep the whole of it in
    the dtype of a and b.
    """
    return jnp.concatenate([a, b], axis=-1).astype(dtype)


@side_by_side.defjvp
def _side_by_side_jvp(dtype, primals, tangents):
    return side_by_side(dtype, *primals), _cast_apart(dtype, *tangents)


def _cast_apart(dtype, a, b):
    return jnp.concatenate([a.astype(dtype), b.astype(dtype)], axis=-1)
