"""What claims on relative and rotary positions, padding, images and sound measure."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import claims as config_file
from experiments.claims import absolute, additive, glyphs, relative
from experiments.claims.config import Config
from experiments.claims.extrapolation import DISTANCES, shortened, spread
from experiments.claims.heads import mean_distance
from experiments.claims.images import INK, LARGE, SMALL, Order, patches, printed
from experiments.claims.modal import PLAIN, from_rope, moments
from experiments.claims.models import Lab, Trained, read_as
from experiments.claims.nearness import by_distance
from experiments.claims.padding import relayed
from experiments.claims.register import LEDGER
from experiments.claims.sinusoidal import ROUNDING, apart, frequencies
from experiments.claims.spectrum import first_alias
from posenc_jax import encodings
from posenc_jax.lab.config import schema
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.task import PAD, SYMBOL
from posenc_jax.layout import full


@pytest.fixture(scope="module")
def lab():
    """Shared models that train in a moment."""
    config = config_file.get_config("all,quick")
    config.text.model.update(width=16, heads=2, layers=2)
    config.text.train.update(length=16, min_length=16, batch=4, steps=10, chunk=10, warmup=2)
    config.text.task.update(stretch=4096)
    config.seeds = 2
    return Lab(schema.check(Config, config.to_dict()))


@pytest.fixture(scope="module")
def untrained(lab):
    """(name) -> a model of two seeds."""

    def make(name):
        encoding, config = encodings.make(name), lab.model
        model = transformer.build(config, encoding, lab.text.vocab)
        params = jax.jit(jax.vmap(model.init))(jax.random.split(jax.random.key(1), 2))
        return Trained(model, config, encoding, lab.text, params)

    return functools.cache(make)


def test_a_smaller_text_is_the_beginning_of_the_text_and_has_its_tests(lab):
    few, whole = absolute.first(lab.text, 2048), lab.text
    key, size_B = jax.random.key(0), jnp.full(256, 16)
    cut = lambda task: np.asarray(task.sample(task.data, key, size_B, 16).tokens_BT)
    beginning = bytes(np.asarray(whole.data["train"][:2048], np.uint8))
    assert all(bytes(row.astype(np.uint8)) in beginning for row in cut(few))
    assert not all(bytes(row.astype(np.uint8)) in beginning for row in cut(whole)), "control"
    test = lambda task: task.test(task.data, jnp.arange(8), 16, 16).tokens_BT
    np.testing.assert_array_equal(test(few), test(whole))
    assert few.name != whole.name, "models are told apart by it"


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("amplitude", [1, 100])
def test_positions_are_as_many_times_as_long_as_words_before_training(lab, amplitude):
    trained = additive.amplified(lab, amplitude)
    params = jax.tree.map(lambda leaf: leaf[0], lab.fresh(trained).params)
    words_VD = params["embed"]
    zero_BTD = jnp.zeros((1, 16, lab.model.width))
    embed = lambda encoding: encoding.embed({}, zero_BTD, jnp.arange(16)[None])
    length = lambda x: np.sqrt(np.mean(np.square(x)))
    ratio = length(embed(trained.encoding)) / length(words_VD)
    np.testing.assert_allclose(ratio, amplitude, rtol=0.05)
    plain = length(embed(encodings.make("sinusoidal"))) / length(words_VD)
    assert abs(plain / amplitude - 1) > 0.2, "control"


@pytest.mark.thorough
@pytest.mark.parametrize("id", ["abs-4", "add-3"])
def test_claims_on_trained_models_have_a_value_for_each_seed_and_are_drawn(lab, id):
    claim = LEDGER[id]
    measured = claim.measure(lab)
    assert {len(values) for values in measured.numbers.values()} == {len(lab.seeds)}
    assert claim.rule(measured.intervals).word in ("holds", "holds when", "does not hold")
    (axes,) = claim.figure(measured).axes
    assert len(axes.lines) >= len(measured.curves)


@pytest.mark.thorough
def test_a_claim_on_trained_weights_is_measured(lab):
    """What goes through padding depends on no training: even this model shows it."""
    claim = LEDGER["pad-2"]
    measured = claim.measure(lab)
    verdict = claim.rule(measured.intervals)
    assert verdict.word == "holds when", verdict.reason
    assert all(len(values) == 2 for values in measured.numbers.values())
    assert claim.figure is not None
    assert claim.figure(measured).axes


@pytest.mark.thorough
def test_more_layers_pass_on_more(lab):
    """The control of pad-2: what one layer keeps apart, the mask keeps apart as well."""
    trained = lab.trained("rope")
    assert (relayed(lab, trained)[1] > -6).all()
    np.testing.assert_array_equal(relayed(lab, trained, layers=1)[1], -9)


@pytest.mark.thorough
def test_moving_all_is_not_moving_half(lab, untrained):
    tokens_BT = lab.windows(4, 10)
    shift_XT = np.array([[100] * 10, [0] * 5 + [100] * 5])
    rope = relative.moved(untrained("rope"), tokens_BT, shift_XT)
    fixed = relative.moved(untrained("sinusoidal"), tokens_BT, shift_XT)
    assert rope.shape == (2, 2)
    assert (rope[:, 0] < 1e-4).all()
    assert (rope[:, 1] > 1e-3).all()
    assert (fixed > 1e-3).all()


@pytest.mark.thorough
def test_the_same_weights_are_read_as_other_encodings(lab, untrained):
    trained, length = untrained("rope"), 2 * lab.train.length
    trained_bits, pi = lab.bits(trained, length), read_as(trained, "pi", factor=2.0)
    np.testing.assert_array_equal(lab.bits(read_as(trained, "rope"), length), trained_bits)
    assert (np.abs(lab.bits(pi, length) - trained_bits) > 1e-6).all()
    assert (lab.bits(pi, length) != lab.bits(read_as(trained, "pi", factor=4.0), length)).all()


@pytest.mark.thorough
def test_tokens_that_are_all_visible_lose_nothing(lab, untrained):
    lost_SW = shortened(lab, untrained("alibi"), 32, (2, 32))
    assert (np.abs(lost_SW[:, 0]) > 1e-3).all()
    np.testing.assert_allclose(lost_SW[:, 1], 0, atol=1e-6)


@pytest.mark.thorough
def test_even_attention_has_distance_one(lab, untrained):
    actual = {}
    for name in ("rope", "alibi"):
        blind = jax.tree.map(jnp.zeros_like, untrained(name).params)
        actual[name] = mean_distance(lab, dataclasses.replace(untrained(name), params=blind))
    np.testing.assert_allclose(actual["rope"], 1, atol=1e-6)
    assert (actual["alibi"] < 0.95).any()


@pytest.mark.thorough
def test_scores_by_distance(lab, untrained):
    """With weights of 0 ALiBi's expected score falls by its mean slope, and is else the same."""
    actual = {}
    for name in ("alibi", "nope"):
        blind = jax.tree.map(jnp.zeros_like, untrained(name).params)
        blind = dataclasses.replace(untrained(name), params=blind)
        actual[name] = by_distance(blind, lab.windows(4))
    slope = np.mean([2.0**-4, 2.0**-8])  # of two heads
    np.testing.assert_allclose(np.diff(actual["alibi"], axis=1), -slope, atol=1e-5)
    np.testing.assert_allclose(actual["nope"], 0, atol=1e-5)


