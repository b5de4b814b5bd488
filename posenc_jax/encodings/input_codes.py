"""Helpers of methods at the model's input: codes of positions, and tables read at positions.

A method makes a code c(t) of width W for position t. The option `how` says how the code joins the
embedding x of width D:

  add     x + c if W = D; x + c P if the code has a width of its own.
  concat  [x, c] P.

P is a learned matrix. Its entries start with variance 1/D, which keeps the code's norm at
initialisation.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import ANYWHERE, Range, with_axes
from posenc_jax.encodings.rotation import Pairing, angles

How = Literal["add", "concat"]
Spacing = Literal["paper", "tensor2tensor"]
Beyond = Literal["clamp", "interpolate", "error"]


def normal(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """A random normal array of variance 1/D; D is the size of its last axis."""
    return jax.random.normal(key, shape) * shape[-1] ** -0.5


def at_input(how: How, code, init, axes=1, place=None) -> Encoding:
    """An encoding that joins codes of the model's width to the embeddings.

    Args:
      code: (params, placed, D) -> code_BTD, already multiplied by P.
      init: (key, D) -> the dict of arrays that `code` reads.
      axes: axes of a position: [B, T] for one, [B, T, axes] for several.
      place: as in `Encoding`.
    """

    def init_all(key, dims):
        code_key, x_key = jax.random.split(key)
        beside = {"x": normal(x_key, (dims.model, dims.model))} if how == "concat" else {}
        return init(code_key, dims.model) | beside

    def embed(params, x_BTD, placed):
        with_axes(placed, axes)
        wide_BTD = x_BTD.astype(float)
        if how == "concat":
            wide_BTD = jnp.einsum("btd,de->bte", wide_BTD, params["x"].astype(float))
        return (wide_BTD + code(params, placed, x_BTD.shape[-1])).astype(x_BTD.dtype)

    return Encoding(init=init_all, embed=embed, place=place)


def coded(how: How, width: int | None, code, init=lambda key, width: {}, **options) -> Encoding:
    """An encoding at the input, as `at_input`, for codes [B, T, W]; a width of None is the model's.

    There is no matrix P if the width is None and the code is added.
    """

    def init_all(key, model):
        code_key, mix_key = jax.random.split(key)
        mixed = {"code": normal(mix_key, (width or model, model))}
        return init(code_key, width or model) | (mixed if how == "concat" or width else {})

    def projected(params, placed, model):
        code_BTW = code(params, placed, width or model)
        if "code" not in params:
            return code_BTW
        # Tensor cores would round a large position to ten bits.
        mix_WD = params["code"].astype(float)
        return jnp.einsum("btw,wd->btd", code_BTW, mix_WD, precision="highest")

    return at_input(how, projected, init_all, **options)


def read(rows: Callable, pos_BT: jax.Array, length: int, beyond: Beyond) -> jax.Array:
    """The rows [B, T, W] of a table at positions, interpolated linearly between rows.

    rows(i), i int32 [B, T] in range(length), gives the rows at whole positions. Past the table:
    NaN for beyond="error", else its last row.
    """
    inside_BT = jnp.clip(pos_BT, 0, length - 1)
    low_BT = inside_BT.astype(jnp.int32)
    read_BTW = rows(low_BT).astype(float)
    if not jnp.issubdtype(pos_BT.dtype, jnp.integer):
        share_BT = inside_BT.astype(float) - low_BT.astype(float)
        next_BTW = rows(jnp.minimum(low_BT + 1, length - 1)).astype(float)
        read_BTW = read_BTW + share_BT[..., None] * (next_BTW - read_BTW)
    return refused(read_BTW, pos_BT, length) if beyond == "error" else read_BTW


def refused(code_BTW: jax.Array, pos_BT: jax.Array, length: int) -> jax.Array:
    """The code, NaN where a position is not in 0 .. length - 1."""
    held_BT = (pos_BT >= 0) & (pos_BT < length)
    return jnp.where(held_BT[..., None], code_BTW, jnp.nan)


def squeezed(length: int, beyond: Beyond) -> Callable | None:
    """The hook `place` of a method with the positions 0 .. length - 1.

    For beyond="interpolate", positions of sequences of more than `length` tokens are scaled so that
    the last one is length - 1; otherwise the layout's positions are used (None).
    """

    def squeeze(key, layout):
        pos_BT, n_BT = layout.pos_BT.astype(float), layout.length_BT.astype(float)
        return jnp.where(n_BT > length, pos_BT * (length - 1) / jnp.maximum(n_BT - 1, 1), pos_BT)

    return squeeze if beyond == "interpolate" else None


# Fields of the card of a method with the options `length` and `beyond`.
TABLE: dict[str, Any] = {
    "beyond": "option",
    "reads": lambda o, n: {
        "clamp": ANYWHERE,
        "interpolate": Range(0, max(o.length, n)),
        "error": Range(0, o.length),
    }[o.beyond],
}


def sines(
    pos_BT: jax.Array,
    width: int,
    base: float,
    pairing: Pairing,
    spacing: Spacing,
    first: Literal["sine", "cosine"] = "sine",
    speed: float = 1.0,
) -> jax.Array:
    """Sines and cosines [B, T, W] of positions; an odd last channel is zero.

    speed: the highest frequency, in radians per token.
    """
    pairs = width // 2
    per = width / 2 if spacing == "paper" else max(pairs - 1, 1)
    angle_BTK = angles(pos_BT, speed * base ** (-np.arange(pairs)[None] / per))[:, :, 0]
    waves = jnp.sin(angle_BTK), jnp.cos(angle_BTK)
    waves = waves if first == "sine" else waves[::-1]
    if pairing == "half":
        code_BTW = jnp.concatenate(waves, axis=-1)
    else:
        code_BTW = jnp.stack(waves, axis=-1).reshape(*pos_BT.shape, 2 * pairs)
    return jnp.pad(code_BTW, ((0, 0), (0, 0), (0, width % 2)))
