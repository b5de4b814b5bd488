"""Rope with far keys at shorter distances: what stays rope, and the distances of public code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import frame, make
from posenc_jax.attention import logits
from posenc_jax.lab.definitions.shared import powers, turned_scores
from posenc_jax.layout import full
from tests.encodings.test_rotary import DIMS
from tests.support.catalogue import gap

TIME = 20
Q, K = np.random.default_rng(0).normal(size=(2, 1, TIME, DIMS.heads, DIMS.head))
I, J = np.indices((TIME, TIME))
METHODS = {
    "rerope": {"window": 5},
    "leaky_rerope": {"window": 5, "factor": 4.0},
    "self_extend": {"window": 6, "group": 3},
    "dual_chunk": {"chunk": 6, "most": 9},
}


def scores(name, start=0, dtype=float, **options):
    """Logits of one row [H, T, T], not masked, at positions from `start` on."""
    at = full(1, TIME)
    at = at.replace(pos_BT=at.pos_BT + start)
    view = frame(make(name, **options), {}, at, DIMS, causal=False, form="dense")
    return logits(jnp.asarray(Q, dtype), jnp.asarray(K, dtype), view.layer(0))[0]


def rerope_public(window):
    """Its code for decoding: distances clipped at the window."""
    return (I - J).clip(max=window)


def leaky_rerope_public(window, factor):
    """Its code for decoding: a table of angles, from the window on that of rope / factor."""
    offset = window * (factor - 1)
    far = (np.arange(TIME) + offset) / factor
    table = np.where(np.arange(TIME) < window, np.arange(TIME), far)
    return table[np.maximum(I - J, 0)]


def self_extend_public(window, group):
    """Two attentions, merged by a triangle that begins `window` tokens away."""
    query, key = np.arange(TIME) // group + window - window // group, np.arange(TIME) // group
    return np.where(np.tri(TIME, TIME, -window, dtype=bool), query[:, None] - key, I - J)


def dual_chunk_public(chunk, most):
    """Chunk by chunk: three tables of query positions, one of key positions."""
    intra = np.arange(chunk)
    succ, key = (intra + chunk).clip(max=most), np.arange(TIME) % chunk
    actual = np.zeros((TIME, TIME))
    for begin in range(0, TIME, chunk):
        rows = slice(begin, begin + chunk)
        inside = np.arange(TIME)[rows] - begin
        actual[rows, rows] = intra[inside][:, None] - key[rows]
        if begin:
            before = slice(begin - chunk, begin)
            actual[rows, before] = succ[inside][:, None] - key[before]
            actual[rows, : begin - chunk] = succ[chunk - 1] - key[: begin - chunk]
    return actual


PUBLIC = {
    "rerope": rerope_public,
    "leaky_rerope": leaky_rerope_public,
    "self_extend": self_extend_public,
    "dual_chunk": dual_chunk_public,
}


WIDE = {"window": 4, "group": 7}  # a group may be wider than the window


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "options"), [*METHODS.items(), ("self_extend", WIDE)])
def test_distances_are_those_of_the_public_code(name, options):
    """The authors' code, transcribed, gives the distances; the logits are rope's at those."""
    seen = np.tri(TIME, dtype=bool)

    def wanted(distance_QK):
        angle = distance_QK[:, :, None, None] * powers(10_000.0, DIMS.head)
        return turned_scores(Q[0], K[0], angle, "half")[:, seen]

    with jax.enable_x64(True):
        actual = np.asarray(scores(name, **options))[:, seen]
    public = PUBLIC[name](**options)
    np.testing.assert_allclose(actual, wanted(public), atol=1e-12)
    assert np.abs(actual - wanted(I - J)).max() > 1e-2, "control: rope"


def near(name):
    """Pairs at whose distances the models were trained."""
    apart = abs(I - J)
    if name == "dual_chunk":
        chunk, most = METHODS[name].values()
        return (I // chunk == J // chunk) | ((apart <= most - chunk) & (I >= J))
    return apart < METHODS[name]["window"]


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_near_keys_are_those_of_rope(name, dtype):
    """To the bit, on either side of the query; in dual chunks up to rounding at their edges."""
    actual, rope = (scores(n, dtype=dtype, **METHODS.get(n, {})) for n in (name, "rope"))
    same = near(name)
    exact = same & (I // 6 == J // 6) if name == "dual_chunk" else same
    assert gap(actual[:, exact], rope[:, exact]) == 0.0
    assert gap(actual[:, same], rope[:, same]) < (1e-5 if dtype == jnp.float32 else 5e-2)
    assert gap(actual[:, ~same], rope[:, ~same]) > 0.1, "control: far keys"


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16(name):
    """Far logits are as exact as those of rope, though near ones are taken out of a sum."""
    exact, rough = (
        {n: scores(n, dtype=dtype, **METHODS.get(n, {})) for n in (name, "rope")}
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert rough[name].dtype == jnp.float32
    rounding = gap(exact["rope"], rough["rope"])
    assert gap(exact[name], rough[name]) < 1.5 * rounding
    assert gap(exact["rope"], rough[name]) > 10 * rounding, "control: another method"


@pytest.mark.parametrize("name", METHODS)
def test_short_sequences_are_those_of_rope(name):
    """With nothing far, every method is rope to the bit, so one set of weights serves all."""
    actual = scores(name)  # the default window or chunk is longer
    assert gap(actual, scores("rope")) == 0.0
    assert gap(actual, scores(name, **METHODS[name])) > 0.1


def test_nothing_to_shorten():
    """A factor or a group of 1 is rope at every distance."""
    rope = scores("rope")
    assert gap(scores("leaky_rerope", window=4, factor=1.0), rope) < 1e-5
    assert gap(scores("self_extend", window=4, group=1), rope) < 1e-5
    assert gap(scores("leaky_rerope", window=4, factor=2.0), rope) > 0.1
    assert gap(scores("leaky_rerope", window=4, factor=1e9), scores("rerope", window=4)) < 1e-5


@pytest.mark.parametrize("name", METHODS)
def test_keys_ahead_have_the_opposite_distance(name):
    """So logits are those of the keys as queries and the queries as keys, transposed."""
    encoding = make(name, **METHODS[name])
    layer = frame(encoding, {}, full(1, TIME), DIMS, causal=False, form="dense").layer(0)
    q, k = jnp.asarray(Q, float), jnp.asarray(K, float)
    actual, exchanged = logits(q, k, layer)[0], logits(k, q, layer)[0]
    assert gap(actual, jnp.swapaxes(exchanged, 1, 2)) < 1e-5
    assert gap(actual, exchanged) > 0.1, "control"


def test_leaky_rerope_is_as_exact_as_rope_in_a_window_of_a_million_tokens():
    """The angle of the window was rounded with all its turns: logits were off by .008."""

    def logit(name, distance, **options):
        at = full(1, 2)
        at = at.replace(pos_BT=jnp.array([[0, distance]]))
        view = frame(make(name, **options), {}, at, DIMS, causal=False, form="dense")
        q, k = (jnp.asarray(x[:, :2], jnp.float32) for x in (Q, K))
        return logits(q, k, view.layer(0))[0, :, 1, 0]

    far = {"window": 1_000_003, "factor": 16.0}
    actual = logit("leaky_rerope", 1_000_003 + 16 * 31_250, **far)
    assert gap(actual, logit("rope", 1_000_003 + 31_250)) < 1e-5
    assert gap(actual, logit("rope", 1_000_003 + 31_251)) > 1e-2, "control"


@pytest.mark.parametrize("name", ["rerope", "leaky_rerope"])
def test_far_out(name):
    """Scores depend on i - j alone, however far out."""
    at_0, far = (scores(name, start, **METHODS[name]) for start in (0, 10**6))
    assert gap(at_0, far) < 5e-6


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rerope", {"window": 0}, "encoding.window: 0 must be 1 or more"),
        ("leaky_rerope", {"factor": 0.5}, "encoding.factor: 0.5 must be 1 or more"),
        ("self_extend", {"group": 0}, "encoding.group: 0 must be 1 or more"),
        ("dual_chunk", {"chunk": 0}, "encoding.chunk: 0 must be 1 or more"),
        ("dual_chunk", {"chunk": 8, "most": 16}, "encoding.most: 16 must be from chunk, 8, to"),
        ("dual_chunk", {"chunk": 8, "most": 7}, "encoding.most: 7 must be from chunk, 8, to"),
        ("rerope+alibi", {}, "encoding.name: rerope . alibi: rerope makes the products of"),
        (
            "drope+dual_chunk",
            {},
            "encoding.name: drope . dual_chunk: dual_chunk makes",
        ),
    ],
)
def test_refused_options(name, options, message):
    with pytest.raises(ValueError, match=f"^{message}") as refusal:
        make(name, **options)
    assert "\n" not in str(refusal.value)