def test_the_first_alias_is_that_of_all_distances():
    for width, base in ((4, 10.0), (8, 100.0), (16, 10.0)):
        freq_K, most = frequencies(width, base), 5000
        apart_T = apart(np.arange(1, most + 1), width, base)
        near_T = np.flatnonzero(apart_T[1:] < apart_T[0] * (1 - ROUNDING))
        expected = near_T[0] + 2 if len(near_T) else np.inf
        assert first_alias(freq_K, most) == expected
    assert first_alias(frequencies(64, 1e4), 5000) == np.inf, "control: none so near"


@pytest.mark.thorough
def test_the_entropy_of_a_reading_frame_is_that_of_its_lines():
    """Bits of each base given the base two and one before, counted at each place of many lines."""
    task, length, lines = absolute.reading_frame(), 32, 4096
    tokens_BT = np.asarray(task.test(task.data, jnp.arange(lines), length, length + 1).targets_BT)
    base_BT, total = tokens_BT[:, :length] - SYMBOL, 0.0
    for place in range(length):
        before = [base_BT[:, p] for p in range(max(place - place % 3, 0), place)]
        given_B = sum((b * 4**i for i, b in enumerate(before)), np.zeros(lines, int))
        for given in np.unique(given_B):
            share = np.bincount(base_BT[given_B == given, place], minlength=4) / lines
            positive = share[share > 0]
            total -= np.sum(positive * np.log2(positive / share.sum()))
    np.testing.assert_allclose(total / length, absolute.entropy(length), atol=0.01)


@pytest.mark.thorough
def test_the_spread_of_scores():
    q_NC, k_NC = np.random.default_rng(0).normal(size=(2, 1000, 64))
    near = DISTANCES <= 3
    assert (np.abs(spread("rope", q_NC, k_NC) - 1) < 0.1).all()
    assert (np.abs(spread("xpos", q_NC, k_NC)[near] - 1) < 0.1).all()
    assert spread("xpos", q_NC, k_NC)[-1] < 0.2


@pytest.mark.thorough
def test_equal_ids_are_rope_to_the_bit():
    equal, unequal = from_rope(0)
    assert equal == 0
    assert unequal > 0.1


