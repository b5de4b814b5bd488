"""Relative methods: a bias added to the logits, a function of positions alone; D = i - j."""

import bisect
import math
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import one_of, require


def offsets(q_placed, k_placed, axes: int = 1) -> jax.Array:
    """D = i - j: [B, Q, K] from [B, Q] and [B, K]; [B, Q, K, A] from [B, Q, A] and [B, K, A].

    ValueError: positions of another number of axes.
    """
    if k_placed.shape[2:] != ((axes,) if axes > 1 else ()):
        wanted = "[B, T]" if axes == 1 else f"[B, T, {axes}]"
        raise ValueError(f"positions: shape {k_placed.shape} is not {wanted}")
    return q_placed[:, :, None] - k_placed[:, None]


def clipped_row(offset, distance: int) -> jax.Array:
    """Row 0 to 2 `distance` of a table over clipped offsets; a fraction goes to the nearest row."""
    return jnp.round(jnp.clip(offset, -distance, distance)).astype(jnp.int32) + distance


def refusing(made: jax.Array, offset: jax.Array) -> jax.Array:
    """What was made of offsets, NaN where one is: that of a position which was refused."""
    if jnp.issubdtype(offset.dtype, jnp.integer):
        return made
    return jnp.where(jnp.isnan(offset), jnp.nan, made)


def at_least_1(field: str, value: int) -> None:
    require(value >= 1, field, value, "must be 1 or more")


# A gather, forward and backward, beat a one-hot product 2 to 8 times at 128 x 128 and 512 x 512
# on the CPU: the one-hot array costs more to write than the scatter-add it saves.
def _look_up(table_RH, row_BQK, offset_BQK) -> jax.Array:
    found_BHQK = jnp.moveaxis(table_RH.astype(float)[row_BQK], -1, 1)
    return refusing(found_BHQK, offset_BQK[:, None])


def by_offset(value, q_THC, k_THC, pos_T):
    """Float64 logits [H, T, T] of definitions: q.k/sqrt(C) + value(h, D)."""
    time, heads, head = q_THC.shape
    s_HTT = np.zeros((heads, time, time))
    for h in range(heads):
        for i in range(time):
            for j in range(time):
                dot = np.dot(q_THC[i, h], k_THC[j, h]) / np.sqrt(head)
                s_HTT[h, i, j] = dot + value(h, pos_T[i] - pos_T[j])
    return s_HTT


def _clipped_scores(o, params, q_THC, k_THC, pos_T, n):
    row = lambda d: int(min(max(d, -o.distance), o.distance)) + o.distance
    return by_offset(lambda h, d: params["table"][row(d), h], q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, clip(i - j, -distance, distance)]",
    paper="scalar form of Shaw et al. 2018, arXiv 1803.02155",
    beyond="clamp",
    relative=True,
    scores=_clipped_scores,
    reference="transformers",
)
def clipped(distance: int = 16, shared: bool = False) -> Encoding:
    """A learned scalar for each offset, clipped on both sides, and head.

    Args:
      distance: offsets further apart than this, on either side, share the last scalar.
      shared: one table for all layers; as in the paper, each layer has its own by default.

    ValueError: distance is not positive.
    """
    at_least_1("distance", distance)

    def init(key, dims):
        return {"table": 0.02 * jax.random.normal(key, (2 * distance + 1, dims.heads))}

    def bias(params, q_placed, k_placed, dims):
        offset_BQK = offsets(q_placed, k_placed)
        return _look_up(params["table"], clipped_row(offset_BQK, distance), offset_BQK)

    encoding = Encoding(init=init, bias=bias, relative=True)
    return encoding if shared else each_layer(encoding)


def bucket_starts(buckets: int, distance: int) -> list[int]:
    """The smallest distance that falls into T5's bucket 1, 2, ..., buckets - 1.

    The first half of the buckets hold one distance each; bucket `exact` + k starts where
    log(d / exact) / log(distance / exact) * (buckets - exact) reaches k. Powers of whole numbers
    decide that without rounding: logarithms in float32 differ between frameworks at the edges.
    """
    exact = buckets // 2
    steps = buckets - exact

    def start(k: int) -> int:
        edge = distance**k * exact ** (steps - k)
        return bisect.bisect_left(range(distance), edge, key=lambda d: d**steps)

    return [*range(1, exact), *(start(k) for k in range(steps))]


