"""Text tasks: splits, windows, the record of what was read, and the baselines on the same bytes."""

import gzip
import math
import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import baselines, corpus
from posenc_jax.lab.tasks.text_windows import text_sha256
from posenc_jax.options import FieldError

STRETCH = 4096


@pytest.fixture(scope="module")
def stdlib():
    return tasks.make("stdlib", stretch=STRETCH)


@pytest.fixture
def folder(tmp_path):
    """Sixty small text files, a copy of one of them, and what must be left out."""
    rng = np.random.default_rng(0)
    for i in range(60):
        place = tmp_path / f"part{i % 3}" / f"{i}.txt"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"file %d " % i + bytes(rng.integers(97, 123, 1500, dtype=np.uint8)))
    for i in range(60, 90):
        (tmp_path / f"copy{i}.txt").write_bytes((tmp_path / "part0" / "0.txt").read_bytes())
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / ".hidden").write_bytes(b"hidden")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "part1" / "1.txt")
    return tmp_path


def text_of(task, split):
    return np.asarray(task.data[split]).tobytes()


def windows(task, size, split="test"):
    index_B = jnp.arange(task.examples(size))
    return jax.jit(task.test, static_argnums=(2, 3, 4))(task.data, index_B, size, size, split)


def test_splits_share_no_file_and_no_copy(folder):
    task = tasks.make(f"file:{folder}")
    texts = {split: text_of(task, split).split(b"\0") for split in corpus.SPLITS}
    actual = Counter(text for part in texts.values() for text in part)
    expected = {p.read_bytes() for p in folder.rglob("*.txt")}
    assert set(actual) == expected
    assert set(actual.values()) == {1}  # a control is in the folder: thirty copies of one file
    assert task.facts["files"] == {split: len(part) for split, part in texts.items()}
    assert task.facts["bytes"] == {s: len(text_of(task, s)) for s in corpus.SPLITS}
    assert task.facts["binary_files_left_out"] == 1


def test_stdlib_splits_share_no_file(stdlib):
    library = corpus.standard_library()
    paths = [path for pieces in library.pieces.values() for path, _, _ in pieces]
    assert len(set(paths)) == len(paths)
    assert not [path for path in paths if {"test", "site-packages"} & set(path.parts)]
    share = {split: size / sum(library.sizes.values()) for split, size in library.sizes.items()}
    assert 0.8 < share["train"] < 0.97
    assert min(share.values()) > 0.01
    assert b"def " in text_of(stdlib, "test")


def test_sha_changes_with_content_and_with_the_split_alone(folder):
    record = lambda: tasks.make(f"file:{folder}").facts["sha256"]
    first = record()
    assert record() == first
    (folder / "part1" / "1.txt").write_bytes(b"changed")
    assert record() != first
    text = {split: np.frombuffer(b"abcd", np.uint8) for split in corpus.SPLITS}
    moved = {**text, "train": text["train"][:3], "valid": np.frombuffer(b"dabcd", np.uint8)}
    assert text_sha256(text) != text_sha256(moved)


@pytest.mark.thorough
def test_the_same_bytes_are_predicted_at_every_size(stdlib):
    for split in ("test", "valid"):
        expected = np.frombuffer(text_of(stdlib, split), np.uint8)[: STRETCH + 1]
        for size in (1, 48, 64, 1000, STRETCH - 1, STRETCH):
            batch = windows(stdlib, size, split)
            counts_BT = np.asarray(batch.weights_BT) == 1
            assert (np.asarray(batch.targets_BT)[counts_BT] == expected[1:]).all()
            assert (np.asarray(batch.tokens_BT)[counts_BT] == expected[:-1]).all()
            assert counts_BT[:-1].all()
    assert not (np.asarray(batch.targets_BT)[counts_BT] == expected[:-1]).all()


def test_windows_past_the_last_weigh_nothing(stdlib):
    last = stdlib.examples(1000)
    assert last == 5
    read = jax.jit(stdlib.test, static_argnums=3)
    batch = read(stdlib.data, jnp.arange(last + 2), jnp.int32(1000), 1024)
    weights = np.asarray(batch.weights_BT)
    assert weights.sum(axis=1).tolist() == [1000] * 4 + [STRETCH - 4000, 0, 0]
    assert weights[:, 1000:].sum() == 0
    tokens = [1000] * 4 + [STRETCH - 4000, 1000, 1000]
    assert np.asarray(batch.layout.segment_BT).sum(axis=1).tolist() == tokens


