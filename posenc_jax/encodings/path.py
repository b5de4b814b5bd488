"""PaTH: queries are turned by a reflection for each token between them and a key."""

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.target import tuned_for
from posenc_jax.combinators import each_layer
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings.card import Count, register
from posenc_jax.encodings.gated import affine, by_stretches, no_vector
from posenc_jax.options import Bound

STRETCH = 64  # keys whose product of reflections is made by the inverse of one matrix, at most
NARROW = 16  # keys at least
FEW = 8  # rows of a matrix that are inverted one by one
TINY = 1e-6  # added to a squared norm before the division


@register(
    kind="content",
    formula="k.(product of I - beta[l] w[l] w[l]^T over l = j + 1 .. i) q / sqrt(C)",
    paper="Yang et al. 2025, arXiv 2505.16381",
    axes=0,
)
def path(rank: Count = 32, beta: Annotated[float, Bound(0, 2)] | None = None) -> Encoding:
    """PaTH: each token between a key and the query reflects or shrinks the query along a direction.

    The direction w is a unit vector, made of x by a map of low rank, and beta = 2 sigmoid(u.x + b).
    A beta of 2 reflects, 1 projects, 0 does nothing. Each layer and head has its own w and beta.
    Left out: the paper's convolution of w over three tokens, so that a cache needs the features of
    one token alone. PaTH-FoX is the chain "path+fox".

    It reads no positions; padding, other documents and later tokens do nothing. In a bidirectional
    encoder, the tokens between a key and a query are all that follow the key.

    Args:
      rank: of the map from x to w; the public code has 32.
      beta: the beta of all tokens; None: each token has its own, which is the paper's.
    """

    def init(key, dims):
        down_key, up_key, beta_key = jax.random.split(key, 3)
        params = {
            "down": dims.model**-0.5 * jax.random.normal(down_key, (dims.model, rank)),
            "up": rank**-0.5 * jax.random.normal(up_key, (rank, dims.heads, dims.head)),
        }
        if beta is None:
            params["beta"] = 0.02 * jax.random.normal(beta_key, (dims.model, dims.heads))
            params["beta_bias"] = jnp.zeros(dims.heads)
        return params

    def prepare(params, x_BTD):
        w_BTHC = affine(affine(x_BTD, params["down"]), params["up"])
        w_BTHC = w_BTHC * jax.lax.rsqrt(jnp.square(w_BTHC).sum(-1, keepdims=True) + TINY)
        if beta is not None:
            return w_BTHC, jnp.full_like(w_BTHC[..., 0], beta)
        return w_BTHC, 2 * jax.nn.sigmoid(affine(x_BTD, params["beta"], params["beta_bias"]))

    def score(params, s_BHQK, q, k, visible_BHQK, carry_BHQC):
        score = _score(_solved_by_query if q.masked else _solved, _stretch(q.x_BTHC.shape[-1]))
        return score(params, s_BHQK, q, k, visible_BHQK, carry_BHQC)

    return each_layer(Encoding(init=init, walk=Walk(score, prepare, no_vector, corrects=True)))


def _stretch(head: int) -> int:
    """The keys whose product of reflections is made at once, for heads of so many channels.

    On a CPU the time goes with the number of products, for each key and query about 6 C + 4 times
    the stretch: with heads of 16 channels a training step of a small model takes .55 of the time
    with stretches of 16 instead of 64. Other backends need large products.
    """
    return min(STRETCH, max(NARROW, head)) if tuned_for("cpu") else STRETCH


@cache
def _score(solve: Callable, stretch: int) -> Callable:
    return by_stretches(partial(_turned, solve), stretch)


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
    inverse_BHST = jax.lax.stop_gradient(_inverse(steps_BHST))
    # The derivative is one more product with the same inverse.
    return jax.lax.custom_linear_solve(
        lambda a: a + steps_BHST @ a,
        right_BHSQ,
        lambda _, right: inverse_BHST @ right,
        lambda _, right: inverse_BHST.swapaxes(-1, -2) @ right,
    )


def _inverse(steps_BHST: jax.Array) -> jax.Array:
    """The inverse of I + `steps`, which is 0 on and below its diagonal.

    Blocks of the diagonal are inverted by substitution, then joined two by two:
    [[A, C], [0, B]]^-1 = [[A^-1, -A^-1 C B^-1], [0, B^-1]]. Entries of the inverses are at most 2,
    since reflections lengthen no vector. `triangular_solve` is LAPACK's on a CPU, which hands its
    matrices to the pool of threads that runs it and waits: with as many devices as threads jaxlib
    0.10.2 waits forever.
    """
    stretch, block = steps_BHST.shape[-1], FEW
    size = FEW
    while size < stretch:
        size *= 2
    more = [(0, 0), (0, 0), (0, size - stretch), (0, size - stretch)]
    steps_BHST = jnp.pad(steps_BHST, more)
    inverse_BHNST = _inverse_of_few(_diagonal(steps_BHST, FEW))
    while block < size:
        corner_BHNST = _diagonal(steps_BHST, 2 * block)[..., :block, block:]
        first, second = inverse_BHNST[:, :, 0::2], inverse_BHNST[:, :, 1::2]
        corner_BHNST = -(first @ corner_BHNST @ second)
        top = jnp.concatenate([first, corner_BHNST], axis=-1)
        bottom = jnp.concatenate([jnp.zeros_like(corner_BHNST), second], axis=-1)
        inverse_BHNST, block = jnp.concatenate([top, bottom], axis=-2), 2 * block
    return inverse_BHNST[:, :, 0, :stretch, :stretch]


def _diagonal(matrix_BHST: jax.Array, block: int) -> jax.Array:
    """The blocks on the diagonal, [B, H, blocks, S, T]."""
    starts = range(0, matrix_BHST.shape[-1], block)
    blocks = [matrix_BHST[:, :, n : n + block, n : n + block] for n in starts]
    return jnp.stack(blocks, axis=2)


def _inverse_of_few(steps_BHNST: jax.Array) -> jax.Array:
    """The inverse of I + `steps` row by row, from the last one."""
    rows: list[jax.Array] = []  # of the inverse, each [B, H, N, T], from `row` on
    for row in reversed(range(FEW)):
        inverse_BHNT = jnp.zeros_like(steps_BHNST[..., 0, :]).at[..., row].set(1)
        for later, inverse_row_BHNT in enumerate(rows, row + 1):
            inverse_BHNT -= steps_BHNST[..., row, later, None] * inverse_row_BHNT
        rows.insert(0, inverse_BHNT)
    return jnp.stack(rows, axis=-2)


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
