"""What is to be worked out once is worked out once."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make, tuning
from posenc_jax.attention import layers
from posenc_jax.encodings.rotary_generators import antisymmetric
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.layout import full, layout
from posenc_jax.tuning import once


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


def test_a_table_is_made_once(monkeypatch):
    """Twice in the program's text, in two branches of which one runs."""
    count, grads = cosines(monkeypatch, once)
    assert count == 2
    plain_count, plain = cosines(monkeypatch, lambda make, *given: make(*given))
    assert plain_count > 4, "control: queries and keys of two layers, forward and backward"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, plain)


def test_it_is_plain_op_by_op_and_on_accelerators(monkeypatch):
    program = lambda: str(jax.make_jaxpr(lambda x: once(jnp.cos, x))(jnp.ones(3)))
    assert "cond" in program(), "control"
    calls = []
    assert float(once(lambda x: calls.append(x) or x + 1, jnp.ones(()))) == 2.0
    assert len(calls) == 1
    with tuning.compile_for("tpu"):
        assert "cond" not in program()
    assert "cond" in program()
    monkeypatch.setattr(tuning.jax, "default_backend", lambda: "gpu")
    assert "cond" not in program()


def test_a_program_is_traced_again_for_another_target():
    """The caches of `jax.jit` keep the targets apart."""
    program = jax.jit(lambda x: once(jnp.cos, x))
    lowered = lambda: program.lower(jnp.ones(3)).as_text()
    assert "case" in lowered()
    with tuning.compile_for("tpu"):
        assert tuning.target() == tuning.Target("tpu", tuple(jax.devices()))
        assert "case" not in lowered()
    assert "case" in lowered()
    assert tuning.target().backend == jax.default_backend()


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (7, 3), (8, 8), (130, 65), (200, 300)])
def test_the_grid_of_a_row_is_the_same_for_every_target(queries, keys):
    row_BHN = jnp.arange(2.0 * (queries + keys)).reshape(1, 2, -1)
    g_BHQK = jnp.cos(jnp.arange(2.0 * queries * keys)).reshape(1, 2, queries, keys)
    x_11Q1 = 7 * jnp.arange(1.0 * queries)[None, None, :, None]
    grid, pull = jax.vjp(lambda row: tuning.skew(row, queries), row_BHN)
    with tuning.compile_for("tpu"):
        same, pull_same = jax.vjp(lambda row: tuning.skew(row, queries), row_BHN)
        moves = lambda which, grid: grid + x_11Q1[:, :, which]
        moved, pull_moved = jax.vjp(lambda row: tuning.with_grid(moves, row, queries), row_BHN)
    np.testing.assert_array_equal(same, grid)
    np.testing.assert_array_equal(moved, grid + x_11Q1)
    np.testing.assert_allclose(*(found(g_BHQK)[0] for found in (pull_moved, pull)), atol=1e-4)
    np.testing.assert_allclose(*(found(g_BHQK)[0] for found in (pull_same, pull)), atol=1e-4)
    i, j = np.indices((queries, keys))
    np.testing.assert_array_equal(grid[0, 1], row_BHN[0, 1][queries - 1 - i + j])
    assert (np.roll(grid, 1, axis=-2) != np.asarray(same)).any() or queries == 1, "control"


@pytest.mark.parametrize("causal", [True, False])
def test_dense_attention_with_a_row_is_the_same_for_every_target(causal):
    """In values, gradients of all that is learned, and derivatives of those."""
    encoding = make("t5", bidirectional=not causal)
    at = layout(jnp.ones((1, 150), jnp.int32).at[:, 70:].set(2))
    dims, qkv = Dims(8, 2, 4), jax.random.normal(jax.random.key(0), (3, 1, 150, 2, 4))
    bent = jax.random.normal(jax.random.key(1), (32, 2))

    def found(backend):
        def loss(table, qkv):
            view = frame(encoding, {"table": table}, at, dims, causal=causal, form="dense")
            return jnp.sin(attend(qkv[0], qkv[1], qkv[2], view.layer(0))).sum()

        with tuning.compile_for(backend):
            grad = jax.grad(loss, argnums=(0, 1))
            return jax.jvp(lambda table: grad(table, qkv), (bent,), (bent,))

    wanted, same = found("cpu"), found("tpu")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), same, wanted)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(wanted)), "control"


