"""Methods that move positions, against their definitions and the traps of random positions."""

import functools
import itertools
import operator
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import CATALOG, Dims, attend, chain, frame, make
from posenc_jax.encodings import card, check, reach
from posenc_jax.encodings.card import Range
from posenc_jax.lab.definitions import PLACES
from posenc_jax.layout import full, join, layout
from posenc_jax.options import FieldError
from tests.support.catalogue import standing

PARITY = [
    *[("randomized", {"limit": limit, "evaluate": "spread"}) for limit in (24, 64, 2048, 100_000)],
    *[("randomized", {"limit": limit, "evaluate": "random"}) for limit in (24, 64)],
    ("randomized", {"limit": 64, "evaluate": "random", "seed": 3}),
    ("randomized", {"limit": 64, "evaluate": "plain"}),
    ("interpolated", {"length": 10}),
    ("clamped", {"length": 10}),
]
# A row of one document; padded left, right; two documents; one token, then two documents.
ROWS = np.array(
    [[1] * 12, [0] * 4 + [1] * 8, [1] * 7 + [0] * 5, [1] * 6 + [2] * 6, [1] + [2] * 5 + [3] * 6]
)
# Documents of 24; 1, 2, 9, 10; 11 and 13 tokens.
PACKED = np.array([[1] * 24, [1] + [2] * 2 + [3] * 9 + [4] * 10 + [0] * 2, [1] * 11 + [2] * 13])


RANDOMIZED, KEY = make("randomized"), jax.random.key(0)


@functools.partial(jax.jit, static_argnums=0)
def place(encoding, key, where):
    return encoding.place(key, where)


def placed(encoding, where, key=None):
    return np.asarray(place(encoding, key, where))


def runs(segments):
    """The documents of rows of segment ids, as (row, slice)."""
    actual = []
    for row, ids in enumerate(segments):
        edges = [0, *(np.flatnonzero(np.diff(ids)) + 1), len(ids)]
        actual += [(row, slice(a, b)) for a, b in itertools.pairwise(edges) if ids[a] > 0]
    return actual


def sorted_and_distinct(shown, limit):
    return bool(np.all(np.diff(shown) > 0) and shown[0] >= 0 and shown[-1] < limit)


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize(("name", "options"), PARITY)
def test_equals_its_definition_in_float64(name, options):
    """In evaluation a token is shown a function of (position, length), whatever its row."""
    o, encoding = SimpleNamespace(**(card(name).defaults | options)), make(name, **options)
    with jax.enable_x64(True):
        where = layout(jnp.asarray(PACKED))
        out = placed(encoding, where)
        assert out.dtype == np.float64 or name == "clamped"
        for row, part in runs(PACKED):
            n = part.stop - part.start
            expected = PLACES[name](o, np.arange(n), n)
            np.testing.assert_allclose(out[row, part], expected, rtol=1e-12, atol=1e-12)
        token = placed(encoding, jax.tree.map(lambda leaf: leaf[2:, -1:], where))
        np.testing.assert_array_equal(token[0, 0], out[2, -1])
        control = PLACES[name](o, np.arange(24) + 1, 25)
        assert not np.allclose(out[0, :23], control[:23], rtol=1e-6)


def test_random_positions_are_sorted_distinct_and_below_the_limit():
    encoding, where = make("randomized", limit=16), layout(jnp.asarray(ROWS))
    for seed in range(20):
        shown = placed(encoding, where, jax.random.key(seed))
        assert all(sorted_and_distinct(shown[row, part], 16) for row, part in runs(ROWS))
    shuffled = np.random.default_rng(0).permutation(shown[0])
    repeated = np.sort(np.random.default_rng(0).integers(0, 16, 12))
    assert not sorted_and_distinct(shuffled, 16)
    assert not sorted_and_distinct(repeated, 16)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("evaluate", ["spread", "random", "plain"])
