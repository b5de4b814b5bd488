"""Shared keys, sinks and caps against their definitions; values that turn, located positions, and
temperatures where the battery does not show them.

That every method is right with all of them, in every form, is shown by the battery.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, chain, frame, logits, make, per_layer, weights
from posenc_jax.layout import full, layout
from tests.support.catalogue import gap

DIMS = Dims(32, 4, 8, 2)
TIME = 12
SINK = jnp.array([0.5, -1.0, 2.0, 0.0])


def drawn(heads=(4, 4, 4), time=TIME, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(2, time, h, 8)), jnp.float32) for h in heads]


def layer_of(name, x_BTHC, at=None, form="dense", **options):
    encoding = make(name, **options)
    params = encoding.init(jax.random.key(0), DIMS)
    at = full(2, x_BTHC.shape[1]) if at is None else at
    return frame(encoding, params, at, DIMS, form=form, block=8).layer(
        0, x_BTHC.reshape(*x_BTHC.shape[:2], -1)
    )


# Shared keys.


@pytest.mark.thorough
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("name", ["rope", "headwise", "alibi", "fox", "cope"])
def test_shared_keys(name, shared):
    """Query head h reads key head h G // H."""
    q, k, v = drawn((4, shared, shared))
    layer = layer_of(name, q)
    every = lambda x, order: jnp.take(x, jnp.asarray(order), axis=2)
    spread = np.arange(4) * shared // 4
    got = attend(q, k, v, layer)
    assert gap(got, attend(q, every(k, spread), every(v, spread), layer)) < 1e-6
    if shared == 2:
        other = np.arange(4) % shared
        wrong = attend(q, every(k, other), every(v, other), layer)
        assert gap(got, wrong) > 1e-2, "control: heads in turn"


def test_rotated_keys_stay_shared():
    """Rotation keeps the few heads of keys, unless the method turns every head differently."""
    q, k, _ = drawn((4, 2, 2))
    assert layer_of("rope", q).rotate(q, k)[1].shape == k.shape
    assert layer_of("headwise", q).rotate(q, k)[1].shape == q.shape


def test_refused_heads():
    q, k, v = drawn((4, 3, 3))
    with pytest.raises(
        ValueError, match=r"k: shape .*\[B, K, G, C\].*\[2, 12, G, 8\], G a divisor of 4$"
    ):
        attend(q, k, v, layer_of("rope", q))
    with pytest.raises(ValueError, match="v: 2 heads; the keys have 4"):
        attend(q, q, v[:, :, :2], layer_of("rope", q))


# Sinks and caps.


