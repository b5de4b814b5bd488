"""Attention where arithmetic, derivatives, devices or sizes are at their limits."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from posenc_jax import CATALOG, Dims, attend, frame, full, layout, make
from posenc_jax.backends.target import compile_for
from tests.support.catalogue import encoding_of, gap, in_blocks, stir, whole

DIMS = Dims(model=16, heads=2, head=8, layers=2)
FORMS = ("auto", "dense", "blockwise")


def framed(name: str, at, **options):
    encoding = make(name)
    return frame(encoding, encoding.init(jax.random.key(0), DIMS), at, DIMS, **options)


def draw(time: int, dtype=jnp.float32, rows: int = 1) -> list[jax.Array]:
    q, k, v = jax.random.normal(jax.random.key(1), (3, rows, time, DIMS.heads, DIMS.head))
    return [x.astype(dtype) for x in (q, k, v)]


# Sums and types.


@pytest.mark.thorough
def test_gradients_of_narrow_parameters_are_summed_in_float32():
    """528 blocks, too many small terms for a sum in bfloat16."""
    encoding = make("t5", bidirectional=False)
    table = encoding.init(jax.random.key(0), DIMS)["table"]
    q, k, v = draw(512)

    def gradient(dtype):
        def loss(params):
            view = frame(encoding, params, full(1, 512), DIMS, form="blockwise", block=16)
            return (attend(q, k, v, view.layer(0)) * v).sum()

        return jax.grad(loss)({"table": table.astype(dtype)})["table"].astype(jnp.float32)

    exact, narrow = gradient(jnp.float32), gradient(jnp.bfloat16)
    far = np.abs(exact) > 0.1 * np.abs(exact).max()
    assert far.sum() > 3
    np.testing.assert_allclose(narrow[far], exact[far], rtol=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
def test_float16_gradients_keep_the_weights_of_many_keys(form):
    """Each weight is about 1 / 4,096, which float16 holds with few digits."""
    time = 4096
    q, k, v = (0.1 * x for x in draw(time))
    q, query_columns = q[:, :64], {"queries": (0, 64)}
    view = framed("nope", full(1, time), form=form, causal=False, block=1024, **query_columns)

    def gradient(dtype):
        loss = lambda v: (attend(q.astype(dtype), k.astype(dtype), v, view.layer(0)) ** 2).sum()
        return jax.grad(lambda v: loss(v).astype(jnp.float32))(v.astype(dtype)).astype(jnp.float32)

    exact, half = gradient(jnp.float32), gradient(jnp.float16)
    assert gap(half, exact) < 0.005 * float(jnp.abs(exact).max())


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["alibi", "t5", "rope", "xpos", "sinusoidal", "clipped"])
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8, jnp.int16])
def test_narrow_positions_do_not_wrap(name, dtype):
    """In 8 bits the offsets 100 - 120 and 120 - 100 would overflow."""
    pos_BT = jnp.array([[0, 20, 40, 100, 120]])
    q, k, v = draw(5)

    def out(pos_BT):
        view = framed(name, layout(jnp.ones((1, 5), int), pos_BT), causal=False)
        x = view.embed(q.reshape(1, 5, -1))
        return attend(x.reshape(q.shape), k, v, view.layer(0, x))

    assert gap(out(pos_BT.astype(dtype)), out(pos_BT)) == 0.0
    assert gap(out(pos_BT // 20), out(pos_BT)) > 1e-4, "control: positions matter"


# Sizes.


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "time"), [(0, 5), (2, 0), (1, 1)])
def test_no_tokens_give_no_output(form, rows, time):
    for name in ("rope", "t5", "fox", "sinusoidal"):
        view = framed(name, full(rows, time), form=form)
        x = view.embed(jnp.zeros((rows, time, DIMS.model)))
        q = x.reshape(rows, time, DIMS.heads, DIMS.head)
        assert attend(q, q, q, view.layer(0, x)).shape == q.shape


@pytest.mark.thorough
def test_auto_can_be_exported_with_a_symbolic_batch_and_length():
    (rows, time) = jax.export.symbolic_shape("b, t")
    encoding = make("rope")

    def run(x_BTHC):
        segment_BT = jnp.ones(x_BTHC.shape[:2], jnp.int32)
        view = frame(encoding, {}, layout(segment_BT), DIMS)
        return attend(x_BTHC, x_BTHC, x_BTHC, view.layer(0))

    shape = jax.ShapeDtypeStruct((rows, time, DIMS.heads, DIMS.head), jnp.float32)
    exported = jax.export.export(jax.jit(run))(shape)
    x = draw(7, rows=2)[0]
    assert gap(exported.call(x), run(x)) < 1e-6


@pytest.mark.thorough
def test_op_by_op_nothing_is_compiled_again():
    """Two frames of the same encoding are one program."""
    q, k, v = draw(40)
    for name in ("alibi", "fox"):
        encoding = make(name)
        params = encoding.init(jax.random.key(0), DIMS)

        def run(encoding=encoding, params=params):
            view = frame(encoding, params, full(1, 40), DIMS, form="blockwise", block=16)
            return attend(q, k, v, view.layer(1, q.reshape(1, 40, -1)))

        run()
        with jax.log_compiles(False), _compilations() as seen:
            run()
        assert seen == [], name
        with _compilations() as seen:
            jax.jit(lambda x: x * 3.0)(jnp.ones(len(name)))
        assert seen, "control: a program that is new"


class _compilations:
    """The names of programs that are compiled inside."""

    def __enter__(self):
        self._seen: list[str] = []
        jax.monitoring.register_event_duration_secs_listener(self._hear)
        return self._seen

    def _hear(self, event, seconds, **about):
        if event.endswith("backend_compile_duration"):
            self._seen.append(event)

    def __exit__(self, *error):
        jax.monitoring.unregister_event_duration_listener(self._hear)


# Layers.


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["rope", "t5", "clipped", "fox", "transformer_xl", "deberta", "dape"]
)
def test_a_traced_layer_is_the_layer_of_its_number(name):
    encoding = make(name)
    params = stir(encoding.init(jax.random.key(0), DIMS), 3)
    q, k, v = draw(9)
    view = frame(encoding, params, full(1, 9), DIMS)
    at_number = lambda n: attend(q, k, v, view.layer(n, q.reshape(1, 9, -1)))
    by_scan = jax.lax.scan(lambda _, n: (None, at_number(n)), None, jnp.arange(DIMS.layers))[1]
    assert gap(by_scan, jnp.stack([at_number(n) for n in range(DIMS.layers)])) < 1e-6


def test_a_traced_layer_is_refused_where_layers_use_different_encodings():
    view = framed("irope", full(1, 9))
    with pytest.raises(ValueError, match=r"^per_layer: the layer is traced, and layers use diff"):
        jax.lax.scan(lambda _, n: (None, view.layer(n).q_table), None, jnp.arange(2))


@pytest.mark.parametrize("name", ["rope", "clipped", "rope+clipped", "dape", "irope"])
def test_a_layer_has_the_same_functions_each_time(name):
    """As an argument of a compiled function it is then not compiled again."""
    traces = []

    @jax.jit
    def run(layer, x):
        traces.append(None)
        return attend(x, x, x, layer)

    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)
    for _ in range(2):
        run(frame(encoding, params, full(1, 5), DIMS).layer(1), draw(5)[0])
    assert len(traces) == 1


def test_an_input_encoding_is_not_lost():
    view = framed("sinusoidal+rope", full(1, 5))
    with pytest.raises(ValueError, match=r"call x = frame\.embed\(x\) before"):
        view.layer(0)
    x = jnp.zeros((1, 5, DIMS.model))
    assert gap(view.embed(x), x) > 0.1
    assert view.layer(0).q_table is not None
    assert framed("rope", full(1, 5)).layer(0) is not None, "control: nothing acts at the input"


# Cross-attention.


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "shaw", "sinusoidal"])
def test_queries_have_positions_of_their_own(name, form):
    """Cross-attention equals the rows that self-attention has over both, one behind the other."""
    encoding, keys, queries = make(name), 9, 4
    params = stir(encoding.init(jax.random.key(0), DIMS), 3)
    x = jax.random.normal(jax.random.key(1), (1, keys + queries, DIMS.model))
    at = full(1, keys + queries)
    part = lambda a, b: jax.tree.map(lambda leaf: leaf[:, a:b], at.replace(counted=False))
    options = {"form": form, "block": 4}
    heads = lambda x: x.reshape(1, -1, DIMS.heads, DIMS.head)
    cross = frame(encoding, params, part(keys, None), DIMS, keys=part(0, keys), **options)
    q_x, k_x = cross.embed(x[:, keys:]), cross.embed(x[:, :keys], side="k")
    q, k = heads(q_x), heads(k_x)
    actual = attend(q, k, k, cross.layer(0, q_x, k_x))
    apart = frame(encoding, params, at, DIMS, causal=False, form="dense")
    x_all = apart.embed(x)
    layer = apart.layer(0, x_all)
    seen = (jnp.arange(keys + queries) < keys)[None, None, None]
    only = dataclasses.replace(layer, visible_BHQK=layer.visible_BHQK & seen)
    wanted = attend(heads(x_all), heads(x_all), heads(x_all), only)[:, keys:]
    assert gap(actual, wanted) < 1e-5
    moved = part(keys, None).replace(pos_BT=3 * part(keys, None).pos_BT - 20)
    other = frame(encoding, params, moved, DIMS, keys=part(0, keys), **options)
    q_x, k_x = other.embed(x[:, keys:]), other.embed(x[:, :keys], side="k")
    assert gap(attend(heads(q_x), k, k, other.layer(0, q_x, k_x)), actual) > 1e-3, "control"


# Derivatives.


@pytest.mark.thorough
def test_every_derivative_of_the_dense_form():
    q, k, v = draw(6)
    loss = lambda q, form: (
        attend(q, k, v, framed("t5", full(1, 6), form=form).layer(0)) ** 2
    ).sum()
    dense = lambda q: loss(q, "dense")
    slope, ones = jax.grad(dense)(q), jnp.ones_like(q)
    assert abs(float(jax.jvp(dense, (q,), (ones,))[1] - slope.sum())) < 1e-4
    twice = jax.grad(lambda q: jax.grad(dense)(q).sum())(q)
    assert gap(twice, jax.jvp(jax.grad(dense), (q,), (ones,))[1]) < 1e-4
    for form in ("auto", "blockwise"):
        assert gap(jax.grad(loss)(q, form), slope) < 1e-5
        assert gap(jax.jvp(jax.grad(lambda q, f=form: loss(q, f)), (q,), (ones,))[1], twice) < 1e-4
        with pytest.raises(TypeError, match=r"^attend: this form has reverse-mode .* form='dense'"):
            jax.jvp(lambda q, f=form: loss(q, f), (q,), (ones,))
    again = lambda q, form: jax.grad(
        lambda q: jax.jit(jax.grad(loss), static_argnums=1)(q, form).sum()
    )(q)
    assert gap(again(q, "auto"), twice) < 1e-4, "of a CPU's dense form, plain mathematics"
    with pytest.raises(TypeError, match=r"^attend: the blockwise form has no .* form='dense'"):
        again(q, "blockwise")


# Devices.

MESH = {kind: AbstractMesh((2,), ("d",), axis_types=(kind,)) for kind in AxisType}
ROWS = PartitionSpec("d")


def loss_of(name: str, form: str):
    """A loss of parameters and of x [B, T, D]; and the shapes of the parameters."""
    encoding = encoding_of(name)
    at = whole(name, batch=1, time=12)

    def loss(params, x):
        view = frame(encoding, params, at, DIMS, form=form, block=4)
        x = view.embed(x)
        q = x.reshape(*x.shape[:2], DIMS.heads, DIMS.head)
        return (attend(q, q, q, view.layer(1, x)) ** 2).sum()

    return loss, jax.eval_shape(lambda: encoding.init(jax.random.key(0), DIMS))


def in_shard_map(loss):
    """Each device takes the gradient of its rows, with JAX's default checks."""

    def own(params, x):
        value, slopes = jax.value_and_grad(loss, argnums=(0, 1))(params, x)
        return jax.lax.psum(value, "d"), slopes

    out = (PartitionSpec(), (PartitionSpec(), ROWS))
    return lambda mesh: jax.shard_map(
        own, mesh=mesh, in_specs=(PartitionSpec(), ROWS), out_specs=out
    )


