"""GRAPE: rotations in learned planes, slopes set by content, and sums of gates of pairs."""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.matrix_rotation import cayley
from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Dims, Encoding, Walk
from posenc_jax.encodings import rotation
from posenc_jax.encodings.bias import offsets, per_head
from posenc_jax.encodings.bias_formulas import alibi_slopes
from posenc_jax.encodings.card import Positive, register, require, with_axes
from posenc_jax.encodings.gated import affine, no_sum, sums_after
from posenc_jax.encodings.rotary_generators import antisymmetric, turn_in_basis
from posenc_jax.heads import by_head, tell_heads

TINY = 1e-6  # added to a mean square before the division


@register(
    kind="rotary",
    formula="q^T exp((j - i) L) k / sqrt(C), L = sum over f of theta_f (b_f a_f^T - a_f b_f^T), "
    "planes (a_f, b_f) orthonormal, learned",
    paper="Zhang et al. 2026, arXiv 2512.07805",
)
def grape_m(base: Positive = 10_000.0) -> Encoding:
    """Multiplicative GRAPE: rotary in learned planes, with learned frequencies.

    The vectors of the planes are the columns of P = (I - S)(I + S)^-1, made of the entries of S
    above the diagonal, skew [H, C, C]. They start at 0, where the planes are channels (f, f + C/2),
    and the frequencies are those of rope, so training starts from `rope`. All heads share the
    frequencies, freq_F [C/2] in radians per token. Queries and keys stay in the basis P, since the
    way back cancels between them. The authors' code learns the frequencies alone, as logarithms.
    Left out: generators that do not commute, and phases set by content.

    Args:
      base: of the frequencies at the start.
    """

    def init(key, dims):
        freq_F = jnp.asarray(rotation.ladder(dims.head, base), float)
        return {"freq_F": freq_F, "skew": jnp.zeros((dims.heads, dims.head, dims.head), float)}

    def table(params, pos_BT, dims):
        freq_1F = params["freq_F"].astype(float)[None]
        turned = rotation.turns_at(pos_BT, freq_1F)
        return turned, cayley(antisymmetric(params["skew"]))[None, None]

    return each_layer(Encoding(init=init, table=table, rotate=turn_in_basis))


def _slopes(params, heads: int) -> jax.Array:
    """ALiBi's slopes of the heads of this device, [H]."""
    return by_head(lambda dims: jnp.asarray(alibi_slopes(dims.heads)), params, Dims(1, heads, 1))


@register(
    kind="content",
    formula="q.k / sqrt(C) - w[h] |i - j| (sp(v[h].q / sqrt(C)) + sp(u[h].k / sqrt(C))), "
    "sp = softplus",
    paper="Zhang et al. 2026, arXiv 2512.07805",
)
def grape_a() -> Encoding:
    """Additive GRAPE: ALiBi whose slope is the sum of a gate of the query and one of the key.

    The slopes w are softplus(rate) times ALiBi's, and start as those. Each layer has its own. The
    vectors u and v start with a length of about 1; the authors' code keeps them at 1, the paper's
    formula does not. The paper is causal; here a key ahead has the same bias as a key at the same
    distance behind it.
    """

    def init(key, dims):
        query_key, key_key = jax.random.split(key)
        draw = lambda key: dims.head**-0.5 * jax.random.normal(key, (dims.heads, dims.head))
        rate_H = jnp.full(dims.heads, np.log(np.expm1(1.0)), float)
        return {"rate": rate_H, "query": draw(query_key), "key": draw(key_key)}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        wide, heads = s_BHQK.dtype, q.x_BTHC.shape[2]

        def gate(name, x_BTHC):
            to_HC = params[name].astype(wide)
            z_BHT = jnp.einsum("bthc,hc->bht", x_BTHC.astype(wide), to_HC) * q.factor
            return jax.nn.softplus(z_BHT)

        gates_BHQK = gate("query", q.x_BTHC)[..., None] + gate("key", k.x_BTHC)[:, :, None]
        slope = jax.nn.softplus(per_head(params["rate"])) * per_head(_slopes(params, heads))
        away_BQK = jnp.abs(offsets(q.placed, k.placed)).astype(wide)
        return s_BHQK - slope.astype(wide) * away_BQK[:, None] * gates_BHQK, carry

    return each_layer(Encoding(init=init, walk=Walk(score=score), of_heads=tell_heads))


@register(
    kind="content",
    formula="q.k / sqrt(C) + m[h] sum of ln sigmoid(p[i].R(l) p[l] / width) over l = j + 1 .. i, "
    "R(l) turns all pairs by l radians, m as in alibi",
    paper="Zhang et al. 2026, arXiv 2512.07805",
    shift_invariant=False,
)
def grape_ap(width: int = 8) -> Encoding:
    """Path-integral GRAPE: each token between a key and the query adds a gate of it and the query.

    Each layer and head makes a vector p of the attention's input x, linear and then divided by its
    root mean square. Only the token passed is turned by its position, so scores depend on where a
    pair stands, as in the paper and the authors' code; that code does not divide the query's p. In
    a bidirectional encoder, a query sums over all later keys, as if it were the last token.

    Args:
      width: of p, even.

    FieldError: width is odd.
    """
    require(width > 0 and width % 2 == 0, "width", width, "must be positive and even")

    def init(key, dims):
        shape = dims.model, dims.heads, width
        return {"probe": dims.model**-0.5 * jax.random.normal(key, shape)}

    def prepare(params, x_BTD):
        p_BTHW = affine(x_BTD, params["probe"])
        return p_BTHW * jax.lax.rsqrt(jnp.square(p_BTHW).mean(-1, keepdims=True) + TINY)

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        angle = rotation.angles(with_axes(k.placed), np.ones((1, width // 2)))
        turned_BKHW = rotation.turn(rotation.turns(angle), k.feat, "half")
        z_BHQK = jnp.einsum("bqhw,bkhw->bhqk", q.feat, turned_BKHW) / width
        slope = per_head(_slopes(params, s_BHQK.shape[1])).astype(s_BHQK.dtype)
        edge_BHQK = slope * jax.nn.log_sigmoid(z_BHQK.astype(s_BHQK.dtype))
        after_BHQK, carry = sums_after(jnp.where(visible_BHQK, edge_BHQK, 0), carry)
        return s_BHQK + after_BHQK, carry

    return each_layer(Encoding(init=init, walk=Walk(score, prepare, no_sum), of_heads=tell_heads))
