"""What is to be worked out once is worked out once."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.attention import layers
from posenc_jax.backends import target
from posenc_jax.backends.barriers import once
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.layout import full


def cosines(monkeypatch, keep):
    """How often a gradient's program says cosine with `keep` for `once`, and the gradient."""
    monkeypatch.setattr(layers, "once", keep)
    model = transformer.build(ModelConfig(width=16, heads=2, layers=2), make("rope"), 11)
    params = model.init(jax.random.key(0))

    def loss(params, pos_BT):
        at = full(2, 6).replace(pos_BT=pos_BT)
        return jnp.square(model.apply(params, jnp.ones((2, 6), jnp.int32), at)).sum()

    pos_BT = jnp.arange(12).reshape(2, 6)
    program = jax.jit(jax.grad(loss)).lower(params, pos_BT).compile()
    return len(re.findall(r" cosine\(", program.as_text())), program(params, pos_BT)


@pytest.mark.thorough
def test_a_table_is_made_once(monkeypatch):
    """Twice in the program's text, in two branches of which one runs."""
    count, grads = cosines(monkeypatch, once)
    assert count == 2
    plain_count, plain = cosines(monkeypatch, lambda make, *arguments: make(*arguments))
    assert plain_count > 4, "control: queries and keys of two layers, forward and backward"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, plain)


def test_it_is_plain_op_by_op_and_on_accelerators(monkeypatch):
    program = lambda: str(jax.make_jaxpr(lambda x: once(jnp.cos, x))(jnp.ones(3)))
    assert "cond" in program(), "control"
    calls = []
    assert float(once(lambda x: calls.append(x) or x + 1, jnp.ones(()))) == 2.0
    assert len(calls) == 1
    with target.compile_for("tpu"):
        assert "cond" not in program()
    assert "cond" in program()
    monkeypatch.setattr(target.jax, "default_backend", lambda: "gpu")
    assert "cond" not in program()


def test_a_program_is_traced_again_for_another_target():
    """The caches of `jax.jit` keep the targets apart."""
    program = jax.jit(lambda x: once(jnp.cos, x))
    lowered = lambda: program.lower(jnp.ones(3)).as_text()
    assert "case" in lowered()
    with target.compile_for("tpu"):
        assert target.target() == target.Target("tpu", tuple(jax.devices()))
        assert "case" not in lowered()
    assert "case" in lowered()
    assert target.target().backend == jax.default_backend()


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "scans"), [("fire", True), ("irope", False)])
def test_alike_layers_are_one_program_on_accelerators(name, scans):
    encoding = make(name, every=2) if name == "irope" else make(name)
    model = transformer.build(ModelConfig(width=8, heads=2, layers=3), encoding, 11)
    params, tokens = model.init(jax.random.key(0)), jnp.arange(8).reshape(2, 4)
    loss = lambda params: jnp.square(model.apply(params, tokens, full(2, 4))).mean()
    program = lambda: str(jax.make_jaxpr(loss)(params))
    wanted = jax.jit(jax.grad(loss))(params)
    assert "scan[" not in program(), "control: a CPU"
    with target.compile_for("tpu"):
        assert ("scan[" in program()) == scans
        actual = jax.jit(jax.grad(loss))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), actual, wanted)
