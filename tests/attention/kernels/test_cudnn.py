"""Which attention on a GPU is cuDNN's; JAX's own of the same arguments stands for it on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, make
from posenc_jax.attention.kernels import cudnn, triton
from posenc_jax.backends import target
from posenc_jax.backends.target import compile_for
from posenc_jax.layout import layout
from tests.attention.kernels.test_tpu import DIMS, gap

TIME = 20
ENDS = np.array([[1] * 20, [1] * 13 + [0] * 7])  # one sequence a row, padding after it


@pytest.fixture(autouse=True)
def triton_gives_nan(monkeypatch):
    refused = lambda q, k, v, *_: (q[..., : v.shape[3]] * jnp.nan, None)
    monkeypatch.setattr(triton, "kernel", refused)
    with jax.numpy_dtype_promotion("standard"):  # the gradient of what stands for cuDNN needs it
        yield


def run(
    form, name="rope", segments=ENDS, keys=None, dtype="bfloat16", heads=2, backwards=False,
    **options,
):  # fmt: skip
    """Output and gradients of one layer; grouped heads of keys if they are fewer than 2.

    backwards: the tokens are stored in the reverse order.
    """
    score_options = {x: options.pop(x) for x in ("sink_H", "cap") if x in options}
    encoding = make(name)
    params = encoding.init(jax.random.key(1), DIMS)
    q, k, v, g = jax.random.normal(jax.random.key(0), (4, 2, TIME, 2, 8)).astype(dtype)
    other_keys = {} if keys is None else {"keys": layout(jnp.asarray(keys))}
    at = layout(jnp.asarray(segments))
    if backwards:
        at = at.replace(index_BT=TIME - at.index_BT)
    view = frame(encoding, params, at, DIMS, form=form, **other_keys, **options)
    out = lambda q, k, v: attend(q, k, v, view.layer(0), **score_options)
    o, pull = jax.vjp(out, q, k[:, :, :heads], v[:, :, :heads])
    return o, pull(g)


def on_gpu(**options):
    with compile_for("gpu"):
        return run("kernel", **options)


CUDNN = {
    "padding after": {},
    "no padding": {"segments": np.ones((2, TIME), int)},
    "another number": {"segments": 3 * ENDS},
    "one layout of all rows": {"segments": ENDS[1:]},
    "both sides": {"causal": False},
    "grouped heads": {"heads": 1},
    "no positions": {"name": "nope"},
    "other keys": {"keys": ENDS[::-1]},
}


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("options", CUDNN.values(), ids=list(CUDNN))
def test_it_is_dense_attention(options):
    options = dict(options)
    exact = run("dense", **{**options, "dtype": "float32"})
    dense, actual = gap(exact, run("dense", **options)), gap(exact, on_gpu(**options))
    assert actual < 1.5 * dense < 1
    for x in on_gpu(**options)[1][: 1 if "keys" in options else 3]:
        padded = np.broadcast_to(options.get("segments", ENDS) == 0, (2, TIME))
        assert (np.asarray(x, np.float32)[padded] == 0).all(), "of tokens of padding"


TRITON = {
    "packed": {"segments": np.array([[1] * 20, [1] * 13 + [2] * 7])},
    "stored backwards": {"backwards": True},
    "padding before": {"segments": ENDS[:, ::-1]},
    "an empty row": {"segments": ENDS * [[1], [0]]},
    "other sequences": {"keys": 2 * ENDS},
    "a bias": {"name": "alibi"},
    "added channels": {"name": "pope"},
    "a sink": {"sink_H": jnp.zeros(2)},
    "a cap": {"cap": 1.0},
    "padding that is seen": {"mask_padding": False},
    "some of the queries": {"queries": (0, TIME), "segments": ENDS},
    "float32": {"dtype": "float32"},
}


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("options", TRITON.values(), ids=list(TRITON))
def test_the_rest_is_tritons(options):
    assert np.isnan(np.asarray(on_gpu(**options)[0], np.float32)).any()
    assert np.isfinite(np.asarray(run("dense", **options)[0], np.float32)).all(), "control"


NO_TRITON = (
    r"^form: 'kernel' does not take a GPU .* with this JAX, which has no jax\.no_such_module"
)


@pytest.fixture
def without_triton(monkeypatch):
    """On a GPU that is no Hopper."""
    monkeypatch.setattr(target, "TRITON", "jax.no_such_module")
    monkeypatch.setattr(target, "compute_capability", lambda: "8.0")


def test_a_jax_without_triton_has_cudnn_alone(without_triton, monkeypatch):
    """`auto` takes blocks for the rest. Other targets are not asked."""
    at = layout(jnp.ones((1, 2048), jnp.int32))

    def form(name, form, head=8, **options):
        wide, encoding = Dims(model=16 * head, heads=16, head=head, layers=1), make(name)
        params = encoding.init(jax.random.key(0), wide)
        return frame(encoding, params, at, wide, form=form, **options).layer(0).form

    rest = {"a bias": {"name": "alibi"}, "content": {"name": "fox"}, "wide": {"head": 136}}
    rest |= {"odd": {"head": 12}, "seen padding": {"mask_padding": False}}
    with compile_for("gpu"):
        assert form("rope", "auto") == form("nope", "kernel") == "kernel"
        for options in rest.values():
            name = options.pop("name", "rope")
            assert form(name, "auto", **options) == "blockwise"
            with pytest.raises(ValueError, match=NO_TRITON):
                form(name, "kernel", **options)
            with monkeypatch.context() as patch:
                patch.setattr(target, "TRITON", "jax")
                assert form(name, "auto", **options) == "kernel", "control"
    assert form("alibi", "kernel") == "kernel"


WITHOUT_TRITON = {name: TRITON[name] for name in ("packed", "stored backwards", "padding before")}
WITHOUT_TRITON |= {name: TRITON[name] for name in ("an empty row", "other sequences")}


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("options", WITHOUT_TRITON.values(), ids=list(WITHOUT_TRITON))
def test_rows_that_cudnn_does_not_take_are_in_another_form(options, without_triton):
    """Where Triton's kernel, which gives NaN here, was taken."""
    exact = run("dense", **{**options, "dtype": "float32"})
    dense, actual = gap(exact, run("dense", **options)), gap(exact, on_gpu(**options))
    assert actual <= 1.5 * dense < 1


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"sink_H": jnp.zeros(2)}, {"cap": 1.0}])
def test_a_kernel_asked_for_that_no_jax_has_is_refused(options, without_triton):
    with pytest.raises(ValueError, match=NO_TRITON):
        on_gpu(**options)


