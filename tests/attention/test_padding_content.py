"""What stands in padding, be it NaN, changes no output and no gradient, in every form.

That no output of any method changes is shown by test_catalogue_shapes.py, whose padding holds NaN.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, attend, frame, logits, weights
from posenc_jax.layout import full, layout
from tests.support.catalogue import encoding_of, gap, stir

DIMS = Dims(16, 2, 8, 1)
TIME = 6
SEGMENT = jnp.array([[0, 1, 1, 1, 1, 1], [1, 1, 2, 2, 0, 0]])
REAL = np.asarray(SEGMENT) > 0
BAD = {"nan": np.nan, "inf": np.inf, "large": 3e38}
FORMS = {
    "dense": {"form": "dense"},
    "auto": {},
    "blocks": {"form": "blockwise", "block": 4},
    "kernel": {"form": "kernel"},
}
METHODS = ["rope", "t5", "pope", "ssmax", "repo", "shaw", "fox", "cope", "path", "wall"]


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=(2, TIME, 2, 8)), jnp.float32) for _ in range(5)]


def spoiled(x_BTHC, bad: float):
    """The array with padding that holds this number."""
    return jnp.where(jnp.asarray(REAL)[..., None, None], x_BTHC, bad)


def params_of(name):
    return stir(encoding_of(name).init(jax.random.key(0), DIMS), 1)


def program(name, **options):
    """(q, k, v, x, g) -> the output, and the gradients of the parameters, q, k, v and x."""
    encoding, at = encoding_of(name), layout(SEGMENT)

    @jax.jit
    def values(q, k, v, x, g):
        def run(params, q, k, v, x):
            view = frame(encoding, params, at, DIMS, **options)
            x_BTD = view.embed(x.reshape(2, TIME, -1))
            return attend(q, k, v, view.layer(0, x_BTD))

        o, pull = jax.vjp(run, params_of(name), q, k, v, x)
        return o, pull(g)

    return values


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((name, "blocks") for name in METHODS),
        *((name, form) for name in ("t5", "fox") for form in ("dense", "kernel")),
        *((name, "dense") for name in ("pope", "path", "repo")),
        *((name, "auto") for name in ("rope", "alibi", "learned")),
    ],
)
def test_padding_that_is_not_a_number_changes_nothing(name, form):
    """Nor does a gradient that is NaN there, as that of a sum with a NaN of padding is."""
    arrays, values = drawn(), program(name, **FORMS[form])
    wanted, wanted_grads = values(*arrays[:4], spoiled(arrays[4], 0.0))
    for bad in BAD.values():
        out, grads = values(*(spoiled(x, bad) for x in arrays))
        assert gap(out, wanted) == 0
        assert gap(grads, wanted_grads) == 0
    assert all((np.asarray(of)[~REAL] == 0).all() for of in wanted_grads[1:])
    assert min(float(jnp.abs(of).max()) for of in wanted_grads[1:4]) > 1e-3, "control"


def test_padding_that_is_not_masked_is_read():
    """The control: without the padding mask a NaN spreads."""
    arrays = drawn()
    out, _ = program("rope", mask_padding=False)(*(spoiled(x, np.nan) for x in arrays))
    assert jnp.isnan(out[REAL]).any()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "fox"])
def test_weights_and_logits_read_no_padding(name):
    q, k, _, x, _ = drawn()
    view = frame(encoding_of(name), params_of(name), layout(SEGMENT), DIMS, form="dense")

    def of(q, k, x):
        layer = view.layer(0, x.reshape(2, TIME, -1))
        return weights(q, k, layer), jnp.maximum(logits(q, k, layer), -1e9)

    bad = of(*(spoiled(a, np.nan) for a in (q, k, x)))
    assert gap(bad, of(q, k, x)) == 0
    assert not any(jnp.isnan(leaf).any() for leaf in bad)


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["dense", "blocks"])
@pytest.mark.parametrize("name", ["rope", "t5", "fox", "path", "repo"])
def test_a_cache_may_hold_anything_where_nothing_was_written(name, form):
    """Columns past the newest token, in keys, values and what is kept of x."""
    q, k, v, x, _ = (a[:, :4] for a in drawn())
    encoding, params, wide = encoding_of(name), params_of(name), x.reshape(2, 4, -1)
    whole = frame(encoding, params, full(2, 4), DIMS).layer(0, wide)
    wanted = attend(q, k, v, whole)[:, -1:]

    def step(bad):
        fill = lambda a: jnp.pad(a, [(0, 0), (0, 2)] + [(0, 0)] * (a.ndim - 2), constant_values=bad)
        at = layout(jnp.array([[1, 1, 1, 1, 0, 0]] * 2))
        view = frame(encoding, params, at, DIMS, queries=(3, 1), **FORMS[form])
        layer = view.layer(0, wide[:, -1:])
        if whole.k_kept is not None:
            with pytest.raises(ValueError, match=r"^layer: it has features of the queries' x, not"):
                attend(q[:, -1:], fill(k), fill(v), layer)
            layer = layer.with_keys(jax.tree.map(fill, whole.k_kept))
        return attend(q[:, -1:], fill(k), fill(v), layer)

    assert gap(step(np.nan), step(0.0)) == 0
    assert gap(step(np.nan), wanted) < 1e-5


@pytest.mark.thorough(after=3)
@pytest.mark.parametrize("form", ["dense", "blocks"])
@pytest.mark.parametrize("name", ["rope", "t5", "shaw", "fox_rows"])
def test_cross_attention_reads_no_padding_of_either_side(name, form):
    q, k, v, x, x_keys = drawn()
    params, keys = params_of(name), layout(SEGMENT[:, ::-1])

    @jax.jit
    def values(q, k, v, x, x_keys):
        def run(*args):
            q, k, v, x, x_keys = args
            view = frame(encoding_of(name), params, layout(SEGMENT), DIMS, keys, **FORMS[form])
            wide = (a.reshape(2, TIME, -1) for a in (x, x_keys))
            return attend(q, k, v, view.layer(0, *wide))

        o, pull = jax.vjp(run, q, k, v, x, x_keys)
        return o, pull(jnp.sin(o))

    turned = lambda a: spoiled(a[:, ::-1], np.nan)[:, ::-1]
    bad = values(spoiled(q, np.nan), turned(k), turned(v), spoiled(x, np.nan), turned(x_keys))
    assert gap(bad, values(q, k, v, x, x_keys)) == 0