def test_as_many_tokens_as_positions_are_shown_them_all_and_more_nan(evaluate):
    where = layout(jnp.asarray([[1] * 8 + [0], [1] * 9, [0] + [1] * 8]))
    encoding = make("randomized", limit=8, evaluate=evaluate)
    for key in (None, jax.random.key(0)) if evaluate == "random" else (None,):
        out = placed(encoding, where, key)
        np.testing.assert_array_equal(out[0, :8], np.arange(8))
        np.testing.assert_array_equal(out[2, 1:], np.arange(8))
        assert np.all(np.isnan(out[1]))
    wider = placed(make("randomized", limit=64, evaluate=evaluate), where)
    assert not np.any(np.isnan(wider[1]))
    assert np.array_equal(wider[0, :8], np.arange(8)) == (evaluate == "plain")


def test_nan_reaches_the_output():
    chained, where = make("randomized+sinusoidal", limit=8), full(1, 9)
    placed_BT = chained.place(None, where)
    assert np.all(np.isnan(chained.embed(({}, {}), jnp.zeros((1, 9, 4)), placed_BT)))


def test_every_example_and_every_document_has_its_own_draw():
    ids = [[1] * 6 + [2] * 6] * 3
    shown = placed(RANDOMIZED, layout(jnp.asarray(ids)), KEY)
    draws = {tuple(shown[row, part]) for row, part in runs(ids)}
    assert len(draws) == 6
    shared = placed(make("randomized", per="batch"), layout(jnp.asarray(ids)), jax.random.key(0))
    assert len({tuple(shared[row, part]) for row, part in runs(ids)}) == 2
    again = placed(RANDOMIZED, layout(jnp.asarray(ids)), jax.random.key(1))
    assert not np.array_equal(again, shown)


@pytest.mark.parametrize("pads", [1, 4, 8, 9])
@pytest.mark.parametrize("count", [1, 2])
def test_padding_leaves_a_draw_as_it_is(pads, count):
    """On the left, also where it is as long as a document; on the right, from two tokens on."""
    ids = np.repeat(np.arange(count) + 1, 8)
    put = lambda left: layout(jnp.asarray(np.pad(ids, (left, 28 - left - len(ids))))[None])
    bare = placed(RANDOMIZED, put(0), KEY)[0, : len(ids)]
    padded = placed(RANDOMIZED, put(pads), KEY)[0, pads:][: len(ids)]
    np.testing.assert_array_equal(padded, bare)
    other = placed(RANDOMIZED, put(pads), jax.random.key(1))[0, pads:][: len(ids)]
    assert not np.array_equal(padded, other)


def test_a_draw_is_the_same_with_no_padding():
    bare = placed(RANDOMIZED, full(1, 8), KEY)[0]
    padded = placed(RANDOMIZED, layout(jnp.asarray([[1] * 8 + [0] * 2])), KEY)[0]
    np.testing.assert_array_equal(padded, [*bare, 0, 0])
    assert not np.array_equal(bare, np.arange(8))


def test_queries_and_a_memory_before_them_share_a_draw():
    """The second half of a document alone is shown what it is shown behind its first half."""
    where = full(1, 12)
    halves = [jax.tree.map(operator.itemgetter(np.s_[:, a:b]), where) for a, b in ((0, 6), (6, 12))]
    together = placed(RANDOMIZED, join(*halves), KEY)[:, 6:]
    np.testing.assert_array_equal(placed(RANDOMIZED, halves[1], KEY), together)
    assert not np.array_equal(placed(RANDOMIZED, halves[1], jax.random.key(1)), together)


def test_draws_are_uniform_over_subsets():
    """All 10 pairs out of 5 equally often: chi-squared, 9 degrees of freedom, below its 99.9%."""

    def chi_squared(shown):
        _, counts = np.unique(shown @ np.array([5, 1]), return_counts=True)
        counts = np.pad(counts, (0, 10 - len(counts)))
        return np.sum((counts - 500.0) ** 2 / 500.0)

    shown = placed(make("randomized", limit=5), full(5000, 2), jax.random.key(0))
    assert chi_squared(shown.astype(int)) < 27.9
    # Sorted uniform numbers, rounded down and spread apart, look random and are not uniform.
    uniform = np.sort(np.random.default_rng(0).uniform(size=(5000, 2)), axis=1)
    assert chi_squared(np.floor(uniform * 4).astype(int) + np.arange(2)) > 27.9


