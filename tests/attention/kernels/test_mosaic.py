"""The fused kernels for a Hopper GPU, interpreted on the CPU, and lowered for a GPU."""

import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.sharding import Mesh, PartitionSpec

from posenc_jax import Dims, attend, frame, make
from posenc_jax.attention.kernels import mosaic, mosaic_operations, mosaic_program
from posenc_jax.backends import target
from posenc_jax.backends.target import compile_for
from posenc_jax.layout import full, layout
from tests.attention.kernels.test_tpu import gap, noisy

TIME = 130  # three blocks, the last one filled up: there is room for two
DIMS = Dims(model=32, heads=2, head=16, layers=2)
TOKENS = np.array([[0] * 10 + [1] * 120, [1] * 50 + [2] * 70 + [0] * 10])
NEWEST = tuple(map(int, jax.__version__.split(".")[:2])) >= (0, 12)
INTERPRETER = importlib.import_module("jax._src.pallas.mosaic_gpu.interpret.gpu_callbacks")


@pytest.fixture(autouse=True)
def races(monkeypatch):
    """What the interpreter's race detector of each kernel says."""
    states = []
    name = "GPURaceDetectionState" if NEWEST else "RaceDetectionState"
    detector = getattr(INTERPRETER, name)

    def noted(*args, **options):
        states.append(detector(*args, **options))
        return states[-1]

    monkeypatch.setattr(INTERPRETER, name, noted)
    yield lambda: [state.races_found for state in states]
    INTERPRETER.reset_gpu_interpret_mode_state()


def run(form, name, dtype="bfloat16", dims=DIMS, heads=2, share=1.0, keys=None, **options):
    """Output and gradients of one layer, in float32; parameters are multiplied by `share`."""
    score_options = {x: options.pop(x) for x in ("sink_H", "cap") if x in options}
    encoding = make(name, **({"hidden": 4, "threshold": 16.0} if name == "fire" else {}))
    params = jax.tree.map(lambda x: share * x, noisy(encoding.init(jax.random.key(1), dims)))
    shape = 4, 2, TIME, dims.heads, dims.head
    q, k, v, g = jax.random.normal(jax.random.key(0), shape).astype("bfloat16").astype(dtype)
    k, v = k[:, :, :heads], v[:, :, :heads]
    others = {} if keys is None else {"keys": layout(jnp.asarray(keys))}
    x = jax.random.normal(jax.random.key(3), (2, TIME, dims.model))

    def out(q, k, v, params):
        view = frame(encoding, params, layout(jnp.asarray(TOKENS)), dims, form=form, **others,
                     **options)  # fmt: skip
        return attend(q, k, v, view.layer(1, x if keys is None else None), **score_options)

    @jax.jit
    def both(q, k, v, params, g):
        o, pull = jax.vjp(out, q, k, v, params)
        return o, pull(g)

    results = both(q, k, v, params, g)
    return jax.tree.map(lambda x: x.astype(jnp.float32), results)


def interpreted(name, **options):
    with compile_for("gpu", kernel="mosaic"):
        return run("kernel", name, **options)


CASES = {
    "t5": {},
    "alibi": {},
    "nope": {},
    "window": {},
    "fox": {},
    "t5+rope": {"sink_H": jnp.array([0.5, -1.0]), "cap": 1.0, "heads": 1},
    "clipped": {"causal": False},
    "kerple_log": {"keys": TOKENS[::-1, 10:], "mask_padding": False},
    "t5 of 128 channels": {"dims": Dims(model=256, heads=2, head=128, layers=2)},
}


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("case", CASES)
def test_it_is_dense_attention(case, races):
    """A row of offsets, a bias that is computed, sums of content; packed and padded rows."""
    name, options = case.split()[0], dict(CASES[case])
    if "keys" in options:
        options["keys"] = np.concatenate([options["keys"], np.ones((2, 10), int)], axis=1)
    exact = run("dense", name, dtype="float32", **options)
    dense, kernel = (gap(exact, x) for x in (run("dense", name, **options),
                                             interpreted(name, **options)))  # fmt: skip
    assert 1e-4 < kernel < 1.5 * dense < 0.05
    assert len(races()) > 2, "control: kernels were interpreted"
    assert not any(races())


