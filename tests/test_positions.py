"""Methods that move positions, against their definitions and the traps of random positions."""

import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, make
from posenc_jax.encodings import card
from posenc_jax.layout import full, join, layout
from tests.catalogue import standing

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
    found = []
    for row, ids in enumerate(segments):
        edges = [0, *(np.flatnonzero(np.diff(ids)) + 1), len(ids)]
        found += [(row, slice(a, b)) for a, b in itertools.pairwise(edges) if ids[a] > 0]
    return found


def sorted_and_distinct(shown, limit):
    return bool(np.all(np.diff(shown) > 0) and shown[0] >= 0 and shown[-1] < limit)


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
            expected = card(name).places(o, np.arange(n), n)
            np.testing.assert_allclose(out[row, part], expected, rtol=1e-12, atol=1e-12)
        token = placed(encoding, jax.tree.map(lambda leaf: leaf[2:, -1:], where))
        np.testing.assert_array_equal(token[0, 0], out[2, -1])
        control = card(name).places(o, np.arange(24) + 1, 25)
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
    halves = [type(where)(*(leaf[:, part] for leaf in where)) for part in (slice(6), slice(6, 12))]
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


@pytest.mark.parametrize("name", ["randomized", "interpolated", "clamped"])
def test_what_is_shown_stays_below_what_is_declared(name):
    option = "limit" if name == "randomized" else "length"
    encoding = make(name, **{option: 16})
    assert encoding.shows == 16
    for n in (1, 15, 16):
        assert np.all(placed(encoding, full(1, n)) < 16)
    if name != "randomized":
        assert np.all(placed(encoding, full(1, 200_000)) < 16)
        assert make(f"{name}+learned", length=16).limit is None
        assert make(name, length=17).shows > 16


def test_a_mover_brings_a_table_as_many_positions_as_it_shows():
    assert make("randomized+learned", limit=64, length=64).limit == 64
    assert make("randomized+learned", limit=64, length=32).limit == 32


@pytest.mark.parametrize("name", ["randomized", "interpolated"])
def test_refuses_positions_of_two_axes(name):
    pos = jnp.zeros((1, 4, 2), jnp.int32)
    with pytest.raises(ValueError, match=f"is not \\[B, T\\], all that {name} can move"):
        make(name).place(None, standing(pos))


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("randomized", {"limit": 0}, "encoding.limit: 0 must be positive"),
        ("interpolated", {"length": -1}, "encoding.length: -1 must be positive"),
        ("clamped", {"length": 0}, "encoding.length: 0 must be positive"),
    ],
)
def test_refuses_bad_values_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as error:
        make(name, **options)
    assert str(error.value) == line


def test_refuses_an_unknown_choice_of_a_direct_call():
    with pytest.raises(ValueError, match=r"encoding\.evaluate: 'other' is not one of: 'spread'"):
        card("randomized").build(evaluate="other")
