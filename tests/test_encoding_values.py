"""Encodings as values: text, equality, hash, pickle, and what that spares a compiler."""

import copy
import pickle
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import posenc_jax
from posenc_jax import CATALOG, Dims, Encoding, chain, each_layer, frame, full, make, per_layer
from posenc_jax.huggingface.own_readers import from_row
from posenc_jax.huggingface.rotary_parts import on_channels, sharper
from posenc_jax.lab.definitions.trial_options import SMALL

DIMS = Dims(model=16, heads=2, head=8, layers=2)
NAMES = {**CATALOG, **vars(posenc_jax)}
NAMES |= {"from_row": from_row, "on_channels": on_channels, "sharper": sharper}
GEMMA = {"model_type": "gemma3_text", "num_hidden_layers": 6, "sliding_window": 512}
GPTJ = {"model_type": "gptj", "rotary_dim": 4}
OPT = {"model_type": "opt", "max_position_embeddings": 8}


def t5() -> Encoding:
    return make("t5")


# Each makes the encoding anew; the text is that of the encoding.
VALUES = [
    (lambda: make("rope", base=5e5), "rope(base=500000.0)"),
    (lambda: make("rope", base=10_000, pairing="half"), "rope()"),
    (lambda: make("randomized+alibi", limit=9), "chain(randomized(limit=9), alibi())"),
    (lambda: chain(make("rope"), make("window", distance=3)), "chain(rope(), window(distance=3))"),
    (lambda: each_layer(make("t5", buckets=8)), "each_layer(t5(buckets=8))"),
    (lambda: per_layer([t5(), make("nope")]), "per_layer([t5()] + [nope()])"),
    (lambda: per_layer([t5()] * 2 + [t5()]), "per_layer([t5()] * 2 + [t5()])"),
    (
        lambda: posenc_jax.from_huggingface(GEMMA),
        "per_layer([chain(rope(), window(distance=511))] * 5 + [rope(base=1000000.0)])",
    ),
    (
        lambda: posenc_jax.from_huggingface(GPTJ),
        "on_channels(rope(pairing='interleaved'), 4)",
    ),
    (lambda: posenc_jax.from_huggingface(OPT), "from_row(learned(length=10), 2)"),
    (lambda: sharper(make("rope"), 2.0), "sharper(rope(), 2.0)"),
    (lambda: posenc_jax.convolved(19, layers=5), "convolved(kernel=19, layers=5)"),
    *((lambda name=name: CATALOG[name](**SMALL.get(name, {})), "") for name in CATALOG),
]


@pytest.mark.parametrize(("make_it", "text"), VALUES)
def test_an_encoding_is_a_value(make_it, text):
    encoding = make_it()
    assert repr(encoding) == text or not text
    for same in (make_it(), eval(repr(encoding), NAMES), copy.deepcopy(encoding)):
        assert same == encoding
        assert hash(same) == hash(encoding)
        assert same is not encoding
    again = pickle.loads(pickle.dumps(encoding))
    assert again == encoding
    assert of_layer(again) == of_layer(encoding)


def of_layer(encoding: Encoding) -> Encoding:
    """What layer 0 uses, without its parameters."""

    def first():
        params = encoding.init(jax.random.key(0), DIMS)
        return posenc_jax.at_layer(encoding, 0, params)[0]

    return jax.eval_shape(first)


def test_what_differs_is_not_equal():
    encodings = [
        make("rope"),
        make("rope", values=True),
        make("rope")._replace(turns_values=True),
        chain(make("rope"), make("alibi")),
        chain(make("alibi"), make("rope")),
        chain(chain(make("rope")), make("alibi")),
        per_layer([make("t5")] * 2),
        per_layer([make("t5"), make("t5")]),  # with parameters for each
        each_layer(make("t5")),
        Encoding(),
        Encoding(bias=make("alibi").bias),
        Encoding(bias=make("alibi").bias, relative=True),
    ]
    assert len(set(encodings)) == len(encodings)


def test_one_made_of_hooks_is_equal_by_its_functions():
    slope = lambda params, q_placed, k_placed, dims: 0.0
    assert Encoding(bias=slope) == Encoding(bias=slope)
    assert Encoding(bias=slope) != Encoding(bias=lambda *_: 0.0)
    assert chain(make("rope"), Encoding(bias=slope)) == chain(make("rope"), Encoding(bias=slope))
    assert repr(Encoding(bias=slope, relative=True)).endswith("<lambda>, relative=True)")
    plain = Encoding(bias=CATALOG["alibi"])  # any function of a module pickles
    assert pickle.loads(pickle.dumps(plain)) == plain
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        pickle.dumps(Encoding(bias=slope))


def test_name_and_options_are_attributes():
    encoding = make("rope", base=5e5)
    assert encoding.name == "rope"
    assert encoding.options == {"base": 5e5, "pairing": "half", "values": False}
    assert (chain(encoding).name, chain(encoding).options) == ("chain", {"parts": (encoding,)})
    assert (Encoding().name, Encoding().options) == ("Encoding", {})
    assert encoding._replace(turns_values=True).options == {}


