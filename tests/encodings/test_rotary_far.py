"""Rotary methods far out: tables against float64, and scores under shifts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import attend, frame, make
from posenc_jax.encoding import at_layer, place
from posenc_jax.encodings import CATALOG
from posenc_jax.encodings.rotation import ladder, turn, turns
from posenc_jax.layout import full
from tests.encodings.test_rotary import DIMS, FAR, counted, first_layer, logits, spread, vectors
from tests.support.catalogue import gap, standing, stir

EXACT = [
    ("rope", {}),
    ("partial", {}),
    ("p_rope", {}),
    ("hope", {}),
    ("headwise", {}),
    ("headwise", {"learned": True}),
    ("xpos", {}),
    ("evq", {}),
    ("rope_pp", {}),
    ("nd_rope", {}),
    ("axial", {}),
    ("spiral", {}),
    ("harope", {}),
    ("mixed", {}),
    ("gta", {}),
    ("mrope", {}),
    ("tmrope", {}),
    ("mhrope", {}),
    ("video_rope", {}),
    ("dinov3", {}),
    ("fope", {}),
    ("fope", {"learned": True}),
    ("pope", {"uniform": True}),
    ("string", {}),
    ("grape_m", {}),
    ("pi", {}),
    ("ntk", {}),
    ("dynamic_ntk", {}),
    ("ntk_by_parts", {}),
    ("yarn", {}),
    ("llama3", {}),
    ("longrope", {}),
    ("resonance", {}),
    ("clex", {}),
]


RELATIVE = [row for row in EXACT if CATALOG[row[0]].card.shift_invariant]


@pytest.mark.parametrize("top", FAR)
@pytest.mark.parametrize(("name", "options"), EXACT)
def test_far_table(name, options, top):
    """Cosines and sines of float32 tables are those of float64, learned frequencies included."""

    def table(start):
        pos = spread(counted(start), CATALOG[name].card.axes)
        encoding, layer_params = at_layer(CATALOG[name](**options), 0, params)
        layer_params = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), layer_params)
        made = encoding.table(layer_params, place(encoding, None, standing(pos)), DIMS)
        return jax.tree.leaves(made)

    fresh = CATALOG[name](**options).init(jax.random.key(0), DIMS)
    params = jax.tree.map(np.asarray, stir(fresh, 1))
    single = table(top)
    with jax.enable_x64(True):
        double, next_to = table(top), table(top + 1)
    assert {leaf.dtype for leaf in single} == {jnp.dtype(jnp.float32)}
    assert max(map(gap, single, double)) < 1e-6
    assert max(map(gap, single, next_to)) > 1e-2, "control: the position after"


def test_every_rotary_method_is_held_to_its_angles():
    """Those that are not: `liere`, `comrope` and `tree` have no turns to drop, see their
    docstrings; `prope` reads cameras, and tests/encodings/test_cameras.py holds it to float64.

    Methods that choose angles by distance have them in their scores, not in a table; they are held
    to float64 by test_catalogue_precision.
    """
    tables = lambda card: card.kind == "rotary" and card.in_chain != "alone"
    rotary_names = {name for name, build in CATALOG.items() if tables(build.card)}
    assert rotary_names - {name for name, _ in EXACT} == {"comrope", "liere", "prope", "tree"}


@pytest.mark.parametrize("shift", FAR)
@pytest.mark.parametrize(("name", "options"), [*RELATIVE, ("string", {"basis": "circulant"})])
def test_shift(name, options, shift):
    """Scores depend on i - j alone, in float32, however far out, whatever the parameters."""
    encoding, params = first_layer(name, **options)
    q, k = vectors(2)
    at = lambda start: spread(counted(0), CATALOG[name].card.axes) + start
    near = logits(encoding, params, q, k, at(0))
    assert gap(near, logits(encoding, params, q, k, at(shift))) < 5e-6
    assert gap(near, logits(encoding, params, q, k, 2 * at(shift))) > 1e-2


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_shift_control(dtype):
    """The controls: positions in bfloat16, or a float32 product, are not shift invariant."""
    q, k = vectors(2)

    def naive(pos_BT):
        freq = jnp.asarray(ladder(DIMS.head, 10_000.0), dtype)
        angle = (pos_BT.astype(dtype)[:, :, None, None] * freq[None, None, None]).astype(float)
        turned_q, turned_k = (turn(turns(angle), x, "half") for x in (q, k))
        return jnp.einsum("bqhc,bkhc->bhqk", turned_q, turned_k)

    assert gap(naive(counted(0)), naive(counted(10**6))) > 1e-2


def products(jaxpr):
    """Every product of matrices in a traced program."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            yield eqn
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.parametrize("name", ["rope", "fope", "clex", "grape_m", "tree", "repo", "shaw"])
def test_products_that_make_angles_are_not_rounded(name):
    """A GPU and a TPU round the factors of a product, unless its precision is given. Only the
    products of queries and keys, and of weights and values, may be so. The control, `shaw`, has a
    third one, of queries and vectors of offsets.
    """
    encoding = make(name)
    params = encoding.init(jax.random.key(0), DIMS)

    def output(params, x_BTD, q, k, v):
        view = frame(encoding, params, full(1, 8), DIMS, form="dense")
        return attend(q, k, v, view.layer(0, x_BTD))

    x_BTD = jnp.zeros((1, 8, DIMS.model))
    qkv = [jnp.zeros((1, 8, DIMS.heads, DIMS.head))] * 3
    actual = [
        eqn.params["precision"]
        for eqn in products(jax.make_jaxpr(output)(params, x_BTD, *qkv).jaxpr)
    ]
    rounded = [p for p in actual if p != (jax.lax.Precision.HIGHEST,) * 2]
    assert len(rounded) == 2 + (name == "shaw")
