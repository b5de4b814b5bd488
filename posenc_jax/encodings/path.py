"""PaTH: queries are turned by a reflection for each token between them and a key."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax.linalg import triangular_solve

from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.card import Count, register
from posenc_jax.encodings.gated import affine, by_stretches, no_vector

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
        w_BTHC = affine(affine(x_BTD, params["down"]), params["up"])
        w_BTHC = w_BTHC * jax.lax.rsqrt(jnp.square(w_BTHC).sum(-1, keepdims=True) + TINY)
        return w_BTHC, 2 * jax.nn.sigmoid(affine(x_BTD, params["beta"], params["beta_bias"]))

    unmasked = by_stretches(partial(_turned, _solved), STRETCH)
    masked = by_stretches(partial(_turned, _solved_by_query), STRETCH)

    def score(params, s_BHQK, q, k, visible_BHQK, carry_BHQC):
        score = masked if q.masked else unmasked
        return score(params, s_BHQK, q, k, visible_BHQK, carry_BHQC)

    return each_layer(Encoding(init=init, walk=Walk(score, prepare, no_vector, corrects=True)))


def _dots(a_BHSC: jax.Array, b_BHTC: jax.Array) -> jax.Array:
    """The products of two sets of vectors, [B, H, S, T]."""
    return jnp.einsum("bhsc,bhtc->bhst", a_BHSC, b_BHTC)


@jax.default_matmul_precision("highest")  # errors of tensor cores would add up
def _turned(solve, q_BHQC, moved_BHQC, k_BHSC, w_BHSC, beta_BHS, visible_BHSQ):
    """`moved` after the reflections of a stretch of keys, and what they add to k.q of its keys.

    `moved` is what the reflections so far have added to each query.

    From the last key back, key s takes a[s] w[s] from the query x, where
    a[s] = beta[s] w[s].x = beta[s] w[s].(q + moved - sum of a[t] w[t] over later t). This is a
    triangular system for each query (the UT transform), which `solve` solves.
    """
    dtype, stretch = q_BHQC.dtype, k_BHSC.shape[2]
    later_ST = np.triu(np.ones((stretch, stretch), bool), 1)[None, None]
    steps_BHST = jnp.where(later_ST, _dots(w_BHSC, w_BHSC), 0) * beta_BHS[..., None]
    right_BHSQ = _dots(w_BHSC, q_BHQC + moved_BHQC) * beta_BHS[..., None]
    right_BHSQ = jnp.where(visible_BHSQ, right_BHSQ, 0)
    a_BHSQ = solve(steps_BHST, right_BHSQ, visible_BHSQ)
    a_BHQS = jnp.where(visible_BHSQ, a_BHSQ, 0).astype(dtype).swapaxes(-1, -2)
    met_BHTS = jnp.where(later_ST, _dots(k_BHSC, w_BHSC), 0)
    gain_BHQS = _dots(moved_BHQC, k_BHSC) - _dots(a_BHQS, met_BHTS)
    return moved_BHQC - a_BHQS @ w_BHSC, gain_BHQS


def _solved(steps_BHST, right_BHSQ, visible_BHSQ):
    """Solves a + steps a = right, one system for all queries.

    a[s] is 0 for keys that a query does not see: later keys by the right side, other documents by
    `together`, earlier keys afterwards.
    """
    seen_BHSQ = visible_BHSQ.astype(right_BHSQ.dtype)
    together_BHST = jnp.einsum("bosq,botq->bost", seen_BHSQ, seen_BHSQ) > 0
    steps_BHST = jnp.where(together_BHST, steps_BHST, 0)
    solve = partial(triangular_solve, steps_BHST, left_side=True, unit_diagonal=True)
    # The solver's own derivative fails where the rows of the batch are sharded explicitly.
    return jax.lax.custom_linear_solve(
        lambda a: a + steps_BHST @ a,
        right_BHSQ,
        lambda _, right: solve(right),
        lambda _, right: solve(right, transpose_a=True),
    )


def _solved_by_query(steps_BHST, right_BHSQ, visible_BHSQ):
    """Solves a[s] + steps[s] a = right[s] for the keys that a query sees; a[s] = 0 for the others.

    Under a mask of the user's own each query may have a system of its own: they are solved key by
    key, which takes a loop, but no more products.
    """
    stretch = steps_BHST.shape[2]
    seen = lambda a_BHSQ: jnp.where(visible_BHSQ, a_BHSQ, 0)

    def solve(_, right_BHSQ):
        def add_step(n, a_BHSQ):
            s = stretch - 1 - n
            row_BHT = jax.lax.dynamic_index_in_dim(steps_BHST, s, axis=2, keepdims=False)
            later_BHQ = jnp.einsum("bht,bhtq->bhq", row_BHT, seen(a_BHSQ))
            return a_BHSQ.at[:, :, s].add(-later_BHQ)

        return jax.lax.fori_loop(0, stretch, add_step, right_BHSQ)

    def solve_transposed(_, right_BHSQ):
        def add_step(t, a_BHSQ):
            column_BHS = jax.lax.dynamic_index_in_dim(steps_BHST, t, axis=3, keepdims=False)
            earlier_BHQ = jnp.einsum("bhs,bhsq->bhq", column_BHS, a_BHSQ)
            seen_BHQ = jax.lax.dynamic_index_in_dim(visible_BHSQ, t, axis=2, keepdims=False)
            return a_BHSQ.at[:, :, t].add(jnp.where(seen_BHQ, -earlier_BHQ, 0))

        return jax.lax.fori_loop(0, stretch, add_step, right_BHSQ)

    # As a linear solve its derivative is one more solve, by the transposed loop; that of the loop
    # itself would store the state of each step.
    multiply = lambda a_BHSQ: a_BHSQ + steps_BHST @ seen(a_BHSQ)
    return jax.lax.custom_linear_solve(multiply, right_BHSQ, solve, solve_transposed)
