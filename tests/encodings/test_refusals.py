"""What refuses a position, and what does not: NaN reaches the output, padding refuses nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import (
    Dims,
    at_layer,
    attend,
    frame,
    head_specs,
    make,
    on_heads,
    per_layer,
    ring,
    testing,
    weights,
)
from posenc_jax.attention import logits
from posenc_jax.encodings import reach
from posenc_jax.flax import attention_fn
from posenc_jax.jax_nn import arguments
from posenc_jax.layout import full, layout
from tests.support.catalogue import attention

DIMS = Dims(model=16, heads=2, head=8, layers=2)
PADDED = layout(jnp.array([[1] * 6 + [0] * 12]))


def drawn(time: int, rows: int = 3) -> jax.Array:
    return jax.random.normal(jax.random.key(0), (rows, 1, time, DIMS.heads, DIMS.head))


def attended(name: str, where, **options):
    encoding = make(name, **options)
    params = encoding.init(jax.random.key(1), DIMS)
    return attention(encoding, params, *drawn(where.pos_BT.shape[1]), where, form="dense")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "clipped", "window", "shaw", "deberta"])
def test_a_refused_position_reaches_the_output(name):
    """A table read at NaN is not its row 0."""
    assert np.isnan(attended(f"randomized+{name}", full(1, 20), limit=16)).all()
    assert np.isfinite(attended(f"randomized+{name}", full(1, 16), limit=16)).all(), "control"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("evaluate", ["spread", "random", "plain"])
@pytest.mark.parametrize("key", [None, jax.random.key(0)])
def test_padding_of_any_size_is_shown_0(evaluate, key):
    encoding = make("randomized", limit=8, evaluate=evaluate)
    shown_T = np.asarray(encoding.place(key, PADDED))[0]
    assert (shown_T[6:] == 0).all()
    assert (np.diff(shown_T[:6]) > 0).all()
    longer = layout(jnp.array([[1] * 6 + [2] * 12]))
    assert np.isnan(np.asarray(encoding.place(key, longer))[0, 6:]).all(), "control: a document"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["randomized+rope", "randomized+xpos", "randomized+t5"])
def test_padding_past_the_limit_leaves_tokens_and_gradients_finite(name):
    encoding = make(name, limit=8)
    params = encoding.init(jax.random.key(1), DIMS)

    def total(qkv, where):
        return attention(encoding, params, *qkv, where, form="dense").sum()

    slope = jax.grad(total)
    assert np.isfinite(slope(drawn(18), PADDED)).all()
    assert not np.isfinite(slope(drawn(18), full(1, 18))).all(), "control: as many tokens"


def test_xpos_is_centred_on_its_own_sequence():
    """Where padding stands changes nothing, where a token stands does."""
    q, k = drawn(6, 2)
    encoding = make("xpos", span=4.0)
    where = layout(jnp.array([[1] * 5 + [0]]))

    def scores(pos_T):
        view = frame(encoding, {}, where.replace(pos_BT=jnp.array([pos_T])), DIMS)
        return np.asarray(logits(q, k, view.layer(0)))[0, :, 4, :5]

    near = scores([0, 1, 2, 3, 300, 0])
    np.testing.assert_array_equal(scores([0, 1, 2, 3, 300, 10**6]), near)
    assert not np.allclose(scores([0, 1, 2, 3, 301, 0]), near), "control: a token moved"
    far = scores([f + 10**5 for f in (0, 1, 2, 3, 300)] + [0])
    np.testing.assert_allclose(far, near, rtol=1e-3, atol=1e-3)


@pytest.mark.thorough
def test_dape_reads_around_a_window():
    """Keys outside have no weight and make no NaN, forward or backward; alone DAPE sees them."""
    unseen = np.subtract.outer(np.arange(12), np.arange(12)) > 3

    def scores(name, k, **options):
        encoding = make(name, **options)
        params = encoding.init(jax.random.key(1), DIMS)
        layer = frame(encoding, params, full(1, 12), DIMS, form="dense").layer(0)
        return logits(drawn(12)[0], k, layer)

    k = drawn(12)[1]
    both = np.asarray(scores("window+dape", k, distance=3))
    seen = np.tril(np.ones((12, 12), bool)) & ~unseen
    assert np.isneginf(both[:, :, unseen]).all()
    assert np.isfinite(both[:, :, seen]).all()
    weighed = lambda k: jax.nn.softmax(scores("window+dape", k, distance=3), axis=-1)[0, :, :, 0]
    assert np.isfinite(jax.grad(lambda k: weighed(k).sum())(k)).all()
    alone = np.asarray(scores("dape", k))
    assert np.isfinite(alone[:, :, unseen]).all(), "control"


@pytest.mark.thorough
def test_unscaled_logits_know_the_heads_own_width():
    """Behind a part that doubles the channels of queries and keys."""
    q, k = drawn(7, 2)

    def scores(name, **options):
        encoding = make(name, **options)
        params = encoding.init(jax.random.key(1), DIMS)
        layer = frame(encoding, params, full(1, 7), DIMS, form="dense").layer(0)
        actual = np.asarray(logits(q, k, layer))[0]
        return np.where(np.isfinite(actual), actual, 0)

    pope, both = scores("pope"), scores("pope+t5", scaled=False)
    bias = scores("pope+t5") - pope
    np.testing.assert_allclose(both, pope * 8**0.5 + bias, rtol=1e-5, atol=1e-5)
    assert not np.allclose(both, pope * 16**0.5 + bias, atol=1e-2), "control: the doubled width"


@pytest.mark.thorough
def test_tupe_can_be_chained_with_methods_that_widen_heads():
    assert np.isfinite(attended("pope+tupe", full(1, 7), length=8)).all()


X = jnp.ones((1, 3, 2, 4))
SMALL = Dims(8, 2, 4, layers=2)


def framed(name: str, of: Dims = SMALL, **options):
    """A frame of three tokens, with parameters made for the sizes `of`."""
    encoding = make(name)
    return frame(encoding, encoding.init(jax.random.key(0), of), full(1, 3), SMALL, **options)


NOPE, FOX = framed("nope").layer(0), framed("fox").layer(0)
REFUSED = [
    (lambda: attend(X, X[:, :, :1], X, NOPE), "v: 2 heads; the keys have 1"),
    (
        lambda: attend(X, *[jnp.ones((1, 3, 3, 4))] * 2, NOPE),
        "k: shape (1, 3, 3, 4) is not [B, K, G, C] of the layer: [B, 3, G, 4], G a divisor of 2",
    ),
    (
        lambda: attend(X, X, jnp.ones((1, 3, 3, 4)), NOPE),
        "v: shape (1, 3, 3, 4) is not [B, K, G, C] of the layer: [B, 3, G, C], G a divisor of 2",
    ),
    (lambda: attend(X, X[:, :, :0], X, NOPE), "k: shape (1, 3, 0, 4) is not [B, K, G, C] of the"),
    (lambda: attend(X, X, X[:, :2], NOPE), "v: shape (1, 2, 2, 4) is not [B, K, G, C] of the lay"),
    (lambda: attend(X[:, :2], X, X, NOPE), "q: shape (1, 2, 2, 4) is not [B, Q, H, C] of the lay"),
    (lambda: attend(X[..., :2], X[..., :2], X, NOPE), "q: shape (1, 3, 2, 2) is not [B, Q, H, C]"),
    (lambda: attend(X, jnp.ones((2, 3, 2, 4)), X, NOPE), "q, k, v: rows 1, 2, 1; give all three"),
    (lambda: attend(X, X, X.astype(jnp.bfloat16), NOPE), "q, k, v: dtypes float32, float32, bf"),
    (lambda: attend(X, X, X, FOX), "layer: it has no features of x, which this method reads"),
    (lambda: framed("nope").layer(2), "frame.layer: no layer 2; dims.layers is 2, counted from 0"),
    (lambda: framed("rope").layer(-1), "frame.layer: no layer -1; dims.layers is 2, counted"),
    (lambda: framed("sinusoidal").layer(0), "frame.layer: the encoding acts at the input; call x"),
    (lambda: framed("sinusoidal").embed(X[..., 0]), "frame.embed: x has shape (1, 3, 2); the fra"),
    (lambda: framed("fox").layer(0).bias(), "layer.bias: this method reads content block by"),
    (lambda: framed("fox").layer(0).rotate(X, X), "layer.rotate: this method reads content block"),
    (
        lambda: framed("t5", of=Dims(8, 4, 2, 2)),
        "params['table']: shape (32, 4); the encoding",
    ),
    (
        lambda: framed("clipped", of=Dims(8, 2, 4, 1)),
        "params: keys [0]['table']; clipped has [0]['table'], [1]['table'] for Dims(",
    ),
    (lambda: Dims(8, 2, 8 / 2), "dims.head: 4.0 is not of type int"),
    (lambda: Dims(8, 0, 4), "dims.heads: 0 must be 1 or more"),
    (lambda: framed("nope", form="flash"), "frame.form: 'flash' is not one of: 'auto', 'dense', "),
    (lambda: framed("nope", causal="no"), "frame.causal: 'no' is not of type bool or None"),
    (lambda: framed("nope", mask_padding=0), "frame.mask_padding: 0 is not of type bool"),
    (lambda: framed("nope", block=0), "frame.block: 0 must be 1 or more"),
    (
        lambda: frame("rope", {}, full(1, 3), SMALL),
        "frame.encoding: 'rope' is not of type",
    ),
    (lambda: frame(make("rope"), {}, X, SMALL), "frame.layout: <ArrayImpl> is not of type"),
    (
        lambda: frame(make("rope"), {}, full(1, 3), (8, 2, 4)),
        "frame.dims: (8, 2, 4) is not of",
    ),
    (lambda: framed("nope", keys=X), "frame.keys: <ArrayImpl> is not of type Layout or None"),
    (lambda: framed("nope", queries=2), "queries: 2 is not (start, size)"),
    (lambda: framed("nope", queries=(2, 2)), "queries: columns 2 to 2 + 2 of 3 tokens"),
    (lambda: framed("nope", queries=(-1, 2)), "queries: columns -1 to -1 + 2 of 3 tokens"),
    (lambda: framed("nope", queries=(0, 4)), "queries: columns 0 to 0 + 4 of 3 tokens"),
    (lambda: framed("nope", keys=full(1, 4), queries=(0, 1)), "queries: columns of layout; with"),
    (lambda: layout(jnp.ones((1, 3), int), jnp.ones((1, 3), jnp.uint32)), "pos_BT: dtype uint32;"),
    (lambda: layout(jnp.ones((1, 3))), "segment_BT: dtype float32; give whole numbers or bool"),
    (lambda: layout(jnp.ones(5, int)), "segment_BT: shape (5,) is not [B, T]"),
    (lambda: layout(jnp.ones((2, 5), int), jnp.ones(5)), "pos_BT: shape (5,) does not begin with"),
    (lambda: attended("t5", full(1, 4).replace(pos_BT=jnp.ones((1, 4, 2)))), "positions: shape"),
    (lambda: attended("swin_2d", full(1, 4)), "positions: shape (1, 1) is not [B, T, 2]"),
    (lambda: make("t5+pope"), "encoding.name: t5 + pope: pope is not linear in queries and keys"),
    (lambda: make("tupe+rope"), "encoding.name: tupe + rope: tupe adds channels, which rope would"),
    (
        lambda: make("randomized+learned", beyond="interpolate"),
        "encoding.name: randomized + learned: learned reads positions in [0, 512), and in training",
    ),
]

NO_LAYER = "layer: str; give frame.layer(n, x)"
WRONG_TYPES = [
    (lambda: at_layer("rope", 0, {}), "at_layer.encoding: 'rope' is not of type Encoding"),
    (lambda: head_specs("rope", SMALL, "x"), "head_specs.encoding: 'rope' is not of type Encoding"),
    (lambda: head_specs(make("rope"), 8, "x"), "head_specs.dims: 8 is not of type Dims"),
    (lambda: testing.trial(3), "trial.encoding: 3 is not of type Encoding or str"),
    (lambda: on_heads(make("rope"), "a", 2), "on_heads: 'a' is not a whole number"),
    (lambda: per_layer(make("rope")), "per_layer: rope() is no list of encodings"),
    (lambda: per_layer("rope"), "per_layer: 'rope' is no list of encodings"),
    (lambda: attend(X, X, X, "rope"), NO_LAYER),
    (lambda: weights(X, X, "rope"), NO_LAYER),
    (lambda: logits(X, X, "rope"), NO_LAYER),
    (lambda: ring(X, X, X, "rope"), NO_LAYER),
    (lambda: attention_fn("rope"), NO_LAYER),
    (lambda: arguments(X, X, X, "rope"), NO_LAYER),
    (lambda: attend(X, X, X, framed("nope")), "layer: Frame; give frame.layer(n, x)"),
    (lambda: attend([1.0], X, X, NOPE), "q: list is not an array"),
    (lambda: attend(X, X, None, NOPE), "v: NoneType is not an array"),
    (lambda: weights(X, None, NOPE), "k: NoneType is not an array"),
    (lambda: logits(X, None, NOPE), "k: NoneType is not an array"),
    (lambda: attend(X, X, X, NOPE, sink_H="x"), "sink: str is not an array"),
    (lambda: attend(X, X, X, NOPE, cap="x"), "cap: 'x'; give a number above 0, or None"),
    (lambda: framed("fox").layer(0, [1.0]), "frame.layer.x: list is not an array"),
    (lambda: framed("nope").embed(None), "frame.embed.x: NoneType is not an array"),
    (lambda: framed("nope").embed(X[0], "x"), "frame.embed: side 'x' is not one of: 'q', 'k'"),
]


@pytest.mark.parametrize(("ask", "message"), WRONG_TYPES, ids=[text for _, text in WRONG_TYPES])
def test_an_argument_of_another_type_is_refused_in_one_line(ask, message):
    with pytest.raises((ValueError, TypeError), match=":") as refusal:
        ask()
    assert str(refusal.value) == message


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_a_wrong_argument_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=":") as refusal:
        ask()
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


@pytest.mark.thorough
def test_values_close_to_refused_ones_are_accepted():
    """Controls of the refusals above."""
    assert attend(X, X, X, NOPE).shape == X.shape
    assert framed("nope", queries=(1, 2)).layer(1).q.index_BT.shape == (1, 2)
    assert Dims(np.int64(8), 2, 8 // 2) == Dims(8, 2, 4)
    for flags in ({"causal": False}, {"mask_padding": False}, {"block": 1, "form": "blockwise"}):
        assert attend(X, X, X, framed("nope", **flags).layer(0)).shape == X.shape
    assert layout(jnp.array([[True, False]])).segment_BT.tolist() == [[1, 0]]
    assert framed("nope", keys=full(1, 4)).layer(0).k.index_BT.shape == (1, 4)
    assert framed("sinusoidal").embed(X.reshape(1, 3, 8)).shape == (1, 3, 8)
    for name in ("t5", "clipped"):
        assert framed(name).layer(1).bias().shape == (1, 2, 3, 3)
    assert layout(jnp.ones((2, 5), int), jnp.ones((2, 5))).pos_BT.shape == (2, 5)
    for name in ("pope+t5", "rope+tupe", "tupe+t5", "sinusoidal+pope"):
        assert make(name).init is not None
    assert reach("randomized+learned", beyond="interpolate", limit=512) == 512