@pytest.mark.thorough
def test_a_bias_of_many_operations(races):
    """`fire`, whose gradients are those of its network's numbers; sums over tokens, in bfloat16."""
    exact, dense = (run("dense", "fire", dtype=x)[1] for x in ("float32", "bfloat16"))
    kernel = interpreted("fire")[1]
    assert gap(exact[:3], kernel[:3]) < 1.5 * gap(exact[:3], dense[:3]) < 0.02
    for pair in zip(jax.tree.leaves(exact[3]), jax.tree.leaves(kernel[3]), strict=True):
        assert gap(*pair) < 0.05 or np.abs(pair[0]).max() < 1e-3
    assert not any(races())


@pytest.mark.thorough
def test_other_parameters_are_seen():
    """Control of the tests here: they see parameters that differ by a tenth."""
    exact, dense = run("dense", "t5", dtype="float32"), run("dense", "t5")
    assert gap(exact, interpreted("t5", share=1.1)) > 3 * gap(exact, dense)


def test_races_are_seen(monkeypatch, races):
    """Control: a copy into a room that is still read; JAX 0.10 sees none before what it copies."""
    missing = "commit_smem" if NEWEST else "barrier_wait"
    without = types.SimpleNamespace(**{**vars(plgpu), missing: lambda *args: None})
    monkeypatch.setattr(mosaic_program, "plgpu", without)
    jax.clear_caches()
    with pytest.raises(jax.errors.JaxRuntimeError) as error:
        interpreted("nope")
    assert any(races()) or "RACE DETECTED" in str(error.value)
    jax.clear_caches()


@pytest.fixture
def for_a_gpu(monkeypatch):
    """Programs are traced as on a Hopper GPU."""
    monkeypatch.setattr(target, "compute_capability", lambda: "9.0")
    for module in (mosaic, mosaic_operations):
        monkeypatch.setattr(module, "interpreted", lambda: False)
    jax.clear_caches()
    yield
    jax.clear_caches()


def gradients(name, dims, tokens=256):
    """A function of q, k and v, and arguments for it."""
    encoding, at = make(name), full(1, tokens)
    params = encoding.init(jax.random.key(1), dims)
    q = jax.random.normal(jax.random.key(0), (1, tokens, dims.heads, dims.head), jnp.bfloat16)

    def loss(params, q, k, v):
        view = frame(encoding, params, at, dims, form="kernel")
        x = jnp.ones((1, tokens, dims.model))
        return attend(q, k, v, view.layer(0, x)).astype(jnp.float32).sum()

    return jax.grad(loss, argnums=(0, 1, 2, 3)), (params, q, q, q)


# How many: forward, for queries and for keys; of a row; another of keys; of FIRE's numbers.
KERNELS = {("alibi", 64): 3, ("t5", 64): 4, ("t5", 128): 5, ("fox", 64): 3, ("fire", 64): 13}


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("name", "head"), KERNELS)
def test_it_is_lowered_for_a_gpu(name, head, for_a_gpu):
    """All that Mosaic does before ptxas: layouts of registers, copies, products."""
    function, args = gradients(name, Dims(model=2 * head, heads=2, head=head))
    with compile_for("gpu", kernel="mosaic"):
        lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("custom_call @mosaic_gpu_v2") == KERNELS[name, head]


