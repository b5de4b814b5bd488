"""Attention of other libraries with our encodings, against `attend`."""

import copy
import functools
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from posenc_jax import Dims, Layer, attend, frame, layout
from posenc_jax.flax import attention_fn
from posenc_jax.jax_nn import arguments
from tests.support.catalogue import EVERY_METHOD, ROWS, TIME, encoding_of, gap, layers, stir, where

HEADS, HEAD = 4, 8
WIDTH = HEADS * HEAD
# Packed documents, and padding on either side; sizes of the battery, whose programs these are.
SEGMENTS = jnp.asarray([[1] * 9 + [2] * 15, [1] * 20 + [0] * 4, [0] * 7 + [1] * 17, [1] * TIME])
X = jax.random.normal(jax.random.key(3), (ROWS, TIME, WIDTH))


def layer_of(name, segment_BT=SEGMENTS, shift=0, x=X) -> Layer:
    encoding = encoding_of(name)
    dims = Dims(WIDTH, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), zlib.crc32(name.encode()))
    view = frame(encoding, params, where(name, segment_BT, shift), dims, form="dense")
    return view.layer(dims.layers - 1, view.embed(x))


def drawn(groups):
    shape = lambda heads: (ROWS, TIME, heads, HEAD)
    keys = jax.random.split(jax.random.key(1), 3)
    return [
        jax.random.normal(key, shape(n))
        for key, n in zip(keys, (HEADS, groups, groups), strict=True)
    ]


of_method = functools.cache(layer_of)


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_jax_attends_alike_or_is_refused(name):
    """Real tokens' outputs, with fewer heads of keys; one line for what cannot be said."""
    layer, (q, k, v) = of_method(name), drawn(groups=2)
    encoding = layer.encoding
    if encoding.walk is not None or encoding.turns_values or name in ("tupe", "pope"):
        with pytest.raises(ValueError, match=r"^layer.*use attend\(q, k, v, layer\)$"):
            arguments(q, k, v, layer)
        return
    real = (SEGMENTS > 0)[:, :, None, None]
    alike = lambda out: jnp.where(real, out - attend(q, k, v, layer), 0)
    assert jnp.abs(alike(jax.nn.dot_product_attention(*arguments(q, k, v, layer)))).max() < 1e-5
    bare = alike(jax.nn.dot_product_attention(q, k, v, is_causal=True))
    assert jnp.abs(bare).max() > 1e-2, "control: documents and positions must be seen"


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x_BTD, layer):
        attention = attention_fn(layer)
        return nn.MultiHeadDotProductAttention(HEADS, attention_fn=attention)(x_BTD)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(
            HEADS, WIDTH, num_kv_heads=2, decode=False, rngs=rngs
        )

    def __call__(self, x_BTD, layer):
        module = copy.copy(self.attention)
        module.attention_fn = attention_fn(layer)
        return module(x_BTD)


@functools.cache
def modules():
    """Linen's module with its parameters, and that of NNX: no encoding changes their sizes."""
    linen = Linen()
    return linen, linen.init(jax.random.key(2), X, layer_of("nope")), Nnx(nnx.Rngs(0))


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_flax_attends_with_every_method(name):
    """Linen, and NNX with fewer heads of keys, as `attend` between their own projections."""
    layer, (linen, params, layer_params) = of_method(name), modules()
    plain = params["params"]["MultiHeadDotProductAttention_0"]
    q, k, v = (
        jnp.einsum("btd,dhc->bthc", X, plain[s]["kernel"]) for s in ("query", "key", "value")
    )
    wanted = jnp.einsum("bthc,hcd->btd", attend(q, k, v, layer), plain["out"]["kernel"])
    assert gap(linen.apply(params, X, layer), wanted) < 1e-5
    of_nnx = layer_params.attention
    wanted = of_nnx.out(attend(of_nnx.query(X), of_nnx.key(X), of_nnx.value(X), layer))
    assert gap(layer_params(X, layer), wanted) < 1e-5
    bare = nnx.dot_product_attention(q, k, v)
    assert gap(attend(q, k, v, layer), bare) > 1e-2, "control: positions and mask must be seen"


METHODS = ["rope", "t5", "tupe", "fox", "stick_breaking", "gta", "repo"]


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize("name", METHODS)
def test_linen_attends_with_positions(name):
    model, layer, other = Linen(), layer_of(name), layer_of("nope")
    params = model.init(jax.random.key(2), X, layer)
    params_of_attention = params["params"]["MultiHeadDotProductAttention_0"]
    project = lambda side: jnp.einsum("btd,dhc->bthc", X, params_of_attention[side]["kernel"])
    o_BTHC = attend(project("query"), project("key"), project("value"), layer)
    out = jnp.einsum("bthc,hcd->btd", o_BTHC, params_of_attention["out"]["kernel"])
    apply = jax.jit(lambda params, layer: jnp.asarray(model.apply(params, X, layer)))
    assert gap(apply(params, layer), out) < 1e-5
    assert gap(apply(params, other), out) > 1e-2, "control: another method"


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_nnx_attends_with_positions(name):
    model, layer, other = Nnx(nnx.Rngs(0)), layer_of(name), layer_of("nope")
    attention = model.attention
    q, k, v = attention.query(X), attention.key(X), attention.value(X)
    out = attention.out(attend(q, k, v, layer))
    output = nnx.jit(lambda model, layer: model(X, layer))(model, layer)
    assert gap(output, out) < 1e-5
    assert gap(model(X, other), out) > 1e-2, "control: another method"
    assert attention.attention_fn is nnx.dot_product_attention
    grads = nnx.grad(lambda model: (model(X, layer) ** 2).sum())(model)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads["attention"]["query"]))


