"""Absolute methods: a code for each position, at the model's input.

The options `how` and `width` say how a code joins the embeddings, see `input_codes.py`; `beyond`
says what positions past a table read, see `learned`.

`learned_2d`, `sinusoidal_2d` and `fourier_2d` are for grids: positions are (row, column),
[B, T, 2]. Rows and columns may be fractions. A table made for one resolution reads another if
positions are given in the table's units (row * table rows / image rows).
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import Count, Edge, Positive, Several, register, require, with_axes
from posenc_jax.encodings.input_codes import Beyond, How, Spacing
from posenc_jax.encodings.rotation import TURN, Pairing, angles
from posenc_jax.layout import Layout, sequences


@register(
    kind="none",
    formula="x",
    paper="Haviv et al. 2022, arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466",
)
def nope() -> Encoding:
    """No positional encoding: only a causal mask tells order."""
    return Encoding()


@register(kind="input", formula="c(t) = t", paper="textbook")
def index(how: How = "add") -> Encoding:
    """The position itself, in one channel; at far positions it is much larger than the token."""
    return codes.coded(how, 1, lambda params, pos_BT, width: pos_BT.astype(float)[..., None])


@register(kind="input", formula="c(t) = t / (n - 1), and 0 where n = 1", paper="textbook")
def normalized(how: How = "add") -> Encoding:
    """The position's share of the sequence, from 0 to 1; steps are smaller in longer sequences."""
    share = lambda key, at: at.pos_BT.astype(float) / jnp.maximum(at.length_BT - 1, 1).astype(float)
    return codes.coded(how, 1, lambda params, share_BT, width: share_BT[..., None], place=share)


@register(
    kind="input",
    formula="c_k(t) = floor(t / 2^k) mod 2, as many bits as length - 1 needs",
    paper="textbook",
    **codes.TABLE,
)
def binary(length: Count = 512, beyond: Beyond = "error", how: How = "add") -> Encoding:
    """The bits of the position, lowest first: neighbours differ in one bit, or in up to all.

    Args:
      length: positions that have a code, 0 to length - 1.
    """
    width = max((length - 1).bit_length(), 1)
    rows = lambda pos_BT: pos_BT[..., None] >> jnp.arange(width, dtype=jnp.int32)[None, None] & 1
    code = lambda params, pos_BT, width: codes.read(rows, pos_BT, length, beyond)
    return codes.coded(how, width, code, place=codes.squeezed(length, beyond))


@register(
    kind="input", formula="c(t) = the t-th unit vector of `length`", paper="textbook", **codes.TABLE
)
def one_hot(length: Count = 512, beyond: Beyond = "error", how: How = "add") -> Encoding:
    """A unit vector for each position. With how="add" it is the same function as `learned`.

    Args:
      length: positions that have a vector, 0 to length - 1.
    """

    init = lambda key, model: {"code": codes.normal(key, (length, model))}

    def code(params, pos_BT, model):
        # The product of a unit vector and a matrix is one of its rows.
        return codes.read(lambda i: params["code"][i], pos_BT, length, beyond)

    return codes.at_input(how, code, init, place=codes.squeezed(length, beyond))


