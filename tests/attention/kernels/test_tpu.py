"""The fused kernel, interpreted on the CPU, against dense attention: values and gradients."""

import functools
import subprocess
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from posenc_jax import Dims, attend, chain, each_layer, frame, make, per_layer
from posenc_jax.attention.kernels import tpu
from posenc_jax.backends.target import compile_for
from posenc_jax.encoding import Encoding
from posenc_jax.layout import full, layout
from tests.support import catalogue

TIME, BLOCK = 200, 128  # two blocks, the second one filled up
DIMS = Dims(model=16, heads=2, head=8, layers=2)
PADDED = np.array([[0] * 20 + [1] * 180, [1] * 90 + [2] * 60 + [0] * 50])
TAKEN = {
    "nope": {},
    "rope": {},
    "pope": {},
    "t5": {},
    "alibi": {"learned": True},
    "window": {"distance": 30},
    "mlp": {"hidden": 4},
    "t5+rope": {},
    "fox": {},
    "fire": {"hidden": 4, "threshold": 16.0},
    "rope+fox": {},
}
REFUSED = {"shaw": "content", "cope": "content"}


@functools.cache
def draw(dtype="float32"):
    return tuple(jax.random.normal(jax.random.key(0), (4, 2, TIME, 2, 8)).astype(dtype))


@functools.cache
def method(name):
    encoding = make(name, **TAKEN[name])
    return encoding, noisy(encoding.init(jax.random.key(1), DIMS))


def noisy(params):
    noise = lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(2), leaf.shape)
    return jax.tree.map(noise, params)


def run(name, form, dtype="float32", share=1.0, queries=None, keys=None, tokens=PADDED, **options):
    """Output and gradients of one layer; parameters are multiplied by `share`."""
    encoding, params = method(name)
    params = jax.tree.map(lambda leaf: share * leaf, params)
    q, k, v, g = draw(dtype)
    keep = slice(None) if queries is None else slice(queries[0], sum(queries))
    query_columns = {} if queries is None else {"queries": queries}
    if keys is not None:
        k, v = k[:, : keys.shape[1]], v[:, : keys.shape[1]]
        query_columns = {"keys": layout(jnp.asarray(keys))}

    x = draw("float32")[3].reshape(2, TIME, -1)

    def out(q, k, v, params):
        at = layout(jnp.asarray(tokens))
        view = frame(encoding, params, at, DIMS, form=form, block=BLOCK, **query_columns, **options)
        return attend(q, k, v, view.layer(1, x[:, keep] if keys is None else None))

    @jax.jit
    def both(q, k, v, params, g):
        o, pull = jax.vjp(out, q, k, v, params)
        return o, pull(g)

    return both(q[:, keep], k, v, params, g[:, keep])


gap = functools.partial(catalogue.gap, relative=True)


BOTH_WAYS = "nope", "t5+rope", "window", "fire"  # one of each kind that a non-causal frame takes
CASES = [*((name, True) for name in TAKEN), *((name, False) for name in BOTH_WAYS)]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "causal"), CASES)
def test_it_is_dense_attention(name, causal):
    """With padding on both sides and packed documents, forward and backward."""
    dense, kernel = (run(name, form, causal=causal) for form in ("dense", "kernel"))
    assert gap(dense, kernel) < 1e-5
    o, gradients = kernel
    for x in (o, *gradients[:3]):
        assert (np.asarray(x)[PADDED == 0] == 0).all(), "of tokens of padding"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "t5", "fire"])
def test_blocks_of_one_sequence_see_no_key_ahead(name):
    actual = [run(name, form, tokens=np.ones_like(PADDED)) for form in ("dense", "kernel")]
    assert gap(*actual) < 1e-5


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("name", ["t5", "fire"])
def test_other_parameters_are_seen(name):
    """Control of the tests here: they see parameters that differ by a hundredth."""
    assert gap(run(name, "dense"), run(name, "kernel", share=1.01)) > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t5", "fox", "fire"])
