"""Equinox's attention with our encodings, against `attend`."""

import jax
import jax.numpy as jnp
import pytest

from posenc_jax import attend
from tests.catalogue import NAMES, gap
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


@pytest.mark.parametrize("name", NAMES)
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
    made = MODULE(x, x, x, layer)
    assert gap(made, attended(layer)) < 1e-5
    other = MODULE(x, x, x, layer_of("nope", SEGMENT, x=ROW))
    assert gap(made, other) > 1e-3, "control: another method"


def test_equinox_differentiates_and_maps_over_rows():
    """Frames of one row inside of `jax.vmap` give what one frame of all rows does."""
    rows = jnp.concatenate([ROW, ROW[:, ::-1]])

    def loss(module):
        one = lambda x_TD: module(x_TD, x_TD, x_TD, layer_of("fox", SEGMENT, x=x_TD[None]))
        return (jax.vmap(one)(rows) ** 2).sum()

    grads = eqx.filter_grad(loss)(MODULE)
    assert all(jnp.abs(leaf).max() > 0 for leaf in jax.tree.leaves(grads.query_proj))
    alone = sum(
        float((MODULE(x, x, x, layer_of("fox", SEGMENT, x=x[None])) ** 2).sum()) for x in rows
    )
    assert abs(float(loss(MODULE)) / alone - 1) < 1e-5


def test_equinox_takes_sinks_and_caps_and_refuses_dropout():
    layer, x = layer_of("rope", SEGMENT, x=ROW), ROW[0]
    options = {"sink_H": jnp.ones(HEADS), "cap": 1.0}
    made = MODULE(x, x, x, layer, **options)
    assert gap(made, attended(layer, **options)) < 1e-5
    assert gap(made, attended(layer)) > 1e-3, "control: without them"
    module = MultiheadAttention(HEADS, WIDTH, dropout_p=0.5, key=jax.random.key(2))
    with pytest.raises(ValueError, match=r"^dropout_p: 0.5; attend does not take it"):
        module(x, x, x, layer)
    still = eqx.nn.inference_mode(module)
    assert gap(still(x, x, x, layer), MODULE(x, x, x, layer)) == 0
