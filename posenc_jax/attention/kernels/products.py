"""Products of blocks inside of kernels, summed in float32."""

import jax
import jax.numpy as jnp

from posenc_jax.attention.block_plan import Plan


def product(a: jax.Array, b: jax.Array, a_axis: int, b_axis: int) -> jax.Array:
    """The product over one axis of each, in the dtype of `a`, summed in float32."""
    over = (((a_axis,), (b_axis,)), ((), ()))
    return jax.lax.dot_general(a, b.astype(a.dtype), over, preferred_element_type=jnp.float32)


def scale(plan: Plan) -> float:
    """1 / sqrt(C), with which kernels multiply products of queries and keys."""
    return plan.dims.head**-0.5