def test_samples_are_stretches_of_the_training_text(stdlib):
    size_B = jnp.asarray([5, 200, 256, 33], jnp.int32)
    batch = jax.jit(stdlib.sample, static_argnums=3)(stdlib.data, jax.random.key(0), size_B, 256)
    train, test = text_of(stdlib, "train"), text_of(stdlib, "test")
    for row, size in enumerate(size_B.tolist()):
        tokens, targets = (np.asarray(x[row]).astype(np.uint8) for x in batch[:2])
        line = tokens[:size].tobytes() + targets[size - 1 : size].tobytes()
        assert targets[: size - 1].tobytes() == line[1:-1]
        assert line in train
        assert np.asarray(batch.weights_BT[row]).tolist() == [1.0] * size + [0.0] * (256 - size)
        assert not tokens[size:].any()
    assert line not in test


def test_samples_reach_both_ends_of_the_training_text(tmp_path):
    (tmp_path / "a").write_bytes(bytes(i % 251 + 1 for i in range(30000)))
    task = tasks.make(f"file:{tmp_path}/a", stretch=64)
    count = 2000
    size = len(text_of(task, "train")) - 3  # three places to start
    sample = jax.jit(task.sample, static_argnums=3)
    batch = sample(task.data, jax.random.key(0), jnp.full(count, size), 8)
    starts = Counter(np.asarray(batch.tokens_BT[:, 0]).tolist())
    assert set(starts) == {1, 2, 3}
    assert min(starts.values()) > count / 4


def test_text_is_an_argument_not_a_constant(stdlib):
    args = (stdlib.data, jnp.arange(2), jnp.int32(64))
    as_argument = jax.make_jaxpr(lambda *a: stdlib.test(*a, 64))(*args)
    closed_over = jax.make_jaxpr(lambda *a: stdlib.test(stdlib.data, *a, 64))(*args[1:])
    constants = lambda jaxpr: sum(np.size(c) for c in jaxpr.consts)
    assert constants(as_argument) < 1000 < constants(closed_over)


def test_one_file_is_split_by_position(tmp_path):
    text = bytes(np.random.default_rng(0).integers(32, 127, 40000, dtype=np.uint8))
    (tmp_path / "book.txt").write_bytes(text)
    task = tasks.make(f"file:{tmp_path}/book.txt")
    assert b"".join(text_of(task, split) for split in corpus.SPLITS) == text
    assert task.facts["bytes"] == {"train": 36000, "valid": 2000, "test": 2000}
    assert task.most == 1999


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file or folder"),
        (b"", "is too small: 0 bytes"),
        (b"abc", "is too small: 3 bytes"),
        (b"\0" * 90000, "is not text; it holds a 0 byte"),
    ],
)
def test_a_text_that_cannot_serve_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    for refuse in (tasks.make, tasks.check):
        with pytest.raises(ValueError, match=message) as caught:
            refuse(f"file:{tmp_path}/text")
        assert str(caught.value).startswith("task.name: file:")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["file:{}text", "tokens:{}text", "file:{}text.fasta"])