def test_spread_is_the_mean_draw_rounded_down():
    draws = placed(make("randomized", limit=40), full(4000, 7), jax.random.key(0))
    spread = placed(make("randomized", limit=40), full(1, 7))[0]
    exact = np.arange(1, 8) * 41 / 8 - 1
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=0.5)
    np.testing.assert_array_equal(spread, np.floor(exact))
    assert np.max(np.abs(draws.mean(axis=0) - np.arange(7) * 40 / 7)) > 0.5


def test_trains_inside_a_scan_a_vmap_and_a_gradient():
    encoding = make("randomized+learned", limit=64, length=64)
    where, x = full(2, 6), jnp.ones((2, 6, 8))
    params = encoding.init(jax.random.key(0), Dims(8, 2, 4))

    def loss(params, key):
        out = encoding.embed(params, x, encoding.place(key, where))
        return jnp.sum(out**2)

    def slopes(key):
        return jax.lax.scan(lambda p, k: (p, jax.grad(loss)(p, k)), params, jax.random.split(key))

    keys = jax.random.split(jax.random.key(1), 3)
    table = jax.jit(jax.vmap(slopes))(keys)[1][1]["table"]
    reached = np.any(np.asarray(table) != 0, axis=-1)
    assert reached.shape == (3, 2, 64)
    assert np.all((reached.sum(axis=-1) >= 6) & (reached.sum(axis=-1) <= 12))
    assert len({tuple(row) for row in reached.reshape(6, 64)}) == 6


def test_interpolation_is_the_identity_up_to_its_length():
    encoding = make("interpolated", length=10)
    for n in (1, 9, 10):
        np.testing.assert_array_equal(placed(encoding, full(1, n))[0], np.arange(n))
    squeezed = placed(encoding, full(1, 11))[0]
    assert not np.array_equal(squeezed, np.arange(11))
    assert squeezed[-1] < 10


MOVERS = [
    ("randomized", {"limit": 32}),
    ("randomized", {"limit": 32, "evaluate": "plain"}),
    ("interpolated", {"length": 8}),
    ("clamped", {"length": 8}),
    ("shifted", {"shift": 9, "still": 4}),
    ("cape", {"scale": 1.5}),
    ("cape", {"normalize": False}),
    ("pose", {"limit": 32}),
    ("abacus", {"limit": 32, "offset": 7}),
    ("coupled", {"limit": 32}),
    ("bipe_inner", {}),
    ("bipe_outer", {}),
]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("time", [1, 7, 24])
@pytest.mark.parametrize(("name", "options"), MOVERS)
def test_placed_positions_lie_in_the_range_that_the_card_states(name, options, time):
    """In training and in evaluation, from plain positions; randomized positions reach the ends."""
    where = full(200, time)
    where = where.replace(group_BT=where.pos_BT % 9)
    o, encoding = SimpleNamespace(**(card(name).defaults | options)), make(name, **options)
    for key in (None, KEY):
        span = card(name).moves(o, time, Range(0, time), key is not None)
        actual = placed(encoding, where, key)
        assert actual.min() >= span.low - 1e-5
        assert actual.max() < span.below + 1e-5
        if key is not None and name in ("randomized", "shifted"):
            assert actual.min() < span.low + 3, "control: the range is no wider than it must be"
            assert actual.max() >= span.below - 3
    assert set(MOVERS_OF_CATALOG) == {name for name, _ in MOVERS}


