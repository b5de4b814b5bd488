"""Learned vectors of the offset that a query reads: `content_bias`, and for pictures `decomposed`
and `irpe`.
"""

import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.table_lookup import look_up_each
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias import clipped_row, layered, offsets, refusing, whole
from posenc_jax.encodings.card import ANYWHERE, Bound, Count, Edge, Range, register, require
from posenc_jax.encodings.gated import affine


def products(x_BQHC: jax.Array, table_RC: jax.Array) -> jax.Array:
    """The products of queries with rows of a table that all heads share, [B, H, Q, R], float32 or
    wider.
    """
    wide = widest(x_BQHC.dtype)
    table_RC = table_RC.astype(x_BQHC.dtype)
    return jnp.einsum("bqhc,rc->bhqr", x_BQHC, table_RC, preferred_element_type=wide)


@register(
    kind="content",
    formula="q.k / sqrt(C) + sum of (W[h,n].x[i] + b[h,n]) B[n, i - j] over n, where i - j is in "
    "0 .. distance - 1",
    paper="no paper; the package's RelativeProjPositionalBias",
)
def content_bias(curves: Count = 16, distance: Count = 1024, shared: bool = False) -> Encoding:
    """Learned curves over the distance; the query's content says how much of each is added.

    All heads share the curves B [curves, distance]; the weights are an affine map of the
    attention's input x. It is causal: keys ahead of the query, and keys at `distance` or further,
    get no bias. A distance with a fraction gives NaN.

    Args:
      curves: number of curves.
      distance: distances that have an entry.
    """

    def init(key, dims):
        weight_key, curve_key = jax.random.split(key)
        shape = dims.model, dims.heads, curves
        return {
            "weight": dims.model**-0.5 * jax.random.normal(weight_key, shape),
            "weight_bias": jnp.zeros((dims.heads, curves)),
            "curves": 0.02 * jax.random.normal(curve_key, (curves, distance)),
        }

    prepare = lambda params, x_BTD: affine(x_BTD, params["weight"], params["weight_bias"])

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        curves_NR = params["curves"].astype(s_BHQK.dtype)
        z_BHQR = jnp.einsum("bqhn,nr->bhqr", q.feat.astype(s_BHQK.dtype), curves_NR)
        offset_BQK = offsets(q.placed, k.placed)
        inside_BQK = (offset_BQK >= 0) & (offset_BQK < distance)
        row_BQK = whole(offset_BQK, 0, distance - 1)
        bias_BHQK = jnp.where(inside_BQK[:, None], look_up_each(z_BHQR, row_BQK[:, None]), 0)
        return s_BHQK + refusing(bias_BHQK, offset_BQK), carry

    return layered(Encoding(init=init, walk=Walk(score=score, prepare=prepare)), shared)


@register(
    kind="content",
    formula="q.k / sqrt(C) + q.(R[row_i - row_j] + S[column_i - column_j])",
    paper="Li et al. 2022, arXiv 2112.01526",
    beyond="option",
    axes=2,
    reads=lambda o, n: (
        Range(0, min(o.window, o.columns or o.window)) if o.beyond == "error" else ANYWHERE
    ),
)
def decomposed(
    window: Count = 14, columns: Count | None = None, beyond: Edge = "clamp", shared: bool = False
) -> Encoding:
    """A learned vector for each offset of rows and one for each of columns, times the query.

    Positions are [B, T, 2], (row, column). All heads share the vectors. As in the code of MViT and
    SAM, the products with them are not divided by sqrt(C). An offset with a fraction gives NaN.
    Left out: the third axis of video, and queries and keys of different resolution.

    Args:
      window: rows of the picture; the table of rows has 2 `window` - 1 vectors.
      columns: columns of the picture, alike; None: as many as rows.
      beyond: offsets outside of the window read the nearest inside it, or give NaN.
    """
    last = {"rows": window - 1, "columns": (columns or window) - 1}

    def init(key, dims):
        draw = lambda key, last: (
            0.02 * jax.random.truncated_normal(key, -2.0, 2.0, (2 * last + 1, dims.head))
        )
        keys = jax.random.split(key)
        return {name: draw(k, last[name]) for name, k in zip(last, keys, strict=True)}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        offset_BQK2 = offsets(q.placed, k.placed, axes=2)
        for axis, (name, most) in enumerate(last.items()):
            offset_BQK = offset_BQK2[..., axis]
            z_BHQR = products(q.x_BTHC, params[name])
            s_BHQK = s_BHQK + look_up_each(z_BHQR, clipped_row(offset_BQK, most)[:, None])
            s_BHQK = refusing(s_BHQK, offset_BQK, most if beyond == "error" else np.inf)
        return s_BHQK, carry

    return layered(Encoding(init=init, walk=Walk(score=score)), shared)


def irpe_buckets(ratio: float) -> np.ndarray:
    """iRPE's bucket of the distances 0, 1, ... up to where the last bucket begins, int32.

    Distances up to alpha have a bucket each, further ones share log-spaced buckets up to beta;
    alpha, beta and gamma, where the last one begins, are ratio times 1, 2 and 8.
    """
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio

    def bucket(d: int) -> int:
        if d <= alpha:
            return d
        share = math.log(d / alpha) / math.log(gamma / alpha)
        return int(min(round(alpha + share * (beta - alpha)), beta))

    return np.array([bucket(d) for d in range(math.ceil(gamma) + 1)], np.int32)


@register(
    kind="content",
    formula="q.(k + a[g(row_i - row_j), g(column_i - column_j)]) / sqrt(C), g identity up to "
    "alpha, then log-spaced",
    paper="Wu et al. 2021, arXiv 2107.14222",
    beyond="clamp",
    axes=2,
)
def irpe(ratio: Annotated[float, Bound(0.5)] = 1.9, shared: bool = False) -> Encoding:
    """iRPE: a learned vector for each pair of log-spaced row and column offsets, added to the key.

    It is the authors' recommended form: contextual, the product method, on keys, with vectors that
    all heads share and that start at 0. Left out: the bias form, the other ways to index offsets,
    and vectors for queries and values. An offset with a fraction gives NaN.

    Args:
      ratio: distances up to `ratio` have a bucket each; further ones share log-spaced buckets, the
        last of which, int(2 ratio), holds all distances from 8 `ratio` on.

    FieldError: ratio is 8192 or more.
    """
    require(8 * ratio < 2**16, "ratio", ratio, "must be below 8192")
    buckets = irpe_buckets(ratio)
    last, far = int(buckets[-1]), len(buckets) - 1

    init = lambda key, dims: {"keys": jnp.zeros(((2 * last + 1) ** 2, dims.head))}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        offset_BQK2 = offsets(q.placed, k.placed, axes=2)
        whole_BQK2 = whole(offset_BQK2, -far, far)
        row_BQK2 = jnp.sign(whole_BQK2) * jnp.asarray(buckets)[jnp.abs(whole_BQK2)] + last
        row_BQK = row_BQK2[..., 0] * (2 * last + 1) + row_BQK2[..., 1]
        bias_BHQK = look_up_each(products(q.x_BTHC, params["keys"]), row_BQK[:, None])
        bias_BHQK = refusing(bias_BHQK, offset_BQK2)
        return s_BHQK + bias_BHQK * q.factor, carry

    return layered(Encoding(init=init, walk=Walk(score=score)), shared)
