"""TFDS sets: our own prepared and read back, packing, streaming, and every way it can go wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow_datasets as tfds

from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks import corpus, tfds_builder, tfds_folder, tfds_tasks
from posenc_jax.lab.tasks.question_answer import answered
from posenc_jax.lab.tasks.task import BOS, EOS, SEP, SYMBOL
from posenc_jax.lab.tasks.tokens import documents, preparing
from posenc_jax.lab.training.batches import training_batches
from posenc_jax.lab.training.loop import train
from tests.support import ROOT
from tests.support.tfds_sets import COMMANDS, DOCUMENTS


@pytest.fixture(scope="module")
def prepared_dir(tmp_path_factory):
    """Six sets, prepared as anybody would, with no TensorFlow."""
    folder = tmp_path_factory.mktemp("tfds")
    datasets = ("posenc_jax/stdlib", "posenc_jax/digits", "posenc_jax/copy")
    names = (*datasets, "documents", "commands", "reviews")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds_builder, "COUNT", 60)
        tfds.disable_progress_bar()
        for name in names:
            builder = tfds.builder(name, data_dir=folder, file_format="array_record")
            builder.download_and_prepare()
    return folder


@pytest.fixture
def data_dir(prepared_dir, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(prepared_dir))
    return prepared_dir


@pytest.mark.thorough
def test_labels_are_those_of_the_set(data_dir):
    task = tasks.make("labels:tfds:reviews")
    assert task.facts["labels"] == ["bad", "good"]
    assert task.facts["texts"] == {"train": 38, "valid": 2, "test": 40}
    batch = task.test(task.data, jnp.arange(40), 20, task.width(20))
    for token_T, label in zip(np.asarray(batch.tokens_BT), batch.targets_BT[:, 0], strict=True):
        text = bytes(token - SYMBOL for token in token_T if token >= SYMBOL).decode()
        assert re.match(r"test review \d+$", text)
        assert int(text.split()[2]) % 2 == label
    with pytest.raises(ValueError, match=r"task\.name: tfds:commands has no class label"):
        tasks.check("labels:tfds:commands", reads="whole")


@pytest.fixture
def own_copy(data_dir, tmp_path, monkeypatch):
    """A copy of `documents` that a test may damage."""
    shutil.copytree(data_dir / "documents", tmp_path / "documents")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path / "documents"


def test_every_task_is_a_set_of_ours():
    assert set(tfds_builder.PosencJax.builder_configs) == {
        *tasks.names("tokens"),
        *tasks.names("patches"),
    }


@pytest.mark.thorough
def test_the_corpus_reads_back_by_name(data_dir):
    source = corpus.texts(corpus.standard_library())
    for split in tfds_builder.SPLITS:
        read = tfds.data_source("posenc_jax/stdlib", split=split, data_dir=data_dir)
        assert sorted(example["text"] for example in read) == sorted(t for _, t in source[split])
        assert all(example["path"].endswith(b".py") for example in read)
    task, own = tasks.make("tfds:posenc_jax/stdlib"), tasks.make("stdlib")
    assert task.facts["bytes"]["test"] == own.facts["bytes"]["test"] + 1


def test_the_digits_read_back_by_name(data_dir):
    task, own = tasks.make("tfds:posenc_jax/digits", patch=2), tasks.make("digits")
    for split in tfds_builder.SPLITS:
        both = []
        for data in (task.data[split], own.data[split]):
            rows = zip(np.asarray(data["pixels"]), np.asarray(data["labels"]), strict=True)
            both.append(sorted((image.tobytes(), int(label)) for image, label in rows))
        assert both[0] == both[1]
        assert both[0] != [(image, label + 1) for image, label in both[1]]
    assert (task.features, task.vocab, task.least) == (own.features, own.vocab, own.least)


@pytest.mark.parametrize("split", tfds_builder.SPLITS)
def test_a_generated_task_reads_back_by_name(data_dir, split):
    read = tfds.data_source("posenc_jax/copy", split=split, data_dir=data_dir)
    size_B = np.resize(np.arange(1, 21), 60)
    expected = tfds_builder.lines(tasks.make("copy"), split, size_B)
    widths = [2 * size + 2 for size in size_B]
    rows = {
        tuple(tuple(part[row, :width].tolist()) for part in expected)
        for row, width in enumerate(widths)
    }
    names = ("tokens", "targets", "weights")
    assert {tuple(tuple(example[n].tolist()) for n in names) for example in read} == rows
    if split == "test":
        batch = jax.jit(tasks.make("copy").test, static_argnums=3)((), jnp.arange(2, 3), 3, 8)
        assert tuple(batch.tokens_BT[0].tolist()) in {row[0] for row in rows}


def test_documents_are_packed_and_kept_apart(data_dir):
    task = tasks.make("tfds:documents", stretch=1024)
    index_B = jnp.arange(task.examples(128))
    batch = jax.jit(task.test, static_argnums=3)(task.data, index_B, jnp.int32(128), 128)
    stream = np.asarray(task.data["test"])[: task.most + 1]
    assert (np.asarray(batch.targets_BT).ravel() == stream[1 : 8 * 128 + 1]).all()
    assert (batch.weights_BT == 1).all()
    assert {bytes(d) for d in stream.tobytes().split(b"\0")[1:-1]} <= set(DOCUMENTS["test"])
    tokens, segments = np.asarray(batch.tokens_BT), np.asarray(batch.layout.segment_BT)
    for row in range(8):
        starts = {0, *np.flatnonzero(tokens[row] == 0).tolist()}
        assert len(set(segments[row].tolist())) == len(starts)
        for place in range(128):
            begun = max(start for start in starts if start <= place)
            assert batch.layout.pos_BT[row, place] == place - begun
    plain = tasks.make("stdlib", stretch=1024)
    other = jax.jit(plain.test, static_argnums=3)(plain.data, index_B, jnp.int32(128), 128)
    assert (other.layout.segment_BT == 1).all(), "the embedded text is one stream"


def test_a_set_without_validation_gives_a_part_of_its_training(data_dir):
    facts = tasks.make("tfds:documents", stretch=512).facts
    assert facts["splits"] == {"train": "train[:95%]", "valid": "train[95%:100%]", "test": "test"}
    assert facts["examples"] == {"train": 1140, "valid": 60, "test": 60}


@pytest.fixture
def streamed(data_dir, monkeypatch):
    monkeypatch.setattr(tfds_tasks, "FITS", 0)
    return tasks.make("tfds:documents", stretch=256)


def test_whether_a_set_is_streamed_is_known_before_it_is_read(data_dir, monkeypatch):
    assert not tasks.check("tfds:documents").streamed
    assert not tasks.check("copy").streamed
    monkeypatch.setattr(tfds_tasks, "FITS", 0)
    assert tasks.check("tfds:documents").streamed


CONFIG = schema.TrainConfig(length=32, min_length=32, batch=6, steps=4, chunk=2, warmup=1)


@pytest.mark.thorough
def test_a_streamed_step_is_a_function_of_seed_and_step(streamed):
    feed = streamed.feed(range(1, 3), range(4, 9), 6, 32)
    rows = feed.whole()
    assert rows.shape == feed.shape == (2, 5, 6, 33)
    assert rows.dtype == np.uint8
    part = feed.fill(slice(1, 2), slice(0, 5, 2), slice(3, 6))
    assert (part == rows[1:2, 0:5:2, 3:6]).all()
    alone = tasks.make("tfds:documents", stretch=256).feed(range(2, 3), range(7, 8), 6, 32)
    assert (alone.whole()[0, 0] == rows[1, 3]).all()
    assert len({row.tobytes() for row in rows.reshape(10, -1)}) == 10
    batches = training_batches(streamed, CONFIG)([1, 2], range(4, 9))
    assert (np.asarray(batches.tokens_BT) == rows[..., :-1]).all()
    assert (np.asarray(batches.targets_BT) == rows[..., 1:]).all()


def test_streamed_rows_are_made_of_documents(streamed):
    texts = [text.replace(b"\0", b" ") for text in DOCUMENTS["train"]]
    rows = streamed.feed(range(1), range(40), 6, 64).whole().reshape(-1, 65)
    inner, cropped = set(), 0
    for row in rows:
        first, *between = row.tobytes().split(b"\0")
        inner |= set(between[:-1])
        cropped += row[0] != 0
        if not between:  # one document fills it
            assert any(first in text for text in texts)
            continue
        assert any(text.endswith(first) for text in texts)
        assert any(text.startswith(between[-1]) for text in texts)
    assert inner <= set(texts)
    assert len(inner) > 50
    assert cropped > 0


@pytest.mark.thorough
def test_training_reads_a_chunk_at_a_time(streamed):
    chunks = []

    def feed(seeds, steps, batch, width):
        chunks.append((seeds, steps, batch, width))
        return streamed.feed(seeds, steps, batch, width)

    config = schema.ModelConfig(width=8, heads=2, layers=1, mlp=1)
    model = transformer.build(config, encodings.make("rope"), streamed.vocab)
    losses = []
    keep = lambda metrics, seconds: losses.extend(metrics["loss"][0].tolist())
    train(model, streamed._replace(feed=feed), CONFIG, 2, 3, True, keep)
    assert chunks == [([3, 4], range(a, b), 6, 32) for a, b in ((0, 2), (2, 4))]
    assert len(losses) == 4
    assert np.isfinite(losses).all()


def test_the_texts_of_a_set_are_prepared_as_tokens(data_dir, tmp_path):
    """By hash, because the set has no split for validation; ours has all three, which stay."""
    source = documents.source("tfds:documents")
    items = list(source.items())
    stored = [text for split in DOCUMENTS.values() for text in split]
    expected = sorted(text.replace(b"\0", b" ") for text in stored)
    assert sorted(item.text.encode() for item in items) == expected
    assert {item.split for item in items} == {None}
    preparing.prepare(source, "bpe:300", tmp_path / "out")
    task = tasks.make(f"tokens:{tmp_path}/out", stretch=256)
    assert sum(task.facts["documents"].values()) == len(items)
    titles = {item.text for item in documents.source("tfds:documents", "title").items()}
    assert {"0", "1199"} <= titles
    texts = documents.source("tfds:posenc_jax/stdlib").items()
    assert next(texts).split == "train"
    with pytest.raises(ValueError, match="has no text 'body'; choices: text, title"):
        documents.source("tfds:documents", "body")
    with pytest.raises(ValueError, match="has no text 'body'; choices: text"):
        documents.source("tfds:reviews", "body")  # its only text is not taken instead


def test_questions_and_answers(data_dir):
    task = tasks.make("tfds:commands")
    size = 60
    index_B = jnp.arange(task.examples(size) + 1)
    batch = jax.jit(task.test, static_argnums=3)(task.data, index_B, jnp.int32(size), size)
    shown = []
    for tokens, targets, weights in zip(*map(np.asarray, batch[:3]), strict=True):
        if not weights.any():
            continue
        line = [*tokens[tokens > 0].tolist(), EOS]
        at = line.index(SEP)
        assert line[0] == BOS
        assert targets[weights > 0].tolist() == line[at + 1 :]
        text = lambda part: bytes(token - SYMBOL for token in part)
        shown.append((text(line[1:at]), text(line[at + 1 : -1])))
    fits = [pair for pair in COMMANDS if len(pair[0]) + len(pair[1]) + 2 <= size]
    assert sorted(shown) == sorted(fits)
    assert len(shown) == task.examples(size) < len(COMMANDS)
    sampled = jax.jit(task.sample, static_argnums=3)(
        task.data, jax.random.key(0), jnp.asarray([20, 60, 60, 20]), size
    )
    widths = np.asarray(sampled.layout.segment_BT).sum(axis=1)
    assert (widths <= [20, 60, 60, 20]).all()


def test_mock_data_is_read_like_any_other(data_dir, monkeypatch):
    """Random examples of the same features; under the mock a builder cannot be opened from disk."""
    folders = [data_dir / name / "1.0.0" for name in ("posenc_jax/digits", "documents")]
    opened = {folder: tfds.builder_from_directory(folder) for folder in folders}
    monkeypatch.setattr(tfds, "builder_from_directory", opened.get)
    with tfds.testing.mock_data(num_examples=300):
        pictures = tasks.make("tfds:posenc_jax/digits", patch=4)
        text = tasks.make("tfds:documents", stretch=512)
    assert pictures.facts["images"] == {"train": 300, "valid": 300, "test": 300}
    assert pictures.features == 16
    assert text.facts["examples"] == {"train": 300, "valid": 300, "test": 300}
    assert len(text.data["train"]) > 1024


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lm1b", {}, "task.name: tfds:lm1b is not prepared in {dir}; once, type: python scripts/"
         "prepare_data.py lm1b"),
        ("wiki40b/en", {}, "type: python scripts/prepare_data.py wiki40b/en"),
        ("lm1bb", {}, "task.name: TFDS has no set 'lm1bb'; did you mean lm1b"),
        ("../up", {}, "task.name: tfds:../up is no name of a set; it is written NAME, NAME/CONFIG"),
        ("documents:2.0.0", {}, "is not prepared in that version; choices: 1.0.0"),
        ("posenc_jax", {}, "has several configs prepared; choices: copy, digits, stdlib"),
        ("posenc_jax/copy", {}, "holds no text and no images with labels; its features: size, ta"),
        ("posenc_jax/stdlib", {"feature": "txt"}, "task.feature: tfds:posenc_jax/stdlib has no "
         "text 'txt'; did you mean text? choices: path, text"),
        ("documents", {"train": "trian"}, "task.train: tfds:documents has no split 'trian'; did "),
        ("documents", {"test": "dev"}, "task.test: tfds:documents has no split 'dev'; choices: t"),
        ("documents", {"train": ""}, "task.train: tfds:documents has no split ''; choices: train"),
        ("documents", {"test": "test[:banana]"}, "task.test: 'test[:banana]' of tfds:documents: "),
        ("documents", {"test": "test+dev"}, "task.test: 'test+dev' of tfds:documents: Unknown sp"),
        ("documents", {"test": "test[:0%]"}, "task.test: 'test[:0%]' of tfds:documents holds no "),
        ("documents", {"valid": "train[:0]"}, "task.valid: 'train[:0]' of tfds:documents holds n"),
        ("commands", {"test": "test[5:5]"}, "task.test: 'test[5:5]' of tfds:commands holds no ex"),
        ("documents", {"train": "train[:50%]"}, "no splits for validation and test to go with"),
        ("posenc_jax/digits", {}, "tfds:posenc_jax/digits is a task of images; choices: stdlib"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_at_once(data_dir, name, options, message):
    started = time.process_time()  # of this process: a busy machine is not what is tested
    with pytest.raises(ValueError, match=re.escape(message.format(dir=data_dir))) as caught:
        tasks.check(f"tfds:{name}", **options)
    assert time.process_time() - started < 1
    assert "\n" not in str(caught.value)


def test_a_set_left_half_prepared_is_refused(own_copy):
    tasks.check("tfds:documents")
    (own_copy / "1.0.0").rename(own_copy / "incomplete.ABC123_1.0.0")
    with pytest.raises(
        ValueError, match=r"left half prepared; remove .*incomplete.ABC123_1.0.0 an"
    ):
        tasks.check("tfds:documents")


def test_a_set_in_another_format_is_refused(own_copy):
    info = own_copy / "1.0.0" / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    with pytest.raises(
        ValueError, match=r"is prepared as tfrecord, which needs TensorFlow to read"
    ):
        tasks.check("tfds:documents")


def test_a_set_that_lacks_a_file_is_refused(own_copy):
    next((own_copy / "1.0.0").glob("*-test.array_record-*")).unlink()
    with pytest.raises(ValueError, match="lacks 1 of 1 files of its split test; remove"):
        tasks.check("tfds:documents")


def test_a_damaged_description_is_refused(own_copy):
    (own_copy / "1.0.0" / "features.json").write_text("{")
    with pytest.raises(ValueError, match="tfds:documents is damaged; remove"):
        tasks.check("tfds:documents")


def test_too_much_to_read_at_once_is_refused(data_dir, monkeypatch):
    monkeypatch.setattr(tfds_tasks, "MANY", 10)
    with pytest.raises(ValueError, match="tfds:commands has 100 examples, 0 MiB; at most 10 and"):
        tasks.check("tfds:commands")


def test_prepare_data_says_what_it_takes_first(tmp_path, monkeypatch, capsys):
    from scripts import prepare_data

    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(prepare_data.importlib.util, "find_spec", lambda name: None)
    assert prepare_data.main(["mnist"]) == 2
    out, err = capsys.readouterr()
    assert "download: 11.1 MiB in 4 files" in out
    assert "to:       " + str(tmp_path / "mnist") in out
    assert err.startswith("error: mnist: preparing a public set needs TensorFlow, once: pip inst")
    assert prepare_data.main(["wiki40b/en"]) == 2
    assert "TFDS shows this set only where TensorFlow is" in capsys.readouterr().err
    assert prepare_data.main(["posenc_jax/partiy"]) == 2
    assert "no config 'partiy'; did you mean parity?" in capsys.readouterr().err
    assert prepare_data.main(["posenc_jax/parity", "--dry-run"]) == 0
    assert "download: nothing" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"type: python scripts/prepare_data.py posenc_jax/parity"):
        tfds_folder.find("posenc_jax/parity")


LOADS = """
import importlib, pathlib, sys
import train, experiments, posenc_jax.lab.gallery
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks import tfds_builder, tfds_tasks
for path in sorted(pathlib.Path("configs").glob("*.py")):
    module = importlib.import_module(f"configs.{path.stem}")
    if hasattr(module, "get_config"):
        module.get_config()