@pytest.mark.thorough(after=5)
@pytest.mark.parametrize("form", ["auto", "blockwise"])
@pytest.mark.parametrize("name", CATALOG)
def test_rows_on_two_devices(name, form):
    """Traced with gradients: under shard_map, and on a mesh whose shardings are types."""
    if form == "blockwise" and not in_blocks(make(name)):
        return  # refused: test_catalogue_blockwise
    loss, shapes = loss_of(name, form)
    x = jax.ShapeDtypeStruct((4, 12, DIMS.model), jnp.float32)
    _, (slopes, _) = jax.eval_shape(in_shard_map(loss)(MESH[AxisType.Auto]), shapes, x)
    assert jax.tree.map(jnp.shape, slopes) == jax.tree.map(jnp.shape, shapes)
    mesh = MESH[AxisType.Explicit]
    put = lambda leaf, spec: leaf.update(sharding=NamedSharding(mesh, spec))
    shapes = jax.tree.map(lambda leaf: put(leaf, PartitionSpec()), shapes)
    with jax.sharding.use_abstract_mesh(mesh):
        jax.eval_shape(jax.jit(jax.value_and_grad(loss, argnums=(0, 1))), shapes, put(x, ROWS))


@pytest.mark.parametrize("queries", [None, 4])
@pytest.mark.parametrize("name", ["alibi", "shaw", "abacus", "logn"])
def test_rows_of_their_own_documents_on_two_devices(name, queries):
    """Traced: a layout that differs by device, and a first query that does."""
    encoding = encoding_of(name)
    params = encoding.init(jax.random.key(0), DIMS)

    def own(x, segment_BT, start_B):
        new = None if queries is None else (start_B[0], queries)
        view = frame(encoding, params, layout(segment_BT), DIMS, block=4, queries=new)
        x_new = view.embed(x[:, :queries])
        k = x.reshape(*x.shape[:2], DIMS.heads, DIMS.head)
        q = x_new.reshape(*x_new.shape[:2], DIMS.heads, DIMS.head)
        return attend(q, k, k, view.layer(1, x_new, None if queries is None else x))

    mesh, shape = MESH[AxisType.Auto], jax.ShapeDtypeStruct
    spread = jax.shard_map(own, mesh=mesh, in_specs=(ROWS, ROWS, ROWS), out_specs=ROWS)
    argument_shapes = (
        shape((4, 12, 16), jnp.float32),
        shape((4, 12), jnp.int32),
        shape((2,), jnp.int32),
    )
    assert jax.eval_shape(spread, *argument_shapes).shape == (
        4,
        queries or 12,
        DIMS.heads,
        DIMS.head,
    )