def test_sums_that_do_not_fit_in_memory_take_two_passes(name, monkeypatch):
    sides, gradients = [], tpu._gradients
    keep = lambda *args: sides.append(tuple(args[-1])) or gradients(*args)
    monkeypatch.setattr(tpu, "_gradients", keep)
    jax.clear_caches()  # JAX keeps what it has traced
    two_passes = run(name, "kernel")
    monkeypatch.setattr(tpu, "vector_memory", lambda: 1000)
    jax.clear_caches()
    two = run(name, "kernel")
    jax.clear_caches()
    assert sides == [(True, True), (True, False), (False, True)]
    assert gap(two_passes, two) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t5", {"queries": (150, 40)}),
        ("fire", {"queries": (150, 40)}),
        ("fire", {"keys": PADDED[:, 60:], "mask_padding": False}),
        ("rope", {"mask_padding": False}),
        ("rope", {"keys": PADDED[:, 60:]}),
        ("alibi", {"queries": (20, 130), "causal": False}),
    ],
)
def test_queries_and_keys_may_be_others(name, options):
    """A cache of keys, cross-attention, and padding that is seen."""
    dense, kernel = (run(name, form, **options) for form in ("dense", "kernel"))
    assert gap(dense, kernel) < 1e-5


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["t5", "fire"])
def test_bfloat16_loses_no_more_than_dense(name):
    exact = run(name, "dense")
    lost = {form: gap(exact, run(name, form, "bfloat16")) for form in ("dense", "kernel")}
    assert 1e-4 < lost["kernel"] < 1.5 * lost["dense"] < 1


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_it_does_not_take_is_refused(name, reason):
    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)
    with pytest.raises(ValueError, match=f"form: 'kernel' does not take .*{reason}") as refusal:
        frame(encoding, params, layout(jnp.asarray(PADDED)), DIMS, form="kernel")
    assert "\n" not in str(refusal.value)


TRACED = {
    "t5": {"buckets": 8, "distance": 30},
    "clipped": {"distance": 8},
    "mlp": {"hidden": 4, "squash": True},
    "kerple_power": {},
    "bam": {},
    "sandwich": {"channels": 8, "first": 1},
    "window": {"distance": 30, "first": 2},
    "swin_2d": {"window": 3},
    "irope": {"every": 4, "floor": 8, "chunk": 10},
    "fire+fox": {"hidden": 4, "threshold": 16.0},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRACED)
def test_a_bias_of_any_positions_is_traced(name):
    """Positions that do not count up, on one or two axes; values and gradients.

    A method's parameters are compared as one array: the gradient of fire's last bias is 0, so what
    is left of it is the rounding of sums over all logits.
    """
    encoding = make(name, **TRACED[name])
    params = noisy(encoding.init(jax.random.key(1), DIMS))
    q, k, v, g = draw()
    pos_BT = jax.random.randint(jax.random.key(3), (2, TIME, 2), 0, 40)
    at = layout(jnp.asarray(PADDED), pos_BT if name == "swin_2d" else pos_BT[..., 0])

    def both(form, params):
        def out(q, k, v, params):
            view = frame(encoding, params, at, DIMS, form=form, block=BLOCK)
            return attend(q, k, v, view.layer(1, g.reshape(2, TIME, -1)))

        o, pull = jax.vjp(out, q, k, v, params)
        has_parameters = lambda tree: isinstance(tree, dict) and bool(tree)
        return o, jax.tree.map(lambda x: ravel_pytree(x)[0], pull(g), is_leaf=has_parameters)

    actual = jax.jit(both, static_argnums=0)
    assert gap(actual("dense", params), actual("kernel", params)) < 1e-5


