"""Patterns of layers under `lax.scan`: `Frame.period`, and layer (n, i) with a traced n."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, chain, each_layer, frame, full, make, per_layer
from tests.support.catalogue import gap, stir

DIMS = Dims(model=16, heads=2, head=8, layers=6)
TIME = 7
BY_LAYER = {"every": 3, "window": 3}

PATTERNS = {
    "local_global": (lambda: make("local_global", **BY_LAYER), 3),
    "olmo3": (lambda: make("olmo3", **BY_LAYER, length=8), 3),
    "gpt_oss": (lambda: make("gpt_oss", every=2, window=3), 2),
    "irope": (lambda: make("irope", every=3, floor=2), 3),
    "alike": (lambda: make("rope"), 1),
    "parameters alone": (lambda: make("clipped"), 1),
    "parameters in a pattern": (
        lambda: per_layer([each_layer(make("t5", buckets=8)), make("rope")]),
        2,
    ),
    "members that are equal": (lambda: per_layer([make("t5", buckets=8) for _ in "ab"]), 2),
    "two patterns": (
        lambda: chain(
            per_layer([make("alibi"), make("t5", buckets=8)]),
            per_layer([make("rope"), make("nope"), make("nope")]),
        ),
        6,
    ),
    "content": (lambda: per_layer([make("fox"), make("path"), make("fox")]), 3),
    "all layers as listed": (lambda: per_layer([*[make("rope")] * 4, *[make("nope")] * 2]), 6),
}


@pytest.mark.thorough
@pytest.mark.parametrize("which", PATTERNS)
def test_a_scan_over_periods_is_a_loop_over_layers(which):
    build, period = PATTERNS[which]
    encoding = build()
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    x_BTD = jax.random.normal(jax.random.key(1), (2, TIME, 16))

    def one_layer(view, number, x_BTD):
        q_BTHC = x_BTD.reshape(2, TIME, 2, 8)
        out = attend(q_BTHC, q_BTHC, q_BTHC, view.layer(number, x_BTD))
        return x_BTD + out.reshape(x_BTD.shape)

    def scanned(params, x_BTD):
        view = frame(encoding, params, full(2, TIME), DIMS)
        assert view.period == period

        def body(x_BTD, n):
            for i in range(view.period):
                x_BTD = one_layer(view, (n, i), x_BTD)
            return x_BTD, None

        return jax.lax.scan(body, x_BTD, jnp.arange(6 // period))[0]

    def looped(params, x_BTD, layers=range(6)):
        view = frame(encoding, params, full(2, TIME), DIMS)
        for n in layers:
            x_BTD = one_layer(view, divmod(n, period), x_BTD)
        return x_BTD

    def results(model):
        out, pull = jax.vjp(jax.jit(model), params, x_BTD)
        return out, pull(jnp.cos(out))

    actual, wanted = results(scanned), results(looped)
    assert gap(wanted, actual, relative=True) < 1e-5
    if which != "alike":
        other = looped(params, x_BTD, range(5, -1, -1))
        assert gap(other, wanted[0]) > 1e-4, "control: another order of layers"


def test_a_traced_layer_of_a_pattern_says_how_to_scan():
    encoding = make("local_global", every=2)
    view = frame(encoding, encoding.init(jax.random.key(0), DIMS), full(1, TIME), DIMS)
    with pytest.raises(ValueError, match=r"scan over periods with frame.layer\(\(n, i\), x\)"):
        jax.jit(lambda n: view.layer(n).bias())(0)
    for place in (2, -1):
        with pytest.raises(ValueError, match=f"no layer {place} in a period of 2, counted from 0"):
            view.layer((0, place))
    with pytest.raises(ValueError, match=r"no layer 7; dims\.layers is 6"):
        view.layer((3, 1))
    np.testing.assert_array_equal(view.layer((2, 0)).bias(), view.layer(4).bias())
