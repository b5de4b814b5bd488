"""What XLA for a CPU is kept from changing has the same values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.backends.barriers import once, transposed
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(32, 5), (2, 3, 48, 7), (30, 5), (0, 5), (16, 1)])
def test_an_operand_is_transposed(shape, dtype):
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), dtype)
    with compile_for("cpu"):
        for merges in (False, True):
            y = jax.jit(lambda x, merges=merges: transposed(x, merges))(x)
            np.testing.assert_array_equal(y, jnp.swapaxes(x, -1, -2))
            assert y.dtype == dtype


def test_a_product_of_bfloat16_on_a_cpu_is_not_computed_in_float32():
    """The control: a transpose that XLA sees, after which it converts both operands."""
    a, b = (jnp.ones(shape, jnp.bfloat16) for shape in ((512, 64), (512, 128)))
    product = lambda a, b: jnp.matmul(a, b, preferred_element_type=jnp.float32)
    text = lambda f, *args: jax.jit(f).lower(*(args or (a, b))).compile().as_text()
    if "f32[512,128]" in text(product, jnp.ones((64, 512), a.dtype), b):
        pytest.skip("XLA has no products of bfloat16 for this processor")
    with compile_for("cpu"):
        ours = text(lambda a, b: product(transposed(a), b))
    plain = text(lambda a, b: product(jnp.swapaxes(a, -1, -2), b))
    assert "f32[512,128]" not in ours
    assert "f32[512,128]" in plain