def test_a_relative_path_that_leads_nowhere_is_refused_with_the_folder_it_begins_at(
    tmp_path, monkeypatch, name
):
    """A run that reads such a path is loaded from another folder in vain."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FieldError, match=rf" in {re.escape(str(tmp_path))}(;|$)"):
        tasks.check(name.format(""))
    with pytest.raises(FieldError) as absolute:
        tasks.check(name.format(f"{tmp_path}/"))
    assert f" in {tmp_path}" not in str(absolute.value), "control"


def test_a_folder_without_text_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no text files"):
        tasks.check(f"file:{tmp_path}")


def test_check_reads_no_text(folder, monkeypatch):
    def fail(files):
        raise AssertionError("the text was read")

    monkeypatch.setattr(corpus, "texts", fail)
    tasks.check("stdlib", {"eval.lengths": [64, 65536]})
    tasks.check(f"file:{folder}", {"eval.lengths": [64]}, stretch=100)
    with pytest.raises(ValueError, match=r"eval.lengths: 101 is not a size .* 1 to 100"):
        tasks.check(f"file:{folder}", {"eval.lengths": [64, 101]}, stretch=100)
    with pytest.raises(ValueError, match=r"task.stretch: 0 is too small; 1 or more"):
        tasks.check("stdlib", stretch=0)
    with pytest.raises(AssertionError, match="was read"):
        tasks.make("stdlib")


@pytest.mark.thorough
def test_baselines_of_the_standard_library_have_the_expected_order(stdlib):
    actual = stdlib.baselines()
    assert actual["unigram"] > actual["bigram"] > actual["trigram"] > actual["lzma_after_train"]
    assert actual["gzip_250"] > actual["gzip"] > actual["lzma_after_train"]
    assert 4 < actual["unigram"] < 5.5
    assert 3 < actual["bigram"] < 4


@pytest.mark.parametrize(("distance", "shrinks"), [(250, True), (251, False)])
def test_gzip_250_copies_from_at_most_250_bytes_before(distance, shrinks):
    block = np.random.default_rng(0).bytes(distance)
    size = lambda text, log2_window: baselines._gzip(text, log2_window)
    assert (size(2 * block, 9) < 1.5 * distance) == shrinks
    assert size(2 * block, 15) < 1.5 * distance, "control: gzip copies from far before"
    assert size(block, 15) == len(gzip.compress(block))


def test_baselines_equal_hand_computed_ones():
    """The text is a b a b c: a is followed by b twice, b by a and by c once each."""
    text = np.frombuffer(b"ababc", np.uint8)
    counts = baselines.pair_counts(text)
    a, b, c = b"abc"
    assert counts.sum() == 4
    assert (counts[a, b], counts[b, a], counts[b, c]) == (2, 1, 1)
    p = baselines.unigram(counts, 256.0)
    assert math.isclose(p[b], (2 + 1) / (4 + 256))
    assert math.isclose(p[0], 1 / (4 + 256))
    q = baselines.bigram(counts, p, 0.5)
    assert math.isclose(q[b, c], (1 + 0.5 * 2 / 260) / (2 + 0.5))
    assert np.allclose(q.sum(axis=1), 1)
    assert np.isclose(p.sum(), 1)
    bits = -math.log2(q[a, b] * q[b, a] * q[a, b] * q[b, c]) / 4
    assert math.isclose(baselines.bits_per_byte(q, text), bits)
    triples = baselines.triple_counts(text)
    assert (triples.sum(), triples[a, b, a], triples[b, a, b], triples[a, b, c]) == (3, 1, 1, 1)
    r = baselines.trigram(triples, q, 0.5, text)
    assert np.allclose(
        r, [(1 + 0.5 * q[x, y]) / (n + 0.5) for x, y, n in [(b, a, 2), (a, b, 1), (b, c, 2)]]
    )
    assert math.isclose(
        baselines.bits_per_byte(p[None], text), -math.log2(p[b] * p[a] * p[b] * p[c]) / 4
    )


def test_baselines_count_the_bytes_that_are_predicted(monkeypatch):
    """A test byte outside the stretch changes nothing; one inside does."""
    rng = np.random.default_rng(0)
    text = {split: rng.integers(97, 101, 3000, dtype=np.uint8) for split in corpus.SPLITS}
    first = baselines.baselines(text, 1024)
    assert 1.9 < first["unigram"] < 2.1  # four letters, equally likely: two bits
    for place, changes in ((1024, True), (1025, False)):
        other = {**text, "test": text["test"].copy()}
        other["test"][place] = 0
        assert (baselines.baselines(other, 1024) != first) == changes


def test_counts_by_chunk_equal_counts_of_the_whole(monkeypatch):
    text = np.random.default_rng(0).integers(0, 256, 1000, dtype=np.uint8)
    whole, triples = baselines.pair_counts(text), baselines.triple_counts(text)
    monkeypatch.setattr(baselines, "CHUNK", 7)
    assert (baselines.pair_counts(text) == whole).all()
    assert (baselines.triple_counts(text) == triples).all()
    pairs = Counter(zip(text[:-1].tolist(), text[1:].tolist(), strict=True))
    assert all(whole[pair] == count for pair, count in pairs.items())
