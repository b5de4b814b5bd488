"""What methods at the model's input share: how a code joins the embeddings, how tables are read.

A method makes a code c(t) for position t and joins it to the embedding x as `how` says:

  add     x + c, where c is as wide as the model by its nature; else x + c P.
  concat  [x, c] P: the input layer reads both and comes back to the model's width.

P is learned. Its entries start with variance 1/D, which keeps lengths: at the start a code is as
loud as its formula says. W is the code's own width.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.angles import angles

How = Literal["add", "concat"]
Channels = Literal["interleaved", "halves"]
Spacing = Literal["paper", "tensor2tensor"]
Beyond = Literal["clamp", "interpolate", "error"]


def require(ok: bool, field: str, value: Any, rule: str) -> None:
    """ValueError, in one line that names the option, its value and the rule, unless ok."""
    if not ok:
        raise ValueError(f"encoding.{field}: {value!r} {rule}")


def one_of(field: str, value: Any, choices: Any) -> None:
    """ValueError unless the value is among those of a Literal type."""
    listed = ", ".join(repr(choice) for choice in get_args(choices))
    require(value in get_args(choices), field, value, f"is not one of: {listed}")


def normal(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """A matrix or table of variance 1/D, D being its last axis."""
    return jax.random.normal(key, shape) * shape[-1] ** -0.5


def at_input(how: How, code, init, axes=1, place=None) -> Encoding:
    """An encoding that joins codes of the model's width to the embeddings.

    Args:
      code: (params, placed, D) -> code_BTD, projected already.
      init: (key, D) -> the dict of what `code` reads.
      axes: how many numbers a position has: [B, T] for one, else [B, T, axes].
      place: as in `Encoding`.
    """
    one_of("how", how, How)

    def init_all(key, dims):
        code_key, x_key = jax.random.split(key)
        beside = {"x": normal(x_key, (dims.model, dims.model))} if how == "concat" else {}
        return init(code_key, dims.model) | beside

    def embed(params, x_BTD, placed):
        if placed.shape[2:] != ((axes,) if axes > 1 else ()):
            wanted = "[B, T]" if axes == 1 else f"[B, T, {axes}]"
            raise ValueError(f"positions: shape {placed.shape} is not {wanted}")
        wide_BTD = x_BTD.astype(float)
        if how == "concat":
            wide_BTD = jnp.einsum("btd,de->bte", wide_BTD, params["x"].astype(float))
        return (wide_BTD + code(params, placed, x_BTD.shape[-1])).astype(x_BTD.dtype)

    return Encoding(init=init_all, embed=embed, place=place)


def coded(how: How, width: int | None, code, init=lambda key, width: {}, **rest) -> Encoding:
    """As `at_input`, for codes [B, T, W]; a width of None follows the model's.

    Only such a code, added, goes without a matrix P.
    """
    require(width is None or width > 0, "width", width, "must be positive")

    def init_all(key, model):
        code_key, mix_key = jax.random.split(key)
        mixed = {"code": normal(mix_key, (width or model, model))}
        return init(code_key, width or model) | (mixed if how == "concat" or width else {})

    def projected(params, placed, model):
        code_BTW = code(params, placed, width or model)
        if "code" not in params:
            return code_BTW
        # Tensor cores would cut a large position to ten bits.
        exact = jax.lax.Precision.HIGHEST
        return jnp.einsum("btw,wd->btd", code_BTW, params["code"].astype(float), precision=exact)

    return at_input(how, projected, init_all, **rest)


def read(rows: Callable, pos_BT: jax.Array, length: int, beyond: Beyond) -> jax.Array:
    """Rows [B, T, W] of a table at positions, on the line between two rows at a fraction.

    Past the table: NaN for beyond="error", else its last row.

    Args:
      rows: int32 [B, T] in range(length) -> [B, T, W].
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


def bounded(length: int, beyond: Beyond) -> dict[str, Any]:
    """`place` of a method that knows the positions 0 .. length - 1 alone."""
    one_of("beyond", beyond, Beyond)

    def squeeze(key, layout):
        pos_BT, n_BT = layout.pos_BT.astype(float), layout.length_BT.astype(float)
        squeezed_BT = pos_BT * (length - 1) / jnp.maximum(n_BT - 1, 1)
        return jnp.where(n_BT > length, squeezed_BT, pos_BT)

    return {"place": squeeze if beyond == "interpolate" else None}


def sines(
    pos_BT: jax.Array, width: int, base: float, layout: Channels, spacing: Spacing
) -> jax.Array:
    """Sines and cosines [B, T, W] of positions; an odd last channel is zero."""
    pairs = width // 2
    per = width / 2 if spacing == "paper" else max(pairs - 1, 1)
    angle_BTK = angles(pos_BT, base ** (-np.arange(pairs)[None] / per))[:, :, 0]
    waves = jnp.sin(angle_BTK), jnp.cos(angle_BTK)
    if layout == "halves":
        code_BTW = jnp.concatenate(waves, axis=-1)
    else:
        code_BTW = jnp.stack(waves, axis=-1).reshape(*pos_BT.shape, 2 * pairs)
    return jnp.pad(code_BTW, ((0, 0), (0, 0), (0, width % 2)))


# Definitions in float64 NumPy, written from the papers.


def joined(o, params, x_TD, code_TW):
    """x with its code, as the module's docstring has it."""
    if o.how == "concat":
        mix = np.concatenate([params["x"], params["code"]])
        return np.concatenate([x_TD, code_TW], axis=1) @ mix
    return x_TD + (code_TW @ params["code"] if "code" in params else code_TW)


def within(length, beyond, t, n):
    """Where in a table of `length` rows position t of n is read; NaN where it is refused."""
    if beyond == "error" and not 0 <= t < length:
        return np.nan
    if beyond == "interpolate" and n > length:
        t = t * (length - 1) / (n - 1)
    return min(max(t, 0), length - 1)


def table_rows(table_LW, beyond, pos_T, n):
    """Rows of a table at positions, between two of them at a fraction."""
    length, rows = len(table_LW), []
    for t in (within(length, beyond, t, n) for t in pos_T):
        if np.isnan(t):
            rows.append(np.full(table_LW.shape[1], np.nan))
            continue
        low, high = table_LW[int(t)], table_LW[min(int(t) + 1, length - 1)]
        rows.append((1 - t % 1) * low + t % 1 * high)
    return np.stack(rows)


def sine_code(pos_T, width, base, layout, spacing):
    """The paper's table (or tensor2tensor's), one entry at a time."""
    code_TW, pairs = np.zeros((len(pos_T), width)), width // 2
    for i, t in enumerate(pos_T):
        for k in range(pairs):
            exponent = 2 * k / width if spacing == "paper" else k / max(pairs - 1, 1)
            sin_at, cos_at = (2 * k, 2 * k + 1) if layout == "interleaved" else (k, pairs + k)
            code_TW[i, sin_at] = np.sin(t / base**exponent)
            code_TW[i, cos_at] = np.cos(t / base**exponent)
    return code_TW