def gathering() -> Encoding:
    """A method whose bias reads a table by a gather, which a kernel does not have."""

    def bias(params, q_pos_BQ, k_pos_BK, dims):
        apart_BQK = jnp.abs(q_pos_BQ[:, :, None] - k_pos_BK[:, None])
        return jnp.take(jnp.arange(9.0), apart_BQK, mode="clip")[:, None]

    return Encoding(bias=bias)


@pytest.mark.parametrize(
    ("encoding", "method"),
    [
        (gathering(), "gathering"),
        (chain(make("rope"), gathering(), make("alibi")), r"gathering\+alibi"),
        (per_layer([make("alibi"), gathering()]), "gathering"),
        (each_layer(gathering()), "gathering"),
    ],
)
def test_a_bias_that_a_kernel_cannot_make_is_refused_by_its_method_and_what_it_uses(
    encoding, method
):
    params = encoding.init(jax.random.key(0), DIMS)
    frame_of = lambda form: frame(encoding, params, full(1, 8), DIMS, form=form)
    reason = f"form: 'kernel' does not take the bias of {method}, which uses gather; use"
    with pytest.raises(ValueError, match=reason) as refusal:
        frame_of("kernel")
    assert "\n" not in str(refusal.value)
    assert frame_of("blockwise").alike.form == "blockwise", "control"


class Chip(NamedTuple):
    device_kind: str


V5E, V4 = Chip("TPU v5 lite"), Chip("TPU v4")


def side_of_blocks(chip, heads, width, name):
    dims = Dims(model=heads * width, heads=heads, head=width, layers=1)
    encoding = make(name)
    params_of_shapes = jax.eval_shape(lambda: encoding.init(jax.random.key(0), dims))
    layer_with = lambda params: frame(encoding, params, full(1, 1024), dims, form="kernel").layer(0)
    with compile_for("tpu", [chip]):
        return jax.eval_shape(layer_with, params_of_shapes).blocks()[0]


def test_blocks_are_smaller_where_a_bias_of_all_heads_would_not_fit():
    assert side_of_blocks(V5E, 16, 64, "fire") == 512
    assert side_of_blocks(V5E, 64, 64, "fire") == 256
    assert side_of_blocks(V4, 12, 64, "fire") == 256
    assert side_of_blocks(V4, 8, 256, "fire") == 128
    assert side_of_blocks(V4, 64, 64, "t5") == 512, "control: of one head"
    with pytest.raises(ValueError, match="'kernel' does not take a bias of 64 heads of 64:"):
        side_of_blocks(V4, 64, 64, "fire")


def test_other_dtypes_are_refused():
    encoding, params = method("rope")
    view = frame(encoding, params, layout(jnp.asarray(PADDED)), DIMS, form="kernel")
    q, k, v, _ = draw("float16")
    with pytest.raises(ValueError, match="float16 is not a dtype of the kernel"):
        attend(q, k, v, view.layer(0))


def test_higher_derivatives_are_refused():
    encoding, params = method("rope")
    q, k, v, _ = draw()

    def loss(share):
        view = frame(encoding, params, layout(jnp.asarray(PADDED)), DIMS, form="kernel")
        return attend(share * q, k, v, view.layer(0)).sum()

    for derivative in (jax.hessian(loss), jax.grad(jax.grad(loss))):
        with pytest.raises(TypeError, match="the kernel has first derivatives alone"):
            derivative(1.0)


