"""KERPLE, Sandwich and the plain window: ranges of parameters, public forms, minus infinity."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, at_layer, attend, frame, make
from posenc_jax.layout import full

DIMS = Dims(model=12, heads=3, head=4, layers=2)
RELATIVE = [
    ("kerple_log", {}),
    ("kerple_power", {"shared": False}),
    ("sandwich", {"channels": 8}),
    ("window", {"distance": 3}),
    ("mlp", {"hidden": 4}),
]


def layer_of(name, **options):
    encoding = make(name, **options)
    return at_layer(encoding, 0, encoding.init(jax.random.key(0), DIMS))


def bias_of(encoding, params, q_pos, k_pos):
    q_BQ, k_BK = jnp.asarray(q_pos)[None], jnp.asarray(k_pos)[None]
    return np.asarray(encoding.bias(params, q_BQ, k_BK, DIMS))[0]


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power"])
def test_kerple_never_leaves_its_range(name):
    """Whatever is learned, the bias is 0 at distance 0 and falls with distance, on both sides."""
    encoding, params = layer_of(name)
    for raw in (-9.0, 0.0, 9.0):
        learned = jax.tree.map(lambda leaf, raw=raw: jnp.full_like(leaf, raw), params)
        row = bias_of(encoding, learned, [0], [0, 1, 2, 10])[:, 0]
        assert (row[:, 0] == 0).all()
        assert (np.diff(row, axis=1) < 0).all()
        np.testing.assert_array_equal(row, bias_of(encoding, learned, [0], [0, -1, -2, -10])[:, 0])
    steepest = bias_of(encoding, learned, [0], [1, 1000])[:, 0]
    if name == "kerple_power":  # p stays below 2, which a kernel needs
        assert (steepest[:, 1] / steepest[:, 0] <= 1000**2).all()


def test_kerple_starts_as_the_authors_code():
    heads = dataclasses.replace(DIMS, heads=4000)
    log = make("kerple_log").init(jax.random.key(0), heads)
    power = make("kerple_power").init(jax.random.key(0), heads)
    p = 2 / (1 + np.exp(-np.asarray(power["logit_p"])))
    for drawn, most in ((np.exp(log["log_a"]), 2), (np.exp(log["log_b"]), 1), (p, 2)):
        assert drawn.min() >= 0.0099
        assert drawn.max() <= most
        np.testing.assert_allclose(drawn.mean(), most / 2, atol=0.03)
    assert not np.allclose(np.exp(log["log_a"]).mean(), 0.5, atol=0.03)


def test_kerple_power_is_alibi_at_one_and_has_a_gradient_at_distance_0():
    encoding, params = layer_of("kerple_power")
    params = {**params, "logit_p": jnp.zeros(3)}
    row = bias_of(encoding, params, [5], np.arange(6))[:, 0]
    slopes = np.exp(params["log_a"])[:, None]
    np.testing.assert_allclose(row, -slopes * np.arange(5, -1, -1), rtol=1e-6)
    pos = jnp.arange(4)[None]
    gradient = jax.grad(lambda p: encoding.bias(p, pos, pos, DIMS).sum())(params)
    assert all(np.isfinite(leaf).all() and (leaf != 0).all() for leaf in gradient.values())
    naive = jax.grad(lambda p: jnp.exp(p * jnp.log(jnp.arange(4.0))).sum())(1.0)
    assert np.isnan(naive), "control: the plain formula has none"


@pytest.mark.parametrize("first", [0, 1])
def test_sandwich_is_the_public_forms(first):
    """The paper's listing, codes times codes, for 0; NeMo's sum, less a constant, for 1."""
    encoding, params = layer_of("sandwich", channels=16, first=first)
    pos = np.arange(40)
    if first == 0:
        angle = pos[:, None] / 10000 ** (2 * np.arange(8) / 16)
        codes = np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
        summed = codes @ codes.T
    else:
        waves = 10000.0 ** (-2 * np.arange(1, 9) / 16)
        summed = np.cos((pos[:, None] - pos)[..., None] * waves).sum(-1) - 8
    wanted = summed[None] / (np.arange(1, 4) * 8 / 3)[:, None, None]
    differ = bias_of(encoding, params, pos, pos) - wanted
    np.testing.assert_allclose(differ - differ[:, :1, :1], 0, atol=2e-6)
    other, params = layer_of("sandwich", channels=16, first=1 - first)
    differ = bias_of(other, params, pos, pos) - wanted
    assert np.abs(differ - differ[:, :1, :1]).max() > 0.1
    assert jax.tree.leaves(params) == []


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "options"), RELATIVE)
def test_a_row_of_offsets_makes_the_blocks(name, options):
    """Attention in blocks from one row of offsets equals dense attention pair by pair."""
    encoding, params = make(name, **options), None
    params = encoding.init(jax.random.key(0), DIMS)
    q, k, v = jax.random.normal(jax.random.key(1), (3, 1, 11, 3, 4))

    def run(causal, shift=0, **form):
        at = full(1, 11)
        at = at.replace(pos_BT=at.pos_BT * (1 + shift)) if shift else at
        view = frame(encoding, params, at, DIMS, causal=causal, **form)
        return attend(q, k, v, view.layer(0))

    for causal in (True, False):
        dense = run(causal, form="dense")
        np.testing.assert_allclose(run(causal, form="blockwise", block=4), dense, atol=2e-6)
        assert np.abs(run(causal, shift=1, form="dense") - dense).max() > 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_hides_whole_blocks_without_nan(form, causal):
    """Rows of -inf inside a block give 0, not NaN, forward and back, and what is near counts."""
    encoding = make("window", distance=2)
    at = full(1, 24)
    qkv = jax.random.normal(jax.random.key(0), (3, 1, 24, 3, 4))

    def loss(qkv, target):
        view = frame(encoding, {}, at, DIMS, causal=causal, form=form, block=4)
        return attend(*qkv, view.layer(0))[:, target].sum()

    value, gradient = jax.value_and_grad(loss)(qkv, 20)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    seen = np.flatnonzero(np.abs(gradient[2]).sum((0, 2, 3)))
    np.testing.assert_array_equal(seen, [18, 19, 20] if causal else [18, 19, 20, 21, 22])
    hidden = jnp.full(4, -jnp.inf)
    assert np.isnan(jnp.exp(hidden - hidden.max())).all(), "control: a plain softmax of such a row"


@pytest.mark.thorough
def test_a_window_sees_itself_however_far_apart_positions_are_and_hides_no_nan():
    encoding, params = layer_of("window", distance=1)
    far = bias_of(encoding, params, [0, 10**6, 2 * 10**6], [0, 10**6, 2 * 10**6])[0]
    np.testing.assert_array_equal(far, np.where(np.eye(3) == 1, 0, -np.inf))
    refused = make("randomized+window", limit=8, distance=20)
    at = full(1, 9)
    placed = refused.place(None, at)
    assert np.isnan(refused.bias(({}, {}), placed, placed, DIMS)).all()
    placed = refused.place(None, full(1, 8))
    assert not np.isnan(refused.bias(({}, {}), placed, placed, DIMS)).any()


@pytest.mark.parametrize("name", ["kerple_log", "kerple_power", "fire", "mlp"])
def test_layers_share_parameters_or_have_their_own(name):
    shared, unshared = make(name, shared=True), make(name, shared=False)
    assert shared.at is None
    params = unshared.init(jax.random.key(0), DIMS)
    first, second = (jax.tree.leaves(at_layer(unshared, n, params)[1]) for n in range(2))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert CATALOG[name].card.defaults["shared"] is name.startswith("kerple")


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("sandwich", {"channels": 7}, "encoding.channels: 7 must be even"),
        ("sandwich", {"channels": 0}, "encoding.channels: 0 must be 1 or more"),
        ("sandwich", {"base": -1.0}, "encoding.base: -1.0 must be positive"),
        ("sandwich", {"first": 2}, "encoding.first: 2 is not one of: 0, 1"),
        ("window", {"distance": 0}, "encoding.distance: 0 must be 1 or more"),
        ("kerple_log", {"shared": 1}, "encoding.shared: 1 is not of type bool"),
        ("fire", {"c": 0.0}, "encoding.c: 0.0 must be positive"),
        ("fire", {"threshold": -1.0}, "encoding.threshold: -1.0 must be positive"),
        ("fire", {"hidden": 0}, "encoding.hidden: 0 must be 1 or more"),
        ("mlp", {"reach": 1}, "encoding.reach: 1 must be 2 or more"),
        ("mlp", {"spacing": "sqrt"}, "encoding.spacing: 'sqrt' is not one of: 'log', 'linear'"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make(name, **options)
    assert str(refusal.value) == line
