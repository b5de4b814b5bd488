"""Wall attention: each channel of a head forgets at a rate of its own."""

import jax
import jax.numpy as jnp

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.card import method
from posenc_jax.encodings.gated import by_stretches, log_gates, no_vector

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

    score = by_stretches(jax.checkpoint(_faded), STRETCH)
    return each_layer(Encoding(init=init, walk=Walk(score, log_gates, no_vector, corrects=True)))


def _faded(q_BHQC, fade_BHQC, k_BHSC, g_BHSC, visible_B1SQ):
    """`fade` after a stretch of keys, and what its gates add to q.k of each of them.

    `fade` is the sum of the log gates between each query and the keys so far.
    """
    seen_B1QS1 = visible_B1SQ.swapaxes(2, 3)[..., None]
    own_BHQSC = jnp.where(seen_B1QS1, g_BHSC[:, :, None], 0)
    later_BHQSC = jax.lax.cumsum(own_BHQSC, axis=3, reverse=True) - own_BHQSC
    lost_BHQSC = jnp.expm1(fade_BHQC[:, :, :, None] + later_BHQSC)
    given = q_BHQC, k_BHSC, lost_BHQSC
    added_BHQS = jnp.einsum("bhqc,bhsc,bhqsc->bhqs", *given, precision="highest")
    return fade_BHQC + own_BHQSC.sum(3), added_BHQS