@pytest.mark.parametrize("columns", [1, 5, 70])
def test_entries_of_tables_are_the_same_for_every_target(columns, monkeypatch):
    monkeypatch.setattr(tuning, "SHARED_CHOICES", 4)
    monkeypatch.setattr(tuning, "CHOICES", 16)
    rng = np.random.default_rng(0)
    x_BHQR = jnp.asarray(rng.normal(size=(2, 3, 6, columns)), jnp.float32)
    row_BHQK = jnp.asarray(rng.integers(columns, size=(2, 1, 6, 9)), jnp.int32)
    each = lambda x: tuning.look_up_each(x, row_BHQK)
    own_BHQK = (row_BHQK + jnp.arange(3, dtype=jnp.int32)[None, :, None, None]) % columns
    own = lambda x: tuning.look_up_each(x, own_BHQK)
    shared = lambda x: tuning.look_up(x[0, 0].T, row_BHQK[:, 0])
    for read in (each, own, shared):
        wanted, pull = jax.vjp(read, x_BHQR)
        with tuning.compile_for("tpu"):
            found, pull_found = jax.vjp(read, x_BHQR)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        g = jnp.sin(jnp.arange(1.0, wanted.size + 1)).reshape(wanted.shape)
        np.testing.assert_allclose(pull_found(g)[0], pull(g)[0], atol=1e-5)
        assert columns == 1 or not np.allclose(found, np.roll(wanted, 1, axis=-1)), "control"


@pytest.mark.parametrize("size", [0.01, 3.0, 200.0])
def test_exponentials_are_those_by_eigenvectors(size):
    raw_BTHGUV = jax.random.normal(jax.random.key(0), (1, 5, 1, 2, 4, 4))
    a_BTHGUV = antisymmetric(size * raw_BTHGUV)
    values, vectors = np.linalg.eigh(1j * np.asarray(a_BTHGUV, np.float64))
    wanted = np.einsum("...ue,...e,...ve->...uv", vectors, np.exp(-1j * values), vectors.conj())
    close = lambda x, wanted: np.allclose(x, wanted, atol=3e-7 * max(1, size))
    with tuning.compile_for("tpu"):
        found = tuning.exponentials(a_BTHGUV)
        turned = tuning.each_times(found, raw_BTHGUV[..., 0])
    assert close(found, wanted.real)
    assert not close(jnp.swapaxes(found, -1, -2), wanted.real), "control: the inverse"
    assert close(turned, tuning.each_times(found, raw_BTHGUV[..., 0]))


def test_exponentials_of_groups_of_tokens_have_the_gradients_of_scipys(monkeypatch):
    """Ten tokens, four at once; the series keeps less than it computes for the gradient."""
    raw = 0.3 * jax.random.normal(jax.random.key(0), (3, 2, 5, 1, 2, 4, 4))
    a, g, change = raw
    monkeypatch.setattr(tuning, "TOGETHER", {"tpu": 4})
    wanted, pull = jax.vjp(jax.scipy.linalg.expm, a)
    with tuning.compile_for("tpu"):
        found, pull_found = jax.vjp(tuning.exponentials, a)
        _, along = jax.jvp(tuning.exponentials, (a,), (change,))
        kept = jax.make_jaxpr(lambda a: jax.vjp(tuning.exponentials, a)[1])(a)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(pull_found(g)[0], pull(g)[0], atol=1e-5)
    np.testing.assert_allclose(along, jax.jvp(jax.scipy.linalg.expm, (a,), (change,))[1], atol=1e-5)
    assert not np.allclose(pull_found(g)[0], pull(change)[0], atol=0.1), "control"
    numbers = sum(v.aval.size for v in kept.jaxpr.outvars)
    assert numbers <= 2 * 12 * a[0, 0].size, "of the forward pass, for three groups"
    steps = jax.make_jaxpr(lambda a: jax.vjp(tuning._series, a)[1])(a.transpose(4, 5, 2, 3, 0, 1))
    assert sum(v.aval.size for v in steps.jaxpr.outvars) > 20 * a.size, "control: every step"


@pytest.mark.parametrize(("name", "scans"), [("fire", True), ("irope", False)])
def test_alike_layers_are_one_program_on_accelerators(name, scans):
    encoding = make(name, every=2) if name == "irope" else make(name)
    model = transformer.build(ModelConfig(width=8, heads=2, layers=3), encoding, 11)
    params, tokens = model.init(jax.random.key(0)), jnp.arange(8).reshape(2, 4)
    loss = lambda params: jnp.square(model.apply(params, tokens, full(2, 4))).mean()
    program = lambda: str(jax.make_jaxpr(loss)(params))
    wanted = jax.jit(jax.grad(loss))(params)
    assert "scan[" not in program(), "control: a CPU"
    with tuning.compile_for("tpu"):
        assert ("scan[" in program()) == scans
        found = jax.jit(jax.grad(loss))(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, wanted)