@pytest.mark.thorough
def test_outputs_depend_on_memory_only_where_there_is_one():
    """A token one segment back changes what follows with memory, and nothing without."""
    config = schema.ModelConfig(width=16, heads=2, layers=2)
    model = transformer.build(config, encodings.make("transformer_xl"), 20)
    params, whole = jax.jit(model.init)(jax.random.key(0)), jax.jit(model.apply)
    a_BT = jnp.arange(12, dtype=jnp.int32)[None]
    b_BT = a_BT.at[:, 1].set(15)
    for remembers in (True, False):
        apply = jax.jit(relative.segmentwise(model, config, 4, remembers).apply)
        a, b = (apply(params, tokens_BT, full(1, 12)) for tokens_BT in (a_BT, b_BT))
        np.testing.assert_allclose(a[:, :4], whole(params, a_BT[:, :4], full(1, 4)), atol=1e-5)
        changed = np.abs(a - b).max(axis=(0, 2))
        assert changed[0] == 0
        assert changed[1] > 0
        assert (changed[4:8] > 0).all() == remembers
        assert (changed[8:] > 0).any() == remembers


@pytest.mark.thorough
def test_a_latch_holds_what_was_shown():
    task = relative.latch(8, 4)
    batch = task.test(task.data, jnp.arange(6, dtype=jnp.int32), 12, 12)
    for token_T, target_T, weight_T in zip(*batch[:3], strict=True):
        (where,) = np.flatnonzero(token_T >= SYMBOL + 8)
        assert where < 4
        assert (target_T[where:] == token_T[where]).all()
        np.testing.assert_array_equal(weight_T, np.arange(12) > where)


def test_digits_have_their_holes():
    ink_NRC, label_N = glyphs.digits(40, 48, ("DejaVuSans",), 0)
    assert set(label_N) == set(range(10))
    holes = {0: 1, 1: 0, 6: 1, 7: 0, 8: 2, 9: 1}
    for ink_RC, label in zip(ink_NRC, label_N, strict=True):
        if label in holes:
            assert grounds(~ink_RC) == 1 + holes[label], label


def grounds(paper_RC):
    """Connected pieces of paper."""
    left, pieces = {tuple(at) for at in np.argwhere(paper_RC)}, 0
    while left:
        pieces, reached = pieces + 1, [left.pop()]
        while reached:
            r, c = reached.pop()
            actual = left & {(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)}
            left -= actual
            reached += actual
    return pieces


@pytest.mark.thorough
def test_images_are_the_same_at_both_sizes_but_for_their_patches():
    drawn = patches(8, 4)
    kinds: tuple[Order, ...] = ("line", "grid", "shuffled line", "shuffled grid")
    orders = {order: printed(drawn, order) for order in kinds}
    index_B = jnp.arange(4, dtype=jnp.int32)
    labels = []
    for side, width in ((SMALL, 48), (LARGE, 96)):
        actual = {o: t.test(t.data, index_B, side, width) for o, t in orders.items()}
        line, grid, other, shuffled = (actual[o].layout.pos_BT[0, : side * side] for o in kinds)
        np.testing.assert_array_equal(shuffled, np.stack(np.divmod(other, side), axis=-1))
        np.testing.assert_array_equal(line, np.arange(side * side))
        np.testing.assert_array_equal(grid, np.stack(np.divmod(line, side), axis=-1))
        assert not (shuffled == grid).all()
        assert sorted(map(tuple, np.asarray(shuffled))) == sorted(map(tuple, np.asarray(grid)))
        batch = actual["grid"]
        assert (batch.weights_BT.sum(axis=1) == side * side).all()
        assert (batch.tokens_BT[:, side * side :] == PAD).all()
        assert (batch.tokens_BT < SYMBOL + INK).all()
        labels.append(batch.targets_BT[:, 0])
    np.testing.assert_array_equal(*labels)


@pytest.mark.thorough
def test_sounds_fall_on_the_frame_that_began_last():
    index_B = jnp.arange(20, dtype=jnp.int32)
    timed, plain = (
        task.test(task.data, index_B, 8, 20) for task in map(moments, ("ids from time", PLAIN))
    )
    np.testing.assert_array_equal(plain.targets_BT, timed.targets_BT)
    seconds_BT = (np.asarray(plain.layout.pos_BT) + 0.5) / 25
    np.testing.assert_allclose(seconds_BT, timed.layout.pos_BT[..., 0], rtol=1e-6)
    for name in ("ids from time", "ids by index"):
        task = moments(name)
        batch = task.test(task.data, jnp.arange(20, dtype=jnp.int32), 8, 20)
        np.testing.assert_array_equal(batch.weights_BT[:, :8], 0)
        when_BT = batch.layout.pos_BT[..., 0]
        if name == "ids by index":
            np.testing.assert_allclose(np.diff(when_BT, axis=1), 0.04, atol=1e-5)
            continue
        for row in zip(batch.tokens_BT, batch.targets_BT, batch.weights_BT, when_BT, strict=True):
            token_T, target_T, weight_T, when_T = map(np.asarray, row)
            for sound in np.flatnonzero(weight_T):
                frame = np.flatnonzero(when_T[:8] <= when_T[sound] + 1e-4)[-1]
                assert target_T[sound] == token_T[frame]