tasks.make("tfds:posenc_jax/digits", patch=2)
tfds_tasks.FITS = 0
tasks.make("tfds:documents", stretch=256).feed(range(1), range(1), 2, 8).whole()
print([m for m in sys.modules if m.split(".")[0] == "tensorflow"])
import tensorflow
"""


@pytest.mark.thorough
def test_nothing_of_ours_loads_tensorflow(data_dir, tmp_path):
    """As if TensorFlow were installed, and loading it an error; the last line is the control."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('TensorFlow loads')")
    paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "TFDS_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        [sys.executable, "-c", LOADS], cwd=ROOT, env={**os.environ, **paths},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
    assert done.stderr.splitlines()[-1] == "ImportError: TensorFlow loads"


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_no_tensorflow_in_the_lock(file):
    names = {re.split("[=<>; ]", line)[0] for line in (ROOT / file).read_text().splitlines()}
    packages = {"tensorflow-datasets", "tensorflow-metadata"}
    assert packages <= names, "what is looked for would be found"
    assert {name for name in names if name.startswith(("tensorflow", "tf-"))} == packages


def test_the_record_is_json(data_dir):
    json.dumps(tasks.make("tfds:documents", stretch=256).facts)


def test_a_part_of_a_split_counts_as_what_it_holds(data_dir, monkeypatch):
    """The control of the refusals of parts: those that hold something are taken."""
    parts = {"train": "train[:40%]+train[60%:]", "valid": "train[40%:50%]", "test": "test[-12:]"}
    actual = tfds_folder.find("documents")
    taken = tfds_tasks._parts(actual, **parts)
    assert [part.examples for part in taken.values()] == [960, 120, 12]
    share = actual.builder.info.splits["train"].num_bytes / 1200
    assert taken["train"].bytes == pytest.approx(960 * share)


def test_the_hash_of_questions_and_answers_is_of_all_of_them():
    sha256 = lambda *pairs: answered("x", dict.fromkeys(tfds_tasks.SPLITS, pairs), {}).facts[
        "sha256"
    ]
    whole = sha256((b"ab", b"c"), (b"d", b"e"))
    assert whole == sha256((b"ab", b"c"), (b"d", b"e"))
    for other in [((b"a", b"bc"), (b"d", b"e")), ((b"ab", b"c"),), ((b"ab", b"c"), (b"d", b"f"))]:
        assert sha256(*other) != whole
