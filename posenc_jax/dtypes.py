"""Types of arrays: the dtype that sums are kept in."""

import jax
import jax.numpy as jnp


def widest(dtype: jax.typing.DTypeLike) -> jnp.dtype:
    """float32, or the dtype itself where that is wider: what sums and logits are kept in."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)


def scaled(x: jax.Array, factor: float | jax.Array) -> jax.Array:
    """x times a number, in the dtype of x; an array's product is made in float32 or wider."""
    if not isinstance(factor, jax.Array):
        return x * factor
    wide = widest(x.dtype)
    return (x.astype(wide) * factor.astype(wide)).astype(x.dtype)
