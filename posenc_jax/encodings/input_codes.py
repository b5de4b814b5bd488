"""Shared by methods at the model's input: codes of positions, and tables read at positions.

A method makes a code c(t) of width W for position t. The option `how` says how the code joins the
embedding x of width D:

  add     x + c if W = D; x + c P if the code has a width of its own.
  concat  [x, c] P.

P is a learned matrix. Its entries start with variance 1/D, which keeps the code's norm at
initialisation.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import ANYWHERE, Range
from posenc_jax.encodings.checks import at_least, one_of, with_axes
from posenc_jax.encodings.rotation import Pairing, angles

How = Literal["add", "concat"]
Spacing = Literal["paper", "tensor2tensor"]
Beyond = Literal["clamp", "interpolate", "error"]


def normal(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """A normal matrix or table of variance 1/D; D is the size of its last axis."""
    return jax.random.normal(key, shape) * shape[-1] ** -0.5


def at_input(how: How, code, init, axes=1, place=None) -> Encoding:
    """An encoding that joins codes of the model's width to the embeddings.

    Args:
      code: (params, placed, D) -> code_BTD, already multiplied by P.
      init: (key, D) -> the dict of arrays that `code` reads.
      axes: axes of a position: [B, T] for one, [B, T, axes] for several.
      place: as in `Encoding`.
    """
    one_of("how", how, How)

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


def coded(how: How, width: int | None, code, init=lambda key, width: {}, **rest) -> Encoding:
    """As `at_input`, for codes [B, T, W]; a width of None is the model's.

    There is no matrix P if the width is None and the code is added.
    """
    at_least(1, width=1 if width is None else width)

    def init_all(key, model):
        code_key, mix_key = jax.random.split(key)
        mixed = {"code": normal(mix_key, (width or model, model))}
        return init(code_key, width or model) | (mixed if how == "concat" or width else {})

    def projected(params, placed, model):
        code_BTW = code(params, placed, width or model)
        if "code" not in params:
            return code_BTW
        # Tensor cores would round a large position to ten bits.
        exact = jax.lax.Precision.HIGHEST
        return jnp.einsum("btw,wd->btd", code_BTW, params["code"].astype(float), precision=exact)

    return at_input(how, projected, init_all, **rest)


def read(rows: Callable, pos_BT: jax.Array, length: int, beyond: Beyond) -> jax.Array:
    """Rows [B, T, W] of a table at positions, with linear interpolation between rows.

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
    """The code, NaN where the position is not in 0 .. length - 1."""
    held_BT = (pos_BT >= 0) & (pos_BT < length)
    return jnp.where(held_BT[..., None], code_BTW, jnp.nan)


def squeezed(length: int, beyond: Beyond) -> Callable | None:
    """`place` of a method that has the positions 0 .. length - 1.

    For beyond="interpolate", positions of sequences of more than `length` tokens are scaled so that
    the last one is length - 1; otherwise the layout's positions are used (None).
    """
    one_of("beyond", beyond, Beyond)

    def squeeze(key, layout):
        pos_BT, n_BT = layout.pos_BT.astype(float), layout.length_BT.astype(float)
        return jnp.where(n_BT > length, pos_BT * (length - 1) / jnp.maximum(n_BT - 1, 1), pos_BT)

    return squeeze if beyond == "interpolate" else None


def table_reads(o: SimpleNamespace, n: int) -> Range:
    """A card's `reads` of a method with the options `length` and `beyond`."""
    if o.beyond == "clamp":
        return ANYWHERE
    return Range(0, max(o.length, n) if o.beyond == "interpolate" else o.length)


def sines(
    pos_BT: jax.Array, width: int, base: float, pairing: Pairing, spacing: Spacing
) -> jax.Array:
    """Sines and cosines [B, T, W] of positions; an odd last channel is zero."""
    pairs = width // 2
    per = width / 2 if spacing == "paper" else max(pairs - 1, 1)
    angle_BTK = angles(pos_BT, base ** (-np.arange(pairs)[None] / per))[:, :, 0]
    waves = jnp.sin(angle_BTK), jnp.cos(angle_BTK)
    if pairing == "half":
        code_BTW = jnp.concatenate(waves, axis=-1)
    else:
        code_BTW = jnp.stack(waves, axis=-1).reshape(*pos_BT.shape, 2 * pairs)
    return jnp.pad(code_BTW, ((0, 0), (0, 0), (0, width % 2)))


# Definitions in float64 NumPy, written from the papers.


def embeds_by(code: Callable) -> Callable:
    """A card's `embeds`, by the formulas above: code(o, params, pos_T, n, width) -> [T, W].

    The code's own width is the option `width`, or the model's.
    """

    def embeds(o, params, x_TD, pos_T, n):
        width = getattr(o, "width", None) or x_TD.shape[1]
        code_TW = code(o, params, pos_T, n, width)
        if o.how == "concat":
            mix = np.concatenate([params["x"], params["code"]])
            return np.concatenate([x_TD, code_TW], axis=1) @ mix
        return x_TD + (code_TW @ params["code"] if "code" in params else code_TW)

    return embeds


def within(length, beyond, t, n):
    """The row of a table of `length` rows for position t of n tokens, a float; NaN if refused."""
    if beyond == "error" and not 0 <= t < length:
        return np.nan
    if beyond == "interpolate" and n > length:
        t = t * (length - 1) / (n - 1)
    return min(max(t, 0), length - 1)


def table_rows(table_LW, beyond, pos_T, n):
    """Rows of a table at positions; between two rows at a fraction."""
    length, rows = len(table_LW), []
    for t in (within(length, beyond, t, n) for t in pos_T):
        if np.isnan(t):
            rows.append(np.full(table_LW.shape[1], np.nan))
            continue
        low, high = table_LW[int(t)], table_LW[min(int(t) + 1, length - 1)]
        rows.append((1 - t % 1) * low + t % 1 * high)
    return np.stack(rows)


def rows_of(table: Callable) -> Callable:
    """A card's `embeds` by the rows of table(o, params), [length, W]."""
    rows = lambda o, params, pos_T, n, width: table_rows(table(o, params), o.beyond, pos_T, n)
    return embeds_by(rows)


def sine_code(pos_T, width, base, pairing, spacing):
    """The paper's table (or tensor2tensor's), one entry at a time."""
    code_TW, pairs = np.zeros((len(pos_T), width)), width // 2
    for i, t in enumerate(pos_T):
        for k in range(pairs):
            exponent = 2 * k / width if spacing == "paper" else k / max(pairs - 1, 1)
            sin_at, cos_at = (2 * k, 2 * k + 1) if pairing == "interleaved" else (k, pairs + k)
            code_TW[i, sin_at] = np.sin(t / base**exponent)
            code_TW[i, cos_at] = np.cos(t / base**exponent)
    return code_TW
