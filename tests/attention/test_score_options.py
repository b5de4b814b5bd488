"""A mask, a bias, a scale and dropout of the caller's own, against definitions in NumPy.

What a query does not see is not there: its scores are those of the sequence without these tokens.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, at_layer, attend, frame, logits, make, weights
from posenc_jax.lab.definitions import SCORES
from posenc_jax.layout import full, layout
from tests.encodings.test_catalogue_numbers import namespace, softmax
from tests.support.catalogue import encoding_of, gap, stir

DIMS = Dims(16, 2, 8, 2)
TIME = 7
METHODS = [
    *("rope", "alibi", "tupe", "pope", "ssmax", "shaw", "cope", "fox", "fox_rows", "path", "wall"),
    *("stick_breaking", "grape_ap", "rerope", "transformer_xl", "tapa"),
]
FORMS: dict[str, dict[str, Any]] = {
    "dense": {"form": "dense"},
    "auto": {},
    "blocks": {"form": "blockwise", "block": 4},
}


def drawn(seed=0, rows=1, time=TIME, heads=DIMS.heads, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    shapes = [(rows, time, n, DIMS.head) for n in (DIMS.heads, heads, heads)]
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def mask_of(seed=1, shape=(1, DIMS.heads, TIME, TIME)):
    """A mask at random, in which each query sees its own token."""
    random = np.random.default_rng(seed).random(shape) < 0.6
    return random | np.eye(TIME, dtype=bool)


def layer_of(name, x_BTHC, at=None, params=None, keys=None, n=0, **options):
    encoding = encoding_of(name)
    if params is None:
        params = stir(encoding.init(jax.random.key(0), DIMS), 1)
    at = full(len(x_BTHC), TIME) if at is None else at
    return frame(encoding, params, at, DIMS, keys, **options).layer(
        n, x_BTHC.reshape(*x_BTHC.shape[:2], -1)
    )


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", METHODS)
def test_a_query_reads_the_sequence_without_the_keys_that_a_mask_hides(name):
    """In float64, in the dense form and in blocks; each head has a mask of its own."""
    with jax.enable_x64(True):
        encoding, mask_HTT = encoding_of(name), mask_of()[0] & np.tri(TIME, dtype=bool)
        params = stir(encoding.init(jax.random.key(0), DIMS), 1)
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params)
        q, k, v = drawn(dtype=float)
        used, layer_params = at_layer(encoding, 0, params)
        layer_params, o = jax.tree.map(np.asarray, layer_params), namespace(name)
        o.layer = 0
        wanted = np.zeros(q.shape[1:])
        for h, i in np.ndindex(DIMS.heads, TIME):
            seen = np.flatnonzero(mask_HTT[h, i])
            of_seen = (np.asarray(x)[0, seen] for x in (q, k))
            s_HTT = SCORES[name](o, layer_params, *of_seen, np.asarray(seen), i + 1)
            last = s_HTT[h, -1]
            weight = np.exp(last) if used.walk and used.walk.weighs else softmax(last)
            wanted[i, h] = weight @ np.asarray(v)[0, seen, h]

        def run(mask, **form):
            ask = lambda q, k, v: attend(
                q, k, v, layer_of(name, q, params=params, **form), mask_BHQK=mask
            )
            return jax.jit(ask)(q, k, v)[0]

        for form in (FORMS["dense"], FORMS["blocks"]):
            np.testing.assert_allclose(run(jnp.asarray(mask_HTT)[None], **form), wanted, atol=1e-9)
        shared = run(jnp.asarray(mask_HTT)[None, :1], **FORMS["dense"])
        np.testing.assert_allclose(shared[:, 0], wanted[:, 0], atol=1e-9)
        assert gap(shared[:, 1], jnp.asarray(wanted[:, 1])) > 1e-3, (
            "control: the mask of another head"
        )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, (2, 1, TIME, TIME)) for name in ("alibi", "ssmax", "path")),
        *((name, (1, 2, 1, TIME)) for name in ("rope", "cope")),
        ("stick_breaking", (1, 1, TIME, 1)),
    ],
)
def test_forms_agree_in_values_and_gradients(name, shape):
    """With padding, grouped heads, a mask and a bias of any axes, and a traced scale."""
    q, k, v = drawn(rows=2, heads=1)
    at = layout(jnp.array([[1] * 4 + [2] * 3, [0] + [1] * 6]))
    mask = np.random.default_rng(3).random(shape) < 0.7
    bias = jnp.asarray(np.random.default_rng(4).normal(size=shape), jnp.float32)
    params = stir(encoding_of(name).init(jax.random.key(0), DIMS), 1)

    def both(form):
        def out(params, q, k, v, bias, scale):
            layer = layer_of(name, q, at, params, **form)
            return attend(q, k, v, layer, mask_BHQK=mask, bias_BHQK=bias, scale=scale)

        def values(*args):
            o, pull = jax.vjp(out, *args)
            return o, pull(jnp.sin(3 * o))

        return jax.jit(values)(params, q, k, v, bias, jnp.float32(0.5))

    walks = encoding_of(name).walk is not None
    forms = [form for form in FORMS if not (walks and form == "auto")]
    dense, *others = (both(FORMS[form]) for form in forms)
    for other in others:
        assert gap(dense, other) < 2e-5
    assert dense[1][4].shape == shape
    assert float(jnp.abs(dense[1][4]).max()) > 1e-3, "control: the bias has a gradient"
    assert float(jnp.abs(dense[1][5])) > 1e-3, "control: the scale has a gradient"


def numpy_attention(q, k, v, *, scale, mask=True, bias=0.0, sink=None, cap=None):
    """Of rows of one causal sequence, without positions."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    s_BHQK = np.einsum("bqhc,bkhc->bhqk", q, k) * scale
    s_BHQK = (s_BHQK if cap is None else cap * np.tanh(s_BHQK / cap)) + bias
    seen = np.broadcast_to(np.tri(TIME, dtype=bool) & mask, s_BHQK.shape)
    p = np.where(seen, np.exp(s_BHQK), 0)
    total = p.sum(-1, keepdims=True) + (0 if sink is None else np.exp(sink)[None, :, None, None])
    return np.einsum("bhqk,bkhc->bqhc", p / np.where(total > 0, total, 1), v)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_all_options_at_once(form):
    """A mask that hides all keys of some queries too: those give 0."""
    q, k, v = drawn(rows=2)
    rng = np.random.default_rng(2)
    mask, bias = rng.random((2, 1, TIME, TIME)) < 0.5, rng.normal(size=(1, 2, TIME, TIME))
    sink, options = np.array([0.3, -0.5]), {"cap": 1.5, "scale": 0.7}
    arrays: dict[str, Any] = {
        "mask_BHQK": jnp.asarray(mask),
        "bias_BHQK": jnp.asarray(bias, jnp.float32),
    }
    layer = layer_of("nope", q, **FORMS[form])
    got = attend(q, k, v, layer, sink_H=jnp.asarray(sink, jnp.float32), **options, **arrays)
    attention = functools.partial(numpy_attention, q, k, v, sink=sink, **options)
    np.testing.assert_allclose(got, attention(mask=mask, bias=bias), atol=1e-5)
    hidden = np.logical_not(np.any(mask & np.tri(TIME, dtype=bool), axis=-1)[:, 0])
    assert hidden.any()
    assert (np.asarray(got)[hidden] == 0).all()
    for other in (attention(bias=bias), attention(mask=mask), numpy_attention(q, k, v, scale=0.7)):
        assert gap(got, other) > 1e-2, "control: without one of them"


