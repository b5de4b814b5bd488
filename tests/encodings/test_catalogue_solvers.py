"""No method calls LAPACK, which can wait forever where a CPU has several devices.

LAPACK's kernels of jaxlib 0.10.2 hand many matrices to the pool of threads that runs them, and wait
for it. Where as many devices as the pool has threads do so at once, none goes on.
"""

import jax
import jax.numpy as jnp
import pytest

from tests.support.catalogue import EVERY_METHOD, case, whole

TIME = 16


def calls_lapack(function, *args) -> bool:
    return "lapack" in jax.jit(function).lower(*args).as_text()


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_catalogue_calls_no_lapack(name):
    c, at = case(name), whole(name, 2, TIME)
    tokens_BT = jnp.zeros((2, TIME), jnp.int32)
    loss = lambda params: c.model.apply(params, tokens_BT, at).sum()
    assert not calls_lapack(jax.grad(loss), c.params)


def test_a_solver_calls_it():
    """The control."""
    assert calls_lapack(jnp.linalg.inv, jnp.eye(3))