MOVERS_OF_CATALOG = [name for name in CATALOG if card(name).kind == "positions"]
READERS = [
    (name, options)
    for name in ("learned", "one_hot", "binary", "rbf", "tupe")
    for options in ({"length": 16}, {"length": 16, "beyond": "interpolate"})
]
CHAINS = [
    *[("clamped", name, options) for name, options in READERS],
    *[("interpolated", name, options) for name, options in READERS],
    *[("shifted", name, {"shift": 4, **options}) for name, options in READERS],
    *[("cape", name, options) for name, options in READERS],
    *[("randomized", name, {"limit": 16, **options}) for name, options in READERS],
    *[("randomized", name, {"limit": 17, **options}) for name, options in READERS],
    ("shifted", "randomized+rope", {"limit": 16, "shift": 1}),
    ("cape", "irope", {"every": 2}),
    ("coupled", "learned", {"limit": 16, "length": 16}),
    ("pose", "learned", {"limit": 16, "length": 16}),
    ("pose", "learned", {"limit": 17, "length": 16}),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mover", "reader", "options"), CHAINS)
def test_a_chain_is_accepted_if_and_only_if_training_on_it_is_finite(mover, reader, options):
    accepted = [is_accepted(f"{mover}+{reader}", options, time) for time in (12, 13)]
    finite = [is_finite_in_training(mover, reader, options, time) for time in (12, 13)]
    if "interpolate" in options.values():
        # Positions that another part places are not squeezed into the table but clipped.
        assert all(finite)
        fits = mover in ("clamped", "interpolated") or options.get("limit") == 16
        assert accepted == ([True, False] if mover == "shifted" else [fits, fits])
    else:
        assert accepted == finite


def is_accepted(name, options, time):
    try:
        check(name, options, time)
    except FieldError:
        return False
    return True


def is_finite_in_training(mover, reader, options, time):
    """Whether attention is finite in both layers for positions drawn in training, 400 times."""
    own_options = lambda name: {o: v for o, v in options.items() if o in card(name).options}
    names = [mover, *reader.split("+")]
    encoding = chain(*(CATALOG[name](**own_options(name)) for name in names))
    where, dims = full(400, time), Dims(8, 2, 4, 2)
    params = encoding.init(KEY, dims)
    view = frame(encoding, params, where, dims, placed=encoding.place(KEY, where), form="dense")
    x = view.embed(jax.random.normal(KEY, (400, time, 8)))
    q = x.reshape(400, time, 2, 4)
    return all(np.isfinite(attend(q, q, q, view.layer(n, x))).all() for n in range(2))


def test_a_chain_is_refused_by_what_every_length_shows():
    gives = (
        r"reads positions in \[0, 512\), and in training randomized gives it those in \[0, 2048\)"
    )
    with pytest.raises(FieldError, match=gives + "; raise encoding.length to 2048, or set"):
        make("randomized+learned")
    for name in ("cape+one_hot", "randomized+axial", "shifted+mrope", "abacus+learned_2d"):
        with pytest.raises(FieldError, match=r"^encoding\.name: "):
            make(name)
    make("randomized+learned", length=2048)
    make("cape+one_hot", beyond="clamp")


def test_what_depends_on_the_length_is_refused_for_a_length():
    make("shifted+learned")
    check("shifted+learned", {}, 12)
    with pytest.raises(FieldError, match=r"on 64 tokens shifted .* raise encoding.length to 564"):
        check("shifted+learned", {}, 64)
    check("shifted+learned", {"length": 564}, 64)


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("rope", {}, None),
        ("learned", {}, 512),
        ("learned", {"beyond": "interpolate"}, None),
        ("randomized", {"limit": 64}, 64),
        ("randomized+learned", {"limit": 64, "length": 64}, 64),
        ("clamped+learned", {}, None),
        ("interpolated+learned", {"length": 16}, None),
        ("shifted+learned", {"shift": 100, "still": 12}, 500),
        ("learned+clamped+rope", {"length": 16}, 16),
        ("coupled+learned", {"limit": 16, "length": 16}, None),
        ("learned_2d", {"length": 7}, 7),
        ("swin_2d", {"window": 3, "beyond": "error"}, 3),
    ],
)
def test_reach_is_the_longest_sequence_that_is_read_in_evaluation(name, options, most):
    assert reach(name, **options) == most


@pytest.mark.parametrize("name", MOVERS_OF_CATALOG[:5])
def test_refuses_positions_of_two_axes(name):
    pos = jnp.zeros((1, 4, 2), jnp.int32)
    with pytest.raises(ValueError, match=r"^positions: shape \(1, 4, 2\) is not \[B, T\]$"):
        make(name).place(None, standing(pos))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("randomized", {"limit": 0}, "encoding.limit: 0 must be 1 or more"),
        ("interpolated", {"length": -1}, "encoding.length: -1 must be 1 or more"),
        ("clamped", {"length": 0}, "encoding.length: 0 must be 1 or more"),
    ],
)
def test_refuses_bad_values_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as error:
        make(name, **options)
    assert str(error.value) == line


def test_refuses_an_unknown_choice_of_a_direct_call():
    with pytest.raises(ValueError, match=r"encoding\.evaluate: 'other' is not one of: 'spread'"):
        card("randomized").build(evaluate="other")
