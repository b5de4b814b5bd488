"""Learned Fourier features: their kernel at the start, their gradient, widths, refusals."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, make
from posenc_jax.encodings import card
from posenc_jax.lab.definitions import EMBEDS
from posenc_jax.layout import full

DIMS = Dims(model=12, heads=3, head=4)


@pytest.mark.parametrize("gamma", [3.0, 10.0])
def test_features_start_as_a_gaussian_of_distance(gamma):
    """cos w (t - u), w normal with deviation 1 / gamma, has mean exp(-(t - u)^2 / 2 gamma^2)."""
    freq_F = make("fourier", gamma=gamma, features=20_000).init(jax.random.key(0), DIMS)["freq"]
    apart = np.arange(0, 30, 3)
    kernel = np.cos(apart[:, None] * np.asarray(freq_F)[None]).mean(axis=1)
    np.testing.assert_allclose(kernel, np.exp(-((apart / gamma) ** 2) / 2), atol=0.03)
    assert not np.allclose(kernel, np.exp(-((apart / gamma / 2) ** 2) / 2), atol=0.03)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options", [{"how": "concat"}, {"width": 5}, {"how": "concat", "width": 5, "features": 2}]
)
def test_equals_its_definition_in_float64(options):
    o = SimpleNamespace(**(card("fourier").defaults | options))
    pos_T = np.array([0, 1, 7, 10**6, 2**24])
    x_TD = np.random.default_rng(0).normal(size=(5, 12))
    with jax.enable_x64(True):
        encoding = make("fourier", **options)
        params = encoding.init(jax.random.key(0), DIMS)
        actual = encoding.embed(params, jnp.asarray(x_TD)[None], jnp.asarray(pos_T)[None])[0]
        plain = jax.tree.map(np.asarray, params)
    wanted = EMBEDS["fourier"](o, plain, x_TD, pos_T, 5)
    np.testing.assert_allclose(actual, wanted, atol=1e-7)
    assert np.abs(EMBEDS["fourier"](o, plain, x_TD, pos_T + 1, 5) - wanted).max() > 1e-3


@pytest.mark.thorough
def test_frequencies_are_learned_far_out_too():
    encoding = make("fourier")
    params = encoding.init(jax.random.key(0), DIMS)
    code = lambda p, pos: encoding.embed(p, jnp.zeros((1, 1, 12)), jnp.asarray([[pos]]))
    for pos in (3, 10**6):
        slope = jax.jacobian(code)(params, pos)["freq"]
        assert np.isfinite(slope).all()
        assert np.abs(slope).max() > 1e-3 * pos
    assert np.abs(jax.jacobian(code)(params, 0)["freq"]).max() == 0, "control: position 0 is still"


@pytest.mark.thorough
def test_a_bf16_model_keeps_its_positions():
    encoding = make("fourier")
    params = encoding.init(jax.random.key(0), DIMS)
    at = full(1, 512)
    out = encoding.embed(params, jnp.zeros((1, 512, 12), jnp.bfloat16), at.pos_BT)
    assert out.dtype == jnp.bfloat16
    assert len(np.unique(np.asarray(out[0, 256:258], np.float32), axis=0)) == 2
    rough = at.pos_BT.astype(jnp.bfloat16).astype(jnp.float32)  # the control: 257 becomes 256
    out = encoding.embed(params, jnp.zeros((1, 512, 12), jnp.bfloat16), rough)
    assert len(np.unique(np.asarray(out[0, 256:258], np.float32), axis=0)) == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"gamma": 0.0}, "encoding.gamma: 0.0 must be positive"),
        ({"features": 7}, "encoding.features: 7 must be even and positive"),
        ({"hidden": 0}, "encoding.hidden: 0 must be 1 or more"),
        ({"width": 0}, "encoding.width: 0 must be 1 or more"),
        ({"how": "mul"}, "encoding.how: 'mul' is not one of: 'add', 'concat'"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(options, line):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make("fourier", **options)
    assert str(refusal.value) == line
