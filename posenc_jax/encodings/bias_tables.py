"""Biases read from learned tables: by clipped offsets, T5's buckets, Swin's window; D = i - j.

Tables have rows for whole offsets. One with a fraction gives NaN; T5 alone rounds it down.
"""

import bisect

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.table_lookup import look_up
from posenc_jax.encoding import Encoding
from posenc_jax.encodings.bias import clipped_row, layered, offsets, refusing
from posenc_jax.encodings.card import ANYWHERE, Count, Edge, Range, Whole, register, require


def _look_up(table_RH, row_BQK, offset, **bounds) -> jax.Array:
    """The entries of a table at rows [B, Q, K], as [B, H, Q, K]; see `refusing`."""
    return refusing(look_up(table_RH.astype(float), row_BQK), offset, **bounds)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, clip(i - j, -ahead, distance)]",
    paper="scalar form of Shaw et al. 2018, arXiv 1803.02155",
    beyond="clamp",
)
def clipped(distance: Count = 16, ahead: Whole | None = None, shared: bool = False) -> Encoding:
    """A learned scalar for each offset, clipped on both sides, and head.

    An offset with a fraction gives NaN.

    Args:
      distance: larger offsets share the last scalar.
      ahead: the same of keys ahead of the query; None: `distance`; 0 in a causal decoder, which
        reads none of them.
    """
    ends = distance if ahead is None else ahead, distance

    def init(key, dims):
        return {"table": 0.02 * jax.random.normal(key, (sum(ends) + 1, dims.heads))}

    def bias(params, q_placed, k_placed, dims):
        offset_BQK = offsets(q_placed, k_placed)
        return _look_up(params["table"], clipped_row(offset_BQK, *ends), offset_BQK)

    return layered(Encoding(init=init, bias=bias, relative=True), shared)


def bucket_starts(buckets: int, distance: int) -> list[int]:
    """The smallest distance in T5's bucket 1, 2, ..., buckets - 1.

    Each bucket of the first half, `exact`, holds one distance. Bucket `exact` + k starts where
    log(d / exact) / log(distance / exact) * (buckets - exact) reaches k. This is decided by powers
    of whole numbers, without rounding: float32 logarithms of frameworks differ at the edges.
    """
    exact = buckets // 2
    steps = buckets - exact

    def start(k: int) -> int:
        edge = distance**k * exact ** (steps - k)
        return bisect.bisect_left(range(distance), edge, key=lambda d: d**steps)

    return [*range(1, exact), *(start(k) for k in range(steps))]


@register(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, bucket(i - j)], half of the buckets exact, half logarithmic",
    paper="Raffel et al. 2020, arXiv 1910.10683",
    beyond="clamp",
)
def t5(
    buckets: int = 32,
    distance: int = 128,
    bidirectional: bool = True,
    scaled: bool = True,
    shared: bool = True,
) -> Encoding:
    """A learned scalar for each log-spaced bucket of offsets and head.

    Distances are rounded down to whole numbers, as in T5.

    Args:
      buckets: number of buckets.
      distance: offsets from here on share the last bucket.
      bidirectional: half of the buckets are for keys ahead of the query, as in T5's encoder; a
        causal decoder never reads that half, so give it False. False, as in T5's decoder: all are
        for keys behind the query, and a key ahead has offset 0.
      scaled: False drops the 1/sqrt(C) of the logits, as T5 does.

    FieldError: buckets is odd or below 4 (one-sided: below 2), or distance is not above the number
    of distances that have a bucket of their own.
    """
    behind = buckets // 2 if bidirectional else buckets
    wanted = "even and 4 or more" if bidirectional else "2 or more"
    even = not bidirectional or buckets % 2 == 0
    require(behind >= 2 and even, "buckets", buckets, f"must be {wanted}")
    rule = f"must exceed {behind // 2}, the number of distances with a bucket of their own"
    require(distance > behind // 2, "distance", distance, rule)
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
        return _look_up(params["table"], row_BQK, offset_BQK, fractions=True)

    encoding = Encoding(init=init, bias=bias, relative=True)
    if not scaled:
        temper = lambda params, count, q_placed, dims: jnp.full((1, 1, 1), dims.head**0.5)
        encoding = encoding._replace(temper=temper)
    return layered(encoding, shared)


@register(
    kind="bias",
    formula="q.k / sqrt(C) + b[h, row_i - row_j, column_i - column_j]",
    paper="Liu et al. 2021, arXiv 2103.14030",
    beyond="option",
    axes=2,
    reads=lambda o, n: Range(0, o.window) if o.beyond == "error" else ANYWHERE,
)
def swin_2d(window: Count = 7, beyond: Edge = "clamp", shared: bool = False) -> Encoding:
    """A learned scalar for each (row, column) offset inside a square window, and head.

    An offset with a fraction gives NaN.

    Args:
      window: side of the window; the table has 2 `window` - 1 offsets on each axis.
      beyond: offsets outside of the window read the nearest inside it, or give NaN.
    """
    last = window - 1
    most = last if beyond == "error" else np.inf

    def init(key, dims):
        shape = (2 * window - 1, 2 * window - 1, dims.heads)
        return {"table": 0.02 * jax.random.truncated_normal(key, -2.0, 2.0, shape)}

    def bias(params, q_placed, k_placed, dims):
        offset_BQK2 = offsets(q_placed, k_placed, axes=2)
        row_BQK2 = clipped_row(offset_BQK2, last)
        table_RH = params["table"].reshape(-1, params["table"].shape[-1])
        flat_BQK = row_BQK2[..., 0] * (2 * window - 1) + row_BQK2[..., 1]
        return _look_up(table_RH, flat_BQK, offset_BQK2, most=most)

    return layered(Encoding(init=init, bias=bias, relative=True), shared)
