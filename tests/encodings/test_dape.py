"""DAPE around each bias that it can wrap."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, Side, at_layer, frame, full, make
from posenc_jax.attention.frames import Form
from posenc_jax.encodings.bias_networks import BIASES
from posenc_jax.lab.definitions import SCORES

DIMS = Dims(model=12, heads=3, head=4, layers=2)
POS = np.array([0, 1, 2, 5, 9])


def layer_of(bias, layer=0):
    encoding = make("dape", bias=bias, width=5)
    return at_layer(encoding, layer, encoding.init(jax.random.key(0), DIMS))


def score(encoding, params, q, k):
    pos = jnp.asarray(POS)[None]
    s_BHQK = jnp.einsum("bqhc,bkhc->bhqk", q, k) / 2
    return encoding.walk.score(params, s_BHQK, Side(q, pos), Side(k, pos), None, None)[0], s_BHQK


@pytest.mark.thorough
@pytest.mark.parametrize("bias", list(BIASES))
def test_logits_are_the_papers(bias):
    with jax.enable_x64(True):
        encoding, params = layer_of(bias)
        q, k = jax.random.normal(jax.random.key(1), (2, 1, 5, 3, 4), float)
        actual, plain = score(encoding, params, q, k)
        o = SimpleNamespace(bias=bias, width=5)
        arrays = jax.tree.map(np.asarray, params)
        wanted = SCORES["dape"](o, arrays, np.asarray(q[0]), np.asarray(k[0]), POS, 5)
        np.testing.assert_allclose(actual[0], wanted, rtol=1e-9, atol=1e-9)
        silent = {**params, "mlp": jax.tree.map(jnp.zeros_like, params["mlp"])}
        plain_bias = make(bias)
        own_bias, _ = at_layer(plain_bias, 0, plain_bias.init(jax.random.key(2), DIMS))
        b_BHQK = own_bias.bias(params["bias"], *2 * (jnp.asarray(POS)[None],), DIMS)
        np.testing.assert_allclose(score(encoding, silent, q, k)[0], plain + b_BHQK, rtol=1e-12)
        assert np.abs(actual - plain - b_BHQK).max() > 1e-2, "control: the MLP says something"


def test_each_layer_has_its_own_network():
    first, second = (layer_of("kerple_log", n)[1] for n in (0, 1))
    assert not np.array_equal(first["mlp"]["in"], second["mlp"]["in"])
    assert first["mlp"]["in"].shape == (6, 5)
    assert first["mlp"]["out"].shape == (5, 3)


def test_refusals():
    with pytest.raises(ValueError, match=r"encoding\.bias: 't5'.*alibi"):
        make("dape", bias="t5")
    with pytest.raises(ValueError, match=r"encoding\.width: 0 must be 1 or more"):
        make("dape", width=0)
    with pytest.raises(ValueError, match=r"encoding\.kernel: 4 must be odd"):
        make("dape_v2", kernel=4)


def test_form_is_dense_or_refused_where_scores_read_other_keys():
    """`auto` stays dense at any length, alone and in a chain; `dape` is the control."""

    def form_of(name, form: Form = "auto"):
        encoding = make(name)
        params = jax.eval_shape(lambda: encoding.init(jax.random.key(0), DIMS))
        framed = lambda params: frame(encoding, params, full(1, 4096), DIMS, form=form)
        return jax.eval_shape(framed, params).alike.form

    assert form_of("dape_v2") == form_of("dape_v2+rope") == "dense"
    assert form_of("dape") == "blockwise"
    forms: tuple[Form, ...] = "blockwise", "kernel"
    for form in forms:
        with pytest.raises(ValueError, match=f"form: '{form}' does not take scores that read"):
            form_of("dape_v2", form)