@pytest.mark.thorough
def test_weights_and_logits_take_them():
    q, k, v = drawn()
    options: dict[str, Any] = {"mask_BHQK": jnp.asarray(mask_of()), "scale": 0.3}
    options["bias_BHQK"] = jnp.asarray(np.random.default_rng(5).normal(size=(1, 1, 1, TIME)))
    options["bias_BHQK"] = options["bias_BHQK"].astype(jnp.float32)
    layer = layer_of("rope", q, form="dense")
    got = attend(q, k, v, layer, **options)
    actual = weights(q, k, layer, **options)
    assert gap(jnp.einsum("bhqk,bkhc->bqhc", actual, v), got) < 1e-6
    assert gap(jax.nn.softmax(logits(q, k, layer, **options)), actual) < 1e-6
    assert gap(weights(q, k, layer), actual) > 1e-2, "control: without them"


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["tupe", "pope", "transformer_xl", "deberta", "tapa", "rerope"])
def test_a_scale_is_of_all_that_is_divided_by_the_root_of_the_width(name):
    """Products with channels that a method adds, and scores that it makes of queries or keys."""
    q, k, _ = drawn()
    layer = layer_of(name, q, form="dense", causal=False)
    plain = logits(q, k, layer)
    np.testing.assert_allclose(
        logits(q, k, layer, scale=0.9), plain * (0.9 * 8**0.5), rtol=1e-5, atol=1e-6
    )
    assert gap(logits(q, k, layer, scale=8**-0.5), plain) < 1e-6


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["cope", "path", "wall", "stick_breaking", "shaw", "fox"])
def test_a_scale_is_a_factor_of_queries_where_these_alone_are_divided(name):
    q, k, v = drawn()
    for form in (FORMS["dense"], FORMS["blocks"]):
        layer = layer_of(name, q, **form)
        got = attend(q, k, v, layer, scale=0.9)
        assert gap(got, attend(q * (0.9 * 8**0.5), k, v, layer)) < 1e-5
        assert gap(got, attend(q, k, v, layer)) > 1e-2, "control: the scale shows"


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["rope", "alibi", "stick_breaking"])
def test_dropout_is_that_of_the_weights(name):
    q, k, v = drawn(rows=2)
    layer, key, rate = layer_of(name, q, form="dense"), jax.random.key(7), 0.3
    keep = np.asarray(jax.random.bernoulli(key, 1 - rate, (2, 2, TIME, TIME)))
    dropped = np.asarray(weights(q, k, layer)) * keep / (1 - rate)
    wanted = np.einsum("bhqk,bkhc->bqhc", dropped, v)
    got = attend(q, k, v, layer, dropout=rate, dropout_key=key)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert gap(got, attend(q, k, v, layer)) > 1e-2, "control: without dropout"
    assert gap(attend(q, k, v, layer, dropout_key=key), attend(q, k, v, layer)) == 0
    auto = layer_of(name, q)
    assert gap(attend(q, k, v, auto, dropout=rate, dropout_key=key), got) < 1e-6