def definition(s_BHQK, v_BKHC, sink_H=None):
    """The weights' sum over keys and, if there is a sink, one more key whose value is 0."""
    if sink_H is not None:
        sink = np.broadcast_to(np.asarray(sink_H)[None, :, None, None], (*s_BHQK.shape[:3], 1))
        s_BHQK = np.concatenate([s_BHQK, sink], axis=-1)
        v_BKHC = np.concatenate([v_BKHC, np.zeros_like(v_BKHC[:, :1])], axis=1)
    p = np.exp(s_BHQK - s_BHQK.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhc->bqhc", p / p.sum(axis=-1, keepdims=True), v_BKHC)


@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_sink(form):
    q, k, v = drawn()
    s_BHQK = np.asarray(logits(q, k, layer_of("t5", q)))
    got = attend(q, k, v, layer_of("t5", q, form=form), sink_H=SINK)
    np.testing.assert_allclose(got, definition(s_BHQK, np.asarray(v), SINK), atol=1e-5)
    assert gap(got, attend(q, k, v, layer_of("t5", q))) > 0.05, "control: no sink"


def test_no_weight_goes_into_a_sink_that_is_minus_infinity():
    q, k, v = drawn()
    at = layout(jnp.array([[1] * 9 + [0] * 3, [0] * 2 + [1] * 10]))
    layer = layer_of("rope", q, at)
    got = attend(q, k, v, layer, sink_H=jnp.full(4, -jnp.inf))
    assert gap(got, attend(q, k, v, layer)) < 1e-6


def test_weights():
    """They are those that attention uses: less than one with a sink."""
    q, k, v = drawn()
    layer = layer_of("rope", q)
    actual = weights(q, k, layer, sink_H=SINK)
    got = attend(q, k, v, layer, sink_H=SINK)
    np.testing.assert_allclose(jnp.einsum("bhqk,bkhc->bqhc", actual, v), got, atol=1e-5)
    assert actual.sum(axis=-1).max() < 0.99
    assert gap(weights(q, k, layer).sum(axis=-1), 1.0) < 1e-5


@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_cap_bounds_products_before_the_bias(form):
    q, k, v = drawn()
    q, cap = 4 * q, 2.0
    layer = layer_of("alibi", q)
    product = np.einsum("bqhc,bkhc->bhqk", q, k) / np.sqrt(8)
    bias, seen = np.asarray(layer.bias()), np.asarray(layer.visible())
    wanted = np.where(seen, cap * np.tanh(product / cap) + bias, -np.inf)
    np.testing.assert_allclose(logits(q, k, layer, cap=cap), wanted, atol=1e-5)
    got = attend(q, k, v, layer_of("alibi", q, form=form), cap=cap)
    np.testing.assert_allclose(got, definition(wanted, np.asarray(v)), atol=1e-5)
    after = np.where(seen, cap * np.tanh((product + bias) / cap), -np.inf)
    assert gap(got, definition(after, np.asarray(v))) > 1e-3, "control: a cap on the bias too"


def test_refused_options():
    q, k, v = drawn()
    layer = layer_of("rope", q)
    with pytest.raises(ValueError, match=r"cap: -1.0; give a number above 0"):
        attend(q, k, v, layer, cap=-1.0)
    with pytest.raises(
        ValueError, match=r"sink: shape \(3,\); give one logit for each head, \[4\]"
    ):
        attend(q, k, v, layer, sink_H=SINK[:3])
    with pytest.raises(ValueError, match="sink: this method makes the weights itself"):
        attend(q, k, v, layer_of("stick_breaking", q), sink_H=SINK)
    with pytest.raises(ValueError, match="cap: this method makes products of its own"):
        attend(q, k, v, layer_of("path", q), cap=2.0)


def test_first_tokens_stay_in_a_window():
    """StreamingLLM: the first tokens of each document, and the nearest ones."""
    q, k, _ = drawn()
    at = layout(jnp.array([[1] * 12, [1] * 5 + [2] * 7]))
    seen = np.isfinite(logits(q, k, layer_of("window", q, at, distance=1, first=2)))[:, 0]
    assert list(np.flatnonzero(seen[0, 11])) == [0, 1, 10, 11]
    assert list(np.flatnonzero(seen[1, 11])) == [5, 6, 10, 11]
    _, _, v = drawn()
    ends = [
        attend(q, k, v, layer_of("window", q, at, form, distance=1, first=first))
        for form, first in (("dense", 2), ("blockwise", 2), ("dense", 0))
    ]
    assert gap(ends[0], ends[1]) < 1e-5
    assert gap(ends[0], ends[2]) > 1e-2, "control: without the first tokens"


# Values that turn.


def test_values_turn():
    """A query reads R(j - i) v_j: plain attention to values as they look from its place."""
    q, k, v = drawn()
    layer = layer_of("rope", q, values=True)
    actual = np.asarray(weights(q, k, layer))
    freq_F = 10_000.0 ** (-np.arange(4) / 4)
    apart = np.arange(TIME)[None] - np.arange(TIME)[:, None]
    turn_QKF = np.exp(1j * apart[..., None] * freq_F)
    pairs = np.asarray(v)[..., :4] + 1j * np.asarray(v)[..., 4:]
    read = np.einsum("bhqk,qkf,bkhf->bqhf", actual, turn_QKF, pairs)
    got = attend(q, k, v, layer)
    np.testing.assert_allclose(got, np.concatenate([read.real, read.imag], -1), atol=1e-5)
    plain = layer_of("rope", q)
    assert gap(actual, weights(q, k, plain)) < 1e-6
    assert gap(got, attend(q, k, v, plain)) > 0.1, "control: values that do not turn"


def test_values_turn_back_in_a_chain():
    """Parts turn the output back in the reverse order, and those alone that turn values."""
    q, k, v = drawn()
    both = chain(make("rope", values=True), make("alibi"), make("xpos"))
    layer = frame(both, both.init(jax.random.key(0), DIMS), full(2, TIME), DIMS).layer(0)
    actual = attend(q, k, v, layer)
    chained = jnp.einsum("bhqk,bkhc->bqhc", weights(q, k, layer), layer.turned_values(v))
    assert gap(actual, layer.turned_back(chained)) < 1e-5


# Positions from content.


def test_located_positions_are_of_the_layers_input():
    """RePo's positions depend on x alone: equal tokens stand at equal places, wherever they are."""
    q, _, _ = drawn()
    x_BTD = jnp.repeat(q.reshape(2, TIME, -1)[:, :1], TIME, axis=1)
    encoding = make("repo")
    params = encoding.init(jax.random.key(0), DIMS)
    at = frame(encoding, params, full(2, TIME), DIMS).layer(1, x_BTD)
    assert gap(at.q.placed, at.q.placed[:, :1]) == 0.0
    mixed = frame(encoding, params, full(2, TIME), DIMS).layer(1, q.reshape(2, TIME, -1))
    assert gap(mixed.q.placed, mixed.q.placed[:, :1]) > 0


def test_located_positions_need_the_input():
    q, k, v = drawn()
    encoding = make("repo")
    layer = frame(encoding, encoding.init(jax.random.key(0), DIMS), full(2, TIME), DIMS).layer(0)
    with pytest.raises(ValueError, match="no features of x"):
        attend(q, k, v, layer)


def test_located_positions_by_layer_and_in_chains():
    """Layers before use the index; beside a bias nothing changes for the bias."""
    q, k, v = drawn()
    x_BTD, at = q.reshape(2, TIME, -1), full(2, TIME)
    mixed = per_layer([make("rope"), make("repo")])
    view = frame(mixed, mixed.init(jax.random.key(0), DIMS), at, DIMS)
    plain = layer_of("rope", q)
    assert gap(attend(q, k, v, view.layer(0, x_BTD)), attend(q, k, v, plain)) < 1e-6
    assert gap(attend(q, k, v, view.layer(1, x_BTD)), attend(q, k, v, plain)) > 1e-3
    both = chain(make("repo"), make("alibi"))
    params = both.init(jax.random.key(0), DIMS)
    layers = [
        frame(both, params, at, DIMS, form=form).layer(0, x_BTD) for form in ("dense", "blockwise")
    ]
    alibi = layer_of("alibi", q)
    assert gap(layers[0].bias(), alibi.bias()) < 1e-6
    assert gap(attend(q, k, v, layers[0]), attend(q, k, v, layers[1])) < 1e-5


# Temperatures.


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_visible_keys_are_counted_in_each_document(form):
    """ssmax in packed rows: n restarts; padding counts nowhere."""
    q, k, v = drawn()
    at = layout(jnp.array([[1] * 5 + [2] * 7, [0] * 3 + [1] * 9]))
    got = attend(q, k, v, layer_of("ssmax", q, at, form))
    alone = [x[:1, 5:] for x in (q, k, v)]
    alone_actual = attend(*alone, layer_of("ssmax", alone[0], full(1, 7), form))
    assert gap(got[:1, 5:], alone_actual) < 1e-5
    joined = attend(q, k, v, layer_of("ssmax", q, full(2, TIME), form))
    assert gap(got[0, 5:], joined[0, 5:]) > 1e-3, "control: one long document"
    assert np.isfinite(got).all()


def test_temperatures_multiply():
    q, k, _ = drawn()
    both = layer_of("ssmax+logn+rope", q, length=4)
    parts = [
        layer_of(name, q, **o).temper_BQH for name, o in (("ssmax", {}), ("logn", {"length": 4}))
    ]
    assert gap(both.temper_BQH, parts[0] * parts[1]) < 1e-6
    at_first = logits(q, k, layer_of("ssmax+alibi", q))[:, :, 0, 0]
    assert gap(at_first, 0.0) < 1e-6  # one key is seen: ln 1