def _unscaled(root, x_BTHC, side):
    return x_BTHC if side == "k" else (x_BTHC.astype(root.dtype) * root).astype(x_BTHC.dtype)


def _t5_scores(o, params, q_THC, k_THC, pos_T, n):
    side = o.buckets // 2 if o.bidirectional else o.buckets
    exact = side // 2

    def bucket(d):
        first = side if o.bidirectional and d < 0 else 0
        d = abs(d) if o.bidirectional else max(d, 0)
        d = math.floor(d)
        if d < exact:
            return first + d
        share = math.log(d / exact) / math.log(o.distance / exact)
        return first + min(exact + int(share * (side - exact)), side - 1)

    factor = 1 if o.scaled else np.sqrt(q_THC.shape[-1])
    value = lambda h, d: params["table"][bucket(d), h]
    return by_offset(value, factor * q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, bucket(i - j)], half of the buckets exact, half logarithmic",
    paper="Raffel et al. 2020, arXiv 1910.10683",
    beyond="clamp",
    relative=True,
    scores=_t5_scores,
    reference="transformers, x-transformers",
)
def t5(
    buckets: int = 32,
    distance: int = 128,
    bidirectional: bool = True,
    scaled: bool = True,
    shared: bool = True,
) -> Encoding:
    """A learned scalar for each log-spaced bucket of offsets and head.

    Distances are whole, as T5 has them: a fraction is dropped.

    Args:
      buckets: how many, in all.
      distance: offsets from here on share the last bucket.
      bidirectional: half of the buckets for keys ahead of the query, as in T5's encoder. False,
        as in its decoder: all for keys behind it, and every key ahead counts as offset 0.
      scaled: False drops the 1/sqrt(C) of the logits, as T5 does.
      shared: as in the paper, one table for all layers; False: each layer has its own.

    ValueError: buckets is odd or below 4 (one-sided: below 2), or distance is not above the number
    of distances that have a bucket of their own.
    """
    behind = buckets // 2 if bidirectional else buckets
    if behind < 2 or (bidirectional and buckets % 2):
        wanted = "even and 4 or more" if bidirectional else "2 or more"
        raise ValueError(f"encoding.buckets: {buckets} must be {wanted}")
    if distance <= behind // 2:
        raise ValueError(
            f"encoding.distance: {distance} must exceed {behind // 2}, the number of distances "
            "with a bucket of their own"
        )
    starts = np.asarray(bucket_starts(behind, distance))

    def init(key, dims):
        return {"table": dims.model**-0.5 * jax.random.normal(key, (buckets, dims.heads))}

    def bias(params, q_placed, k_placed, dims):
        offset_BQK = offsets(q_placed, k_placed)
        apart_BQK = jnp.abs(offset_BQK) if bidirectional else offset_BQK
        passed = apart_BQK[..., None] >= starts.astype(apart_BQK.dtype)[None, None, None]
        row_BQK = passed.sum(-1, dtype=jnp.int32)
        if bidirectional:
            row_BQK = row_BQK + jnp.where(offset_BQK < 0, behind, 0)
        return _look_up(params["table"], row_BQK, offset_BQK)

    encoding = Encoding(init=init, bias=bias, relative=True)
    if not scaled:
        # A table knows the head's own width, whatever a part before this one made of it.
        table = lambda params, placed, dims: jnp.full((1, 1, 1, 1), dims.head**0.5)
        encoding = encoding._replace(table=table, rotate=_unscaled)
    return encoding if shared else each_layer(encoding)


def alibi_slopes(heads: int) -> np.ndarray:
    """ALiBi's slopes [H]: 2^(-8/H), 2^(-16/H), ...; float64.

    H not a power of 2, as in the authors' code: those of the next lower power, then every second
    one of the power above it.
    """
    geometric = lambda n: 2.0 ** (-8 * np.arange(1, n + 1) / n)
    power = 2 ** int(math.log2(heads))
    return np.concatenate([geometric(power), geometric(2 * power)[::2][: heads - power]])