TRUE = jnp.ones((1, 1, TIME, TIME), bool)
REFUSED = [
    ({"mask_BHQK": TRUE.astype(int)}, "mask_BHQK: int32; give bool.*an additive mask is bias_BHQK"),
    ({"mask_BHQK": jnp.zeros(TRUE.shape)}, "mask_BHQK: float32; give bool.*is bias_BHQK"),
    ({"mask_BHQK": True}, "mask_BHQK: bool; give"),
    ({"mask_BHQK": TRUE[0, 0]}, r"mask_BHQK: shape \(7, 7\); give \[B, H, Q, K\], each 1 or that"),
    ({"mask_BHQK": TRUE[..., :-1]}, r"mask_BHQK: shape \(1, 1, 7, 6\); give \[B, H, Q, K\]"),
    ({"bias_BHQK": TRUE}, "bias_BHQK: bool; give floating point; a bool mask is mask_BHQK"),
    ({"bias_BHQK": jnp.zeros((3, 1, 1, 1))}, r"bias_BHQK: shape \(3, 1, 1, 1\); give"),
    ({"scale": jnp.ones(2)}, "scale: .*; give one number"),
    ({"scale": "0.5"}, "scale: '0.5'; give one number"),
    ({"dropout": 0.5}, "dropout: 0.5 needs a key; give dropout_key"),
    ({"dropout": 1.0}, "dropout: 1.0; give a number from 0 to below 1"),
]


@pytest.mark.parametrize(("options", "line"), REFUSED)
def test_refused(options, line):
    q, k, v = drawn()
    with pytest.raises(ValueError, match=f"^{line}") as error:
        attend(q, k, v, layer_of("rope", q), **options)
    assert "\n" not in str(error.value)


@pytest.mark.thorough
def test_forms_that_have_none_say_so_and_auto_takes_another():
    from posenc_jax.backends import form_choice
    from posenc_jax.backends.target import compile_for

    q, k, v = drawn()
    fused, blocks = layer_of("rope", q, form="kernel"), layer_of("rope", q, **FORMS["blocks"])
    with pytest.raises(ValueError, match=r"^mask_BHQK: the kernel has none; make the frame with"):
        attend(q, k, v, fused, mask_BHQK=TRUE)
    dropped = {"dropout": 0.5, "dropout_key": jax.random.key(0)}
    for layer in (fused, blocks):
        with pytest.raises(ValueError, match=r"^dropout: form '.*' has none; make the frame with"):
            attend(q, k, v, layer, **dropped)
    with pytest.raises(ValueError, match=r"^mask_BHQK: .*; this method mixes heads"):
        attend(q, k, v, layer_of("dape_v2", q), mask_BHQK=jnp.asarray(mask_of()))
    mask = jnp.asarray(mask_of()[:, :1])
    q, k, v = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    with pytest.MonkeyPatch.context() as patch, compile_for("tpu"):
        patch.setattr(form_choice, "DENSE_LOGITS_ELSEWHERE", 0)
        taken = layer_of("rope", q)
        assert taken.form == "kernel"
        got = attend(q, k, v, taken, mask_BHQK=mask)
    wanted = attend(q, k, v, layer_of("rope", q, form="dense"), mask_BHQK=mask)
    assert gap(got.astype(float), wanted.astype(float)) < 2e-2


def test_a_kernel_takes_a_scale():
    q, k, v = drawn()
    got = attend(q, k, v, layer_of("alibi", q, form="kernel"), scale=0.9)
    assert gap(got, attend(q, k, v, layer_of("alibi", q, form="dense"), scale=0.9)) < 1e-5
    assert gap(got, attend(q, k, v, layer_of("alibi", q, form="dense"))) > 1e-2, "control"


@pytest.mark.thorough
def test_blocks_hold_no_mask_or_bias_of_all_heads():
    """Nothing as large as the logits of all heads, where the bias and the mask are shared."""
    time, dims = 1024, Dims(64, 8, 8)
    q = jax.ShapeDtypeStruct((1, time, 8, 8), jnp.float32)
    pairs = [jax.ShapeDtypeStruct((1, 1, time, time), kind) for kind in (bool, jnp.float32)]

    def size(form):
        layer = frame(make("alibi"), {}, full(1, time), dims, form=form, block=128).layer(0)
        f = lambda q, bias, mask: attend(q, q, q, layer, mask_BHQK=mask, bias_BHQK=bias).sum()
        step = jax.jit(jax.grad(f, (0, 1)))
        memory = step.lower(q, pairs[1], pairs[0]).compile().memory_analysis()
        assert memory is not None
        return memory.temp_size_in_bytes

    assert size("blockwise") < 8 * time * time * 4 / 2
    assert size("dense") > 8 * time * time * 4, "control: dense holds them"
