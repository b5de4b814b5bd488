"""Attention is traced once for all layers that are alike, and anew for those that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, Encoding, Walk, attend, frame, full
from posenc_jax.attention.shared_trace import traced_once
from posenc_jax.backends.target import compile_for, target

LAYERS = 5
DIMS = Dims(model=16, heads=2, head=8, layers=LAYERS)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_layers_that_are_alike_are_traced_once(form):
    traces = 0

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        nonlocal traces
        traces += 1
        return s_BHQK * params, carry

    encoding = Encoding(lambda key, dims: jnp.ones(()), walk=Walk(score))
    q_LBTHC = jax.random.normal(jax.random.key(0), (LAYERS, 2, 6, 2, 8))

    def loss(q_LBTHC, layers, caps):
        view = frame(encoding, jnp.ones(()), full(2, 6), DIMS, form=form)
        x_BTHC = q_LBTHC[0]
        for n, cap in zip(range(layers), caps, strict=False):
            layer = view.layer(n, x_BTHC.reshape(2, 6, 16))
            x_BTHC += attend(q_LBTHC[n], q_LBTHC[n], x_BTHC, layer, cap=cap)
        return x_BTHC.sum()

    def count(layers, caps):
        nonlocal traces
        traces = 0
        jax.clear_caches()
        jax.jit(jax.grad(loss), static_argnums=(1, 2)).lower(q_LBTHC, layers, caps)
        return traces

    alike = (5.0,) * LAYERS
    assert count(1, alike) == count(LAYERS, alike) > 0
    different = tuple(5.0 + n for n in range(LAYERS))
    assert count(LAYERS, different) == LAYERS * count(1, alike), "control"


def test_numbers_of_another_type_are_traced_anew():
    """Programs may differ by the type of a number, and by its value; 1 == 1.0 == True in Python."""

    def kind(x, number):
        return x + float(number) + {bool: 10, int: 20, float: 30, np.bool_: 40}[type(number)]

    numbers = (True, 1, 1.0, np.True_, 2, False)
    results = jax.jit(lambda x: [traced_once(kind, x, number) for number in numbers])(0.0)
    assert [float(x) for x in results] == [11, 21, 31, 41, 22, 10]


def test_another_target_is_traced_anew():
    def backend(x):
        return x + {"cpu": 1, "gpu": 2}[target().backend]

    def both(x):
        here = traced_once(backend, x)
        with compile_for("gpu"):
            return here, traced_once(backend, x), traced_once(backend, x)

    assert [float(x) for x in jax.jit(both)(0.0)] == [1, 2, 2]
