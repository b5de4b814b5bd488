"""Positions in some heads: those heads are a model of so many, the others have no positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, chain, frame, full, make, on_heads, per_layer
from tests.support.catalogue import gap, stir

TIME, HEADS, HEAD = 8, 6, 8
DIMS, FEW = Dims(48, HEADS, HEAD, 2), Dims(48, 3, HEAD, 2)
Q, K = (jnp.asarray(x, float) for x in np.random.default_rng(0).normal(size=(2, 2, TIME, 6, 8)))
V = jnp.broadcast_to(jnp.eye(TIME)[None, :, None], (2, TIME, HEADS, TIME))
X = jnp.asarray(np.random.default_rng(1).normal(size=(2, TIME, 48)), float)
POPE = on_heads(make("pope"), 0, 2)
METHODS = ["rope", "alibi", "headwise", "ssmax", "t5", "fox", "wall", "gta", "irope", "xpos+fire"]


def weights(encoding, q, k, dims, params, **options):
    """The weights of attention in the second layer, [B, Q, H, K]."""
    at = full(2, TIME)
    if encoding.turns_values:
        at = at.replace(pos_BT=jnp.stack([at.pos_BT // 4, at.pos_BT % 4], axis=-1))
    layer = frame(encoding, params, at, dims, **options).layer(1, X)
    return attend(q, k, V[:, :, : k.shape[2]], layer)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("form", ["dense", "blockwise"])
def test_heads_are_those_of_a_small_model(name, form):
    """A slope of ALiBi is that of three heads, in the heads 2 to 4 of six."""
    encoding = make(name)
    some = on_heads(encoding, 2, 5)
    params = stir(some.init(jax.random.key(0), DIMS), 2)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(
        jnp.shape, encoding.init(jax.random.key(0), FEW)
    )
    actual = weights(some, Q, K, DIMS, params, form=form)
    within = weights(encoding, Q[:, :, 2:5], K[:, :, 2:5], FEW, params, form=form)
    outside = weights(make("nope"), Q, K, DIMS, {})
    assert gap(actual[:, :, 2:5], within) < 1e-5
    assert gap(actual[:, :, (0, 1, 5), :], outside[:, :, (0, 1, 5), :]) < 1e-5
    assert gap(within, outside[:, :, 2:5]) > 1e-3, "control"


def test_keys_of_fewer_heads_are_turned_where_their_queries_are():
    some = on_heads(make("rope"), 3, 6)
    grouped = weights(some, Q, K[:, :, :2], DIMS, {})
    assert gap(grouped, weights(some, Q, jnp.repeat(K[:, :, :2], 3, axis=2), DIMS, {})) < 1e-6


def test_two_parts_share_the_heads():
    """ALiBi in the first half, rope in the second; in one layer of two."""
    both = chain(on_heads(make("alibi"), 0, 3), on_heads(make("rope"), 3, 6))
    layers = per_layer([make("nope"), both])
    params = layers.init(jax.random.key(0), DIMS)
    actual = weights(layers, Q, K, DIMS, params)
    for name, heads in (("alibi", slice(0, 3)), ("rope", slice(3, 6))):
        few = weights(make(name), Q[:, :, heads], K[:, :, heads], FEW, {})
        assert gap(actual[:, :, heads], few) < 1e-6
    assert gap(actual[:, :, :3], weights(make("nope"), Q, K, DIMS, {})[:, :, :3]) > 1e-3, "control"


def test_equal_calls_are_equal():
    assert on_heads(make("rope"), 0, 2) == on_heads(make("rope"), 0, 2)
    assert on_heads(make("rope"), 0, 2) != on_heads(make("rope"), 0, 3)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: on_heads("rope", 0, 2), "on_heads: 'rope' is not an Encoding"),
        (lambda: on_heads(make("learned"), 0, 2), "on_heads: an encoding at the input"),
        (lambda: on_heads(make("stick_breaking"), 0, 2), "on_heads: the encoding makes weights"),
        (lambda: on_heads(make("rope"), 2, 2), "on_heads: heads 2 to 1 are none"),
        (
            lambda: on_heads(make("rope"), 2, 9).init(jax.random.key(0), DIMS),
            "on_heads: heads 2 to 8 of a model of 6",
        ),
        (
            lambda: weights(POPE, Q, K, DIMS, POPE.init(jax.random.key(0), DIMS)),
            "on_heads: the encoding changes the width",
        ),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(ask, message):
    with pytest.raises(ValueError, match=message) as error:
        ask()
    assert "\n" not in str(error.value)
