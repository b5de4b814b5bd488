"""Options that make another method of a paper equal their definitions, as defaults do in the
battery.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, frame, logits, make
from posenc_jax.encoding import place
from posenc_jax.encodings import card
from posenc_jax.lab.definitions import EMBEDS, SCORES
from tests.support.catalogue import gap, stir, whole

HEADS, HEAD, TIME = 4, 16, 12
DIMS = Dims(HEADS * HEAD, HEADS, HEAD)
SETTINGS = [
    ("nd_rope", {"order": "alternate", "ladders": "head"}, {"ladders": "axis"}),
    ("nd_rope", {"order": "alternate"}, {"order": "sections"}),
    ("nd_rope", {"sections": (1, 2, 3), "ladders": "head"}, {"sections": (2, 2, 2)}),
    ("nd_rope", {"bases": (100.0, 1e4, 1e3), "pairing": "half"}, {"bases": (100.0,)}),
    ("video_rope", {"time_turns": False, "base": 100.0}, {"time_turns": True}),
    ("rope_pp", {"imaginary": "last"}, {"imaginary": "alternate"}),
    ("comrope", {"commuting": "partition", "block": 4}, {"block": 8}),
    ("spiral", {"directions": 4}, {"directions": 2}),
    ("rerope", {"window": 5, "first": 2}, {"first": 3}),
    ("mamba3_rope", {"share": 1.0}, {"pairing": "half"}),
    ("selective_rope", {"base": 10.0, "rank": 5}, {"base": 100.0}),
]


def ours(name, options, q, k):
    """The logits [H, T, T], -inf where a key is not seen, and the parameters of the first layer."""
    encoding, at = make(name, **options), whole(name, 1, TIME)
    params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)
    view = frame(encoding, params, at, DIMS, causal=True)
    layer = view.layer(0, q.reshape(1, TIME, -1))
    scores = logits(q, k, layer)
    layer_params = jax.tree.map(np.asarray, at_layer(encoding, 0, params)[1])
    return np.asarray(scores[0]), layer_params, np.asarray(at.pos_BT[0])


@pytest.mark.parametrize(("name", "options", "wrong"), SETTINGS)
def test_option_equals_its_definition(name, options, wrong):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, TIME, HEADS, HEAD))
    with jax.enable_x64(True):
        scores, params, pos = ours(name, options, jnp.asarray(q), jnp.asarray(k))

    def wanted(options):
        o = types.SimpleNamespace(**{**card(name).defaults, **options, "layer": 0})
        s_HTT = SCORES[name](o, params, q[0], k[0], pos, TIME)
        return np.where(np.tri(TIME, dtype=bool), s_HTT, -np.inf)

    assert gap(scores, wanted(options)) < 1e-9
    if "block" not in wrong:  # it gives parameters their shape
        assert gap(scores, wanted({**options, **wrong})) > 1e-3, "control: another option"


def test_sines_of_a_time_series_are_scaled_by_its_length():
    """tAPE; a series as long as the code is wide has the sines of the paper."""
    x_BTD = jnp.zeros((1, TIME, 8))
    encoding, at = make("sinusoidal", series=24), whole("sinusoidal", 1, TIME)
    code_TD = encoding.embed({}, x_BTD, place(encoding, None, at))[0]
    o = types.SimpleNamespace(**{**card("sinusoidal").defaults, "series": 24})
    assert gap(code_TD, EMBEDS["sinusoidal"](o, {}, x_BTD[0], np.arange(TIME), TIME)) < 1e-6
    same = make("sinusoidal", series=8).embed({}, x_BTD, at.pos_BT)[0]
    assert gap(same, make("sinusoidal").embed({}, x_BTD, at.pos_BT)[0]) == 0.0
    assert gap(same, code_TD) > 1e-2, "control"


def test_sections_of_axes_are_the_methods_they_contain():
    """One ladder over the head is `mrope`; two axes with equal ladders are `axial`."""
    rng = np.random.default_rng(1)
    q, k = jnp.asarray(rng.normal(size=(2, 1, TIME, HEADS, HEAD)), jnp.float32)
    score = lambda name, **options: ours(name, options, q, k)[0]
    mrope = score("mrope", sections=(2, 3, 3), base=1e4)
    same = {"sections": (2, 3, 3), "pairing": "half"}
    assert gap(score("nd_rope", ladders="head", **same), mrope) < 1e-5
    assert gap(score("nd_rope", ladders="axis", **same), mrope) > 1e-2, "control"
    grid = whole("axial", 1, TIME).pos_BT
    table = lambda name, **options: make(name, **options).table({}, grid, DIMS)
    assert gap(table("nd_rope", bases=(100.0,)), table("axial")) < 1e-6
    assert gap(table("nd_rope"), table("axial")) > 1e-2, "control"
    identity = make("harope").init(jax.random.key(0), DIMS)
    maps = at_layer(make("harope"), 0, identity)[0].table(identity[0], grid, DIMS)
    assert gap(maps["q"][0, 0], np.tile(np.eye(HEAD), (HEADS, 1, 1))) < 1e-5
    assert gap(maps["turn"], table("axial", base=1e4)) < 1e-6


def test_the_map_of_a_head_is_undone_at_its_own_place():
    """HARoPE: q.k at distance 0; elsewhere another product than `axial`'s."""
    rng = np.random.default_rng(2)
    q, k = jnp.asarray(rng.normal(size=(2, 1, TIME, HEADS, HEAD)), jnp.float32)
    scores, *_ = ours("harope", {}, q, k)
    plain = jnp.einsum("qhc,khc->hqk", q[0], k[0]) * HEAD**-0.5
    place_T = np.arange(TIME)
    assert gap(scores[:, place_T, place_T], plain[:, place_T, place_T]) < 1e-4
    axial, *_ = ours("axial", {"base": 1e4, "pairing": "interleaved"}, q, k)
    assert gap(scores[:, 1:, 0], axial[:, 1:, 0]) > 1e-2, "control"


def test_angles_of_equal_tokens_are_those_of_rope():
    """A token's angle, the same for all, makes the sum the distance times it."""
    rng = np.random.default_rng(3)
    q, k = jnp.asarray(rng.normal(size=(2, 1, 1, HEADS, HEAD)), jnp.float32)
    q, k = (jnp.broadcast_to(x, (1, TIME, HEADS, HEAD)) for x in (q, k))
    scores, *_ = ours("mamba3_rope", {}, q, k)
    late, early = scores[:, 7, :7], scores[:, 8, 1:8]
    assert gap(late, early) < 1e-4
    assert gap(scores[:, 7, :7], scores[:, 8, :7]) > 1e-3, "control: another distance"
