"""SHAPE, CAPE and PoSE: what their draws are, who shares them, and what is shown in evaluation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import chain, make
from posenc_jax.encoding import place
from posenc_jax.encodings import check
from posenc_jax.layout import full, join, layout

KEY = jax.random.key(0)
SHIFTED, CAPE = make("shifted", shift=4000), make("cape", shift=9.0, jitter=0.4, scale=1.5)
BOTH = pytest.mark.parametrize("encoding", [SHIFTED, CAPE], ids=["shifted", "cape"])


@functools.partial(jax.jit, static_argnums=0)
def shown(encoding, key, where):
    return place(encoding, key, where)


def test_a_shift_is_uniform_over_0_to_its_largest_and_one_for_a_sequence():
    encoding = make("shifted", shift=4)
    actual = np.asarray(shown(encoding, KEY, full(5000, 3)))
    np.testing.assert_array_equal(np.diff(actual, axis=1), 1)
    counts = np.bincount(actual[:, 0])
    assert len(counts) == 5
    assert ((counts - 1000) ** 2 / 1000).sum() < 18.5  # chi-squared, 4 degrees, its 99.9%
    below = np.bincount(np.random.default_rng(0).integers(0, 4, 5000), minlength=5)
    assert ((below - 1000) ** 2 / 1000).sum() > 18.5, "control: the public code's 0 .. shift - 1"


def test_a_shift_rests_in_evaluation():
    at = full(1, 5)
    assert shown(SHIFTED, None, at).dtype == at.pos_BT.dtype
    np.testing.assert_array_equal(shown(SHIFTED, None, at)[0], np.arange(5))
    np.testing.assert_array_equal(shown(make("shifted", still=7), None, at)[0], 7 + np.arange(5))
    assert shown(SHIFTED, KEY, at)[0, 0] != 0


@pytest.mark.thorough
@BOTH
def test_every_sequence_has_its_own_draw_and_padding_changes_none(encoding):
    packed = layout(jnp.asarray([[1] * 4 + [2] * 4] * 3))
    starts = np.asarray(shown(encoding, KEY, packed))[:, [0, 4]].ravel()
    assert len(set(starts)) == 6
    put = lambda left, right: layout(jnp.asarray([[0] * left + [1] * 4 + [0] * right]))
    bare = np.asarray(shown(encoding, KEY, put(0, 0)))[0]
    for left, right in ((1, 0), (5, 0), (0, 3), (2, 2)):
        padded = np.asarray(shown(encoding, KEY, put(left, right)))[0, left:][:4]
        np.testing.assert_array_equal(padded, bare)
    assert not np.array_equal(shown(encoding, jax.random.key(1), put(0, 0))[0], bare)


@BOTH
def test_queries_and_a_memory_before_them_share_a_draw(encoding):
    where = full(1, 12)
    cut = lambda part: jax.tree.map(lambda leaf: leaf[:, part], where)
    halves = [cut(slice(6)), cut(slice(6, 12))]
    together = shown(encoding, KEY, join(*halves))[:, 6:]
    np.testing.assert_array_equal(shown(encoding, KEY, halves[1]), together)
    assert not np.array_equal(shown(encoding, jax.random.key(1), halves[1]), together)


def test_cape_counts_from_the_middle_of_each_sequence():
    at = layout(jnp.asarray([[0, 1, 1, 1, 2, 2, 2, 2]]))
    actual = np.asarray(shown(CAPE, None, at))[0, 1:]
    np.testing.assert_array_equal(actual, [-1, 0, 1, -1.5, -0.5, 0.5, 1.5])
    plain = shown(make("cape", normalize=False), None, at)
    np.testing.assert_array_equal(plain[0, 1:], [0, 1, 2, 0, 1, 2, 3])


@pytest.mark.thorough
def test_capes_draws_are_uniform_within_their_bounds():
    """Each alone: a shift and a scale for a sequence, a jitter for a token, the scale outermost."""
    at, alone = full(4000, 3), {"shift": 0.0, "jitter": 0.0, "scale": 1.0}
    actual = lambda **options: np.asarray(shown(make("cape", **{**alone, **options}), KEY, at))
    np.testing.assert_array_equal(actual(), np.tile([-1.0, 0, 1], (4000, 1)))

    shift = actual(shift=2.0) - actual()
    np.testing.assert_allclose(shift, shift[:, :1] * np.ones(3), atol=1e-6)
    jitter = actual(jitter=0.5) - actual()
    assert abs(np.corrcoef(jitter[:, 0], jitter[:, 1])[0, 1]) < 0.06
    scale = actual(scale=1.5)
    np.testing.assert_array_equal(scale[:, 1], 0)
    for drawn, most in (
        (shift[:, 0], 2),
        (jitter.ravel(), 0.5),
        (np.log(scale[:, 2]), np.log(1.5)),
    ):
        assert np.abs(drawn).max() <= most * 1.0001
        quarters = np.histogram(drawn, bins=4, range=(-most, most))[0] / drawn.size
        np.testing.assert_allclose(quarters, 0.25, atol=0.03)
        normal = np.random.default_rng(0).normal(size=4000) * most / 2
        outside = np.histogram(normal, bins=4, range=(-most, most))[0] / 4000
        assert np.abs(outside - 0.25).max() > 0.03, "control: a normal of that width"

    both = actual(shift=2.0, scale=1.5)
    np.testing.assert_allclose(both[:, 1], scale[:, 2] * shift[:, 1], atol=1e-5)


def test_a_jitter_of_half_a_token_keeps_the_order():
    at = full(500, 20)
    assert (np.diff(shown(make("cape", jitter=0.5), KEY, at)) > 0).all()
    assert not (np.diff(shown(make("cape", jitter=1.5), KEY, at)) > 0).all()


def test_a_shift_past_a_table_is_nan_and_a_long_enough_table_holds_it():
    """`make` refuses the short table; `chain` cannot know it."""
    at, x = full(8, 4), jnp.zeros((8, 4, 6))
    for rows, refused in ((44, False), (10, True)):
        chained = chain(make("shifted", shift=40), make("learned", length=rows))
        params = ({}, {"table": jnp.ones((rows, 6))})
        out = chained.embed(params, x, chained.place(KEY, at))
        assert bool(np.isnan(out).any()) == refused


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("shifted", {"shift": -1}, "encoding.shift: -1 must be 0 or more"),
        ("shifted", {"still": -1}, "encoding.still: -1 must be 0 or more"),
        ("cape", {"shift": -1.0}, "encoding.shift: -1.0 must be 0 or more"),
        ("cape", {"jitter": -1.0}, "encoding.jitter: -1.0 must be 0 or more"),
        ("cape", {"scale": 0.9}, "encoding.scale: 0.9 must be 1 or more"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make(name, **options)
    assert str(refusal.value) == line


@BOTH
def test_refuses_positions_of_two_axes(encoding):
    at = full(1, 4).replace(pos_BT=jnp.zeros((1, 4, 2), jnp.int32))
    with pytest.raises(ValueError, match=r"is not \[B, T\]"):
        encoding.place(None, at)


def test_pose_jumps_once():
    """Positions count up by one but for one jump; the last stays below the limit."""
    actual = np.asarray(shown(make("pose", limit=40), KEY, full(3000, 8)))
    steps = np.diff(actual, axis=1)
    assert (actual[:, 0] == 0).all()
    assert ((steps != 1).sum(axis=1) <= 1).all()
    jump, first = actual[:, -1] - 7, 1 + (steps != 1).argmax(axis=1)
    counts = np.bincount(jump, minlength=33)
    assert len(counts) == 33, "0 .. limit - n"
    assert ((counts - 3000 / 33) ** 2 / (3000 / 33)).sum() < 62.5  # chi-squared, 32 degrees, 99.9%
    sizes = np.bincount(first[jump > 0], minlength=5)
    assert sizes[0] == 0
    assert len(sizes) == 5, "the first part has 1 .. (n + 1) // 2 tokens"
    assert sizes[1:].min() > 0.2 * sizes.sum()


def test_pose_rests_in_evaluation_and_where_nothing_is_left():
    at, encoding = full(2, 5), make("pose", limit=64)
    np.testing.assert_array_equal(shown(encoding, None, at), at.pos_BT)
    np.testing.assert_array_equal(shown(make("pose", limit=5), KEY, at), at.pos_BT)
    assert shown(encoding, KEY, at).dtype == at.pos_BT.dtype
    assert (shown(encoding, KEY, at) != at.pos_BT).any(), "control: training"


@pytest.mark.thorough
def test_pose_draws_for_each_sequence_wherever_its_padding_is():
    encoding = make("pose", limit=4000)
    packed = layout(jnp.asarray([[1] * 4 + [2] * 4] * 3))
    ends = np.asarray(shown(encoding, KEY, packed))[:, [3, 7]].ravel()
    assert len(set(ends)) == 6
    put = lambda left, right: layout(jnp.asarray([[0] * left + [1] * 4 + [0] * right]))
    bare = np.asarray(shown(encoding, KEY, put(0, 0)))[0]
    for left, right in ((1, 0), (0, 3), (2, 2)):
        padded = np.asarray(shown(encoding, KEY, put(left, right)))[0, left:][:4]
        np.testing.assert_array_equal(padded, bare)
    assert not np.array_equal(shown(encoding, jax.random.key(1), put(0, 0))[0], bare)


def test_a_table_behind_pose_needs_the_limit():
    """A chain is refused where training gives positions that a part cannot read."""
    make("pose+learned", limit=64, length=64)
    check("pose+learned", {"limit": 64, "length": 64}, 8)
    with pytest.raises(ValueError, match=r"learned reads positions in \[0, 32\), and in training"):
        check("pose+learned", {"limit": 64, "length": 32, "beyond": "error"}, 8)
