"""The softmax of attention: masked logits to weighted means of values, block after block.

Products and sums are accumulated in float32 or wider.
"""

import jax
import jax.numpy as jnp

from posenc_jax.dtypes import widest
from posenc_jax.tuning import barrier, sum_rows

FLOOR = -1e30  # stands for the largest logit of a query that sees nothing


def heads_first(x_BTHC: jax.Array) -> jax.Array:
    """[B, T, H, C] to [B, H, T, C]."""
    return barrier(x_BTHC.transpose(0, 2, 1, 3))


def for_every_head(x_BTGC: jax.Array, heads: int) -> jax.Array:
    """Keys or values of G heads as those of all heads of queries, [B, T, H, C]."""
    group = heads // x_BTGC.shape[2]
    return x_BTGC if group == 1 else jnp.repeat(x_BTGC, group, axis=2)


def transposed(x: jax.Array) -> jax.Array:
    """The last two axes exchanged."""
    return barrier(jnp.swapaxes(x, -1, -2))


def narrow(x: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
    """x in the dtype that a product with values of `dtype` takes: float16, whose smallest number
    is 6e-8, would lose the weights of far keys, and float32 takes its place.
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
    """The gradient of what `capped` made s of; ds is that of s."""
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


def take_in(state, s_BHQK: jax.Array, v_BHKC: jax.Array):
    """The state after a block of masked logits and its values."""
    top, total, o_BHQC = state
    new = jax.lax.stop_gradient(jnp.maximum(top, s_BHQK.max(axis=-1, keepdims=True)))
    p_BHQK = jnp.exp(s_BHQK - new)
    shrink = jnp.exp(top - new)
    total = total * shrink + p_BHQK.sum(axis=-1, keepdims=True)
    return new, total, o_BHQC * shrink + product(narrow(p_BHQK, v_BHKC.dtype), v_BHKC)


def finish(
    state, weighs: bool = False, sink_H: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Attention's output, and the logarithm of each query's sum of exponentials.

    The output is the weighted mean of values; their weighted sum if logits are logarithms of
    weights (`weighs`). A sink is the logit of one more key, whose value is 0.
    """
    top, total, o_BHQC = state
    if sink_H is not None:
        sink_1H11 = sink_H.astype(top.dtype)[None, :, None, None]
        new = jax.lax.stop_gradient(jnp.maximum(top, sink_1H11))
        shrink = jnp.exp(top - new)
        top, total, o_BHQC = new, total * shrink + jnp.exp(sink_1H11 - new), o_BHQC * shrink
    safe = jnp.where(total > 0, total, 1)
    o_BHQC, log_BHQ1 = o_BHQC / safe, jnp.where(total > 0, top + jnp.log(safe), 0)
    return (o_BHQC * jnp.exp(log_BHQ1) if weighs else o_BHQC), log_BHQ1


def sum_to(x: jax.Array, like: jax.Array) -> jax.Array:
    """x summed over the axes along which an array shaped as `like` was broadcast to it."""
    if like.shape[0] == 1 < x.shape[0]:
        x = sum_rows(x)
    axes = tuple(a for a, size in enumerate(like.shape) if size == 1 and x.shape[a] > 1)
    return (x.sum(axis=axes, keepdims=True) if axes else x).astype(like.dtype)
