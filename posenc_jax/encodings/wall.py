"""Wall attention: each channel of a head forgets at a rate of its own."""

import jax
import jax.numpy as jnp

from posenc_jax.combinators import each_layer
from posenc_jax.dtypes import widest
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.card import method
from posenc_jax.encodings.gated import stretches

STRETCH = 16  # keys whose decays are in memory at once, [B, H, Q, STRETCH, C]


@method(
    kind="content",
    formula="sum over c of q[c] k[c] (product of sigmoid(W[h,c].x[l] + b[h,c]) over l = j + 1 .. i)"
    " / sqrt(C)",
    paper="Tilde Research, blog.tilderesearch.com/blog/wall-attn; fla-core's naive_wall_attn",
    axes=0,
    example={"gate_bias": 0.0},
    reference="fla-core",
)
def wall(gate_bias: float = 8.0) -> Encoding:
    """Wall attention: each token between a key and the query shrinks each channel of q.k by a gate.

    Each layer, head and channel has a gate, a function of the attention's input x. It is a decay
    inside the product, where that of `fox` is added to the logit. Decays are made of sums of
    logarithms from the key to the query, which are at most 0 and cannot overflow; the quotient of
    two products from the start of the sequence would. This takes an exponential for each channel of
    each pair of tokens. Left out: the optional gate for each head (the chain "wall+fox"), and
    sinks.

    Args:
      gate_bias: first value of b; at 8, as in the public layer, gates start nearly open.
    """

    def init(key, dims):
        gate_DHC = 0.02 * jax.random.normal(key, (dims.model, dims.heads, dims.head))
        return {"gate": gate_DHC, "gate_bias": jnp.full((dims.heads, dims.head), gate_bias, float)}

    def prepare(params, x_BTD):
        wide = widest(x_BTD.dtype)
        gate_DHC, bias_HC = params["gate"].astype(wide), params["gate_bias"].astype(wide)
        open_BTHC = jnp.einsum("btd,dhc->bthc", x_BTD.astype(wide), gate_DHC)
        return jax.nn.log_sigmoid(open_BTHC + bias_HC[None, None])

    start = lambda params, q: jnp.zeros_like(q.x_BTHC.swapaxes(1, 2), widest(q.x_BTHC.dtype))

    def score(params, s_BHQK, q, k, visible_BHQK, fade_BHQC):
        """The carry `fade` is the sum of the log gates between each query and the keys so far."""
        wide, size = s_BHQK.dtype, s_BHQK.shape[-1]
        heads_first = lambda x: jnp.moveaxis(x.astype(wide), 1, 2)
        q_BHQC, k_BHKC, g_BHKC = map(heads_first, (q.x_BTHC, k.x_BTHC, k.feat))
        keys = k_BHKC, g_BHKC, jnp.moveaxis(visible_BHQK[:, :1], 3, 2)
        keys_M = [jnp.moveaxis(stretches(x, 2, STRETCH), 2, 0) for x in keys]
        step = jax.checkpoint(lambda fade_BHQC, stretch: _faded(q_BHQC, fade_BHQC, *stretch))
        fade_BHQC, added_MBHQS = jax.lax.scan(step, fade_BHQC, keys_M, reverse=True)
        added_BHQK = jnp.moveaxis(added_MBHQS, 0, 3).reshape(*s_BHQK.shape[:3], -1)[..., :size]
        return s_BHQK + added_BHQK * q_BHQC.shape[-1] ** -0.5, fade_BHQC

    return each_layer(Encoding(init=init, walk=Walk(score, prepare, start, corrects=True)))


def _faded(q_BHQC, fade_BHQC, k_BHSC, g_BHSC, visible_B1SQ):
    """`fade` after a stretch of keys, and what its gates add to q.k of each of them."""
    seen_B1QS1 = visible_B1SQ.swapaxes(2, 3)[..., None]
    own_BHQSC = jnp.where(seen_B1QS1, g_BHSC[:, :, None], 0)
    later_BHQSC = jax.lax.cumsum(own_BHQSC, axis=3, reverse=True) - own_BHQSC
    lost_BHQSC = jnp.expm1(fade_BHQC[:, :, :, None] + later_BHQSC)
    exact = jax.lax.Precision.HIGHEST
    added_BHQS = jnp.einsum("bhqc,bhsc,bhqsc->bhqs", q_BHQC, k_BHSC, lost_BHQSC, precision=exact)
    return fade_BHQC + own_BHQSC.sum(3), added_BHQS
