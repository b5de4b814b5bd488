"""Texts of documents that are kept apart: prose, and the records of FASTA files."""

import gzip

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import SPLITS

RECORDS = [
    ("first", "acgt" * 500),
    ("second, with a comment", "GGCCN" * 900),
    ("third", "TTA" * 7000),
]


def text_of(task, split):
    return np.asarray(task.data[split]).tobytes()


def fasta(path, records=RECORDS):
    """A FASTA file with lines of 60 letters."""
    lines = []
    for header, sequence in records:
        lines += [f">{header}", *(sequence[i : i + 60] for i in range(0, len(sequence), 60))]
    stored = "\n".join(lines).encode() + b"\n"
    path.write_bytes(gzip.compress(stored) if path.suffix == ".gz" else stored)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["genome.fa", "genome.fasta", "genome.fa.gz"])
def test_fasta_records_without_headers(tmp_path, name):
    task = tasks.make(f"file:{fasta(tmp_path / name)}", stretch=512)
    whole = b"".join(text_of(task, split) for split in SPLITS)
    assert whole == b"".join(b"\0" + sequence.upper().encode() for _, sequence in RECORDS)
    assert task.facts["records"] == 3
    assert task.facts["bytes"] == {s: len(text_of(task, s)) for s in SPLITS}
    start = whole.index(b"\0", 1)
    packed = tasks.make(f"file:{tmp_path / name}", stretch=512)
    rows = packed.sample(packed.data, jax.random.key(0), jnp.full(64, 4000, jnp.int32), 4000)
    segments = np.asarray(rows.layout.segment_BT)
    tokens = np.asarray(rows.tokens_BT)
    assert (segments.max(axis=1) > 1).any(), f"no window of 64 holds the border at {start}"
    begins = (tokens == 0) & (np.arange(4000) > 0)
    assert (np.diff(segments, axis=1, prepend=1) == begins).all()
    assert (np.asarray(rows.layout.pos_BT)[begins] == 0).all()


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (None, "no such file"),
        (b"ACGT\n", "is not FASTA; its first line must begin with >"),
        (b">only a header\n", "is too small: 0 bytes"),
        (b">a\nACGT\n", "is too small: 5 bytes"),
    ],
)
def test_a_file_that_is_not_fasta_is_refused(tmp_path, stored, message):
    path = tmp_path / "genome.fa"
    if stored is not None:
        path.write_bytes(stored)
    with pytest.raises(ValueError, match=message) as caught:
        tasks.check(f"file:{path}")
    assert str(caught.value).startswith("task.name: file:")
    (tmp_path / "x.fa.gz").write_bytes(b">a\nACGT\n")
    with pytest.raises(ValueError, match="cannot be read: Not a gzipped file"):
        tasks.check(f"file:{tmp_path}/x.fa.gz")


def test_prose_is_english_and_its_splits_share_no_paragraph():
    task = tasks.make("prose", stretch=1024)
    texts = {split: text_of(task, split) for split in SPLITS}
    paragraphs = {
        split: {
            b" ".join(part.split()) for topic in text.split(b"\0") for part in topic.split(b"\n\n")
        }
        for split, text in texts.items()
    }
    for a, b in (("train", "valid"), ("train", "test"), ("valid", "test")):
        shared = paragraphs[a] & paragraphs[b]
        assert shared <= {b""}
    first, second = set(list(paragraphs["train"])[::2]), paragraphs["train"]
    assert len(first & second) > 100, "control: paragraphs of one split are shared"
    for text in texts.values():
        assert text.startswith(b"\0")
        assert text.count(b" the ") > len(text) / 200
    actual = task.baselines()
    assert actual["bigram"] > actual["trigram"] > actual["lzma_after_train"]
