"""The softmax of attention: masked logits to weighted means of values, block after block or dense.

Products and sums are accumulated in float32 or wider.
"""

import jax
import jax.numpy as jnp

from posenc_jax.backends.barriers import barrier, transposed
from posenc_jax.backends.row_sums import sum_rows
from posenc_jax.dtypes import widest

FLOOR = -1e30  # stands for the largest logit of a query that sees nothing
# Stands for its log-sum-exp in a kernel: the weights exp(FLOOR - NOTHING) of a backward pass are 0.
NOTHING = -FLOOR


def heads_first(x_BTHC: jax.Array) -> jax.Array:
    """[B, T, H, C] to [B, H, T, C]."""
    return barrier(x_BTHC.transpose(0, 2, 1, 3))


def for_every_head(x_BTGC: jax.Array, heads: int) -> jax.Array:
    """Keys or values of G heads as those of all heads of queries, [B, T, H, C]."""
    group = heads // x_BTGC.shape[2]
    return x_BTGC if group == 1 else jnp.repeat(x_BTGC, group, axis=2)


def narrow(x: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """x cast to `dtype` for a product with values of that dtype; float32 in place of float16.

    The smallest number of float16 is 6e-8, so that it would lose the weights of far keys.
    """
    return x.astype(jnp.float32 if dtype == jnp.float16 else dtype)


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a b over the last two axes, accumulated in float32 or wider; both of one dtype, or `b` is
    float16.
    """
    return jnp.matmul(a, b.astype(a.dtype), preferred_element_type=widest(a.dtype))


def capped(s: jax.Array, cap: float | None) -> jax.Array:
    """cap tanh(s / cap): logits that stay between -cap and cap (Gemma 2, arXiv 2408.00118)."""
    return s if cap is None else cap * jnp.tanh(s / cap)


def scores(q_BHQC: jax.Array, k_BHKC: jax.Array, cap: float | None) -> jax.Array:
    """The capped products of queries, which are scaled, and keys, [B, H, Q, K]."""
    return capped(product(q_BHQC, transposed(k_BHKC)), cap)


def through_cap(ds: jax.Array, s: jax.Array, cap: float | None) -> jax.Array:
    """The gradient of uncapped logits; s are the capped ones, and ds is the gradient of s."""
    return ds if cap is None else ds * (1 - jnp.square(s / cap))


def masked(s_BHQK: jax.Array, bias_BHQK: jax.Array | None, visible_BHQK: jax.Array) -> jax.Array:
    """Logits with the bias added, -inf where a query does not see a key."""
    if bias_BHQK is not None:
        s_BHQK = s_BHQK + bias_BHQK.astype(s_BHQK.dtype)
    return jnp.where(visible_BHQK, s_BHQK, -jnp.inf)


def empty(q_BHQC: jax.Array, v_BHKC: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Largest logit, sum of exponentials and weighted values of queries that saw nothing yet."""
    zero_BHQ1 = jnp.zeros_like(q_BHQC[..., :1], widest(q_BHQC.dtype))
    zero_BH1C = jnp.zeros_like(v_BHKC[..., :1, :], zero_BHQ1.dtype)
    return zero_BHQ1 + FLOOR, zero_BHQ1, zero_BHQ1 + zero_BH1C


def take_in(state, s_BHQK: jax.Array, v_BHKC: jax.Array, factor_BHQK: jax.Array | None = None):
    """The softmax's state after one more block of masked logits and values.

    factor_BHQK: what dropout multiplies weights with; the sum of exponentials is without it.
    """
    top, total, o_BHQC = state
    new = jax.lax.stop_gradient(jnp.maximum(top, s_BHQK.max(axis=-1, keepdims=True)))
    p_BHQK = jnp.exp(s_BHQK - new)
    shrink = jnp.exp(top - new)
    total = total * shrink + p_BHQK.sum(axis=-1, keepdims=True)
    if factor_BHQK is not None:
        p_BHQK = p_BHQK * factor_BHQK.astype(p_BHQK.dtype)
    return new, total, o_BHQC * shrink + product(narrow(p_BHQK, v_BHKC.dtype), v_BHKC)


def finish(
    state, weighs: bool = False, sink_H: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Attention's output, and the logarithm of each query's sum of exponentials.

    The logarithm is `FLOOR` for a query that sees no key. The output is the weighted mean of
    values, or their weighted sum where logits are logarithms of weights (`weighs`). A sink is the
    logit of one more key, whose value is 0.
    """
    top, total, o_BHQC = state
    if sink_H is not None:
        sink_1H11 = sink_H.astype(top.dtype)[None, :, None, None]
        new = jax.lax.stop_gradient(jnp.maximum(top, sink_1H11))
        shrink = jnp.exp(top - new)
        top, total, o_BHQC = new, total * shrink + jnp.exp(sink_1H11 - new), o_BHQC * shrink
    safe = jnp.where(total > 0, total, 1)
    o_BHQC, log_BHQ1 = o_BHQC / safe, top + jnp.log(safe)
    return (o_BHQC * jnp.exp(log_BHQ1) if weighs else o_BHQC), log_BHQ1


def sink_gradient(sink_H, log_XBHQ1, delta_XBHQ1):
    """The gradient of the sinks' logits, [H].

    log:   of each query's sum of exponentials, the sink's among them.
    delta: each query's sum of the output times its gradient.
    """
    if sink_H is None:
        return None
    sink_BH11 = sink_H.astype(log_XBHQ1.dtype).reshape((1,) * (log_XBHQ1.ndim - 3) + (-1, 1, 1))
    weight_XBHQ1 = jnp.exp(sink_BH11 - log_XBHQ1)
    by_head = -(weight_XBHQ1 * delta_XBHQ1).sum(axis=(-1, -2))
    return by_head.sum(axis=tuple(range(by_head.ndim - 1))).astype(sink_H.dtype)


def log_sum_exp(log_BHQ1: jax.Array) -> jax.Array:
    """The log-sum-exp that `finish` returns, as [B, Q, H]; -inf for a query that sees no key."""
    log_BQH = log_BHQ1[..., 0].swapaxes(1, 2)
    return jnp.where(log_BQH > FLOOR / 2, log_BQH, -jnp.inf)


def known(log: jax.Array) -> jax.Array:
    """The log-sum-exp that a kernel writes; -inf for a query that sees no key."""
    return jnp.where(log < NOTHING / 2, log, -jnp.inf)


def sum_to(x: jax.Array, like: jax.Array) -> jax.Array:
    """x summed over the axes along which an array shaped as `like` was broadcast to it."""
    if like.shape[0] == 1 < x.shape[0]:
        x = sum_rows(x)
    axes = tuple(a for a, size in enumerate(like.shape) if size == 1 and x.shape[a] > 1)
    return (x.sum(axis=axes, keepdims=True) if axes else x).astype(like.dtype)


def dense(
    s_BHQK: jax.Array,
    v_BKHC: jax.Array,
    weighs: bool = False,
    sink_H: jax.Array | None = None,
    factor_BHQK: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """softmax(s) v of masked logits, or exp(s) v (`weighs`), [B, Q, H, C]; and their log-sum-exp.

    JAX differentiates it, in either mode and any number of times.
    """
    v_BHKC = heads_first(v_BKHC)
    state = take_in(empty(s_BHQK, v_BHKC), s_BHQK, v_BHKC, factor_BHQK)
    o_BHQC, log_BHQ1 = finish(state, weighs, sink_H)
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3), log_sum_exp(log_BHQ1)


@jax.custom_vjp
def dense_cpu(q_BQHC, k_BKHC, v_BKHC, bias_BHQK, visible_BHQK) -> jax.Array:
    """softmax(q k + bias) v over visible keys, [B, Q, H, C]; `q_BQHC` is scaled, bias may be None.

    It is `dense` with a backward pass that XLA runs fast on a CPU.
    There a product that contracts the leading axis of a [Q, K] array takes up to four times as
    long as one that does not, and so does the transpose that would avoid it. The gradients of keys
    and values are therefore made transposed, [C, Q] times [Q, K], so that only small arrays are
    transposed. It has no forward-mode derivative.

    Products and what is made of them stand between barriers. Compiled without these, XLA for a CPU
    merges the transposes into the products again, and the one for keys contracts a leading axis;
    a training step of a small model took 1.6 times as long.
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
    residuals = q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK
    return o_BHQC.astype(v_BKHC.dtype).transpose(0, 2, 1, 3), residuals


def _backward(residuals, g_BQHC):
    q_BHQC, k_BHKC, v_BHKC, p_BHQK, share_BHQ1, o_BHQC, bias_BHQK = residuals
    dtype = g_BQHC.dtype
    g_BHQC = heads_first(g_BQHC).astype(share_BHQ1.dtype) * share_BHQ1
    delta_BHQ1 = (g_BHQC * o_BHQC).sum(axis=-1, keepdims=True)
    g_BHQC = narrow(g_BHQC, dtype)
    dv_BHCK = product(transposed(g_BHQC), narrow(p_BHQK, dtype))
    dp_BHQK = barrier(product(g_BHQC, transposed(v_BHKC)))
    ds_BHQK = barrier(p_BHQK * (dp_BHQK - delta_BHQ1))
    dq_BHQC = product(narrow(ds_BHQK, dtype), k_BHKC)
    dk_BHCK = product(narrow(transposed(q_BHQC), dtype), narrow(ds_BHQK, dtype))
    dq_BQHC = dq_BHQC.astype(dtype).transpose(0, 2, 1, 3)
    dk_BKHC, dv_BKHC = (x.astype(dtype).transpose(0, 3, 1, 2) for x in (dk_BHCK, dv_BHCK))
    bias_gradient = None if bias_BHQK is None else sum_to(ds_BHQK, bias_BHQK)
    return dq_BQHC, dk_BKHC, dv_BKHC, bias_gradient, None


dense_cpu.defvjp(_forward, _backward)