PLAIN = layout(jnp.ones((ROWS, TIME), jnp.int32))


def encoder_layer(name, form: Any = "dense"):
    """A layer in which every token sees every other, as Flax's own attention has it."""
    encoding = encoding_of(name)
    dims = Dims(WIDTH, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), 1)
    return frame(encoding, params, PLAIN, dims, causal=False, form=form, block=8).layer(0, X)


def options_of_flax():
    """Each that `attend` has, beside none; a mask of floats, as `nn.make_causal_mask` makes it."""
    rng = np.random.default_rng(0)
    bias = jnp.asarray(rng.normal(size=(1, HEADS, TIME, TIME)), jnp.float32)
    dropped = {"dropout_rate": 0.3, "dropout_rng": jax.random.key(5)}
    return {
        "mask": {"mask": nn.make_causal_mask(X[..., 0])},
        "bias": {"bias": bias, "mask": jnp.asarray(rng.random((TIME, TIME)) < 0.9)},
        "dropout": {**dropped, "broadcast_dropout": False},
        "broadcast_dropout": {**dropped, "mask": nn.make_causal_mask(X[..., 0])},
        "deterministic": {**dropped, "deterministic": True},
    }


@pytest.mark.parametrize("case", options_of_flax())
def test_options_of_flax_do_what_they_do_in_flax(case):
    """Without positions as Flax's own attention; with `alibi` as `attend` with the same options."""
    options, (q, k, v) = options_of_flax()[case], drawn(groups=HEADS)
    mask_options = (
        {**options, "mask": options["mask"].astype(bool)} if "mask" in options else options
    )
    wanted = nnx.dot_product_attention(q, k, v, **mask_options)
    assert gap(attention_fn(encoder_layer("nope"))(q, k, v, **options), wanted) < 1e-5
    bare = nnx.dot_product_attention(q, k, v)
    off = gap(wanted, bare)
    assert off < 1e-5 if case == "deterministic" else off > 1e-2, "control: the option is seen"
    layer = encoder_layer("alibi")
    got = attention_fn(layer)(q, k, v, **options)
    with_bias = {
        **mask_options,
        "bias": layer.bias() + mask_options.get("bias", jnp.zeros((1, 1, 1, 1))),
    }
    assert gap(got, nnx.dot_product_attention(q, k, v, **with_bias)) < 1e-5
    assert gap(got, wanted) > 1e-2, "control: positions are seen"


@pytest.mark.thorough
def test_masks_and_dropout_of_flax_modules():
    """Linen's and NNX's modules with our attention and with their own, on the same keys."""
    mask, fn = nn.make_causal_mask(X[..., 0]), attention_fn(encoder_layer("nope"))
    options_of_flax: dict[str, Any] = {"dropout_rate": 0.4, "deterministic": False}
    plain, ours = (
        nn.MultiHeadDotProductAttention(HEADS, attention_fn=f, **options_of_flax)
        for f in (nn.dot_product_attention, fn)
    )
    rngs = {"dropout": jax.random.key(3)}
    params = plain.init({"params": jax.random.key(2), **rngs}, X)
    call = lambda module, rngs=rngs, **options: module.apply(params, X, rngs=rngs, **options)
    assert gap(call(ours, mask=mask), call(plain, mask=mask)) < 1e-5
    assert gap(call(ours, mask=mask), call(ours)) > 1e-2, "control: the mask is seen"
    other = {"dropout": jax.random.key(4)}
    assert gap(call(ours), call(ours, other)) > 1e-2, "control: another key"

    module = nnx.MultiHeadAttention(
        HEADS, WIDTH, dropout_rate=0.4, deterministic=False, decode=False, rngs=nnx.Rngs(0)
    )
    ours = copy.copy(module)
    ours.attention_fn = fn
    run = lambda module, seed: module(X, mask=mask.astype(bool), rngs=nnx.Rngs(dropout=seed))
    assert gap(run(ours, 7), run(module, 7)) < 1e-5
    assert gap(run(ours, 7), run(ours, 8)) > 1e-2, "control: another key"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["nope", "rope", "t5"])