@pytest.mark.parametrize("name", ["t5", "fire", "fox"])
def test_a_kernel_on_each_of_two_tpus(name):
    """Traced with gradients, with JAX's checks of which arrays differ by device."""
    loss, shapes = loss_of(name, "kernel")
    x = jax.ShapeDtypeStruct((4, 12, DIMS.model), jnp.float32)
    with compile_for("tpu"):
        _, (slopes, _) = jax.eval_shape(in_shard_map(loss)(MESH[AxisType.Auto]), shapes, x)
    assert jax.tree.map(jnp.shape, slopes) == jax.tree.map(jnp.shape, shapes)


def test_carries_of_another_type_are_found(monkeypatch):
    """The control of the test above."""
    monkeypatch.setattr("posenc_jax.attention.vary_alike", lambda tree: tree)
    loss, shapes = loss_of("alibi", "blockwise")
    x = jax.ShapeDtypeStruct((4, 12, DIMS.model), jnp.float32)
    with pytest.raises(Exception, match="type"):
        jax.eval_shape(in_shard_map(loss)(MESH[AxisType.Auto]), shapes, x)


TWO_DEVICES = """
import jax, numpy as np
from tests.attention.test_attention_limits import DIMS, ROWS, in_shard_map, loss_of
from posenc_jax import make
mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.random.normal(jax.random.key(1), (4, 12, DIMS.model))
for name in ("rope", "t5", "clipped", "fox"):
    for form in ("auto", "blockwise"):
        loss, shapes = loss_of(name, form)
        params = jax.tree.map(lambda leaf: 0.1 * jax.numpy.ones(leaf.shape), shapes)
        alone = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(params, x)
        both = jax.jit(in_shard_map(loss)(mesh))(params, x)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(both), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        print(name, form)
"""


@pytest.mark.thorough
def test_two_devices_give_the_values_of_one():
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"}
    ran = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ran.stdout.splitlines()) == 8