@register(
    kind="input",
    formula="c_2k(t), c_2k+1(t) = sin, cos of t / base^(2k/W)",
    paper="Vaswani et al. 2017, arXiv 1706.03762",
)
def sinusoidal(
    base: Positive = 10_000.0,
    pairing: Pairing = "interleaved",
    spacing: Spacing = "paper",
    start: Literal[0, 1] = 0,
    first: Literal["sine", "cosine"] = "sine",
    scale: float | None = None,
    series: Count | None = None,
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Sines and cosines of geometric wavelengths.

    Args:
      pairing: "interleaved": sine and cosine of a pair side by side (the paper); "half": all sines,
        then all cosines (tensor2tensor, fairseq). An odd last channel is zero, as in both.
      spacing: exponents 2k/W (the paper), or k/(W/2 - 1), for which the longest wavelength is
        exactly 2 pi base (tensor2tensor, fairseq).
      start: the number of the first position.
      first: of a pair's two channels: "cosine" in MusicGen.
      scale: first value of a learned factor of the code (Li et al. 2018, arXiv 1809.08895, has 1);
        None: no factor.
      series: tokens of a time series, by which angles are divided and by the code's width
        multiplied, so that near positions are told apart as well in a narrow code (tAPE, Foumani et
        al. 2023, arXiv 2305.16642); None: they are not.
    """

    def code(params, pos_BT, width):
        speed = 1.0 if series is None else width / series
        code_BTW = codes.sines(pos_BT + start, width, base, pairing, spacing, first, speed)
        return code_BTW if scale is None else params["scale"].astype(float) * code_BTW

    init = lambda key, width: {} if scale is None else {"scale": jnp.asarray(scale, float)}
    return codes.coded(how, width, code, init)


@register(
    kind="input",
    formula="c(t) = E[t], a learned table of `length` rows",
    paper="Gehring et al. 2017, arXiv 1705.03122",
    **codes.TABLE,
)
def learned(
    length: Count = 512, beyond: Beyond = "error", how: How = "add", width: Count | None = None
) -> Encoding:
    """A learned vector for each position.

    Positions past the table read its last row (beyond="clamp") or give NaN ("error"). With
    "interpolate", a sequence of more than `length` tokens is squeezed into the table, and reads
    between its rows.

    Args:
      length: positions that have a vector, the rows of the table.
    """

    init = lambda key, width: {"table": codes.normal(key, (length, width))}

    def code(params, pos_BT, width):
        return codes.read(lambda i: params["table"][i], pos_BT, length, beyond)

    return codes.coded(how, width, code, init, place=codes.squeezed(length, beyond))


@register(
    kind="input",
    formula="c_k(t) = exp(-(t - g_k)^2 / 2 s^2), centres g_k even over 0 .. length - 1",
    paper="textbook",
    **codes.TABLE,
)
def rbf(
    length: Several = 512,
    bump: Positive | None = None,
    beyond: Beyond = "error",
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Gaussian bumps. The dot product of two codes is close to a Gaussian of width sqrt(2) s.

    Args:
      length: the grid of centres spans 0 .. length - 1.
      bump: s, in tokens; None is the distance between two centres.
      width: the number of centres; None is the model's width.
    """

    def code(params, pos_BT, width):
        step = (length - 1) / max(width - 1, 1)
        centre_W = jnp.asarray(np.arange(width) * step, float)[None, None]
        inside_BT = jnp.clip(pos_BT.astype(float), 0, length - 1)
        code_BTW = jnp.exp(-(((inside_BT[..., None] - centre_W) / (bump or step)) ** 2) / 2)
        return codes.refused(code_BTW, pos_BT, length) if beyond == "error" else code_BTW

    return codes.coded(how, width, code, place=codes.squeezed(length, beyond))


@register(
    kind="input",
    formula="c(t) = W2 gelu(W1 [cos(w t), sin(w t)] / sqrt(features) + b1) + b2, w learned",
    paper="Li et al. 2021, arXiv 2106.02795",
)
def fourier(
    gamma: Positive = 10.0,
    features: int = 64,
    hidden: Count = 32,
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Learned Fourier features: sines and cosines of learned frequencies, through a small network.

    Frequencies start normal with standard deviation 1 / gamma, as in the paper. The paper scales
    positions to a range of about 1; here they are counted in tokens. The paper does not say how the
    network starts: here W1 has variance 1, because its input has norm 1 / sqrt(2), and W2 variance
    1 / hidden.

    Args:
      gamma: number of tokens over which codes are alike at the start.
      features: number of sines and cosines, even; half as many frequencies.
      hidden: width of the network.

    FieldError: features is not even and positive.
    """
    require(features > 0 and features % 2 == 0, "features", features, "must be even and positive")

    def init(key, width):
        freq_key, w1_key, w2_key = jax.random.split(key, 3)
        return {
            "freq": jax.random.normal(freq_key, (features // 2,)) / gamma,
            "w1": jax.random.normal(w1_key, (features, hidden)),
            "b1": jnp.zeros(hidden),
            "w2": jax.random.normal(w2_key, (hidden, width)) * hidden**-0.5,
            "b2": jnp.zeros(width),
        }

    def code(params, pos_BT, width):
        p = {name: leaf.astype(float) for name, leaf in params.items()}
        angle_BTF = angles(pos_BT, p["freq"][None])[:, :, 0]
        r_BTF = jnp.concatenate([jnp.cos(angle_BTF), jnp.sin(angle_BTF)], axis=-1)
        hidden_BTF = jnp.einsum("btf,fh->bth", r_BTF * features**-0.5, p["w1"])
        hidden_BTF = jax.nn.gelu(hidden_BTF + p["b1"][None, None], approximate=False)
        return jnp.einsum("bth,hw->btw", hidden_BTF, p["w2"]) + p["b2"][None, None]

    return codes.coded(how, width, code, init)


@register(
    kind="input",
    formula="c(row, column) = (E_column[column], E_row[row]), two learned tables of `length` rows",
    paper="Carion et al. 2020 (DETR), arXiv 2005.12872",
    axes=2,
    **codes.TABLE,
)
def learned_2d(
    length: Count = 50,
    beyond: Edge = "error",
    join: Literal["beside", "sum"] = "beside",
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """A learned vector for each column and one for each row, side by side or summed.

    Positions are (row, column), but the column's half of the channels comes first, as in DETR's
    code. If the width is odd, the row's half is one channel wider. There is no `interpolate`,
    because a layout has the number of tokens in a grid, not the number of rows.

    Args:
      length: rows of the grid that have a vector, and columns.
      join: "beside": each has half of the channels (DETR); "sum": each has all (Pix2Struct).
    """

    def code(params, pos_BT2, width):
        read = lambda name, axis: codes.read(
            lambda i: params[name][i], pos_BT2[..., axis], length, beyond
        )
        vectors = read("column", 1), read("row", 0)
        return sum(vectors) if join == "sum" else jnp.concatenate(vectors, axis=-1)

    def init(key, width):
        if join == "sum":
            keys = zip(("column", "row"), jax.random.split(key), strict=True)
            return {name: codes.normal(k, (length, width)) for name, k in keys}
        table = codes.normal(key, (length, width))
        return {"column": table[:, : width // 2], "row": table[:, width // 2 :]}

    return codes.coded(how, width, code, init, axes=2)


@register(
    kind="input",
    formula="c = (sin w_k row, cos w_k row, sin w_k column, cos w_k column), w_k = base^(-4k/W)",
    paper="Dosovitskiy et al. 2020, arXiv 2010.11929; Chen et al. 2021 (MoCo v3), arXiv 2104.02057",
    axes=2,
)
def sinusoidal_2d(
    base: Positive = 10_000.0,
    pairing: Pairing = "half",
    normalized: bool = False,
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Sines of the row, then sines of the column, each in half of the channels.

    The row comes first, as in MoCo v3's code, though the names in that code say the opposite. Its
    widths are multiples of 4. For other widths each half is as in `sinusoidal`, and the column's
    half is wider if the width is odd.

    Args:
      pairing: within each half, "half": all sines, then all cosines (MoCo v3); "interleaved": sine
        and cosine of a pair side by side.
      normalized: a row is read as 2 pi (row + 1) / (rows + 1e-6), of the rows of the token's own
        picture, and a column alike (DETR, which pairs "interleaved").
    """

    def code(params, pos_BT2, width):
        row_BTW = codes.sines(pos_BT2[..., 0], width // 2, base, pairing, "paper")
        column_BTW = codes.sines(pos_BT2[..., 1], width - width // 2, base, pairing, "paper")
        return jnp.concatenate([row_BTW, column_BTW], axis=-1)

    return codes.coded(how, width, code, axes=2, place=_shares if normalized else None)


@register(
    kind="input",
    formula="c = (sin, cos)(f (row - (rows - 1)/2) + g (column - (columns - 1)/2)), f, g random",
    paper="Tancik et al. 2020, arXiv 2006.10739",
    axes=2,
)
def fourier_2d(
    rows: Count = 64,
    columns: Count = 64,
    scale: Positive = 1.0,
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """Sines and cosines of random directions in a picture, as of the points of Segment Anything.

    All sines come first. Each is of one frequency f along rows and g along columns, in radians per
    patch, which stand in the parameters as freq_2F. They start normal, with standard deviation
    4 pi scale / rows and 4 pi scale / columns: those of a picture from -1 to 1. With as many
    numbers as pixels in place of patches, points of the picture get the codes of patches around
    them. An odd last channel is zero.

    Args:
      rows, columns: patches of the picture, whose middle has the angle 0.
      scale: standard deviation of the frequencies at the start, in turns per half of the picture.
    """
    sizes_2 = np.array([rows, columns])

    def init(key, width):
        spread_21 = jnp.asarray(2 * TURN * scale / sizes_2, float)[:, None]
        return {"freq_2F": spread_21 * jax.random.normal(key, (2, width // 2))}

    def code(params, pos_BT2, width):
        middle_2 = jnp.asarray((sizes_2 - 1) / 2, float)
        from_middle_BT2 = with_axes(pos_BT2, 2).astype(float) - middle_2[None, None]
        freq_2F = params["freq_2F"].astype(float)
        row, column = (angles(from_middle_BT2[..., n], freq_2F[n][None]) for n in range(2))
        angle_BTF = (row + column)[:, :, 0]
        code_BTW = jnp.concatenate([jnp.sin(angle_BTF), jnp.cos(angle_BTF)], axis=-1)
        return jnp.pad(code_BTW, ((0, 0), (0, 0), (0, width % 2)))

    return codes.coded(how, width, code, init, axes=2)


def _shares(key, layout: Layout) -> jax.Array:
    """Rows and columns as shares of those of the token's own sequence, in radians of one turn."""
    pos_BTA = with_axes(layout.pos_BT, 2).astype(float)

    def last(pos_TA, first_T):
        return jnp.full_like(pos_TA, -jnp.inf).at[first_T].max(pos_TA)[first_T]

    last_BTA = jax.vmap(last)(pos_BTA, sequences(layout.segment_BT).first_BT)
    return TURN * (pos_BTA + 1) / (last_BTA + 1 + 1e-6)
