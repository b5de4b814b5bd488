"""Vectors of positions or offsets in the products of attention.

Shaw's and Transformer-XL's are further keys; DeBERTa and TUPE set positions apart from content,
each with projections of its own.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.table_lookup import look_up, look_up_each
from posenc_jax.combinators import pick_layer
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.bias import clipped_row, layered, offsets, refusing, whole
from posenc_jax.encodings.card import Count, Whole, register, require
from posenc_jax.encodings.input_codes import Beyond


@register(
    kind="content",
    formula="q.(k + a[h, clip(i - j, -ahead, distance)]) / sqrt(C)",
    paper="Shaw et al. 2018, arXiv 1803.02155",
    beyond="clamp",
)
def shaw(distance: Count = 16, ahead: Whole | None = None, shared: bool = False) -> Encoding:
    """A learned vector for each clipped offset and head, added to the key.

    An offset with a fraction gives NaN. Left out: vectors added to the values; the paper's ablation
    (section 4.3) finds no need of them.

    Args:
      distance: larger offsets share the last vector.
      ahead: the same of keys ahead of the query; None: `distance`, as in the paper; 0 in a
        causal decoder, which reads none of them. Wav2Vec2-BERT has 64 and 8.
    """
    ends = distance if ahead is None else ahead, distance

    def init(key, dims):
        draw = jax.nn.initializers.glorot_uniform(batch_axis=0)
        return {"keys": draw(key, (dims.heads, sum(ends) + 1, dims.head))}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        x_BQHC = q.x_BTHC
        a_HRC = params["keys"].astype(x_BQHC.dtype)
        s_BHQR = jnp.einsum("bqhc,hrc->bhqr", x_BQHC, a_HRC, preferred_element_type=s_BHQK.dtype)
        offset_BQK = offsets(q.placed, k.placed)
        row_BQK = clipped_row(offset_BQK, *ends)
        bias_BHQK = look_up_each(s_BHQR, row_BQK[:, None])
        bias_BHQK = refusing(bias_BHQK, offset_BQK)
        return s_BHQK + bias_BHQK * q.factor, carry

    return layered(Encoding(init=init, walk=Walk(score=score)), shared)


@register(
    kind="content",
    formula="((q + u[h]).k + (q + v[h]).W[h] r(i - j)) / sqrt(C), r = (sin, cos)",
    paper="Dai et al. 2019, arXiv 1901.02860",
)
def transformer_xl(shared: bool = True) -> Encoding:
    """Sinusoids of the offset as keys of their own, with learned global queries.

    Each layer has its own W. The tokens of a memory of earlier segments only need smaller
    positions.

    Args:
      shared: all layers have the same u and v, as in the paper; False: each has its own, as in
        XLNet and speech models such as Parakeet.
    """

    def init(key, dims):
        w_key, *global_keys = jax.random.split(key, 3)
        draw = lambda key, *shape: 0.02 * jax.random.normal(key, (*shape, dims.heads, dims.head))
        by_layer = lambda key, *shape: tuple(
            draw(k, *shape) for k in jax.random.split(key, dims.layers)
        )
        width = 2 * -(-dims.model // 2)  # one sine more where the model's width is odd
        u, v = map(draw if shared else by_layer, global_keys)
        return {"u": u, "v": v, "w": by_layer(w_key, width)}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        wide, x_BQHC = s_BHQK.dtype, q.x_BTHC
        u_HC, v_HC, w_RHC = (params[name].astype(x_BQHC.dtype) for name in ("u", "v", "w"))
        s_BHK = jnp.einsum("hc,bkhc->bhk", u_HC, k.x_BTHC, preferred_element_type=wide)
        query_BQHC = x_BQHC + v_HC[None, None]
        p_BHQR = jnp.einsum("bqhc,rhc->bhqr", query_BQHC, w_RHC, preferred_element_type=float)
        # sin(i - j) and cos(i - j) as products of a factor in i and one in j: sinusoids are made
        # for each token instead of each pair.
        codes_BTR = (codes.sines(x.placed, len(w_RHC), 10_000.0, "half", "paper") for x in (q, k))
        (sin_i, cos_i), (sin_j, cos_j) = (jnp.split(r[:, None], 2, axis=-1) for r in codes_BTR)
        p_sin, p_cos = jnp.split(p_BHQR, 2, axis=-1)
        turned = [p_sin * sin_i + p_cos * cos_i, p_cos * sin_i - p_sin * cos_i]
        turned_BHQR = jnp.concatenate(turned, axis=-1).astype(wide)
        key_B1KR = jnp.concatenate([cos_j, sin_j], axis=-1).astype(wide)
        s_position = turned_BHQR @ key_B1KR.swapaxes(-1, -2)
        return s_BHQK + (s_BHK[:, :, None] + s_position) * q.factor, carry

    layer_encoding = Encoding(walk=Walk(score=score))

    def at(layer, params, *placed):
        own = ("w",) if shared else ("u", "v", "w")
        picked = {name: pick_layer(params[name], layer) for name in own}
        return layer_encoding, params | picked, *placed

    return Encoding(init=init, walk=layer_encoding.walk, at=at)


def deberta_rows(buckets: int, distance: int) -> np.ndarray:
    """The row of DeBERTa's table for D = -distance .. distance, int32.

    There are 2 `buckets` rows: offsets up to buckets / 2 on either side have one each, the others
    share log-spaced ones. If `buckets` is 0, there are 2 `distance` rows, one for each offset.
    """
    side, exact = buckets or distance, buckets // 2

    def row(d: int) -> int:
        if buckets and abs(d) > exact:
            share = math.log(abs(d) / exact) / math.log((distance - 1) / exact)
            d = int(math.copysign(math.ceil(share * (exact - 1)) + exact, d))
        return min(max(d + side, 0), 2 * side - 1)

    return np.array([row(d) for d in range(-distance, distance + 1)], np.int32)


@register(
    kind="content",
    formula="(q.k + q.P[d(i - j)] W_K + k.P[d(j - i)] W_Q) / sqrt(3 C), d clips or buckets",
    paper="He et al. 2021, arXiv 2006.03654",
    beyond="clamp",
)
def deberta(buckets: int = 256, distance: int = 512, flipped: bool = True) -> Encoding:
    """Content to position and position to content: offsets have keys and queries of their own.

    As in the paper, layers share the table P and each has a W_K and W_Q of its own for it. Versions
    2 and 3 project P by the content's W_K and W_Q, after a layer norm; that is left out, and so is
    their optional position to position. An offset with a fraction gives NaN.

    Args:
      buckets: the table has 2 `buckets` rows, half of them log-spaced, as in versions 2 and 3. 0:
        a row for each offset from -distance to distance - 1, as in the paper and version 1.
      distance: larger offsets share the last rows.
      flipped: position to content reads the row of j - i, as in the paper; False: the row of i - j,
        as the public code does in all versions.

    FieldError: buckets is odd or below 4 (and not 0), or distance not above buckets / 2 + 1.
    """
    ok = buckets == 0 or (buckets >= 4 and buckets % 2 == 0)
    require(ok, "buckets", buckets, "must be 0, or even and 4 or more")
    least = buckets // 2 + 2 if buckets else 1
    require(distance >= least, "distance", distance, f"must be {least} or more")
    rows = deberta_rows(buckets, distance)

    def init(key, dims):
        table_key, key = jax.random.split(key)
        draw = lambda key, *shape: 0.02 * jax.random.normal(key, shape)
        keys = jax.random.split(key, (dims.layers, 2))
        return {
            "table": draw(table_key, 2 * (buckets or distance), dims.model),
            "keys": tuple(draw(k[0], dims.model, dims.heads, dims.head) for k in keys),
            "queries": tuple(draw(k[1], dims.model, dims.heads, dims.head) for k in keys),
        }

    def table_row(offset_BQK):
        row_BQK = whole(offset_BQK, -distance, distance) + distance
        return look_up(jnp.asarray(rows)[:, None], row_BQK)

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        wide, scale = s_BHQK.dtype, q.factor * 3**-0.5
        scores = lambda x_BTHC, r_RHC: jnp.einsum(
            "bthc,rhc->bhtr", x_BTHC, r_RHC.astype(x_BTHC.dtype), preferred_element_type=wide
        )
        ahead_BQK = offsets(q.placed, k.placed)
        row_B1QK = table_row(ahead_BQK)
        to_position = look_up_each(scores(q.x_BTHC, params["keys"]), row_B1QK)
        row_B1QK = table_row(-ahead_BQK) if flipped else row_B1QK
        s_BHKR = scores(k.x_BTHC, params["queries"])
        to_content = look_up_each(s_BHKR, row_B1QK.swapaxes(-1, -2))
        position_BHQK = to_position + to_content.swapaxes(-1, -2)
        return s_BHQK + scale * refusing(position_BHQK, ahead_BQK), carry

    # Attention divides by sqrt(C); the factor sqrt(3) is left.
    shrink = lambda table, x_BTHC, side: x_BTHC * 3**-0.5 if side == "q" else x_BTHC
    layer_encoding = Encoding(rotate=shrink, walk=Walk(score=score))

    def at(layer, params, *placed):
        projections = {name: pick_layer(params[name], layer) for name in ("keys", "queries")}
        project = lambda w_DHC: jnp.einsum("rd,dhc->rhc", params["table"], w_DHC)
        return (
            layer_encoding,
            {name: project(w_DHC) for name, w_DHC in projections.items()},
            *placed,
        )

    return layer_encoding._replace(init=init, at=at)


@register(
    kind="content",
    formula="(q.k + P[i] U_Q . P[j] U_K) / sqrt(2 C)",
    paper="Ke et al. 2021, arXiv 2006.15595",
    shift_invariant=False,
    in_chain="last",
    **codes.TABLE,
)
def tupe(length: Count = 512, beyond: Beyond = "error") -> Encoding:
    """Untied: products of positions with positions, by projections that all layers share.

    TUPE-R, which has a relative bias too, is the chain "tupe+t5". Left out: the special treatment
    of the [CLS] token, and the layer norm and projection biases that the public code has and the
    paper's formula has not. The position vectors are added to q and k as further channels, so that
    their products cost as much as those of content.

    Args:
      length: rows of the table of positions.
    """

    def init(key, dims):
        table_key, *keys = jax.random.split(key, 3)
        shape = dims.model, dims.heads, dims.head
        q_DHC, k_DHC = (dims.model**-0.5 * jax.random.normal(key, shape) for key in keys)
        table_LD = codes.normal(table_key, (length, dims.model))
        return {"table": table_LD, "queries": q_DHC, "keys": k_DHC}

    def table(params, placed, dims):
        p_BTD = codes.read(lambda i: params["table"][i], placed, length, beyond)
        project = lambda name: jnp.einsum("btd,dhc->bthc", p_BTD, params[name].astype(float))
        return {"q": project("queries"), "k": project("keys")}

    def beside(table, x_BTHC, side):
        p_BTHC = table[side].astype(x_BTHC.dtype)
        p_BTHC = p_BTHC + jnp.zeros_like(x_BTHC[..., :1])
        both = jnp.concatenate([x_BTHC, p_BTHC], axis=-1)
        # Attention divides by sqrt(C); the factor sqrt(2) is left.
        return both * 2**-0.5 if side == "q" else both

    return Encoding(init=init, table=table, rotate=beside, place=codes.squeezed(length, beyond))
