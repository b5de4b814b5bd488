"""Relative positions as keys: Shaw's learned vectors, Transformer-XL's sinusoids of the offset."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, Walk, pick_layer
from posenc_jax.encodings.bias import by_pair, clipped_row, layered, offsets, refusing
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import at_least
from posenc_jax.encodings.rotation import angles


def _shaw_scores(o, params, q_THC, k_THC, pos_T, n):
    def score(h, i, j):
        row = int(min(max(pos_T[i] - pos_T[j], -o.distance), o.distance)) + o.distance
        key_C = k_THC[j, h] + params["keys"][h, row]
        return np.dot(q_THC[i, h], key_C) / np.sqrt(len(key_C))

    return by_pair(score, q_THC)


@method(
    kind="content",
    formula="q.(k + a[h, clip(i - j, -distance, distance)]) / sqrt(C)",
    paper="Shaw et al. 2018, arXiv 1803.02155",
    beyond="clamp",
    scores=_shaw_scores,
    reference="transformers",
)
def shaw(distance: int = 16, shared: bool = False) -> Encoding:
    """A learned vector for each clipped offset and head, added to the key.

    The paper also adds vectors to the values. They are left out: its ablation (section 4.3) finds
    that those of the keys suffice.

    Args:
      distance: larger offsets, on either side, share the last vector.
      shared: one table for all layers; as in the paper, each layer has its own by default.

    FieldError: distance is not positive.
    """
    at_least(1, distance=distance)

    def init(key, dims):
        draw = jax.nn.initializers.glorot_uniform(batch_axis=0)
        return {"keys": draw(key, (dims.heads, 2 * distance + 1, dims.head))}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        x_BQHC = q.x_BTHC
        a_HRC = params["keys"].astype(x_BQHC.dtype)
        s_BHQR = jnp.einsum("bqhc,hrc->bhqr", x_BQHC, a_HRC, preferred_element_type=s_BHQK.dtype)
        offset_BQK = offsets(q.placed, k.placed)
        row_BQK = clipped_row(offset_BQK, distance)
        # On the CPU, with the backward pass, 4 to 10 times faster than a one-hot product.
        found_BHQK = jnp.take_along_axis(s_BHQR, row_BQK[:, None], axis=-1)
        found_BHQK = refusing(found_BHQK, offset_BQK[:, None])
        return s_BHQK + found_BHQK * x_BQHC.shape[-1] ** -0.5, carry

    return layered(Encoding(init=init, walk=Walk(score=score)), shared)


def _sines(pos_BT, count: int) -> tuple[jax.Array, jax.Array]:
    """sin and cos of pos / 10000^(f / count), [B, 1, T, count] each, the same for all heads."""
    frequency_F = 10000.0 ** (-np.arange(count) / count)
    angle_B1TF = jnp.swapaxes(angles(pos_BT, frequency_F[None]), 1, 2)
    return jnp.sin(angle_B1TF), jnp.cos(angle_B1TF)


def _transformer_xl_scores(o, params, q_THC, k_THC, pos_T, n):
    width = params["w"].shape[0]

    def score(h, i, j):
        angles = [(pos_T[i] - pos_T[j]) / 10000.0 ** (f / width) for f in range(0, width, 2)]
        r_D = np.concatenate([np.sin(angles), np.cos(angles)])
        content = np.dot(q_THC[i, h] + params["u"][h], k_THC[j, h])
        position = np.dot(q_THC[i, h] + params["v"][h], r_D @ params["w"][:, h])
        return (content + position) / np.sqrt(q_THC.shape[-1])

    return by_pair(score, q_THC)


@method(
    kind="content",
    formula="((q + u[h]).k + (q + v[h]).W[h] r(i - j)) / sqrt(C), r = (sin, cos)",
    paper="Dai et al. 2019, arXiv 1901.02860",
    scores=_transformer_xl_scores,
    reference="transformers",
)
def transformer_xl() -> Encoding:
    """Sinusoids of the offset as keys of their own, with learned global queries.

    As in the paper, layers share u and v, and each has its own W. The tokens of a memory of earlier
    segments only need smaller positions.
    """

    def init(key, dims):
        w_key, u_key, v_key = jax.random.split(key, 3)
        draw = lambda key, *shape: 0.02 * jax.random.normal(key, (*shape, dims.heads, dims.head))
        width = 2 * -(-dims.model // 2)  # one sine more where the model's width is odd
        w_keys = jax.random.split(w_key, dims.layers)
        return {"u": draw(u_key), "v": draw(v_key), "w": tuple(draw(k, width) for k in w_keys)}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        wide, x_BQHC = s_BHQK.dtype, q.x_BTHC
        u_HC, v_HC, w_RHC = (params[name].astype(x_BQHC.dtype) for name in ("u", "v", "w"))
        s_BHK = jnp.einsum("hc,bkhc->bhk", u_HC, k.x_BTHC, preferred_element_type=wide)
        query_BQHC = x_BQHC + v_HC[None, None]
        p_BHQR = jnp.einsum("bqhc,rhc->bhqr", query_BQHC, w_RHC, preferred_element_type=float)
        # sin(i - j) and cos(i - j) as products of a factor in i and one in j: sinusoids are made
        # for each token instead of each pair.
        sin_i, cos_i = _sines(q.placed, len(w_RHC) // 2)
        sin_j, cos_j = _sines(k.placed, len(w_RHC) // 2)
        of_sin, of_cos = jnp.split(p_BHQR, 2, axis=-1)
        turned = [of_sin * sin_i + of_cos * cos_i, of_cos * sin_i - of_sin * cos_i]
        turned_BHQR = jnp.concatenate(turned, axis=-1).astype(wide)
        key_B1KR = jnp.concatenate([cos_j, sin_j], axis=-1).astype(wide)
        s_position = turned_BHQR @ key_B1KR.swapaxes(-1, -2)
        scale = x_BQHC.shape[-1] ** -0.5
        return s_BHQK + (s_BHK[:, :, None] + s_position) * scale, carry

    one_layer = Encoding(walk=Walk(score=score))

    def at(layer, params, *placed):
        return one_layer, {**params, "w": pick_layer(params["w"], layer)}, *placed

    return Encoding(init=init, walk=one_layer.walk, at=at)