def test_one_layout_for_all_of_vmap(monkeypatch):
    """JAX's rules for `jax.vmap` of cuDNN, forward and backward, need all operands mapped or none.

    The gradient of a sum is not mapped, and the layout is not.
    """
    mapped: dict[str, list[bool]] = {}

    def recorded(way):
        @jax.custom_batching.custom_vmap
        def first(*operands):
            return operands[0]

        @first.def_vmap
        def _(_, in_batched, *operands):
            mapped.setdefault(way, []).append(all(in_batched))
            return operands[0], True

        return first

    def attention(q, k, v, *, query_seq_lengths, key_value_seq_lengths, **_):
        opaque = jax.custom_vjp(lambda *arguments: arguments[0])
        forward = lambda *arguments: (recorded("forward")(*arguments), arguments)
        backward = lambda arguments, g: (
            recorded("backward")(g, *arguments),
            *arguments[1:3],
            None,
            None,
        )
        opaque.defvjp(forward, backward)
        return opaque(q, k, v, query_seq_lengths, key_value_seq_lengths)

    monkeypatch.setattr(jax.nn, "dot_product_attention", attention)
    encoding, at = make("rope"), layout(jnp.asarray(ENDS))
    params = encoding.init(jax.random.key(1), DIMS)
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, TIME, 2, 8), jnp.bfloat16)

    def gradients():
        opaque = lambda q: attend(
            q, k, v, frame(encoding, params, at, DIMS, form="kernel").layer(0)
        )
        mapped.clear()
        with compile_for("gpu"):
            jax.eval_shape(jax.vmap(jax.grad(lambda q: opaque(q).sum())), jnp.stack([q, 2 * q]))
        return {way: all(actual) for way, actual in mapped.items()}

    assert gradients() == {"forward": True, "backward": True}
    monkeypatch.setattr(cudnn, "_all_mapped", lambda *arrays: arrays)
    monkeypatch.setattr(cudnn, "_mapped_inputs", lambda *arrays: arrays)
    assert gradients() == {"forward": False, "backward": False}, "control"