@pytest.mark.thorough
def test_it_is_exported_and_spread_over_devices(for_a_gpu):
    """`jax.export` for a GPU, and `jax.shard_map`, which JAX 0.10 does not interpret."""
    function, args = gradients("alibi", Dims(model=128, heads=2, head=64))
    checks = [export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    mesh, spread, all_of = (
        Mesh(np.array(jax.devices()[:1]), ("x",)),
        PartitionSpec("x"),
        PartitionSpec(),
    )
    shards = jax.shard_map(function, mesh=mesh, in_specs=(all_of, spread, spread, spread),
                           out_specs=(all_of, spread, spread, spread))  # fmt: skip
    with compile_for("gpu", kernel="mosaic"):
        for run in (function, shards):
            exported = export.export(jax.jit(run), platforms=["cuda"], disabled_checks=checks)(
                *args
            )
            assert exported.mlir_module().count("custom_call @mosaic_gpu_v2") == 3


@pytest.mark.thorough
def test_it_is_mapped():
    function, (params, q, *_) = gradients("alibi", DIMS, tokens=70)
    each = lambda q: function(params, q, q, q)[1].astype(jnp.float32)
    with compile_for("gpu", kernel="mosaic"):
        one_by_one = jnp.stack([each(x) for x in (q, 2 * q)])
        assert gap(one_by_one, jax.jit(jax.vmap(each))(jnp.stack([q, 2 * q]))) < 1e-6
    assert gap(one_by_one[0], one_by_one[1]) > 0.1, "control"


@pytest.mark.skipif(not NEWEST, reason="JAX 0.10's interpreter has no transposed operand")
def test_products_read_the_second_operand_transposed(monkeypatch):
    """The form of products that a GPU has, interpreted."""
    monkeypatch.setattr(mosaic_operations, "interpreted", lambda: False)
    a, b = jax.random.normal(jax.random.key(0), (2, 64, 64), jnp.bfloat16)

    def body(a, b, o, a_room, b_room, o_room, barrier) -> None:
        for x, room in ((a, a_room), (b, b_room)):
            plgpu.copy_gmem_to_smem(x, room, barrier)
        plgpu.barrier_wait(barrier)
        o_room[...] = mosaic_operations.products(a_room, b_room)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_room, o)
        plgpu.wait_smem_to_gmem(0)

    tiled = plgpu.SMEM((64, 64), jnp.bfloat16, transforms=mosaic_program.TILES)
    room = plgpu.SMEM((64, 64), jnp.float32)
    products = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[tiled, tiled, room, plgpu.Barrier(num_arrivals=2)],
        interpret=mosaic.InterpretGPUParams(),
    )(a, b)  # fmt: skip
    wide = [np.asarray(x, np.float32) for x in (a, b)]
    np.testing.assert_allclose(products, wide[0] @ wide[1].T, atol=1e-4)
    assert np.abs(products - wide[0] @ wide[1]).max() > 1, "control"


def test_what_it_does_not_take_is_refused_in_one_line(monkeypatch):
    encoding = make("alibi")

    def attended(dims, dtype="bfloat16"):
        params, at = encoding.init(jax.random.key(0), dims), full(1, 8)
        q = jnp.ones((1, 8, dims.heads, dims.head), dtype)
        with compile_for("gpu", kernel="mosaic"):
            out = lambda q: attend(
                q, q, q, frame(encoding, params, at, dims, form="kernel").layer(0)
            )
            return jax.eval_shape(out, q)

    wide = Dims(model=512, heads=2, head=256)
    assert attended(DIMS).shape == (1, 8, 2, 16), "control"
    for reason, args in (("float32, with", (DIMS, "float32")), ("heads of 256 ch", (wide,))):
        with pytest.raises(ValueError, match=f"^form: 'kernel' does not take {reason}") as refusal:
            attended(*args)
        assert "\n" not in str(refusal.value)
    monkeypatch.setattr(target, "compute_capability", lambda: "8.0")
    with pytest.raises(ValueError, match=r"^form: 'kernel' does not take a GPU of compute capab"):
        attended(DIMS)
    with pytest.raises(ValueError, match=r"^kernel: 'nope' is none of gpu: cudnn, triton, mosaic$"):
        compile_for("gpu", kernel="nope")


def test_auto_takes_what_was_measured():
    """Where there is no Triton, `auto` leaves this kernel alone, which was never timed."""
    dims = Dims(model=1024, heads=16, head=64, layers=1)
    encoding, at = make("alibi"), full(1, 2048)
    params = encoding.init(jax.random.key(0), dims)
    with compile_for("gpu"), pytest.MonkeyPatch.context() as patch:
        form = lambda form: frame(encoding, params, at, dims, form=form).layer(0).form
        assert form("auto") == "kernel", "control: Triton's"
        patch.setattr(target, "TRITON", "jax.no_such_module")
        assert (form("auto"), form("kernel")) == ("blockwise", "kernel")
