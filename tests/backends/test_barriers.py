"""What is computed once: the same values, whatever type the arrays have that it begins with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.backends.barriers import once
from posenc_jax.backends.target import compile_for


@pytest.mark.parametrize("first", [[True, False], [1, 0], [1.0, 0.0]])
def test_what_is_computed_once_begins_with_arrays_of_any_type(first):
    """The suite promotes no dtypes, as `jax_numpy_dtype_promotion="strict"`: a comparison of truth
    values with a number would be refused."""
    first_N, x_N = jnp.array(first), jnp.array([2.0, 3.0])
    pick = lambda first_N, x_N: jnp.where(first_N.astype(bool), x_N, -x_N)
    with compile_for("cpu"):
        traced = jax.jit(lambda *args: once(pick, *args))
        assert "cond" in str(jax.make_jaxpr(traced)(first_N, x_N)), "control: a conditional"
        np.testing.assert_array_equal(traced(first_N, x_N), [2.0, -3.0])
