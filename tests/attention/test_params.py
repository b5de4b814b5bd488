"""Parameters in the containers in which models store them, and errors on others."""

import itertools
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.core import FrozenDict

from posenc_jax import Dims, attend, frame, full, make, rotate
from posenc_jax.options import FieldError

DIMS = Dims(model=8, heads=2, head=4, layers=2)
X = jax.random.normal(jax.random.key(1), (1, 5, 8))


def params_of(name):
    return make(name).init(jax.random.key(0), DIMS)


def output(name, params):
    q = X.reshape(1, 5, 2, 4)
    view = frame(make(name), params, full(1, 5), DIMS)
    return attend(q, q, q, view.layer(1, view.embed(X)))


def as_state(params):
    return nnx.as_pure(nnx.state(nnx.Dict(params=nnx.data(jax.tree.map(nnx.Param, params)))))[
        "params"
    ]


@pytest.mark.parametrize("name", ["t5", "clipped", "rope+t5"])
def test_containers_of_the_same_keys_are_the_same_parameters(name):
    params = params_of(name)
    state, boxed = as_state(params), jax.tree.map(nnx.Param, params)
    assert isinstance(state, nnx.State)
    wanted = output(name, params)
    for stored in (state, boxed, nnx.Param(params)):
        assert jnp.array_equal(output(name, stored), wanted)
    doubled = jax.tree.map(lambda leaf: 2 * leaf, state)
    assert not jnp.array_equal(output(name, doubled), wanted), "control: other values"


def test_other_dicts_and_gradients_of_them():
    params = params_of("t5")
    for stored in (FrozenDict(params), OrderedDict(params)):
        assert jnp.array_equal(output("t5", stored), output("t5", params))
    loss = lambda params: (output("t5", params) ** 2).sum()
    grads = jax.grad(loss)(FrozenDict(params))
    assert isinstance(grads, FrozenDict)
    assert jnp.array_equal(grads["table"], jax.grad(loss)(params)["table"])
    assert jnp.abs(grads["table"]).max() > 0


def test_order_of_keys_does_not_matter():
    params = params_of("clex")
    backwards = OrderedDict(sorted(params.items(), reverse=True))
    assert list(backwards) == ["up", "down"]
    assert jnp.array_equal(output("clex", backwards), output("clex", params))


class Model(nnx.Module):
    def __init__(self, wrap, encoding, rngs):
        self.encoding = nnx.static(encoding)
        self.positions = wrap(encoding.init(rngs.params(), DIMS))
        self.qkv = nnx.LinearGeneral(8, (3, 2, 4), rngs=rngs)

    def __call__(self, read):
        q, k, v = jnp.moveaxis(self.qkv(X), 2, 0)
        view = frame(self.encoding, read(self.positions), full(1, 5), DIMS)
        return attend(q, k, v, view.layer(0, X))


FORMS = {
    "of arrays": (lambda params: nnx.data(jax.tree.map(nnx.Param, params)), nnx.as_pure),
    "of a dict": (nnx.Param, lambda param: param.get_value()),
    "of a dict, as pure": (nnx.Param, nnx.as_pure),
    "of a dict, itself": (nnx.Param, lambda param: param),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_nnx_model_trains_its_parameters(form):
    """Three steps, since a dict in an `nnx.Param` is a dict in the first one alone."""
    wrap, read = FORMS[form]
    model = Model(wrap, make("t5"), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    table = lambda: np.asarray(jax.tree.leaves(nnx.as_pure(model.positions))[0])
    tables = [table()]
    for _ in range(3):
        loss, grads = nnx.value_and_grad(lambda model: (model(read) ** 2).mean())(model)
        optimizer.update(model, grads)
        assert jnp.isfinite(loss)
        tables.append(table())
    assert all((a != b).any() for a, b in itertools.pairwise(tables))


def test_parameters_that_are_data_alone_are_not_trained():
    """The control: without `nnx.Param` the optimizer does not see them."""
    model = Model(nnx.data, make("t5"), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    before = np.asarray(model.positions["table"])
    grads = nnx.grad(lambda model: (model(lambda params: params) ** 2).mean())(model)
    optimizer.update(model, grads)
    assert np.array_equal(model.positions["table"], before)


SIZES = "for Dims(model=8, heads=2, head=4, layers=2); make them by encoding.init(key, dims)"
MANY = {f"w{n}": X for n in range(9)}
WRONG = [
    ("t5", {"bias": X}, f"params: keys ['bias']; t5 has ['table'] {SIZES}"),
    ("t5", {"params": {"table": X}}, f"params: keys ['params']['table']; t5 has ['table'] {SIZES}"),
    ("t5", {}, f"params: no keys; t5 has ['table'] {SIZES}"),
    ("rope", {"table": X}, f"params: keys ['table']; rope has none {SIZES}"),
    ("t5", "t5", f"params: str, no pytree of arrays by key; t5 has ['table'] {SIZES}"),
    ("t5", MANY, "params: keys ['w0'], ['w1'], ['w2'], ['w3'], ['w4'], ['w5'] and 3 more; t5 has"),
    ("rope+t5", ({"table": X}, {}), "params: keys [0]['table']; chain has [1]['table'] for"),
    ("t5", {"table": "x"}, "params['table']: 'x' is not an array"),
    ("t5", {"table": X}, "params['table']: shape (1, 5, 8); the encoding has (32, 2) for Dims("),
]


@pytest.mark.parametrize(("name", "params", "message"), WRONG)
def test_other_parameters_are_refused_in_one_line_with_both_structures(name, params, message):
    with pytest.raises(FieldError) as refusal:
        output(name, params)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_rotate_takes_and_refuses_the_same():
    q, pos = X.reshape(1, 5, 2, 4), jnp.arange(5)
    for name, pos in (("clex", jnp.arange(5)), ("mixed", jnp.zeros((1, 5, 2)))):
        encoding, params, options = make(name), params_of(name), {"layer": 1, "length": 5}
        wanted = rotate(encoding, q, q, pos, params, **options)
        actual = rotate(encoding, q, q, pos, as_state(params), **options)
        assert all(map(jnp.array_equal, actual, wanted))
        with pytest.raises(FieldError, match=rf"^params: keys \['w'\]; {name} has "):
            rotate(encoding, q, q, pos, {"w": X}, **options)
