"""Attention in one piece, for lengths whose Q x K logits fit in memory."""

import jax
import jax.numpy as jnp

from posenc_jax.attention.softmax import (
    FLOOR,
    empty,
    finish,
    heads_first,
    masked,
    narrow,
    product,
    scores,
    sum_to,
    take_in,
    transposed,
)
from posenc_jax.tuning import barrier


def dense(
    s_BHQK: jax.Array, v_BKHC: jax.Array, weighs: bool = False, sink_H: jax.Array | None = None
) -> jax.Array:
    """softmax(s) v of masked logits, or exp(s) v (`weighs`), [B, Q, H, C].

    JAX differentiates it, in either mode and any number of times.
    """
    v_BHKC = heads_first(v_BKHC)
    o_BHQC, _ = finish(take_in(empty(s_BHQK, v_BHKC), s_BHQK, v_BHKC), weighs, sink_H)
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3)


@jax.custom_vjp
def dense_for_cpu(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK) -> jax.Array:
    """softmax(q k + bias) v over visible keys, [B, Q, H, C]; `q_BQHC` is scaled, bias may be None.

    It is `dense` with a backward pass that XLA runs fast on a CPU.
    There a product that contracts the leading axis of a [Q, K] array takes up to four times as
    long as one that does not, and so does the transpose that would avoid it. The gradients of keys
    and values are therefore made transposed, [C, Q] times [Q, K], so that only small arrays are
    transposed. It has no forward-mode derivative.
    """
    return _forward(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK)[0]


def _forward(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK):
    q_BHQC, k_BHKC, v_BHKC = heads_first(q_BQHC), heads_first(k_BKHC), heads_first(v_BKHC)
    s_BHQK = barrier(scores(q_BHQC, k_BHKC, None))
    s_BHQK = masked(s_BHQK, bias_BHQK, visible_BHQK)
    p_BHQK = jnp.exp(s_BHQK - jnp.maximum(s_BHQK.max(axis=-1, keepdims=True), FLOOR))
    total_BHQ1 = p_BHQK.sum(axis=-1, keepdims=True)
    share_BHQ1 = 1 / jnp.where(total_BHQ1 > 0, total_BHQ1, 1)
    o_BHQC = barrier(product(narrow(p_BHQK, v_BHKC.dtype), v_BHKC) * share_BHQ1)
    kept = q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3), kept


def _backward(kept, g_BQHC):
    q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK = kept
    dtype = g_BQHC.dtype
    g_BHQC = heads_first(g_BQHC).astype(share_BHQ1.dtype) * share_BHQ1
    drop_BHQ1 = (g_BHQC * o_BHQC).sum(axis=-1, keepdims=True)
    g_BHQC = narrow(g_BHQC, dtype)
    dv_BHCK = product(transposed(g_BHQC), narrow(p_BHQK, dtype))
    dp_BHQK = barrier(product(g_BHQC, transposed(v_BHKC)))
    ds_BHQK = barrier(p_BHQK * (dp_BHQK - drop_BHQ1))
    dq_BHQC = product(narrow(ds_BHQK, dtype), k_BHKC)
    dk_BHCK = product(narrow(transposed(q_BHQC), dtype), narrow(ds_BHQK, dtype))
    dq_BQHC = dq_BHQC.astype(dtype).transpose(0, 2, 1, 3)
    dk_BKHC, dv_BKHC = (x.astype(dtype).transpose(0, 3, 1, 2) for x in (dk_BHCK, dv_BHCK))
    bias_gradient = None if bias_BHQK is None else sum_to(ds_BHQK, bias_BHQK)
    return dq_BQHC, dk_BKHC, dv_BKHC, bias_gradient, None


dense_for_cpu.defvjp(_forward, _backward)
