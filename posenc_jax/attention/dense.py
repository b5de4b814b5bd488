"""Attention in one piece, for lengths whose Q x K logits fit in memory.

The backward pass is written out because of XLA on the CPU, where a product that contracts the
leading axis of a [Q, K] array takes up to four times as long as one that does not, and so does the
transpose that would avoid it. The gradients of keys and values are therefore made transposed,
[C, Q] times [Q, K], and small arrays alone are ever transposed, each behind an optimization barrier
that keeps XLA from folding it into a product.
"""

import jax
import jax.numpy as jnp

from posenc_jax.dtypes import widest

FLOOR = -1e30  # stands for the largest logit of a query that sees nothing


def heads_first(x_BTHC: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(x_BTHC.transpose(0, 2, 1, 3))


def transposed(x: jax.Array) -> jax.Array:
    return jax.lax.optimization_barrier(jnp.swapaxes(x, -1, -2))


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b over the last two axes, accumulated in float32 or wider; `a` takes the dtype of `b`."""
    wide = widest(b.dtype)
    return jnp.matmul(a.astype(b.dtype), b, preferred_element_type=wide)


def masked(s_BHQK, bias_BHQK, visible_BHQK):
    if bias_BHQK is not None:
        s_BHQK = s_BHQK + bias_BHQK.astype(s_BHQK.dtype)
    return jnp.where(visible_BHQK, s_BHQK, -jnp.inf)


@jax.custom_vjp
def dense(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK) -> jax.Array:
    """softmax(q k / sqrt(C') + bias) v over visible keys, [B, Q, H, C]; bias may be None.

    `q_BQHC` comes scaled.
    """
    return _forward(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK)[0]


def _forward(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK):
    q_BHQC, k_BHKC, v_BHKC = heads_first(q_BQHC), heads_first(k_BKHC), heads_first(v_BKHC)
    s_BHQK = jax.lax.optimization_barrier(product(q_BHQC, transposed(k_BHKC)))
    s_BHQK = masked(s_BHQK, bias_BHQK, visible_BHQK)
    p_BHQK = jnp.exp(s_BHQK - jnp.maximum(s_BHQK.max(axis=-1, keepdims=True), FLOOR))
    total_BHQ1 = p_BHQK.sum(axis=-1, keepdims=True)
    share_BHQ1 = 1 / jnp.where(total_BHQ1 > 0, total_BHQ1, 1)
    o_BHQC = jax.lax.optimization_barrier(product(p_BHQK, v_BHKC) * share_BHQ1)
    kept = q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3), kept


def _backward(kept, g_BQHC):
    q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK = kept
    dtype = g_BQHC.dtype
    g_BHQC = heads_first(g_BQHC).astype(share_BHQ1.dtype) * share_BHQ1
    drop_BHQ1 = (g_BHQC * o_BHQC).sum(axis=-1, keepdims=True)
    g_BHQC = g_BHQC.astype(dtype)
    dv_BHCK = product(transposed(g_BHQC), p_BHQK.astype(dtype))
    dp_BHQK = jax.lax.optimization_barrier(product(g_BHQC, transposed(v_BHKC)))
    ds_BHQK = jax.lax.optimization_barrier(p_BHQK * (dp_BHQK - drop_BHQ1))
    dq_BHQC = product(ds_BHQK, k_BHKC)
    dk_BHCK = product(transposed(q_BHQC), ds_BHQK.astype(dtype))
    dq_BQHC = dq_BHQC.astype(dtype).transpose(0, 2, 1, 3)
    dk_BKHC, dv_BKHC = (x.astype(dtype).transpose(0, 3, 1, 2) for x in (dk_BHCK, dv_BHCK))
    bias_gradient = None if bias_BHQK is None else sum_to(ds_BHQK, bias_BHQK)
    return dq_BQHC, dk_BKHC, dv_BKHC, bias_gradient, None


dense.defvjp(_forward, _backward)


def sum_to(x: jax.Array, like: jax.Array) -> jax.Array:
    """x summed over the axes along which an array shaped as `like` was broadcast to it.

    Rows are added up by a product with ones, which on a CPU takes up to a tenth of XLA's sum.
    """
    if like.shape[0] == 1 < x.shape[0]:
        rows_BN = x.reshape(x.shape[0], -1)
        sum_1N = jnp.matmul(jnp.ones_like(rows_BN[None, :, 0]), rows_BN, precision="highest")
        x = sum_1N.reshape(1, *x.shape[1:])
    axes = tuple(a for a, size in enumerate(like.shape) if size == 1 and x.shape[a] > 1)
    return (x.sum(axis=axes, keepdims=True) if axes else x).astype(like.dtype)
