"""Abacus and position coupling: from an addition's tokens to the positions that are shown."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from configs import tasks_extrap
from posenc_jax import make
from posenc_jax.encoding import place
from posenc_jax.encodings import reach
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.task import EXTRA, SEP, SYMBOL
from posenc_jax.layout import digit_places, full, layout

KEY = jax.random.key(0)
DIGITS = range(SYMBOL, SYMBOL + 10)
SIZES = jnp.asarray([1, 2, 4], jnp.int32)


def batch_of(**options):
    """Additions of 1, 2 and 4 digits in one width, wider than the longest."""
    task = tasks.make("addition", **options)
    return task.sample((), KEY, SIZES, task.width(4) + 2)


def grouped(groups):
    at = full(1, len(groups))
    return at.replace(group_BT=jnp.asarray([groups], jnp.int32))


@pytest.mark.thorough
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("reverse", [False, True])
def test_places_are_what_reading_the_tokens_finds(reverse, padding):
    batch = batch_of(reverse=reverse, padding=padding)
    read = digit_places(batch.tokens_BT, DIGITS)
    np.testing.assert_array_equal(batch.layout.group_BT, read)
    assert read.max() == 5
    digit_BT = np.asarray(batch.tokens_BT) >= SYMBOL
    assert ((np.asarray(read) > 0) == digit_BT).all()
    assert not np.array_equal(read, np.roll(read, 1, axis=1))


@pytest.mark.thorough
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("reverse", [False, True])
def test_significances_couple_the_digits_that_are_added(reverse, padding):
    """The sum, taken apart and added up again by groups alone, in plain Python."""
    batch = batch_of(reverse=reverse, padding=padding, groups="significance")
    for row, size in enumerate(SIZES.tolist()):
        inside = np.asarray(batch.layout.segment_BT[row]) > 0
        tokens = np.asarray(batch.tokens_BT[row])[inside]
        groups = np.asarray(batch.layout.group_BT[row])[inside]
        assert not np.asarray(batch.layout.group_BT[row])[~inside].any()
        plus, sep = (int(np.flatnonzero(tokens == mark)[0]) for mark in (EXTRA, SEP))
        parts = [slice(1, plus), slice(plus + 1, sep), slice(sep + 1, None)]
        values = [
            sum(
                (int(t) - SYMBOL) * 10 ** (int(g) - 2)
                for t, g in zip(tokens[p], groups[p], strict=True)
            )
            for p in parts
        ]
        assert values[0] + values[1] == values[2]
        assert groups[0] == 0
        assert groups[plus] == 1
        # SEP stands one before the first digit of the sum, in the order of that number.
        assert groups[sep] == (1 if reverse else size + 3)
        assert abs(int(groups[sep + 1]) - int(groups[sep])) == 1


@pytest.mark.thorough
def test_the_options_of_groups_are_different_numbers():
    plain, coupled = batch_of(), batch_of(groups="significance")
    np.testing.assert_array_equal(plain.tokens_BT, coupled.tokens_BT)
    assert not np.array_equal(plain.layout.group_BT, coupled.layout.group_BT)
    assert not np.asarray(tasks.make("copy").sample((), KEY, SIZES, 12).layout.group_BT).any()


def test_digits_count_from_either_end_of_their_run():
    text = jnp.asarray([[7, 8, 1, 9, 1, 1, 7, 7, 7], [1, 1, 1, 1, 1, 1, 1, 1, 1]])
    np.testing.assert_array_equal(
        digit_places(text, [7, 8, 9]), [[1, 2, 0, 1, 0, 0, 1, 2, 3], [0] * 9]
    )
    np.testing.assert_array_equal(
        digit_places(text, [7, 8, 9], from_end=True), [[2, 1, 0, 1, 0, 0, 3, 2, 1], [0] * 9]
    )


@pytest.mark.parametrize("name", ["abacus", "coupled"])
def test_evaluation_shows_the_groups_and_nan_past_the_limit(name):
    mover = make(name, limit=8, **({"offset": 3} if name == "abacus" else {}))
    actual = place(mover, None, grouped([0, 1, 2, 7, 8, 0, 900]))[0]
    np.testing.assert_array_equal(actual, [0, 1, 2, 7, np.nan, 0, np.nan])
    small = {"limit": 8, "offset": 3} if name == "abacus" else {"limit": 8}
    assert reach(f"{name}+learned", length=8, **small) is None
    with pytest.raises(ValueError, match=r"encoding\.name: .* raise encoding\.length to 8, or"):
        make(f"{name}+learned", length=7, **small)


def test_abacus_moves_all_digits_of_a_sequence_by_one_offset_up_to_its_largest():
    groups = [0, 1, 2, 0, 1, 2, 3]
    at = jax.tree.map(lambda leaf: jnp.tile(leaf, (3000, 1)), grouped(groups))
    actual = np.asarray(place(make("abacus", offset=4, limit=16), KEY, at))
    moved = actual - np.asarray([groups])
    assert (moved[:, [0, 3]] == 0).all()
    assert (moved[:, [1]] == moved[:, [2, 4, 5, 6]]).all()
    counts = np.bincount(moved[:, 1].astype(int))
    assert len(counts) == 5
    assert ((counts - 600) ** 2 / 600).sum() < 18.5  # chi-squared, 4 degrees, its 99.9%
    shared = np.asarray(place(make("abacus", offset=4, limit=16, per="batch"), KEY, at))
    assert (shared == shared[:1]).all()
    assert not (actual == actual[:1]).all()


@pytest.mark.thorough
def test_coupling_starts_anywhere_that_keeps_a_sequence_below_the_limit():
    """Each sequence by its own largest group, packed or not; the last position is reached."""
    ids = jnp.tile(jnp.asarray([[1, 1, 1, 2, 2, 2, 2, 0]]), (2000, 1))
    groups = jnp.tile(jnp.asarray([[0, 1, 3, 2, 0, 6, 1, 0]]), (2000, 1))
    at = layout(ids, group_BT=groups)
    actual = np.asarray(place(make("coupled", limit=8), KEY, at))
    assert (actual[:, [0, 4, 7]] == 0).all()
    moved = actual - np.asarray(groups)
    assert set(moved[:, 1]) == {0, 1, 2, 3, 4}
    assert set(moved[:, 5]) == {0, 1}
    assert (moved[:, 1] == moved[:, 2]).all()
    assert not (moved[:, 1] == moved[:, 5]).all()
    assert actual.max() == 7
    assert not np.isnan(actual).any()


@pytest.mark.thorough
def test_a_part_left_of_abacus_sees_plain_positions():
    """Abacus + FIRE: the bias reads places in the line, the table places in the number."""
    batch = batch_of()
    shown = place(make("fire+abacus+learned"), KEY, batch.layout)
    np.testing.assert_array_equal(shown[0], batch.layout.pos_BT)
    assert not np.array_equal(shown[1], batch.layout.pos_BT)
    np.testing.assert_array_equal(shown[1], shown[2])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["fire+abacus+learned", "coupled+learned"])
def test_groups_reach_the_model_and_its_training(name):
    """Shuffled groups give other logits; the gradient reaches the table's rows of the groups."""
    groups = "place" if "abacus" in name else "significance"
    batch = batch_of(reverse=True, groups=groups)
    config = ModelConfig(width=16, heads=2, layers=1, mlp=1)
    order = np.random.default_rng(0).permutation(batch.tokens_BT.shape[1])
    shuffled = batch.layout.replace(group_BT=batch.layout.group_BT[:, order])

    def build(name):
        model = transformer.build(config, make(name), 15)
        return model, model.init(jax.random.key(1))

    def change(model, params):
        run = jax.jit(lambda at: model.apply(params, batch.tokens_BT, at, model.place(KEY, at)))
        return float(jnp.abs(run(batch.layout) - run(shuffled)).max())

    model, params = build(name)
    assert change(model, params) > 1e-3
    assert change(*build("fire+learned")) == 0, "control: what reads no groups"

    def loss(params):
        placed = model.place(KEY, batch.layout)
        logits = model.apply(params, batch.tokens_BT, batch.layout, placed)
        return (logits * batch.weights_BT[..., None]).sum()

    table = np.asarray(jax.jit(jax.grad(loss))(params)["encoding"][-1]["table"])
    reached = np.flatnonzero(np.abs(table).max(axis=1))
    shown = np.asarray(place(make(name), KEY, batch.layout)[-1])
    real = np.asarray(batch.layout.segment_BT) > 0
    assert set(reached) == set(shown[real].astype(int))
    assert np.isfinite(table).all()


