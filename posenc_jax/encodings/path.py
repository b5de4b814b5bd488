"""PaTH: queries are turned by a reflection for each token between them and a key."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import triangular_solve

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.card import Count, register
from posenc_jax.encodings.gated import by_stretches, no_vector, of_input

STRETCH = 64  # keys whose product of reflections is made by one triangular solve
TINY = 1e-6  # added to a squared norm before the division


@register(
    kind="content",
    formula="k.(product of I - beta[l] w[l] w[l]^T over l = j + 1 .. i) q / sqrt(C)",
    paper="Yang et al. 2025, arXiv 2505.16381",
    axes=0,
)
def path(rank: Count = 32) -> Encoding:
    """PaTH: each token between a key and the query reflects or shrinks the query along a direction.

    The direction w is a unit vector, made of x by a map of low rank, and beta = 2 sigmoid(u.x + b).
    A beta of 2 reflects, 1 projects, 0 does nothing. Each layer and head has its own w and beta.
    Left out: the paper's convolution of w over three tokens, so that a cache needs the features of
    one token alone. PaTH-FoX is the chain "path+fox".

    It reads no positions; padding, other documents and later tokens do nothing. In a bidirectional
    encoder, the tokens between a key and a query are all that follow the key.

    Args:
      rank: of the map from x to w; the public code has 32.
    """

    def init(key, dims):
        down_key, up_key, beta_key = jax.random.split(key, 3)
        return {
            "down": dims.model**-0.5 * jax.random.normal(down_key, (dims.model, rank)),
            "up": rank**-0.5 * jax.random.normal(up_key, (rank, dims.heads, dims.head)),
            "beta": 0.02 * jax.random.normal(beta_key, (dims.model, dims.heads)),
            "beta_bias": jnp.zeros(dims.heads),
        }

    def prepare(params, x_BTD):
        w_BTHC = of_input(of_input(x_BTD, params["down"]), params["up"])
        w_BTHC = w_BTHC * jax.lax.rsqrt(jnp.square(w_BTHC).sum(-1, keepdims=True) + TINY)
        return w_BTHC, 2 * jax.nn.sigmoid(of_input(x_BTD, params["beta"], params["beta_bias"]))

    score = by_stretches(_turned, STRETCH)
    return each_layer(Encoding(init=init, walk=Walk(score, prepare, no_vector, corrects=True)))


@jax.default_matmul_precision("highest")  # errors of tensor cores would add up
def _turned(q_BHQC, moved_BHQC, k_BHSC, w_BHSC, beta_BHS, visible_B1SQ):
    """`moved` after the reflections of a stretch of keys, and what they add to k.q.

    `moved` is what the reflections so far have added to each query.

    From the last key back, key s takes a[s] w[s] from the query x, where
    a[s] = beta[s] w[s].x = beta[s] w[s].(q + moved - sum of a[t] w[t] over later t). This is one
    triangular system for all queries (the UT transform). a[s] is 0 for keys that a query does not
    see: later keys by the right side, other documents by `together`, earlier keys afterwards.
    """
    dots = lambda a, b: jnp.einsum("bhsc,bhtc->bhst", a, b)
    dtype, stretch = q_BHQC.dtype, k_BHSC.shape[2]
    later_ST = np.triu(np.ones((stretch, stretch), bool), 1)[None, None]
    seen_B1SQ = visible_B1SQ.astype(dtype)
    together_B1ST = jnp.einsum("bosq,botq->bost", seen_B1SQ, seen_B1SQ) > 0
    steps_BHST = jnp.where(later_ST & together_B1ST, dots(w_BHSC, w_BHSC), 0) * beta_BHS[..., None]
    right_BHSQ = jnp.where(visible_B1SQ, dots(w_BHSC, q_BHQC + moved_BHQC), 0) * beta_BHS[..., None]
    solve = partial(triangular_solve, steps_BHST, left_side=True, unit_diagonal=True)
    # The solver's own derivative fails where the rows of the batch are sharded explicitly.
    a_BHSQ = jax.lax.custom_linear_solve(
        lambda a: a + steps_BHST @ a,
        right_BHSQ,
        lambda _, right: solve(right),
        lambda _, right: solve(right, transpose_a=True),
    )
    a_BHQS = jnp.where(visible_B1SQ, a_BHSQ, 0).swapaxes(-1, -2)
    met_BHTS = jnp.where(later_ST, dots(k_BHSC, w_BHSC), 0)
    gain_BHQS = dots(moved_BHQC, k_BHSC) - dots(a_BHQS, met_BHTS)
    return moved_BHQC - a_BHQS @ w_BHSC, gain_BHQS
