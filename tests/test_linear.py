"""The dense layer's product against plain autodiff."""

import jax
import jax.numpy as jnp
import pytest

from posenc_jax.lab.hosts.tuning import linear
from posenc_jax.tuning import off


@pytest.mark.parametrize(("wide", "narrow"), [(3, 8), (8, 3), (5, 5)])
def test_gradients_are_those_of_autodiff(wide, narrow):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (2, 7, wide), (wide, narrow), (narrow,), (2, 7, narrow)
    x, w, b, g = (jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True))
    plain = lambda x, w, b: x @ w + b[None, None]
    for f in (linear, jax.jit(linear), jax.checkpoint(linear)):
        out, pull = jax.vjp(f, x, w, b)
        expected, expected_pull = jax.vjp(plain, x, w, b)
        assert jnp.allclose(out, expected, atol=1e-5)
        for name, a, e in zip("xwb", pull(g), expected_pull(g), strict=True):
            assert a.dtype == e.dtype
            assert jnp.allclose(a, e, atol=1e-5), name
    assert not jnp.allclose(pull(g)[1], expected_pull(2 * g)[1], atol=1e-2), "control"
    written = lambda: "custom_vjp" in str(jax.make_jaxpr(lambda *given: linear(*given))(x, w, b))
    assert written()
    with off():
        assert not written(), "an accelerator runs plain autodiff"


def test_many_seeds():
    x, w = jnp.ones((3, 2, 4)), jax.random.normal(jax.random.key(1), (3, 4, 5))
    loss = lambda w, x: jnp.square(linear(x, w, jnp.ones(5))).sum()
    together = jax.vmap(jax.grad(loss))(w, x)
    alone = jnp.stack([jax.grad(loss)(w[n], x[n]) for n in range(3)])
    assert jnp.allclose(together, alone, atol=1e-4)


def test_bfloat16_stays():
    x, w, b = (jnp.ones(s, jnp.bfloat16) for s in ((2, 4), (4, 3), (3,)))
    out, pull = jax.vjp(linear, x, w, b)
    assert {out.dtype, *(g.dtype for g in pull(out))} == {jnp.dtype(jnp.bfloat16)}