@pytest.mark.parametrize(
    ("name", "task", "words"),
    [
        ("abacus+learned", {"name": "copy"}, ["abacus", "'place'", "copy states none"]),
        ("coupled+learned", {"name": "addition"}, ["coupled", "'significance'", "states 'place'"]),
        (
            "rope,fire+abacus+learned",
            {"name": "addition", "groups": "significance"},
            ["abacus", "'place'", "states 'significance'"],
        ),
    ],
)
def test_a_task_without_the_groups_that_are_read_is_refused(name, task, words):
    config = tasks_extrap.get_config("quick").to_dict()
    config["encoding"]["name"], config["task"] = name, task
    with pytest.raises(ValueError, match=r"config\.task\.groups") as refusal:
        experiments.prepare(config, "unused")
    assert all(word in str(refusal.value) for word in words)
    assert "\n" not in str(refusal.value)
    config["task"] = {
        "name": "addition",
        "groups": "significance" if "coupled" in name else "place",
    }
    experiments.prepare(config, "unused")


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("abacus", {"limit": 0}, "encoding.limit: 0 must be 1 or more"),
        ("abacus", {"offset": 512}, "encoding.offset: 512 must be 0 or more and below limit, 512"),
        ("abacus", {"offset": -1}, "encoding.offset: -1 must be 0 or more and below limit, 512"),
        ("abacus", {"per": "token"}, "encoding.per: 'token' is not one of: 'example', 'batch'"),
        ("coupled", {"limit": -5}, "encoding.limit: -5 must be 1 or more"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(name, options, line):
    with pytest.raises(ValueError, match="encoding") as refusal:
        make(name, **options)
    assert str(refusal.value) == line