MADE_AGAIN = {
    "each_layer": lambda: make("clipped"),
    "by hooks": lambda: make("rope", base=5e5),
    "chain": lambda: make("rope+clipped"),
    "pattern": lambda: make("local_global", window=4),
}


@pytest.mark.parametrize("which", MADE_AGAIN)
def test_what_is_compiled_for_an_encoding_serves_its_equal(which):
    traces = []

    def run(encoding, view, x_BTHC):
        traces.append(encoding)
        layer = view.layer(0, x_BTHC.reshape(1, 4, -1))
        return posenc_jax.attend(x_BTHC, x_BTHC, x_BTHC, layer)

    static, leafless = jax.jit(run, static_argnums=0), jax.jit(run)
    x_BTHC = jnp.ones((1, 4, 2, 8))

    def call(encoding):
        params = encoding.init(jax.random.key(0), DIMS)
        view = frame(encoding, params, full(1, 4), DIMS)
        np.testing.assert_array_equal(
            static(encoding, view, x_BTHC), leafless(encoding, view, x_BTHC)
        )

    call(MADE_AGAIN[which]())
    assert len(traces) == 2
    call(MADE_AGAIN[which]())
    assert len(traces) == 2
    call(make("alibi"))
    assert len(traces) == 4, "control: another encoding"


def test_a_method_with_arrays_of_its_own_may_first_be_made_inside_of_jit():
    try:

        @posenc_jax.register(kind="bias", formula="0", paper="textbook")
        def flat(size: int = 3) -> Encoding:
            zeros = jnp.zeros(size)
            return Encoding(bias=lambda *_: zeros[None, None, None])

        bias = lambda: flat().bias({}, None, None, DIMS)
        np.testing.assert_array_equal(jax.jit(bias)(), bias())
    finally:
        CATALOG.pop("flat")


class Scaled(eqx.Module):
    """A hook that holds an array has no hash."""

    scale: jax.Array

    def __call__(self, params, q_placed, k_placed, dims):
        return jnp.full((1, 1, 1, 1), self.scale)


def test_a_hook_without_a_hash_leaves_a_chain_that_works():
    encoding = chain(make("rope"), Encoding(bias=Scaled(jnp.ones(()))))
    assert encoding.recipe is None
    bias_BHQK = encoding.bias(({}, {}), jnp.zeros((1, 1)), jnp.zeros((1, 1)), DIMS)
    np.testing.assert_array_equal(bias_BHQK, jnp.ones((1, 1, 1, 1)))


def test_another_process_reads_what_this_one_pickles(tmp_path):
    """As multiprocessing does with the method spawn."""
    encodings = [VALUES[n][0]() for n in (2, 6, 7)]
    (tmp_path / "encodings").write_bytes(pickle.dumps(encodings))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')))"
    command = [sys.executable, "-c", code, str(tmp_path / "encodings")]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert shown.strip() == repr(encodings)
    first, second, third = pickle.loads(pickle.dumps(encodings))[1].options["parts"]
    assert first is second
    assert first is not third, "which layers share parameters stays"


def test_modules_of_other_libraries_hold_an_encoding():
    class InLinen(linen.Module):
        encoding: Encoding

        @linen.compact
        def __call__(self, x_BTD):
            self.param("positions", lambda key: self.encoding.init(key, DIMS))
            return x_BTD

    class InEquinox(eqx.Module):
        encoding: Encoding  # not marked as static
        scale: jax.Array

    class InNnx(nnx.Module):
        def __init__(self, encoding):
            self.encoding, self.scale = encoding, nnx.Param(jnp.ones(()))

    traces = []
    for _ in range(2):
        module = InLinen(make("learned"))
        assert "learned()" in repr(module)
        assert module == InLinen(make("learned"))
        variables = module.init(jax.random.key(0), jnp.ones((1, 2, 16)))
        assert set(variables["params"]["positions"]) == {"table"}

        @eqx.filter_jit
        def scaled(module):
            traces.append(module)
            return module.scale

        assert jax.tree.leaves(InEquinox(make("rope"), jnp.ones(()))) == [1]
        scaled(InEquinox(make("rope"), jnp.ones(())))
        scaled(InEquinox(make("rope"), jnp.ones(())))
        graph, state = nnx.split(InNnx(make("rope")))
        assert hash(graph) == hash(nnx.split(InNnx(make("rope")))[0])
        assert nnx.merge(graph, state).encoding == make("rope")
        gradients = nnx.grad(lambda module: module.scale[...] ** 2)(InNnx(make("rope")))
        assert len(jax.tree.leaves(gradients)) == 1
    assert len(traces) == 2, "one for each of two functions"


def test_the_package_shows_its_public_names_alone():
    assert {name for name in dir(posenc_jax) if not name.startswith("_")} == set(posenc_jax.__all__)
    assert "combinators" in vars(posenc_jax), "control: what else the module holds"