def test_flax_decodes_with_a_cache_of_its_own(name):
    """decode=True, token by token, against one pass; NaN past the end of the cache."""
    encoding, time = encoding_of(name), 5
    dims = Dims(WIDTH, HEADS, HEAD, layers(encoding))
    params = stir(encoding.init(jax.random.key(0), dims), 1)
    x = X[:2, :time]
    layer_at = lambda at, **queries: frame(encoding, params, at, dims, **queries).layer(0)
    whole = layer_at(layout(jnp.ones((2, time), jnp.int32)))

    def stepping(step, **module):
        return attention_fn(layer_at(layout(jnp.ones((2, time), jnp.int32)), queries=(step, 1)))

    module = nnx.MultiHeadAttention(HEADS, WIDTH, num_kv_heads=2, decode=False, rngs=nnx.Rngs(0))
    module.attention_fn = attention_fn(whole)
    wanted = module(x)
    module.init_cache(x.shape)

    @nnx.jit
    def step(module, x_B1D, n):
        module.attention_fn = stepping(n)
        out = module(x_B1D, decode=True)
        module.attention_fn = nnx.dot_product_attention
        return out

    got = jnp.concatenate([step(module, x[:, n : n + 1], n) for n in range(time)], axis=1)
    assert gap(got, wanted) < 1e-5
    assert gap(got[:, 1:], wanted[:, :-1]) > 1e-2, "control: another token"
    assert np.isnan(step(module, x[:, :1], time)).all(), "past the end of the cache"

    linen = lambda fn, **options: nn.MultiHeadDotProductAttention(HEADS, attention_fn=fn, **options)
    held = linen(attention_fn(whole), decode=True).init(jax.random.key(2), x)
    own_params, cache = held["params"], held["cache"]
    wanted = linen(attention_fn(whole)).apply({"params": own_params}, x)

    @jax.jit
    def linen_step(cache, x_B1D, n):
        variables = {"params": own_params, "cache": cache}
        return linen(stepping(n), decode=True).apply(variables, x_B1D, mutable=["cache"])

    for n in range(time):
        got, new = linen_step(cache, x[:, n : n + 1], n)
        cache = new["cache"]
        assert gap(got, wanted[:, n : n + 1]) < 1e-5


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"precision": "highest"}, "precision: attend does not take it; use jax.default_matmul"),
        ({"module": object()}, "sow_weights: attend does not take it; use posenc_jax.weights"),
        ({"qk_attn_weights_einsum": jnp.einsum}, "qk_attn_weights_einsum: attend does not take it"),
        ({"input_positions": jnp.arange(TIME)[None]}, "input_positions: attend does not take it; "),
        ({"window": 3}, "window: attend does not take it; leave it out"),
        ({"dropout_rate": 0.5}, "dropout: 0.5 needs a key; give dropout_rng"),
        ({"mask": jnp.ones((TIME, 2), bool)}, r"mask_BHQK: shape \(1, 1, 24, 2\); give"),
        ({"bias": jnp.ones((1, 1, 1, 1), int)}, "bias_BHQK: int32; give floating point"),
    ],
)
def test_options_of_flax_that_attend_has_not_are_refused(option, line):
    layer, (q, k, v) = layer_of("rope"), drawn(groups=HEADS)
    with pytest.raises(ValueError, match=f"^{line}"):
        attention_fn(layer)(q, k, v, **option)
    same = attention_fn(layer)(q, k, v, dropout_rate=0.5, deterministic=True, is_causal=True)
    assert gap(same, attend(q, k, v, layer)) == 0
    with pytest.raises(ValueError, match=r"^is_causal: attend does not take it; make the frame"):
        attention_fn(encoder_layer("rope"))(q, k, v, is_causal=True)
    blocks = attention_fn(encoder_layer("rope", "blockwise"))
    with pytest.raises(ValueError, match=r"^dropout: form 'blockwise' has none; make the frame"):
        blocks(q, k, v, dropout_rate=0.5, dropout_rng=jax.random.key(0))


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["rope", "alibi", "ssmax"])
def test_a_bias_and_a_mask_join_those_of_a_layer_for_jax_nn(name):
    layer, (q, k, v) = layer_of(name), drawn(groups=2)
    rng = np.random.default_rng(0)
    mask = jnp.asarray((rng.random((1, HEADS, TIME, TIME)) < 0.7) | np.eye(TIME, dtype=bool))
    bias = jnp.asarray(rng.normal(size=(1, 1, TIME, TIME)), jnp.float32)
    wanted = attend(q, k, v, layer, mask_BHQK=mask, bias_BHQK=bias)
    real = (SEGMENTS > 0)[:, :, None, None]
    apart = lambda *options: float(jnp.abs(jnp.where(
        real, jax.nn.dot_product_attention(*arguments(q, k, v, layer, *options)) - wanted, 0
    )).max())  # fmt: skip
    assert apart(bias, mask) < 1e-5
    assert apart(bias) > 1e-2, "control: without the mask"
    assert apart(None, mask) > 1e-2, "control: without the bias"
    with pytest.raises(ValueError, match=r"^mask_BHQK: float32; give bool"):
        arguments(q, k, v, layer, None, bias)
