"""The fused kernels for a GPU, interpreted on the CPU, against dense attention."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import attend, frame, make
from posenc_jax.attention.block_plan import plan_of
from posenc_jax.attention.kernels import gpu, triton
from posenc_jax.attention.kernels.block_ranges import block_ranges
from posenc_jax.backends.target import compile_for
from posenc_jax.encoding import Encoding
from posenc_jax.layout import full, layout
from tests.attention.kernels.test_tpu import DIMS, PADDED, TAKEN, TIME, draw, gap, noisy, run


def on_gpu(name, **options):
    with compile_for("gpu"):
        return run(name, "kernel", **options)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", TAKEN)
def test_it_is_dense_attention(name):
    """With padding on both sides and packed documents, forward and backward."""
    actual = on_gpu(name)
    # The gradient of fox's gate is a sum over all pairs, which float32 keeps to 2e-5.
    assert gap(run(name, "dense"), actual) < (3e-5 if "fox" in name else 1e-5)
    for x in (actual[0], *actual[1][:3]):
        assert (np.asarray(x)[PADDED == 0] == 0).all(), "of tokens of padding"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["t5", "fire"])
def test_other_parameters_are_seen(name):
    """Control of the tests here: they see parameters that differ by a hundredth."""
    assert gap(run(name, "dense"), on_gpu(name, share=1.01)) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t5", {"queries": (150, 40), "causal": False}),
        ("fire", {"keys": PADDED[:, 60:], "mask_padding": False}),
    ],
)
def test_queries_and_keys_may_be_others(name, options):
    assert gap(run(name, "dense", **options), on_gpu(name, **options)) < 1e-5


@pytest.mark.thorough
def test_bfloat16_loses_no_more_than_dense():
    exact = run("t5", "dense")
    dense, kernel = (
        gap(exact, x) for x in (run("t5", "dense", "bfloat16"), on_gpu("t5", dtype="bfloat16"))
    )
    assert 1e-4 < kernel < 1.5 * dense < 1


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["clipped", "window", "fire+fox"])
def test_a_bias_of_any_positions_is_made_for_one_head(name):
    """Positions that do not count up, keys of one head, a sink and a cap; every gradient."""
    encoding = make(name, **({"distance": 8} if "fire" not in name else {"hidden": 4}))
    params = noisy(encoding.init(jax.random.key(1), DIMS))
    q, k, v, g = draw()
    at = layout(jnp.asarray(PADDED), jax.random.randint(jax.random.key(3), (2, TIME), 0, 40))

    def both(form, cap):
        def out(q, k, v, params, sink_H):
            view = frame(encoding, params, at, DIMS, form=form)
            layer = view.layer(1, g.reshape(2, TIME, -1))
            return attend(q, k, v, layer, sink_H=sink_H, cap=cap)

        o, pull = jax.vjp(out, q, k[:, :, :1], v[:, :, :1], params, jnp.array([0.5, -1.0]))
        return o, pull(g)

    actual = jax.jit(both, static_argnums=(0, 1))
    dense = actual("dense", 1.0)
    with compile_for("gpu"):
        assert gap(dense, actual("kernel", 1.0)) < 5e-5
    assert gap(dense, actual("dense", 2.0)) > 1e-3, "control: another cap"


@pytest.mark.thorough
def test_a_bias_that_reads_too_much_is_refused_in_one_line():
    encoding = make("swin_v2")
    params = encoding.init(jax.random.key(0), DIMS)
    at = full(1, 8).replace(pos_BT=jnp.zeros((1, 8, 2), jnp.int32))
    with compile_for("gpu"), pytest.raises(ValueError, match="numbers for a head, more") as refusal:
        frame(encoding, params, at, DIMS, form="kernel")
    assert "\n" not in str(refusal.value)
    assert frame(encoding, params, at, DIMS, form="kernel").alike.form == "kernel", "control"


@pytest.mark.thorough
@pytest.mark.parametrize("causal", [True, False])
def test_whole_blocks_are_those_without_a_masked_pair(causal):
    """Of packed and padded rows, and of one sequence: each run of them is as long as can be."""
    for segments in (PADDED[:1], np.ones((1, 64), int)):
        at, encoding = layout(jnp.asarray(segments)), make("nope")
        params = encoding.init(jax.random.key(0), DIMS)
        with compile_for("gpu"):
            layer = frame(encoding, params, at, DIMS, form="kernel", block=16, causal=causal).layer(
                0
            )
            plan = plan_of(layer, None)
        ranges, _, _ = block_ranges(plan, layer.q, layer.k)
        whole = gpu._unmasked_blocks(plan, ranges)
        see_QK = np.asarray(layer.visible())[0, 0]
        fill = -len(see_QK) % 16
        see_QK = np.pad(see_QK, ((0, fill), (0, fill)))
        size = len(see_QK) // 16
        all_IJ = np.asarray(see_QK.reshape(size, 16, size, 16).all(axis=(1, 3)))
        for i in range(size):
            run = all_IJ[i, ranges.first_I[i] : ranges.end_I[i]]
            assert whole.end_I[i] - ranges.first_I[i] == np.cumprod(run).sum()
            run = all_IJ[ranges.first_J[i] : ranges.end_J[i], i][::-1]
            assert ranges.end_J[i] - whole.first_J[i] == np.cumprod(run).sum()
        assert all_IJ.any(), "control: there are some"


@pytest.mark.thorough
def test_gradients_of_many_numbers_come_from_several_kernels(monkeypatch):
    several_kernels = on_gpu("fire")
    monkeypatch.setattr(gpu, "TOGETHER", 5)
    jax.clear_caches()
    calls, body = [], triton.PROGRAMS.numbers
    noted = lambda *arguments: (calls.append(arguments), body(*arguments))
    monkeypatch.setattr(triton, "PROGRAMS", triton.PROGRAMS._replace(numbers=noted))
    assert gap(several_kernels, on_gpu("fire")) < 1e-6
    assert len(calls) > 3, "control"


@pytest.mark.thorough
def test_what_is_computed_and_what_is_looked_up(monkeypatch):
    """All three depend on i - j; alibi's row of offsets stays away."""
    rows = {}
    forward = gpu._forward

    def seen(programs, plan, traced, q, k, v, learned, *rest):
        rows[name] = learned.row_BHN is not None
        return forward(programs, plan, traced, q, k, v, learned, *rest)

    monkeypatch.setattr(gpu, "_forward", seen)
    jax.clear_caches()
    for name in ("alibi", "kerple_log", "t5"):
        params = make(name).init(jax.random.key(0), DIMS)
        with compile_for("gpu"):
            view = frame(make(name), params, full(1, 32), DIMS, form="kernel")
            q = jnp.ones((1, 32, DIMS.heads, DIMS.head))
            attend(q, q, q, view.layer(0))
    assert rows == {"alibi": False, "kerple_log": True, "t5": True}