@pytest.mark.parametrize(
    ("backend", "name", "time", "form"),
    [
        ("tpu", "t5", 8192, "kernel"),
        ("tpu", "t5", 64, "dense"),
        ("tpu", "fox", 8192, "kernel"),
        ("tpu", "fire", 8192, "kernel"),
        ("tpu", "cope", 8192, "blockwise"),
        ("cpu", "t5", 8192, "blockwise"),
        ("gpu", "t5", 4096, "kernel"),
        ("gpu", "rope", 4096, "kernel"),
        ("gpu", "t5", 2048, "dense"),
        ("gpu", "fire", 4096, "dense"),
        ("gpu", "fire", 8192, "blockwise"),
        ("tpu", "t5", 4096, "dense"),
    ],
)
def test_what_auto_chooses(backend, name, time, form):
    encoding = make(name)
    params_of_shapes = jax.eval_shape(lambda: encoding.init(jax.random.key(0), DIMS))
    chosen = lambda p: frame(encoding, p, full(1, time), DIMS)
    with compile_for(backend):
        assert jax.eval_shape(chosen, params_of_shapes).alike.form == form
    if form == "kernel":
        with compile_for(backend, 2 * jax.devices()):
            assert jax.eval_shape(chosen, params_of_shapes).alike.form != "kernel"


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize(
    ("backend", "dtype", "kernel"),
    [
        ("tpu", "bfloat16", True),
        ("tpu", "float32", True),
        ("tpu", "float16", False),
        ("gpu", "bfloat16", True),
        ("gpu", "float32", False),
    ],
)
def test_auto_leaves_other_dtypes_to_blocks(backend, dtype, kernel):
    time, (encoding, params) = 4200, method("t5")
    q, k, v = jax.random.normal(jax.random.key(0), (3, 1, time, 2, 8)).astype(dtype)

    def of(form, *qkv):
        return attend(*qkv, frame(encoding, params, full(1, time), DIMS, form=form).layer(0))

    with compile_for(backend):
        program = jax.make_jaxpr(functools.partial(of, "auto"))(q, k, v)
        assert ("pallas_call" in str(program)) == kernel
        if not kernel:
            actual, blocks = (
                jax.jit(functools.partial(of, form))(q, k, v) for form in ("auto", "blockwise")
            )
            np.testing.assert_array_equal(actual, blocks)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "t5", "fire", "fox"])
def test_kernel_shared_keys_sinks_and_cap(name):
    """Two heads of queries share one of keys; values and gradients, the sink's too."""
    encoding, params = method(name)
    q, k, v, g = draw()
    sink_H, at = jnp.array([0.5, -1.0]), layout(jnp.asarray(PADDED))

    def both(form, cap):
        def out(q, k, v, params, sink_H):
            view = frame(encoding, params, at, DIMS, form=form, block=BLOCK)
            layer = view.layer(1, g.reshape(2, TIME, -1))
            return attend(q, k, v, layer, sink_H=sink_H, cap=cap)

        o, pull = jax.vjp(out, q, k[:, :, :1], v[:, :, :1], params, sink_H)
        return o, pull(g)

    actual = jax.jit(both, static_argnums=(0, 1))
    # The gradient of fox's gate is a sum over all pairs, which float32 keeps to 2e-5.
    assert gap(actual("dense", 1.0), actual("kernel", 1.0)) < 3e-5
    assert gap(actual("dense", 1.0), actual("dense", 2.0)) > 1e-3, "control: another cap"


FRESH = """
import sys
import jax, jax.numpy as jnp
import posenc_jax as pe
from posenc_jax.backends.target import compile_for

print("jax.experimental.pallas.tpu" in sys.modules)
dims, alibi = pe.Dims(model=16, heads=2, head=8), pe.make("alibi")

@jax.jit
def attention(x):
    print("traced")
    return pe.attend(x, x, x, pe.frame(alibi, {}, pe.full(1, 128), dims, form="kernel").layer(0))

with compile_for("gpu"):
    for _ in range(2):
        attention(jnp.ones((1, 128, 2, 8)))
"""


@pytest.mark.thorough
def test_the_first_program_is_compiled_once():
    # Pallas adds settings to JAX 0.11 when it is imported. `jax.jit` counts them in its keys, so it
    # compiled a program again that imported Pallas while it was traced.
    said = subprocess.run(
        [sys.executable, "-c", FRESH], capture_output=True, text=True, check=True
    ).stdout.split()
    assert said == ["True", "traced"]
