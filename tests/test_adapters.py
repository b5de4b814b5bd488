"""Attention of other libraries with our encodings, against `attend`."""

import copy
import functools
import zlib

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from flax import nnx

from posenc_jax import Dims, Layer, attend, frame
from posenc_jax.flax import attention_fn
from posenc_jax.jax_nn import arguments
from tests.catalogue import NAMES, ROWS, TIME, encoding_of, gap, layers, stir, where

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


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize("name", NAMES)
def test_flax_attends_with_every_method(name):
    """Linen, and NNX with fewer heads of keys, as `attend` between their own projections."""
    layer, (linen, params, own) = of_method(name), modules()
    plain = params["params"]["MultiHeadDotProductAttention_0"]
    q, k, v = (
        jnp.einsum("btd,dhc->bthc", X, plain[s]["kernel"]) for s in ("query", "key", "value")
    )
    wanted = jnp.einsum("bthc,hcd->btd", attend(q, k, v, layer), plain["out"]["kernel"])
    assert gap(linen.apply(params, X, layer), wanted) < 1e-5
    of_nnx = own.attention
    wanted = of_nnx.out(attend(of_nnx.query(X), of_nnx.key(X), of_nnx.value(X), layer))
    assert gap(own(X, layer), wanted) < 1e-5
    bare = nnx.dot_product_attention(q, k, v)
    assert gap(attend(q, k, v, layer), bare) > 1e-2, "control: positions and mask must be seen"


METHODS = ["rope", "t5", "tupe", "fox", "stick_breaking", "gta", "repo"]


@pytest.mark.parametrize("name", METHODS)
def test_linen_attends_with_positions(name):
    model, layer, other = Linen(), layer_of(name), layer_of("nope")
    params = model.init(jax.random.key(2), X, layer)
    own = params["params"]["MultiHeadDotProductAttention_0"]
    project = lambda side: jnp.einsum("btd,dhc->bthc", X, own[side]["kernel"])
    o_BTHC = attend(project("query"), project("key"), project("value"), layer)
    out = jnp.einsum("bthc,hcd->btd", o_BTHC, own["out"]["kernel"])
    apply = jax.jit(lambda params, layer: jnp.asarray(model.apply(params, X, layer)))
    assert gap(apply(params, layer), out) < 1e-5
    assert gap(apply(params, other), out) > 1e-2, "control: another method"


@pytest.mark.parametrize("name", METHODS)
def test_nnx_attends_with_positions(name):
    model, layer, other = Nnx(nnx.Rngs(0)), layer_of(name), layer_of("nope")
    own = model.attention
    q, k, v = own.query(X), own.key(X), own.value(X)
    out = own.out(attend(q, k, v, layer))
    made = nnx.jit(lambda model, layer: model(X, layer))(model, layer)
    assert gap(made, out) < 1e-5
    assert gap(model(X, other), out) > 1e-2, "control: another method"
    assert own.attention_fn is nnx.dot_product_attention
    grads = nnx.grad(lambda model: (model(X, layer) ** 2).sum())(model)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads["attention"]["query"]))


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"mask": jnp.ones((1, 1, TIME, TIME), bool)}, "mask"),
        ({"bias": jnp.zeros((1, 1, TIME, TIME))}, "bias"),
        ({"dropout_rate": 0.5}, "dropout"),
        ({"precision": "highest"}, "precision"),
        ({"module": object()}, "sow_weights"),
    ],
)
def test_options_of_flax_that_attend_has_not_are_refused(option, line):
    layer, (q, k, v) = layer_of("rope"), drawn(groups=HEADS)
    with pytest.raises(ValueError, match=f"^{line}: attend does not take it"):
        attention_fn(layer)(q, k, v, **option)
    same = attention_fn(layer)(q, k, v, dropout_rate=0.5, deterministic=True, is_causal=True)
    assert gap(same, attend(q, k, v, layer)) == 0
