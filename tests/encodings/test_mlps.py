"""FIRE and Swin V2's continuous bias: what they are told of a pair, and their authors' forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, attend, frame, make
from posenc_jax.layout import full

DIMS = Dims(model=12, heads=3, head=4, layers=1)


def layer_of(name, **options):
    encoding = make(name, **options)
    return at_layer(encoding, 0, encoding.init(jax.random.key(0), DIMS))


def bias_of(encoding, params, q_pos, k_pos):
    q_BQ, k_BK = jnp.asarray(q_pos)[None], jnp.asarray(k_pos)[None]
    return np.asarray(encoding.bias(params, q_BQ, k_BK, DIMS))[0]


@pytest.mark.thorough
def test_fire_reads_the_querys_position_from_its_threshold_on():
    encoding, params = layer_of("fire", threshold=50.0)
    pair = lambda i: bias_of(encoding, params, [i], [i - 3])[:, 0, 0]
    np.testing.assert_array_equal(pair(10), pair(49))
    assert not np.allclose(pair(10), pair(200), atol=1e-3)
    # The first token is all the way back for every query past the threshold, however long the row.
    first = bias_of(encoding, params, [60, 1000, 10**6], [0])[..., 0]
    np.testing.assert_allclose(first, first[:, :1] * np.ones((1, 3)), atol=1e-5)
    before = bias_of(encoding, params, [10, 49], [0])[..., 0]
    assert np.abs(before[:, 0] - before[:, 1]).max() > 1e-3


def test_fire_is_its_papers_listing():
    """The appendix's module on positions from 0, in NumPy; signs of c and L do not count."""
    encoding, params = layer_of("fire", threshold=6.0, c=0.3)
    p, pos = jax.tree.map(np.asarray, params), np.arange(12.0)
    threshold = np.abs(p["stretch"] * 6.0)
    distance = np.log(np.abs(p["c"] * (pos[:, None] - pos)) + 1)
    most = np.log(np.abs(p["c"] * np.maximum(pos, threshold)[:, None]) + 1) + 1e-6
    hidden = np.maximum((distance / most)[..., None] * p["w1"] + p["b1"], 0)
    wanted = np.moveaxis(hidden @ p["w2"] + p["b2"], -1, 0)
    np.testing.assert_allclose(bias_of(encoding, params, pos, pos), wanted, atol=1e-6)
    turned = {**params, "c": -params["c"], "stretch": -params["stretch"]}
    np.testing.assert_allclose(bias_of(encoding, turned, pos, pos), wanted, atol=1e-6)
    longer = {**params, "stretch": 2 * params["stretch"]}
    assert np.abs(bias_of(encoding, longer, pos, pos) - wanted).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("causal", [True, False])
def test_fires_gradient_is_finite_from_the_start(form, causal):
    """Both past the threshold and before it, distance 0 included; each parameter learns."""
    encoding, params = layer_of("fire", threshold=6.0)
    one_layer = encoding._replace(init=lambda key, dims: params)
    q, k, v = jax.random.normal(jax.random.key(1), (3, 1, 12, 3, 4))

    def loss(params):
        view = frame(one_layer, params, full(1, 12), DIMS, causal=causal, form=form, block=4)
        return (attend(q, k, v, view.layer(0)) ** 2).sum()

    gradient = jax.grad(loss)(params)
    for name, leaf in gradient.items():
        assert np.isfinite(leaf).all(), name
        assert np.abs(leaf).max() > (0 if name == "b2" else 1e-6), name
    assert np.abs(gradient["b2"]).max() < 1e-5, "control: the softmax does not see a constant"


def test_mlp_is_the_authors_code_with_its_options():
    """The code's table for a window of 7: scaled to [-8, 8], log to base 8, 16 sigmoid."""
    encoding, params = layer_of("mlp", reach=7, squash=True, hidden=5)
    params = jax.tree.map(lambda leaf: leaf * 50 + 0.1, params)
    w1, b1, w2 = (np.asarray(params[name]) for name in ("w1", "b1", "w2"))
    offset = np.arange(-6, 7) / 6 * 8
    offset = np.sign(offset) * np.log2(np.abs(offset) + 1) / np.log2(8)
    y = np.maximum(offset[:, None] * w1 + b1, 0) @ w2
    actual = bias_of(encoding, params, [0], -np.arange(-6, 7))[:, 0].T
    np.testing.assert_allclose(actual, 16 / (1 + np.exp(-y)), rtol=1e-5)
    assert not np.allclose(actual, actual[::-1], atol=1e-2), (
        "control: the sign of the offset counts"
    )
    plain = bias_of(make("mlp", reach=7, hidden=5, shared=True), params, [0], -np.arange(-6, 7))
    np.testing.assert_allclose(plain[:, 0].T, y, rtol=1e-5)


def test_mlp_spaces_offsets_by_their_logarithm():
    same = {"w1": jnp.ones(1), "b1": jnp.zeros(1), "w2": jnp.ones((1, 1))}
    offsets = -np.array([1, 10, 100, 1000])
    log = bias_of(make("mlp", shared=True), same, [0], offsets)[0, 0]
    np.testing.assert_allclose(log, np.log1p([1, 10, 100, 1000]), rtol=1e-6)
    linear = bias_of(make("mlp", shared=True, spacing="linear"), same, [0], offsets)[0, 0]
    np.testing.assert_allclose(linear, [1, 10, 100, 1000])