@pytest.mark.thorough
def test_a_layout_that_xla_may_not_see_changes_nothing(monkeypatch):
    """As of long sequences: the ranges are behind a barrier, also in a `jax.vmap`."""
    encoding = make("t5")
    params = encoding.init(jax.random.key(0), DIMS)
    q = jax.random.normal(jax.random.key(1), (2, 1, 32, DIMS.heads, DIMS.head))

    def gradients():
        def loss(q):
            return attend(
                q, q, q, frame(encoding, params, full(1, 32), DIMS, form="kernel").layer(0)
            ).sum()

        with compile_for("gpu"):
            program = jax.make_jaxpr(jax.vmap(jax.grad(loss)))(q)
            return "optimization_barrier" in str(program), jax.jit(jax.vmap(jax.grad(loss)))(q)

    seen, before = gradients()
    monkeypatch.setattr(gpu, "FOLDED", 0)
    jax.clear_caches()
    hidden, after = gradients()
    assert (seen, hidden) == (False, True)
    assert gap(before, after) < 1e-6


@pytest.mark.parametrize("target", ["cpu", "gpu"])  # on a CPU that of a TPU is interpreted
@pytest.mark.parametrize("join", [jnp.prod, jnp.max], ids=["prod", "max"])
def test_a_bias_that_stacks_and_reduces(target, join):
    """Every reduction of the table is one for both compilers."""

    def bias(params, q_BQ, k_BK, dims):
        apart_B1QK = jnp.abs(q_BQ[:, None, :, None] - k_BK[:, None, None]).astype(float)
        return -join(jnp.stack([jnp.sqrt(1 + apart_B1QK), 1 + jnp.cos(apart_B1QK)]), axis=0)

    rng = np.random.default_rng(0)
    at = layout(pos_BT=jnp.asarray(rng.integers(0, 9, (1, 24)), jnp.int32))
    q, k, v = jnp.asarray(rng.normal(size=(3, 1, 24, 2, 8)), jnp.float32)

    def outputs(form):
        layer = frame(Encoding(bias=bias), {}, at, DIMS, form=form).layer(0)
        return attend(q, k, v, layer)

    wanted = outputs("dense")
    with compile_for(target):
        np.testing.assert_allclose(outputs("kernel"), wanted, atol=1e-5)
    without = attend(q, k, v, frame(Encoding(), {}, at, DIMS, form="dense").layer(0))
    assert np.abs(without - wanted).max() > 0.1, "control"


def test_a_bias_that_unstacks_its_positions():
    """Each result of an equation that has several is its own."""

    def bias(params, q_BQA, k_BKA, dims):
        row_q, column_q = jnp.unstack(q_BQA.astype(float), axis=-1)
        row_k, column_k = jnp.unstack(k_BKA.astype(float), axis=-1)
        apart = lambda a_BQ, b_BK: jnp.abs(a_BQ[:, None, :, None] - b_BK[:, None, None])
        return -apart(row_q, row_k) - 3 * apart(column_q, column_k)

    rng = np.random.default_rng(0)
    at = layout(pos_BT=jnp.asarray(rng.integers(0, 9, (1, 24, 2)), jnp.int32))
    q, k, v = jnp.asarray(rng.normal(size=(3, 1, 24, 2, 8)), jnp.float32)
    outputs = lambda bias, form: attend(
        q, k, v, frame(Encoding(bias=bias), {}, at, DIMS, form=form).layer(0)
    )
    wanted = outputs(bias, "dense")
    with compile_for("gpu"):
        np.testing.assert_allclose(outputs(bias, "kernel"), wanted, atol=1e-5)
    swapped = lambda params, q, k, dims: bias(params, q[..., ::-1], k[..., ::-1], dims)
    assert np.abs(outputs(swapped, "dense") - wanted).max() > 0.1, "control"


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_sink_beside_bfloat16(target):
    """Its share is float32, which strict promotion of dtypes does not multiply by bfloat16."""
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, 24, 2, 8), jnp.bfloat16)
    sink_H = jnp.array([1.0, -1.0])

    def outputs(form, **options):
        layer = frame(Encoding(), {}, full(1, 24), DIMS, form=form).layer(0)
        return attend(q, k, v, layer, **options).astype(jnp.float32)

    wanted = outputs("dense", sink_H=sink_H)
    with compile_for(target):
        np.testing.assert_allclose(outputs("kernel", sink_H=sink_H), wanted, atol=0.02)
    assert np.abs(outputs("dense") - wanted).max() > 0.1, "control"