def _alibi_scores(o, params, q_THC, k_THC, pos_T, n):
    def slopes(heads):
        if o.learned:
            return [2.0**x for x in params["log2_slopes"]]
        if math.log2(heads).is_integer():
            start = 2.0 ** (-(2.0 ** -(math.log2(heads) - 3)))
            return [start * start**i for i in range(heads)]
        power = 2 ** math.floor(math.log2(heads))
        return slopes(power) + slopes(2 * power)[0::2][: heads - power]

    m = slopes(q_THC.shape[1])
    return by_offset(lambda h, d: -m[h] * abs(d), q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) - m[h] |i - j|, m[h] = 2^(-8 h / H) for h = 1 .. H",
    paper="Press et al. 2022, arXiv 2108.12409",
    relative=True,
    scores=_alibi_scores,
    reference="transformers, x-transformers",
)
def alibi(learned: bool = False) -> Encoding:
    """A penalty that grows linearly with distance, at a slope of its own for each head.

    The paper is causal, where |i - j| = i - j; keys ahead of the query get the same penalty here.

    Args:
      learned: slopes are learned, from the paper's on, and stay positive; all layers share them.
    """

    def init(key, dims):
        # Logarithms: the smallest slope is 1/256, and a step that suits the largest would undo it.
        log2_slopes = jnp.log2(jnp.asarray(alibi_slopes(dims.heads), float))
        return {"log2_slopes": log2_slopes} if learned else {}

    def bias(params, q_placed, k_placed, dims):
        if learned:
            slope_H = jnp.exp2(params["log2_slopes"].astype(float))
        else:
            slope_H = jnp.asarray(alibi_slopes(dims.heads), float)
        apart_BQK = jnp.abs(offsets(q_placed, k_placed)).astype(float)
        return -slope_H[None, :, None, None] * apart_BQK[:, None]

    return Encoding(init=init, bias=bias, relative=True)


def _swin_2d_scores(o, params, q_THC, k_THC, pos_T, n):
    last = o.window - 1

    def value(h, d):
        if o.beyond == "error" and max(abs(d[0]), abs(d[1])) > last:
            return np.nan
        row, column = (int(min(max(x, -last), last)) + last for x in d)
        return params["table"][row, column, h]

    return by_offset(value, q_THC, k_THC, pos_T)


@method(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, row_i - row_j, column_i - column_j]",
    paper="Liu et al. 2021, arXiv 2103.14030",
    beyond="option",
    relative=True,
    axes=2,
    scores=_swin_2d_scores,
    reference="timm, transformers",
)
def swin_2d(
    window: int = 7, beyond: Literal["clamp", "error"] = "clamp", shared: bool = False
) -> Encoding:
    """A learned scalar for each (row, column) offset inside a square window, and head.

    Args:
      window: side of the window; the table has 2 `window` - 1 offsets on each axis.
      beyond: offsets that do not fit in a window read the nearest that does, or give NaN.
      shared: one table for all layers; as in the paper, each layer has its own by default.

    ValueError: window is not positive, or an unknown beyond.
    """
    at_least_1("window", window)
    one_of("beyond", beyond, Literal["clamp", "error"])
    last = window - 1

    def init(key, dims):
        shape = (2 * window - 1, 2 * window - 1, dims.heads)
        return {"table": 0.02 * jax.random.truncated_normal(key, -2.0, 2.0, shape)}

    def bias(params, q_placed, k_placed, dims):
        offset_BQK2 = offsets(q_placed, k_placed, axes=2)
        row_BQK2 = clipped_row(offset_BQK2, last)
        table_RH = params["table"].reshape(-1, params["table"].shape[-1])
        flat_BQK = row_BQK2[..., 0] * (2 * window - 1) + row_BQK2[..., 1]
        found = _look_up(table_RH, flat_BQK, offset_BQK2.sum(-1))
        if beyond == "clamp":
            return found
        outside_BQK = (jnp.abs(offset_BQK2) > last).any(-1)
        return jnp.where(outside_BQK[:, None], jnp.nan, found)

    encoding = Encoding(init=init, bias=bias, relative=True)
    return encoding if shared else each_layer(encoding)
