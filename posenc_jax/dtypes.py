"""Types of arrays: the dtype that sums are kept in."""

import jax
import jax.numpy as jnp


def widest(dtype: jax.typing.DTypeLike) -> jnp.dtype:
    """float32, or the dtype itself where that is wider: what sums and logits are kept in."""
    return jnp.dtype(jnp.float32) if jnp.finfo(dtype).bits < 32 else jnp.dtype(dtype)
