"""Equinox's attention with our encodings, against `attend`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import attend
from tests.support.catalogue import EVERY_METHOD, gap
from tests.test_adapters import HEAD, HEADS, METHODS, SEGMENTS, TIME, WIDTH, X, layer_of

eqx = pytest.importorskip("equinox")
from posenc_jax.equinox import MultiheadAttention, process_heads  # noqa: E402

ROW, SEGMENT = X[:1], SEGMENTS[:1]  # packed documents; every query sees a key
MODULE = MultiheadAttention(HEADS, WIDTH, key=jax.random.key(2))
PLAIN = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=jax.random.key(2))


def heads_of(module):
    sides = module.query_proj, module.key_proj, module.value_proj
    return [(ROW @ side.weight.T).reshape(1, -1, HEADS, HEAD) for side in sides]


def attended(layer, **options):
    """What the modules must give: `attend`, between the projections that both have."""
    out = attend(*heads_of(PLAIN), layer, **options)
    return out.reshape(-1, WIDTH) @ PLAIN.output_proj.weight.T


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_equinox_turns_heads_or_a_line_says_what_to_use(name):
    layer, x = layer_of(name, SEGMENT, x=ROW), ROW[0]
    encoding, mask = layer.encoding, layer.visible()[0, 0]
    assert gap(MODULE(x, x, x, layer), attended(layer)) < 1e-5
    ask = lambda mask: PLAIN(x, x, x, mask, process_heads=process_heads(layer))
    if encoding.bias or encoding.walk or encoding.turns_values or name in ("tupe", "pope"):
        with pytest.raises(
            ValueError, match=r"^layer: .*use posenc_jax.equinox.MultiheadAttention"
        ):
            ask(mask)
        return
    out = attended(layer)
    assert gap(ask(mask), out) < 1e-5
    assert gap(ask(jnp.tri(TIME, dtype=bool)), out) > 1e-2, "control: documents must be seen"


@pytest.mark.parametrize("name", METHODS)
def test_equinox_attends_with_positions(name):
    layer, x = layer_of(name, SEGMENT, x=ROW), ROW[0]
    output = MODULE(x, x, x, layer)
    assert gap(output, attended(layer)) < 1e-5
    other = MODULE(x, x, x, layer_of("nope", SEGMENT, x=ROW))
    assert gap(output, other) > 1e-3, "control: another method"


@pytest.mark.thorough
def test_equinox_differentiates_and_maps_over_rows():
    """Frames of one row inside of `jax.vmap` give what one frame of all rows does."""
    rows = jnp.concatenate([ROW, ROW[:, ::-1]])

    def loss(module):
        row_of = lambda x_TD: module(x_TD, x_TD, x_TD, layer_of("fox", SEGMENT, x=x_TD[None]))
        return (jax.vmap(row_of)(rows) ** 2).sum()

    grads = eqx.filter_grad(loss)(MODULE)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads.query_proj))
    alone = sum(
        float((MODULE(x, x, x, layer_of("fox", SEGMENT, x=x[None])) ** 2).sum()) for x in rows
    )
    assert abs(float(loss(MODULE)) / alone - 1) < 1e-5


def test_equinox_takes_sinks_and_caps():
    layer, x = layer_of("rope", SEGMENT, x=ROW), ROW[0]
    options = {"sink_H": jnp.ones(HEADS), "cap": 1.0}
    output = MODULE(x, x, x, layer, **options)
    assert gap(output, attended(layer, **options)) < 1e-5
    assert gap(output, attended(layer)) > 1e-3, "control: without them"


@pytest.mark.parametrize("shape", [(TIME, TIME), (HEADS, TIME, TIME)])
def test_masks_and_dropout_of_equinox(shape):
    """Without positions as Equinox's own module on the same key, and refused in one line."""
    rng, x, key = np.random.default_rng(0), ROW[0], jax.random.key(7)
    layer = layer_of("nope", SEGMENT, x=ROW)
    mask = jnp.asarray((rng.random(shape) < 0.8) | np.eye(TIME, dtype=bool))
    both = mask & layer.visible()[0, 0].reshape(*[1] * (len(shape) - 2), TIME, TIME)
    ours, plain = (
        kind(HEADS, WIDTH, dropout_p=0.5, key=jax.random.key(2))
        for kind in (MultiheadAttention, eqx.nn.MultiheadAttention)
    )
    got = ours(x, x, x, layer, mask=mask, key=key)
    assert gap(got, plain(x, x, x, both, key=key)) < 1e-5
    assert gap(got, ours(x, x, x, layer, mask=mask, key=jax.random.key(8))) > 1e-2, "control"
    assert gap(got, ours(x, x, x, layer, key=key)) > 1e-2, "control: without the mask"
    still = ours(x, x, x, layer, mask=mask, inference=True)
    assert gap(still, plain(x, x, x, both, inference=True)) < 1e-5
    assert gap(eqx.nn.inference_mode(ours)(x, x, x, layer, mask=mask), still) == 0
    alibi = layer_of("alibi", SEGMENT, x=ROW)
    wide = mask.reshape(1, -1, TIME, TIME)
    assert gap(MODULE(x, x, x, alibi, mask=mask), attended(alibi, mask_BHQK=wide)) < 1e-5
    with pytest.raises(ValueError, match=r"^dropout: 0.5 needs a key; give key, from"):
        ours(x, x, x, layer)
    with pytest.raises(ValueError, match=r"^mask_BHQK: shape \(1, 1, 24, 23\); give"):
        ours(x, x, x, layer, mask=jnp.ones((TIME, TIME - 1), bool), key=key)


def test_keys_are_counted_that_the_module_s_mask_shows():
    layer, x = layer_of("ssmax", SEGMENT, x=ROW), ROW[0]
    mask = jnp.asarray(np.random.default_rng(1).random((TIME, TIME)) < 0.6)
    mask |= jnp.eye(TIME, dtype=bool)
    wanted = attended(layer, mask_BHQK=mask[None, None])
    both = mask & layer.visible()[0, 0]
    ask = lambda *mask: PLAIN(x, x, x, both, process_heads=process_heads(layer, *mask))
    assert gap(ask(mask), wanted) < 1e-5
    assert gap(ask(), wanted) > 1e-3, "control: it counts the keys of the layer"
