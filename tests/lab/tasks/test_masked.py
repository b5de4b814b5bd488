"""Text with hidden bytes: what is hidden, what is asked, and that it is the same in any width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.baselines import unigram_bits

SHARE, MASK = 0.25, 256


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_bytes(bytes(np.random.default_rng(0).integers(97, 123, 40_000, np.uint8)))
    return [tasks.make(f"file:{path}", stretch=1024, masked=share) for share in (SHARE, 0.0)]


def sampled(task, width=64):
    return task.sample(task.data, jax.random.key(3), jnp.full((64,), 48, jnp.int32), width)


def test_only_hidden_bytes_have_weight(texts):
    hidden, plain = map(sampled, texts)
    hidden_BT = np.asarray(hidden.weights_BT) > 0
    np.testing.assert_array_equal(np.asarray(hidden.tokens_BT) == MASK, hidden_BT)
    np.testing.assert_array_equal(hidden.targets_BT, plain.tokens_BT)
    seen = np.where(hidden_BT, plain.tokens_BT, hidden.tokens_BT)
    np.testing.assert_array_equal(seen, plain.tokens_BT)
    assert not hidden_BT[:, 48:].any()
    assert abs(hidden_BT[:, :48].mean() - SHARE) < 0.03
    # The control: the plain task asks for the next byte everywhere, and hides none.
    assert (np.asarray(plain.weights_BT)[:, :48] == 1).all()
    assert np.asarray(plain.tokens_BT).max() < MASK


@pytest.mark.thorough
@pytest.mark.parametrize("split", ["test", "valid"])
def test_an_example_is_the_same_in_any_width(texts, split):
    read = lambda width, split: texts[0].test(texts[0].data, jnp.arange(4), 16, width, split)
    narrow, wide = read(16, split), read(32, split)
    for a, b in zip(narrow[:3], wide[:3], strict=True):
        np.testing.assert_array_equal(a, b[:, :16])
    masks = read(16, {"test": "valid", "valid": "test"}[split]).weights_BT
    assert (np.asarray(masks) != np.asarray(narrow.weights_BT)).any()


def test_keys_and_numbers_hide_other_bytes(texts):
    a = sampled(texts[0]).weights_BT
    assert (np.asarray(a[0]) != np.asarray(a[1])).any()
    again = texts[0].sample(texts[0].data, jax.random.key(4), jnp.full((64,), 48, jnp.int32), 64)
    assert (np.asarray(a) != np.asarray(again.weights_BT)).any()


def test_the_task_has_one_more_token_and_one_baseline(texts):
    hidden, plain = texts
    assert (hidden.vocab, plain.vocab) == (257, 256)
    assert list(hidden.baselines()) == ["unigram"]
    assert hidden.baselines()["unigram"] == pytest.approx(plain.baselines()["unigram"], abs=0.01)
    uneven = {split: np.repeat(np.uint8([1, 2]), [3000, 1000]) for split in ("train", "valid")}
    uneven["test"] = np.tile(np.uint8([1, 1, 2, 1]), 1000)
    assert unigram_bits(uneven, 999) == pytest.approx(0.811, abs=0.01)  # the entropy of 1/4


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_outside_the_range_is_refused(share):
    with pytest.raises(ValueError, match=rf"^task.masked: {share} must be at least 0 and below 1$"):
        tasks.check("stdlib", masked=share)


def test_a_share_that_rounds_to_none_is_refused():
    with pytest.raises(ValueError, match=r"^task.masked: 1e-06 hides nothing; 0, or 1.53e-05 or"):
        tasks.check("stdlib", masked=1e-6)
    for share in (0.0, 1.53e-5):
        tasks.check("stdlib", masked=share)
