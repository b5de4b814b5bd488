"""Rotary by content: RePo's positions, made by each layer, and TAPA's phases of two tokens."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import each_layer
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.bias import offsets
from posenc_jax.encodings.card import Count, Positive, register, require
from posenc_jax.encodings.rotation import Pairing, ladder, rotary, turns
from posenc_jax.options import FieldError


@register(
    kind="none",
    formula="as rope at positions z[h] = (silu(x G) * (x C)) P instead of t, real numbers",
    paper="Li et al. 2025 (RePo), arXiv 2512.14391",
    axes=0,
)
def repo(base: Positive = 10_000.0, hidden: Count = 256, pairing: Pairing = "half") -> Encoding:
    """RePo: rope at real positions that each layer makes of a token's content, for each head.

    It does not read a token's index: order comes from the causal mask, or from other layers. The
    paper has rope in the first layers: `per_layer([rope()] * 5 + [repo() for _ in range(11)])`.

    Args:
      hidden: width of the gated layer; the authors take an eighth of the model's, 2,048.
    """

    def init(key, dims):
        shapes = {"gate": (dims.model, hidden), "content": (dims.model, hidden)}
        shapes["position"] = hidden, dims.heads
        keys = jax.random.split(key, len(shapes))
        draw = lambda key, shape: 0.02 * jax.random.normal(key, shape)
        return {name: draw(k, shape) for k, (name, shape) in zip(keys, shapes.items(), strict=True)}

    @jax.default_matmul_precision("highest")  # a rounded position turns by another angle
    def locate(params, x_BTD, placed):
        wide = widest(x_BTD.dtype)
        x_BTD, w = x_BTD.astype(wide), jax.tree.map(lambda leaf: leaf.astype(wide), params)
        return (jax.nn.silu(x_BTD @ w["gate"]) * (x_BTD @ w["content"])) @ w["position"]

    def table(params, z_BTH, dims):
        freq_F = jnp.asarray(ladder(dims.head, base), z_BTH.dtype)
        return turns(z_BTH[..., None] * freq_F[None, None, None])

    return each_layer(rotary(pairing, table, init=init, locate=locate))


@register(
    kind="content",
    formula="q_A.k_A / sqrt(A) cos(2 pi |i - j|^power q_P.k_P / sqrt(P)), A = share C, P = C - A",
    paper="Wang et al. 2025, arXiv 2509.12635",
)
def tapa(share: float = 0.5, power: Positive = 0.1) -> Encoding:
    """TAPA: some channels make the logit, the others a phase that turns it as distance grows.

    Each head's first int(share C) channels of q and k make the amplitude, the rest the phase.
    Nothing is learned besides q and k. It takes the place of a rotation: the cosine multiplies the
    product of q and k as they are before other methods of a chain rotate them, and no bias.

    Args:
      share: of a head's channels that make the amplitude.
      power: of the distance; at distance 0 the cosine is 1.

    FieldError: share not between 0 and 1; later, a head in which no channel is left for one of the
    two.
    """
    require(0 < share < 1, "share", share, "must be between 0 and 1, both excluded")

    def split(head: int) -> int:
        cut = int(share * head)
        if not 0 < cut < head:
            raise FieldError("head", f"{head} channels cannot be split at share {share}")
        return cut

    def init(key, dims):
        split(dims.head)
        return {}

    def table(params, placed, dims):
        # Attention divides by sqrt(C), not sqrt(A); the channels of the phase are not to count.
        cut = split(dims.head)
        factor_C = jnp.where(jnp.arange(dims.head) < cut, (dims.head / cut) ** 0.5, 0.0)
        return factor_C[None, None, None]

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        head = q.x_BTHC.shape[-1]
        cut, wide = split(head), widest(q.x_BTHC.dtype)
        dots = lambda a, b: jnp.einsum("bqhc,bkhc->bhqk", a, b, preferred_element_type=wide)
        amplitude = dots(q.x_BTHC[..., :cut], k.x_BTHC[..., :cut])
        amplitude = amplitude * ((head / cut) ** 0.5 * q.factor)
        phase = dots(q.x_BTHC[..., cut:], k.x_BTHC[..., cut:]) * (head - cut) ** -0.5
        away_BQK = jnp.abs(offsets(q.placed, k.placed)).astype(wide)
        # The derivative of a power below 1 is infinite at 0.
        far_BQK = jnp.where(away_BQK == 0, 0, jnp.where(away_BQK == 0, 1, away_BQK) ** power)
        turned = amplitude * (jnp.cos(2 * np.pi * far_BQK[:, None] * phase) - 1)
        return s_BHQK + turned.astype(s_BHQK.dtype), carry

    def rotate(factor, x_BTHC, side):
        wide_BTHC = x_BTHC.astype(factor.dtype) * factor
        return wide_BTHC.astype(x_BTHC.dtype) if side == "q" else x_BTHC

    walk = Walk(score=score, corrects=True)
    return Encoding(init=init, table=table, rotate=rotate, walk=walk)
