"""Training batches: two examples in a row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.lab import tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training.batches import TrainingBatches, paired
from posenc_jax.layout import layout

TASK = tasks.make("copy", alphabet=5)
SIZES, WIDTH = (1, 6), int(TASK.width(6))


@pytest.fixture(scope="module")
def batches():
    """The examples of a batch alone in their rows, and in pairs."""
    size_B = jnp.array([1, 4, 6, 2, 6, 3, 1, 5])
    alone = jax.jit(lambda: TASK.sample(TASK.data, jax.random.key(0), size_B, WIDTH))()
    return alone, paired(alone, int(TASK.width(1) + TASK.width(6)))


def test_pairs_hold_every_example_once(batches):
    alone, pairs = batches
    assert pairs.tokens_BT.shape == (4, int(TASK.width(1) + TASK.width(6)))
    for row in range(4):
        at = 0
        for example in (row, row + 4):
            count = int((alone.layout.segment_BT[example] > 0).sum())
            there = slice(at, at + count)
            for name in ("tokens_BT", "targets_BT", "weights_BT"):
                wanted = getattr(alone, name)[example, :count]
                np.testing.assert_array_equal(getattr(pairs, name)[row, there], wanted)
            np.testing.assert_array_equal(pairs.layout.pos_BT[row, there], np.arange(count))
            at += count
        assert not pairs.tokens_BT[row, at:].any()
        assert not pairs.weights_BT[row, at:].any()
        assert not pairs.layout.segment_BT[row, at:].any()


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("name", ["nope", "sinusoidal", "rope", "t5", "shaw", "fox"])
def test_an_example_in_a_pair_has_the_logits_that_it_has_alone(batches, name):
    alone, pairs = batches
    model = transformer.build(ModelConfig(width=16, heads=2, layers=2), make(name), 16)
    params = model.init(jax.random.key(1))
    logits = jax.jit(model.apply)
    wanted, actual = (logits(params, b.tokens_BT, b.layout) for b in batches)
    one_example = layout(pairs.layout.segment_BT > 0)
    mixed = logits(params, pairs.tokens_BT, one_example)
    answers = lambda values, batch: np.asarray(values)[np.asarray(batch.weights_BT) > 0]
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])  # of the examples in the rows of pairs
    in_order = alone._replace(weights_BT=alone.weights_BT[order])
    expected = answers(wanted[order], in_order)
    np.testing.assert_allclose(answers(actual, pairs), expected, atol=2e-5)
    difference = np.abs(answers(mixed, pairs) - expected).max()
    assert difference > 1e-2, "control: as one example the second sees the first"


def test_the_sizes_of_a_pair_add_up():
    drawn = TrainingBatches(TASK, 16, SIZES, WIDTH, pairs=True)([0], range(3))
    assert drawn.tokens_BT.shape == (1, 3, 8, int(TASK.width(1) + TASK.width(6)))
    answers = np.asarray(drawn.weights_BT.sum(axis=-1))
    alone = TrainingBatches(TASK, 16, SIZES, WIDTH)([0], range(3)).weights_BT.sum(axis=(2, 3))
    assert (answers == answers.flat[0]).all()
    assert len(np.unique(np.asarray(alone))) > 1


def test_what_cannot_stand_in_pairs_is_refused():
    with pytest.raises(ValueError, match="batch: 3 examples of copy cannot stand in pairs"):
        TrainingBatches(TASK, 3, SIZES, WIDTH, pairs=True)
