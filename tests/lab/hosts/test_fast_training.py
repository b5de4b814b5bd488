"""Training's CPU tuning: the dense layer's product, packed parameters, a batch in parts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from posenc_jax import make
from posenc_jax.backends.target import compile_for
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig, TrainConfig
from posenc_jax.lab.hosts import fast_training
from posenc_jax.lab.hosts.fast_training import (
    Packed,
    linear,
    pack,
    unpack,
    value_and_grad,
    value_and_grad_in_parts,
)
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.loop import train
from posenc_jax.lab.training.step import State, advance
from posenc_jax.layout import full
from tests.support.catalogue import gap

TREE = {
    "kernel": jnp.arange(6.0).reshape(2, 3),
    "bias": jnp.array([1.0, -2.0]),
    "nothing": {},
    "deep": [jnp.ones((2, 1, 2)), jnp.float32(4)],
}
ROWS = jax.random.normal(jax.random.key(0), (12, 5, 4)), jnp.arange(60.0).reshape(12, 5)
PARAMS = {
    "w": jax.random.normal(jax.random.key(1), (4, 8)),
    "b": jnp.zeros(8),
    "scale": jnp.float32(1.5),
}


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("wide", "narrow"), [(3, 8), (8, 3), (5, 5)])
def test_gradients_are_those_of_autodiff(wide, narrow):
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = (2, 7, wide), (wide, narrow), (narrow,), (2, 7, narrow)
    x, w, b, g = (jax.random.normal(k, s) for k, s in zip(keys, shapes, strict=True))
    plain = lambda x, w, b: x @ w + b[None, None]
    for f in (linear, jax.jit(linear), jax.checkpoint(linear)):
        out, pull = jax.vjp(f, x, w, b)
        expected, expected_pull = jax.vjp(plain, x, w, b)
        assert jnp.allclose(out, expected, atol=1e-5)
        for name, a, e in zip("xwb", pull(g), expected_pull(g), strict=True):
            assert a.dtype == e.dtype
            assert jnp.allclose(a, e, atol=1e-5), name
    assert not jnp.allclose(pull(g)[1], expected_pull(2 * g)[1], atol=1e-2), "control"
    written = lambda: (
        "custom_vjp" in str(jax.make_jaxpr(lambda *arguments: linear(*arguments))(x, w, b))
    )
    assert written()
    with compile_for("tpu"):
        assert not written(), "an accelerator runs plain autodiff"


def test_a_map_without_bias_has_the_gradients_of_autodiff():
    x, w, g = (
        jax.random.normal(jax.random.key(n), s)
        for n, s in enumerate([(2, 7, 3), (3, 8), (2, 7, 8)])
    )
    out, pull = jax.vjp(lambda x, w: linear(x, w, None), x, w)
    expected, expected_pull = jax.vjp(lambda x, w: x @ w, x, w)
    assert jnp.allclose(out, expected, atol=1e-5)
    assert all(
        jnp.allclose(a, e, atol=1e-5) for a, e in zip(pull(g), expected_pull(g), strict=True)
    )
    assert not jnp.allclose(out, linear(x, w, jnp.ones(8)), atol=1e-2), "control"


def test_many_seeds():
    x, w = jnp.ones((3, 2, 4)), jax.random.normal(jax.random.key(1), (3, 4, 5))
    loss = lambda w, x: jnp.square(linear(x, w, jnp.ones(5))).sum()
    together = jax.vmap(jax.grad(loss))(w, x)
    alone = jnp.stack([jax.grad(loss)(w[n], x[n]) for n in range(3)])
    assert jnp.allclose(together, alone, atol=1e-4)


def test_bfloat16_stays():
    x, w, b = (jnp.ones(s, jnp.bfloat16) for s in ((2, 4), (4, 3), (3,)))
    out, pull = jax.vjp(linear, x, w, b)
    assert {out.dtype, *(g.dtype for g in pull(out))} == {jnp.dtype(jnp.bfloat16)}


@pytest.mark.parametrize(("wide", "narrow"), [(16, 48), (48, 16)])
def test_products_of_bfloat16_are_rounded_once(wide, narrow):
    """The sums over 512 tokens too: one of bfloat16 would be off by a percent and more."""
    rng = np.random.default_rng(0)
    shapes = (512, wide), (wide, narrow), (512, narrow)
    x, w, g = (jnp.asarray(rng.uniform(0.5, 1.5, size), jnp.bfloat16) for size in shapes)
    with compile_for("cpu"):
        out, pull = jax.vjp(jax.jit(lambda x, w: linear(x, w, None)), x, w)
        results = out, *pull(g)
    x64, w64, g64 = (np.asarray(a, np.float64) for a in (x, w, g))
    for result, wanted in zip(results, (x64 @ w64, g64 @ w64.T, x64.T @ g64), strict=True):
        off = np.abs(np.asarray(result, np.float64) / wanted - 1).max()
        assert off < 2.0**-8, "half a unit in the last place of bfloat16"
    add = lambda total, term: (total + term, None)
    in_bfloat16, _ = jax.lax.scan(add, jnp.zeros((), x.dtype), x[:, 0] * g[:, 0])
    assert abs(float(in_bfloat16) / (x64.T @ g64)[0, 0] - 1) > 2.0**-8, "control"


def test_what_is_packed_comes_back():
    state = {"mean": TREE, "count": jnp.int32(3), "more": (TREE, jnp.zeros(2))}
    packed = pack(state, TREE)
    assert isinstance(packed["mean"], Packed)
    assert {name: a.shape for name, a in packed["mean"].arrays.items()} == {
        "float32 matrices": (1, 10),
        "float32": (3,),
    }
    assert packed["count"] is state["count"]
    jax.tree.map(np.testing.assert_array_equal, unpack(packed), state)
    other = pack(state, {"kernel": 0})
    assert not any(isinstance(leaf, Packed) for leaf in other.values()), "control: another form"


def test_dtypes_are_kept_apart():
    tree = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(3), "c": jnp.arange(2)}
    packed = pack(tree, tree)
    assert {a.dtype.name for a in packed.arrays.values()} == {"bfloat16", "float32", "int32"}
    jax.tree.map(np.testing.assert_array_equal, unpack(packed), tree)


@pytest.mark.thorough
@pytest.mark.parametrize("decayed", [True, False], ids=["matrices decay", "control: all decay"])
def test_a_packed_step_is_the_step(decayed):
    """Weight decay, which tells matrices from vectors, and the norm of the gradient included."""

    def loss_of(params, x):
        return sum((jnp.sin(leaf) * x).sum() for leaf in jax.tree.leaves(params))

    def steps(params, mask):
        tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, mask=mask))
        state = State(params, tx.init(params), jnp.int32(0), jnp.int32(0))
        for x in (0.5, 2.0, -1.0):
            loss, grads = value_and_grad(loss_of, state.params, x)
            state, metrics = advance(tx, state, loss, grads)
        return unpack(state.params), metrics

    matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
    plain, expected = steps(TREE, matrices)
    packed, metrics = steps(pack(TREE, TREE), matrices if decayed else None)
    near = float(metrics["grad_norm"]) == pytest.approx(float(expected["grad_norm"]), rel=1e-6)
    assert (gap(plain, packed) < 1e-6, near) == (decayed, decayed)


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setattr(fast_training, "cores", lambda: [0])


def total(params, rows, over):
    """A sum over rows."""
    x_BTD, weight_BT = rows
    h_BTF = jnp.tanh(x_BTD @ params["w"] + params["b"][None, None]) * params["scale"]
    return (jnp.square(h_BTF).sum(axis=-1) * weight_BT).sum() / over


def mean(params, rows, over):
    """What is no sum over rows: a part's mean is not its share of the whole's."""
    return total(params, rows, over) / rows[1].sum()


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("widest", "parts"), [(480, 1), (240, 2), (100, 6), (1, 12)])
def test_parts_add_up(packed, widest, parts, monkeypatch):
    monkeypatch.setattr(fast_training, "WIDEST", widest)
    params = pack(PARAMS, PARAMS) if packed else PARAMS
    assert f"length={parts}" in program() or parts == 1
    value, grads = jax.jit(lambda p: value_and_grad_in_parts(total, p, ROWS, 60.0))(params)
    wanted, wanted_grads = value_and_grad(total, PARAMS, ROWS, 60.0)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    assert isinstance(grads, Packed) == packed
    for name, wanted in wanted_grads.items():
        np.testing.assert_allclose(unpack(grads)[name], wanted, rtol=1e-5, atol=1e-4)
    value, _ = value_and_grad_in_parts(mean, PARAMS, ROWS, 60.0)
    other, _ = value_and_grad(mean, PARAMS, ROWS, 60.0)
    assert bool(jnp.isclose(value, other, rtol=1e-2)) == (parts == 1), "control"


def program():
    return str(jax.make_jaxpr(lambda p: value_and_grad_in_parts(total, p, ROWS, 1.0))(PARAMS))


def test_a_device_of_many_cores_takes_more_at_once(monkeypatch):
    monkeypatch.setattr(fast_training, "WIDEST", 100)
    assert "length=6" in program()
    monkeypatch.setattr(fast_training, "cores", lambda: [0, 1])
    assert "length=3" in program()


def test_an_accelerator_takes_them_at_once(monkeypatch):
    monkeypatch.setattr(fast_training, "WIDEST", 1)
    assert "scan" in program()
    with compile_for("tpu"):
        assert "scan" not in program()


@pytest.mark.thorough
@pytest.mark.parametrize(("gated", "residuals"), [(False, 1), (True, 2)])
def test_an_accelerator_keeps_what_products_make_or_read(gated, residuals):
    """Of the MLP: what its activation reads, and not what it makes. Of a norm: what it makes."""
    shape = ModelConfig(width=8, heads=2, layers=1, mlp=5, gated=gated)
    model, layout = transformer.build(shape, make("nope"), 11), full(3, 4)
    params, tokens = model.init(jax.random.key(0)), jnp.zeros((3, 4), jnp.int32)
    loss = lambda params: model.apply(params, tokens, layout).sum()
    saved = lambda: jax.tree.leaves(jax.eval_shape(lambda p: jax.vjp(loss, p)[1], params))
    count = lambda width: sum(x.size == 3 * 4 * width for x in saved())
    wide, narrow = count(40), count(8)
    with compile_for("tpu"):
        assert count(40) == residuals < wide, "control: a CPU"
        assert count(8) <= narrow - 6


@pytest.mark.thorough
def test_positions_are_drawn_for_the_whole_batch(monkeypatch):
    """Whatever the parts; what is drawn for each of them apart is something else."""
    task, shape = tasks.make("copy", alphabet=8), ModelConfig(width=16, heads=2, layers=1)
    config = TrainConfig(length=6, min_length=1, batch=8, steps=3, lr=1e-2, warmup=1, chunk=3)
    model = transformer.build(shape, make("shifted+sinusoidal"), task.vocab)

    def run(model, widest):
        monkeypatch.setattr(fast_training, "WIDEST", widest)
        losses = []
        train(model, task, config, 1, 0, True, lambda m, seconds: losses.append(m["loss"]))
        return np.concatenate(losses, axis=1)

    np.testing.assert_allclose(run(model, 2**19), run(model, 2**9), rtol=1e-5)

    def apart(params, tokens_BT, layout, key_B, **form):
        return model.apply(params, tokens_BT, layout, model.place(key_B[0], layout), **form)

    keys = lambda key, layout: jax.random.split(key, len(layout.pos_BT))
    own_model = model._replace(apply=apart, place=keys)
    assert abs(run(own_model, 2**19) - run(own_model, 2**9)).max() > 1e-3, "control"


def test_parts_take_less_memory(monkeypatch):
    def needed(widest):
        monkeypatch.setattr(fast_training, "WIDEST", widest)
        rows = jnp.ones((64, 5, 4)), jnp.ones((64, 5))
        program = jax.jit(lambda p: value_and_grad_in_parts(deep, p, rows, 1.0))
        return program.lower(PARAMS).compile().memory_analysis().temp_size_in_bytes

    def deep(params, rows, over):
        for _ in range(4):
            x_BTD, weight_BT = rows
            rows = jnp.tanh(x_BTD @ params["w"]) @ params["w"].T, weight_BT
        return total(params, rows, over)

    whole = needed(64 * 5 * 8)
    assert needed(64 * 5) < whole / 2
    assert needed(2 * 64 * 5 * 8) == whole, "control"
