"""The model around the encodings: masks, pooling, memory, LSTM, dtype, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make, per_layer
from posenc_jax.lab.config.schema import MaskConfig, ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.layout import full, layout
from tests.support.catalogue import gap, tokens

CONFIG = ModelConfig(width=32, heads=4, layers=2, mlp=2)
KINDS = ("decoder", "encoder", "lstm")
PADDED = layout(jnp.array([[1] * 17 + [0] * 7, [0] * 7 + [1] * 17]))


def model(kind="decoder", name="", masks=None, pooled=False, **changes):
    name = name or ("nope" if kind == "lstm" else "rope")
    config = CONFIG.model_copy(update={"kind": kind, "masks": masks or MaskConfig(), **changes})
    built = transformer.build(config, make(name), 11, pooled=pooled)
    return built, built.init(jax.random.key(0))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_padding_content_never_matters(kind):
    real = np.asarray(PADDED.segment_BT) > 0
    other = jnp.where(real, tokens(1), tokens(2))

    def change(masks, pooled):
        m, params = model(kind, masks=masks, pooled=pooled)
        a, b = m.apply(params, tokens(1), PADDED), m.apply(params, other, PADDED)
        return gap(a, b) if pooled else gap(np.asarray(a)[real], np.asarray(b)[real])

    assert change(MaskConfig(), pooled=False) == 0.0
    assert change(MaskConfig(), pooled=True) == 0.0
    assert change(MaskConfig(attention=False), pooled=False) > 1e-4
    assert change(MaskConfig(output=False), pooled=True) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_outside_the_vocabulary_gives_nan(kind):
    """Ids past the 11 of the vocabulary and negative ones; at padding they change nothing."""
    m, params = model(kind)
    read = jax.jit(lambda ids: m.apply(params, ids, PADDED))
    loss = jax.jit(jax.grad(lambda params, ids: m.apply(params, ids, PADDED).sum()))
    right = read(tokens(1))
    for wrong in (11, 300, -1, 2**31 - 1):
        logits = read(tokens(1).at[0, 9].set(wrong))
        assert jnp.isnan(logits[0, 9:17]).all()
        assert gap(logits[1, 7:], right[1, 7:]) == 0.0, "control: another row"
        padded = tokens(1).at[0, 20].set(wrong)
        assert gap(read(padded)[0, :17], right[0, :17]) == 0.0
        assert all(jnp.isfinite(g).all() for g in jax.tree.leaves(loss(params, padded)))
    assert jnp.isfinite(right).all(), "control"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["decoder", "lstm"])
def test_a_weight_of_another_shape_is_named(kind):
    m, params = model(kind)
    assert m.apply(params, tokens(1), PADDED).shape == (2, 24, 11), "control"
    short = {**params, "embed": params["embed"][:9]}
    with pytest.raises(ValueError, match=r"^embed: a weight of shape \(9, 32\); the model needs"):
        m.apply(short, tokens(1), PADDED)
    norm = {**params["norm"], "scale": params["norm"]["scale"][:1]}
    with pytest.raises(ValueError, match=r"^norm/scale: "):
        m.apply({**params, "norm": norm}, tokens(1), PADDED)


def test_pooled_output_is_one_a_sequence():
    m, params = model("encoder", pooled=True)
    assert m.apply(params, tokens(1), PADDED).shape == (2, 11)


@pytest.mark.thorough
def test_lstm_restarts_at_each_document():
    m, params = model("lstm")
    packed = layout(jnp.array([[1] * 10 + [2] * 14] * 2))
    out = m.apply(params, tokens(1), packed)
    assert gap(out[:, 10:], m.apply(params, tokens(1)[:, 10:], full(2, 14))) < 1e-6
    assert gap(out[:, 10:], m.apply(params, tokens(1), full(2, 24))[:, 10:]) > 1e-3


@pytest.mark.thorough
def test_lstm_holds_its_state_over_padding():
    m, params = model("lstm")
    out = m.apply(params, tokens(1), PADDED)
    assert gap(out[1, 7:], m.apply(params, tokens(1)[1:, 7:], full(1, 17))[0]) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["add", "concat"])
def test_an_lstm_is_told_positions_at_its_input(how):
    """Moved positions change its output, and padding and other documents still do not."""
    config = CONFIG.model_copy(update={"kind": "lstm"})
    m = transformer.build(config, make("learned", how=how, length=64), 11)
    params = m.init(jax.random.key(0))
    read = lambda at: m.apply(params, tokens(1), at)
    packed = layout(jnp.array([[1] * 10 + [2] * 14] * 2))
    assert gap(read(packed)[:, 10:], m.apply(params, tokens(1)[:, 10:], full(2, 14))) < 1e-6
    at = full(2, 24)
    moved = at.replace(pos_BT=at.pos_BT + 7)
    assert gap(read(at), read(moved)) > 1e-3
    without, weights = model("lstm")
    assert gap(without.apply(weights, tokens(1), at), without.apply(weights, tokens(1), moved)) == 0
    with pytest.raises(ValueError, match="acts in attention, which an LSTM does not have"):
        transformer.build(config, make("rope"), 11)


@pytest.mark.thorough
def test_memory_carries_no_gradient():
    m, params = model(name="transformer_xl")
    at = full(2, 24)
    cut = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], at)

    def late(params, remembered):
        _, memory = m.extend(remembered, tokens(1)[:, :12], cut(0, 12))
        logits, _ = m.extend(params, tokens(1)[:, 12:], cut(12, 24), memory)
        return logits.sum()

    direct, through = jax.jit(jax.grad(late, argnums=(0, 1)))(params, params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    assert gap(through, zeros) == 0.0
    assert gap(direct, zeros) > 0.0


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["transformer_xl", "shaw", "t5", "rope", "sinusoidal"])
def test_memory_reaches_back_as_far_as_is_kept(name):
    m, params = model(name=name)
    at = full(2, 24)
    cut = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], at)
    ids, memory, parts = tokens(1), None, []
    for a in range(0, 24, 8):
        logits, memory = m.extend(params, ids[:, a : a + 8], cut(a, a + 8), memory, keep=16)
        parts.append(logits)
    assert memory.x[0].shape[1] == 16
    full_pass = m.apply(params, ids, at)
    assert gap(jnp.concatenate(parts, axis=1), full_pass) < 1e-5
    forgetful, _ = m.extend(params, ids[:, 16:], cut(16, 24))
    assert gap(forgetful, full_pass[:, 16:]) > 1e-3, "control: no memory"


@pytest.mark.thorough
def test_bfloat16_stays_near_float32():
    m, params = model("decoder")
    low, _ = model("decoder", dtype="bfloat16")
    out, rough = (x.apply(params, tokens(1), full(2, 24)) for x in (m, low))
    assert rough.dtype == jnp.float32
    assert 0.0 < gap(out, rough) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_layout_of_another_shape_than_the_tokens_is_one_line(kind):
    m, params = model(kind)
    for shape in ((2, 23), (2, 1), (3, 24), (1, 48)):
        said = (
            rf"^layout: its shape \({shape[0]}, {shape[1]}\) does not fit tokens of shape \(2, 24\)"
        )
        for read in (m.apply, jax.jit(m.apply), m.attention or m.apply):
            with pytest.raises(ValueError, match=said) as refused:
                read(params, tokens(1), full(*shape))
            assert "\n" not in str(refused.value)
    alike = m.apply(params, tokens(1), full(1, 24))
    assert gap(alike, m.apply(params, tokens(1), full(2, 24))) < 1e-6, "control: one row for all"


def test_odd_rotary_width_is_refused():
    config = CONFIG.model_copy(update={"width": 36})
    with pytest.raises(ValueError, match="9"):
        transformer.build(config, make("rope"), 11).init(jax.random.key(0))


@pytest.mark.thorough
def test_layers_may_have_encodings_of_their_own():
    """RoPE in the first layer and none in the second: all forms agree, and both layers matter."""
    rope, nope = make("rope"), make("nope")
    at, out = full(2, 24), {}
    for name, parts in {"mixed": [rope, nope], "rope": [rope], "nope": [nope]}.items():
        m = transformer.build(CONFIG, per_layer(parts), 11)
        out[name] = m.apply(m.init(jax.random.key(0)), tokens(1), at)
    m = transformer.build(CONFIG, per_layer([rope, nope]), 11)
    params = m.init(jax.random.key(0))
    assert gap(out["mixed"], m.apply(params, tokens(1), at, form="blockwise", block=8)) < 1e-5
    cache, parts = m.start(params, 2, 24), []
    for a in range(0, 24, 8):
        here = jax.tree.map(lambda leaf, a=a: leaf[:, a : a + 8], at)
        logits, cache = m.decode(params, tokens(1)[:, a : a + 8], here, cache)
        parts.append(logits)
    assert gap(out["mixed"], jnp.concatenate(parts, axis=1)) < 1e-5
    assert gap(out["mixed"], out["rope"]) > 1e-3
    assert gap(out["mixed"], out["nope"]) > 1e-3


@pytest.mark.thorough
def test_tokens_past_a_caches_capacity_are_refused():
    """In one line; where the number of tokens so far is traced the logits are NaN."""
    m, params = model("decoder")
    part = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], full(2, 24))
    step = lambda cache, a, b: m.decode(params, tokens(1)[:, a:b], part(a, b), cache)
    _, cache = step(m.start(params, 2, 10), 0, 8)
    logits, whole = step(cache, 8, 10)
    assert gap(logits, m.apply(params, tokens(1)[:, :10], part(0, 10))[:, 8:]) < 1e-5, "control"
    with pytest.raises(ValueError, match=r"^cache: 3 tokens do not fit after 8 of 10; start it "):
        step(cache, 8, 11)
    traced = jax.jit(lambda cache: step(cache, 8, 10)[0])
    assert not jnp.isnan(traced(cache)).any(), "control"
    assert jnp.isnan(traced(whole)).all()


@pytest.mark.thorough
def test_a_memory_of_no_tokens_is_empty():
    m, params = model(name="transformer_xl")
    part = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], full(2, 24))
    _, memory = m.extend(params, tokens(1)[:, :8], part(0, 8), keep=0)
    assert memory.x[0].shape[1] == memory.layout.index_BT.shape[1] == 0
    logits, _ = m.extend(params, tokens(1)[:, 8:16], part(8, 16), memory)
    alone, _ = m.extend(params, tokens(1)[:, 8:16], part(8, 16))
    assert gap(logits, alone) < 1e-6
    _, longer = m.extend(params, tokens(1)[:, :8], part(0, 8), keep=4)
    assert longer.x[0].shape[1] == 4, "control"
