"""Operations that differ by backend compute the same for each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make
from posenc_jax.backends import matrix_rotation, pair_network, pair_rotation, table_lookup
from posenc_jax.backends.skew import skew, with_grid
from posenc_jax.backends.target import compile_for
from posenc_jax.encodings.rotary_generators import antisymmetric
from posenc_jax.encodings.rotation import turn, turns
from posenc_jax.layout import full, layout


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (7, 3), (8, 8), (130, 65), (200, 300)])
def test_the_grid_of_a_row_is_the_same_for_every_target(queries, keys):
    row_BHN = jnp.arange(2.0 * (queries + keys)).reshape(1, 2, -1)
    g_BHQK = jnp.cos(jnp.arange(2.0 * queries * keys)).reshape(1, 2, queries, keys)
    x_11Q1 = 7 * jnp.arange(1.0 * queries)[None, None, :, None]
    grid, pull = jax.vjp(lambda row: skew(row, queries), row_BHN)
    with compile_for("tpu"):
        same, pull_same = jax.vjp(lambda row: skew(row, queries), row_BHN)
        moves = lambda which, grid: grid + x_11Q1[:, :, which]
        moved, pull_moved = jax.vjp(lambda row: with_grid(moves, row, queries), row_BHN)
    np.testing.assert_array_equal(same, grid)
    np.testing.assert_array_equal(moved, grid + x_11Q1)
    np.testing.assert_allclose(*(actual(g_BHQK)[0] for actual in (pull_moved, pull)), atol=1e-4)
    np.testing.assert_allclose(*(actual(g_BHQK)[0] for actual in (pull_same, pull)), atol=1e-4)
    i, j = np.indices((queries, keys))
    np.testing.assert_array_equal(grid[0, 1], row_BHN[0, 1][queries - 1 - i + j])
    assert (np.roll(grid, 1, axis=-2) != np.asarray(same)).any() or queries == 1, "control"


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, False])
def test_dense_attention_with_a_row_is_the_same_for_every_target(causal):
    """In values, gradients of all that is learned, and derivatives of those."""
    encoding = make("t5", bidirectional=not causal)
    at = layout(jnp.ones((1, 150), jnp.int32).at[:, 70:].set(2))
    dims, qkv = Dims(8, 2, 4), jax.random.normal(jax.random.key(0), (3, 1, 150, 2, 4))
    bent = jax.random.normal(jax.random.key(1), (32, 2))

    def actual(backend):
        def loss(table, qkv):
            view = frame(encoding, {"table": table}, at, dims, causal=causal, form="dense")
            return jnp.sin(attend(qkv[0], qkv[1], qkv[2], view.layer(0))).sum()

        with compile_for(backend):
            grad = jax.grad(loss, argnums=(0, 1))
            return jax.jvp(lambda table: grad(table, qkv), (bent,), (bent,))

    wanted, same = actual("cpu"), actual("tpu")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), same, wanted)
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(wanted)), "control"


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["tpu", "gpu"])
@pytest.mark.parametrize("columns", [1, 5, 70])
def test_entries_of_tables_are_the_same_for_every_target(columns, backend, monkeypatch):
    monkeypatch.setattr(table_lookup, "SHARED_CHOICES", 4)
    monkeypatch.setattr(table_lookup, "CHOICES", 16)
    rng = np.random.default_rng(0)
    x_BHQR = jnp.asarray(rng.normal(size=(2, 3, 6, columns)), jnp.float32)
    row_BHQK = jnp.asarray(rng.integers(columns, size=(2, 1, 6, 9)), jnp.int32)
    each_entry = lambda x: table_lookup.look_up_each(x, row_BHQK)
    column_BHQK = (row_BHQK + jnp.arange(3, dtype=jnp.int32)[None, :, None, None]) % columns
    each_column = lambda x: table_lookup.look_up_each(x, column_BHQK)
    shared = lambda x: table_lookup.look_up(x[0, 0].T, row_BHQK[:, 0])
    for read in (each_entry, each_column, shared):
        wanted, pull = jax.vjp(read, x_BHQR)
        with compile_for(backend):
            actual, pull_actual = jax.vjp(read, x_BHQR)
            whole = read(jnp.arange(x_BHQR.size, dtype=jnp.int32).reshape(x_BHQR.shape))
        np.testing.assert_allclose(actual, wanted, rtol=1e-6)
        np.testing.assert_array_equal(x_BHQR.ravel()[whole], wanted)
        g = jnp.sin(jnp.arange(1.0, wanted.size + 1)).reshape(wanted.shape)
        np.testing.assert_allclose(pull_actual(g)[0], pull(g)[0], atol=1e-5)
        assert columns == 1 or not np.allclose(actual, np.roll(wanted, 1, axis=-1)), "control"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("hidden", [40, 5, 1000])  # 8 pairs at a time, of 30; one; all
def test_a_network_of_pairs_is_the_same_for_every_target(hidden, monkeypatch):
    monkeypatch.setattr(pair_network, "HIDDEN", hidden)
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    weights, pairs = (normal(2, 5), normal(5), normal(5, 4)), normal(2, 2, 3, 5)
    network = lambda weights, pairs: pair_network.pair_network(*weights, *pairs)
    values, pull = jax.vjp(jax.jit(network), weights, pairs)
    with compile_for("tpu"):
        same, pull_same = jax.vjp(jax.jit(network), weights, pairs)
    w1_AF, b1_F, w2_FH = map(np.asarray, weights)
    hidden_BQKF = np.maximum(np.moveaxis(np.asarray(pairs), 0, -1) @ w1_AF + b1_F, 0)
    wanted = np.moveaxis(hidden_BQKF @ w2_FH, -1, 1)
    assert wanted.shape == (2, 4, 3, 5)
    for actual in (values, same):
        np.testing.assert_allclose(actual, wanted, atol=1e-5)
    g_BHQK = jnp.sin(jnp.arange(1.0, values.size + 1)).reshape(values.shape)
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)
    jax.tree.map(close, pull(g_BHQK), pull_same(g_BHQK))
    assert not np.allclose(np.roll(values, 1, axis=-1), wanted, atol=0.1), "control"
    assert network(weights, pairs[..., :0]).shape == (2, 4, 3, 0)


@pytest.mark.parametrize("size", [0.01, 3.0, 200.0])
def test_exponentials_are_those_by_eigenvectors(size):
    raw_BTHGUV = jax.random.normal(jax.random.key(0), (1, 5, 1, 2, 4, 4))
    a_BTHGUV = antisymmetric(size * raw_BTHGUV)
    values, vectors = np.linalg.eigh(1j * np.asarray(a_BTHGUV, np.float64))
    wanted = np.einsum("...ue,...e,...ve->...uv", vectors, np.exp(-1j * values), vectors.conj())
    close = lambda x, wanted: np.allclose(x, wanted, atol=3e-7 * max(1, size))
    with compile_for("tpu"):
        actual = matrix_rotation.exponentials(a_BTHGUV)
        turned = matrix_rotation.each_times(actual, raw_BTHGUV[..., 0])
    assert close(actual, wanted.real)
    assert close(matrix_rotation.exponentials(a_BTHGUV), wanted.real), "on a CPU, by entries"
    assert close(matrix_rotation.exponential(a_BTHGUV), wanted.real), "by products of matrices"
    assert not close(jnp.swapaxes(actual, -1, -2), wanted.real), "control: the inverse"
    assert close(turned, matrix_rotation.each_times(actual, raw_BTHGUV[..., 0]))


@pytest.mark.parametrize("size", [0.0, 0.1, 30.0])
def test_cayley_is_that_of_a_solver(size):
    raw_HCC, g_HCC = jax.random.normal(jax.random.key(0), (2, 3, 16, 16))
    eye = np.eye(16)[None]

    def solved(skew_HCC):
        return jnp.linalg.solve(eye + skew_HCC, eye - skew_HCC)

    skew_HCC = antisymmetric(size * raw_HCC)
    with jax.enable_x64():
        wanted, pull = jax.vjp(solved, jnp.asarray(skew_HCC, jnp.float64))
        (wanted_g,) = pull(jnp.asarray(g_HCC, jnp.float64))
    actual, pull = jax.vjp(jax.jit(matrix_rotation.cayley), skew_HCC)
    np.testing.assert_allclose(actual, wanted, atol=2e-6 * max(1, size))
    np.testing.assert_allclose(pull(g_HCC)[0], wanted_g, atol=2e-5)
    assert size == 0 or not np.allclose(jnp.swapaxes(actual, 1, 2), wanted, atol=0.01), "control"


def test_cayley_of_numbers_too_large_for_it_is_nan():
    skew_HCC = antisymmetric(jnp.full((2, 4, 4), 1.0).at[1].multiply(1e4))
    finite = np.isfinite(matrix_rotation.cayley(skew_HCC)).all(axis=(1, 2))
    assert finite.tolist() == [True, False]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("backend", ["tpu", "gpu"])
@pytest.mark.parametrize("shape", [(1, 5, 1, 1), (2, 5, 3, 1), (2, 1, 3, 4)])
def test_small_matrices_times_channels_are_the_same_for_every_target(backend, shape):
    matrix = jax.random.normal(jax.random.key(0), (*shape, 4, 4))
    x_BTHC, g = jax.random.normal(jax.random.key(1), (2, 2, 5, 3, 16))
    wanted, pull = jax.vjp(matrix_rotation.each_times, matrix, x_BTHC)
    with compile_for(backend):
        actual, pull_actual = jax.vjp(matrix_rotation.each_times, matrix, x_BTHC)
    np.testing.assert_allclose(actual, wanted, atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), pull_actual(g), pull(g))
    other = matrix_rotation.each_times(jnp.swapaxes(matrix, -1, -2), x_BTHC)
    assert not np.allclose(actual, other, atol=0.1), "control: transposed"


@pytest.mark.thorough
def test_exponentials_of_groups_of_tokens_have_the_gradients_of_scipys(monkeypatch):
    """Ten tokens, four at once; the series keeps less than it computes for the gradient."""
    raw = 0.3 * jax.random.normal(jax.random.key(0), (3, 2, 5, 1, 2, 4, 4))
    a, g, change = raw
    monkeypatch.setattr(matrix_rotation, "TOGETHER", {"tpu": 4})
    wanted, pull = jax.vjp(jax.scipy.linalg.expm, a)
    with compile_for("tpu"):
        actual, pull_actual = jax.vjp(matrix_rotation.exponentials, a)
        _, along = jax.jvp(matrix_rotation.exponentials, (a,), (change,))
        residuals = jax.make_jaxpr(lambda a: jax.vjp(matrix_rotation.exponentials, a)[1])(a)
    np.testing.assert_allclose(actual, wanted, atol=1e-6)
    np.testing.assert_allclose(pull_actual(g)[0], pull(g)[0], atol=1e-5)
    np.testing.assert_allclose(along, jax.jvp(jax.scipy.linalg.expm, (a,), (change,))[1], atol=1e-5)
    assert not np.allclose(pull_actual(g)[0], pull(change)[0], atol=0.1), "control"
    numbers = sum(v.aval.size for v in residuals.jaxpr.outvars)
    assert numbers <= 2 * 12 * a[0, 0].size, "of the forward pass, for three groups"
    last = a.transpose(4, 5, 2, 3, 0, 1)
    steps = jax.make_jaxpr(lambda a: jax.vjp(matrix_rotation._series_by_entries, a)[1])(last)
    assert sum(v.aval.size for v in steps.jaxpr.outvars) > 20 * a.size, "control: every step"


def turned(backend, pairing, dtype=jnp.float32, way=1):
    """Vectors turned, gradients of angles and vectors, and how those change along a direction."""
    rng = np.random.default_rng(0)
    angle_BTHF, angle_change = jnp.asarray(rng.normal(size=(2, 2, 7, 1, 4)), jnp.float32)
    x_BTHC, change = jnp.asarray(rng.normal(size=(2, 2, 7, 3, 10)), dtype)  # the last two stay

    def loss(angle_BTHF, x_BTHC):
        return jnp.sin(turn(turns(way * angle_BTHF), x_BTHC, pairing).astype(float)).sum()

    with compile_for(backend):
        out = turn(turns(way * angle_BTHF), x_BTHC, pairing)
        grads, bent = jax.jvp(
            jax.grad(loss, argnums=(0, 1)), (angle_BTHF, x_BTHC), (angle_change, change)
        )
    return jax.tree.leaves((out, grads, bent))


@pytest.mark.thorough
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_pairs_turn_the_same_for_every_target(backend, pairing):
    wanted, actual = turned("cpu", pairing), turned(backend, pairing)
    other = turned(backend, pairing, way=-1)
    for a, b, c in zip(actual, wanted, other, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
        assert np.abs(np.asarray(c) - np.asarray(b)).max() > 0.1, "control: the other way"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("backend", ["gpu", "tpu"])
def test_pairs_of_bfloat16_turn_as_exactly_for_every_target(backend, pairing):
    """Sums are float32, those of the gradient too."""
    exact = turned("cpu", pairing)[:3]  # the changes are sums of several rounded parts
    off = lambda actual: [
        float(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max())
        for a, b in zip(actual, exact, strict=False)
    ]
    cpu, actual = (off(turned(target, pairing, jnp.bfloat16)) for target in ("cpu", backend))
    assert max(actual) > 1e-3, "control: it rounds"
    assert all(b <= 1.01 * a for a, b in zip(cpu, actual, strict=False))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_side_by_side_is_the_cast_concatenation_with_its_derivatives(dtype):
    a, b, da, db = jax.random.normal(jax.random.key(0), (4, 2, 3, 5))
    g = jax.random.normal(jax.random.key(1), (2, 3, 10)).astype(dtype)

    def actual(join):
        value, pull = jax.vjp(join, a, b)
        return value, *pull(g), jax.jvp(join, (a, b), (da, db))[1]

    plain = actual(lambda a, b: jnp.concatenate([a, b], axis=-1).astype(dtype))
    joined = actual(lambda a, b: pair_rotation.side_by_side(dtype, a, b))
    other = actual(lambda a, b: pair_rotation.side_by_side(dtype, b, a))
    for actual_part, wanted, wrong in zip(joined, plain, other, strict=True):
        np.testing.assert_array_equal(actual_part, wanted)
        assert np.any(np.asarray(wrong) != np.asarray(wanted)), "control: the other order"


@pytest.mark.thorough
@pytest.mark.parametrize("of_heads", [False, True])
def test_polar_numbers_are_the_same_for_every_target(of_heads):
    angle_BTHC, change = jax.random.normal(jax.random.key(0), (2, 2, 7, 1, 5))
    delta_HC, delta_change = jax.random.normal(jax.random.key(1), (2, 3, 5))
    x_BTHC, x_change, g_BTHC = jax.random.normal(jax.random.key(2), (3, 2, 7, 3, 5))
    g_BTHE = jnp.concatenate([g_BTHC, jnp.cos(g_BTHC)], axis=-1)

    def actual(way, dtype=jnp.float32):
        def polar_of(angle_BTHC, delta_HC, x_BTHC):
            by = turns(delta_HC[None, None]) if of_heads else None
            x_BTHC = x_BTHC.astype(dtype)
            return pair_rotation.polar(turns(way * angle_BTHC), by, x_BTHC).astype(float)

        primals, changes = (angle_BTHC, delta_HC, x_BTHC), (change, delta_change, x_change)
        out, pull = jax.vjp(polar_of, *primals)
        return [out, *pull(g_BTHE), jax.jvp(polar_of, primals, changes)[1]]

    wanted, other = actual(1), actual(-1)
    with compile_for("tpu"):
        same, rounded = actual(1), actual(1, jnp.bfloat16)
    for a, b in zip(same, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)
    assert not np.allclose(same[0], other[0], atol=0.1), "control: the other way"
    off = np.abs(np.asarray(rounded[0]) - np.asarray(wanted[0]))
    assert 1e-3 < off.max() < 0.02, "of bfloat16, rounded before and after"


@pytest.mark.thorough
def test_a_tpu_turns_keys_after_queries_where_heads_have_tables_of_their_own():
    dims = Dims(model=12, heads=3, head=4)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 5, 3, 4))

    def actual(name):
        encoding = make(name)
        params = encoding.init(jax.random.key(1), dims)
        at = full(1, 5)
        if name == "string":
            at = at.replace(pos_BT=jnp.stack([at.pos_BT, at.pos_BT % 2], axis=-1))
        out = lambda q: attend(q, k, v, frame(encoding, params, at, dims, form="dense").layer(0))
        both = lambda q: frame(encoding, params, at, dims).layer(0).rotated(q, k)
        return jax.value_and_grad(lambda q: out(q).sum())(q), str(jax.make_jaxpr(both)(q))

    waits = {}
    for name in ("string", "rope"):
        wanted, alone = actual(name)
        with compile_for("tpu"):
            same, waits[name] = actual(name)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), same, wanted)
        assert "optimization_barrier" not in alone
    assert {name: "optimization_barrier" in text for name, text in waits.items()} == {
        "string": True,
        "rope": False,
    }
