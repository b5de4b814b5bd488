"""Layouts over layers: which layer does what, and that they are what `per_layer` makes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, chain, frame, make, per_layer
from posenc_jax.encoding import at_layer
from posenc_jax.encodings import by_layer
from posenc_jax.layout import full, layout
from tests.support.catalogue import gap

TIME = 12
DIMS = Dims(model=24, heads=3, head=8, layers=12)
Q, K = (jnp.asarray(x, float) for x in np.random.default_rng(0).normal(size=(2, 1, TIME, 3, 8)))
V = jnp.broadcast_to(jnp.eye(TIME)[None, :, None], (1, TIME, 3, TIME))  # outputs are the weights


def weights(encoding, layer, causal=True, start=0):
    """Attention of one layer, [1, Q, H, K]."""
    at = full(1, TIME)
    at = at.replace(pos_BT=at.pos_BT + start)
    params = encoding.init(jax.random.key(0), DIMS)
    view = frame(encoding, params, at, DIMS, causal=causal)
    return attend(Q, K, V, view.layer(layer))


@pytest.mark.thorough
def test_irope_layers():
    """Three of four layers are rope, the fourth has no positions."""
    irope, rope, nope = by_layer.irope(), make("rope", base=500_000.0), make("nope")
    for layer in range(8):
        same, other = (nope, rope) if layer % 4 == 3 else (rope, nope)
        assert gap(weights(irope, layer), weights(same, layer)) < 1e-6
        assert gap(weights(irope, layer), weights(other, layer)) > 1e-2


def test_irope_sharpens_far_queries():
    """By 1 + 0.1 ln(1 + floor((i + 1) / 8192)), as in the released code, and only without rope."""
    irope = by_layer.irope()
    assert gap(weights(irope, 0), weights(irope, 0, start=100_000)) < 1e-5
    near, far = (jnp.log(weights(irope, 3, False, start)) for start in (0, 100_000))
    spread = lambda s: s - s.mean(axis=-1, keepdims=True)
    assert gap(spread(far), spread(near) * (1 + 0.1 * np.log(1 + 12))) < 1e-4
    off = by_layer.irope(temperature=0.0)
    assert gap(weights(off, 3), weights(off, 3, start=100_000)) == 0.0
    edge = weights(irope, 3, False, start=8191 - 4) - weights(irope, 3, False)
    assert gap(edge[:, :4], 0 * edge[:, :4]) == 0.0, "position 8190 is before the first step"
    assert float(jnp.abs(edge[:, 4:]).max()) > 1e-3


def test_local_global_layers():
    """Five layers of a window and the smaller base, then one that sees all with the larger."""
    gemma, local, rope = by_layer.local_global(window=4), make("rope"), make("rope", base=1e6)
    for layer in range(12):
        actual = weights(gemma, layer)[0, :, 0]
        seen = np.asarray(actual > 0).sum(axis=1)
        if layer % 6 == 5:
            assert gap(actual, weights(rope, layer)[0, :, 0]) < 1e-6
            assert seen.tolist() == list(range(1, TIME + 1))
        else:
            assert seen.tolist() == [1, 2, 3] + [4] * (TIME - 3)
    near = weights(gemma, 0)[0, :4, 0]
    assert gap(near, weights(local, 0)[0, :4, 0]) < 1e-6, "what fits the window is rope"
    assert gap(near, weights(rope, 0)[0, :4, 0]) > 1e-3


def test_irope_chunks():
    """Layers with rope see their own chunk of positions; the fourth layer sees all."""
    chunks, rope = by_layer.irope(chunk=5), make("rope", base=500_000.0)
    actual = weights(chunks, 0, start=7)[0, :, 0]  # chunks begin at positions 5, 10 and 15
    seen = np.asarray(actual > 0).sum(axis=1)
    assert seen.tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 1, 2, 3, 4]
    assert gap(actual[:3], weights(rope, 0)[0, :3, 0]) < 1e-6
    assert gap(weights(chunks, 3), weights(by_layer.irope(), 3)) == 0.0
    assert gap(weights(chunks, 0), weights(by_layer.irope(), 0)) > 1e-2
    assert gap(weights(by_layer.irope(chunk=99), 0), weights(by_layer.irope(), 0)) < 1e-6


def test_local_global_factor():
    """In global layers alone, as `pi`."""
    scaled, plain = by_layer.local_global(factor=8.0), by_layer.local_global()
    assert gap(weights(scaled, 0), weights(plain, 0)) == 0.0
    assert gap(weights(scaled, 5), weights(make("pi", base=1e6, factor=8.0), 5)) < 1e-6
    assert gap(weights(scaled, 5), weights(plain, 5)) > 1e-2


@pytest.mark.parametrize("name", ["olmo3", "gpt_oss"])
def test_windows_and_yarn(name):
    """Local layers see a window: Olmo 3's with rope, gpt-oss's with YaRN; the others YaRN, all."""
    every, ramp, options = {
        "olmo3": (4, "pairs_truncated", {"base": 1e4, "factor": 8.0, "length": 100}),
        "gpt_oss": (2, "pairs", {"base": 1e4, "factor": 32.0, "length": 100}),
    }[name]
    layout, yarn = make(name, window=4, **options), make("yarn", ramp=ramp, **options)
    rope = make("rope", base=1e4)
    local, other = (rope, yarn) if name == "olmo3" else (yarn, rope)
    for layer in range(8):
        actual = weights(layout, layer)[0, :, 0]
        seen = np.asarray(actual > 0).sum(axis=1)
        if (layer + 1) % every:
            assert seen.tolist() == [1, 2, 3] + [4] * (TIME - 3)
            assert gap(actual[:4], weights(local, 0)[0, :4, 0]) < 1e-6, "what fits the window"
            assert gap(actual[:4], weights(other, 0)[0, :4, 0]) > 1e-3, "control"
        else:
            assert seen.tolist() == list(range(1, TIME + 1))
            assert gap(actual, weights(yarn, 0)[0, :, 0]) < 1e-6
            assert gap(actual, weights(rope, 0)[0, :, 0]) > 1e-3, "control"


def test_layouts_are_per_layer():
    """What the names stand for can be put together by hand."""
    rope = make("rope", base=500_000.0)
    by_hand = per_layer([rope, rope, rope, make("nope")])
    named = by_layer.irope()
    both = per_layer([chain(make("rope"), make("window", distance=3)), make("rope", base=1e6)])
    gemma = by_layer.local_global(every=2, window=4)
    for layer in range(4):
        assert gap(weights(named, layer), weights(by_hand, layer)) < 1e-6
        assert gap(weights(gemma, layer), weights(both, layer)) < 1e-6


@pytest.mark.parametrize("name", ["irope", "local_global", "olmo3", "gpt_oss", "circle_rope"])
def test_layouts_have_no_parameters(name):
    """One set of weights reads with them, with rope, and without positions."""
    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)
    assert jax.tree.leaves(params) == []
    assert at_layer(encoding, 7, params)[0].at is None


@pytest.mark.parametrize("name", ["local_global", "olmo3", "gpt_oss"])
def test_windows_by_layer_hide_keys_from_their_width_on_also_at_fractions(name):
    encoding, at = make(name, window=2), layout(pos_BT=jnp.asarray([[0.0, 0.5, 2.25]]))
    view = frame(encoding, encoding.init(jax.random.key(0), DIMS), at, DIMS)
    shown = view.layer(0).bias()[0, 0, 2]
    assert shown.tolist() == [-np.inf, 0, 0], "2.25 tokens away, 1.75, 0"


def test_layouts_compose():
    """Positions are moved, and a bias is added, in every layer; two ropes are refused."""
    moved = make("clamped+local_global", length=3)
    assert gap(weights(moved, 5), weights(make("local_global"), 5)) > 1e-2
    both = make("irope+alibi")
    assert gap(weights(both, 3), weights(make("alibi"), 3)) < 1e-6
    assert gap(weights(both, 0), weights(make("alibi"), 0)) > 1e-2
    with pytest.raises(ValueError, match="irope and rope both turn the same channels"):
        make("irope+rope")


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (by_layer.irope, {"every": 1}, "encoding.every: 1 must be 2 or more"),
        (by_layer.irope, {"chunk": 0}, "encoding.chunk: 0 must be 1 or more"),
        (by_layer.local_global, {"factor": 0.5}, "encoding.factor: 0.5 must be 1 or more"),
        (by_layer.olmo3, {"window": 1}, "encoding.window: 1 must be 2 or more"),
        (by_layer.olmo3, {"every": 1}, "encoding.every: 1 must be 2 or more"),
        (by_layer.gpt_oss, {"base": 1.0}, "encoding.base: 1.0 must be above 1"),
        (by_layer.irope, {"floor": 0}, "encoding.floor: 0 must be 1 or more"),
        (by_layer.irope, {"temperature": -0.1}, "encoding.temperature: -0.1 must be 0 or more"),
        (by_layer.local_global, {"every": 0}, "encoding.every: 0 must be 2 or more"),
        (by_layer.local_global, {"window": 1}, "encoding.window: 1 must be 2 or more"),
        (by_layer.local_global, {"local_base": 0.0}, "encoding.local_base: 0.0 must be positive"),
        (by_layer.local_global, {"pairing": "x"}, "encoding.pairing: 'x' is not one of"),
        (by_layer.circle_rope, {"sections": (1, 2)}, r"encoding.sections: \(1, 2\) is not three"),
    ],
)
def test_refused_options(build, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        build(**options)
    assert "\n" not in str(refusal.value)
