"""Tasks of tokens: bytes of ids, folders, the order of windows, scores, and what is refused."""

import gzip
import importlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from posenc_jax.lab import metrics, tasks
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.tasks import corpus
from posenc_jax.lab.tasks.task import SPLITS
from posenc_jax.lab.tasks.tokens import documents, preparing, shards, tokenizer
from posenc_jax.lab.tasks.tokens import task as token_task
from posenc_jax.lab.tasks.tokens.permutation import _feistel, _halves, _mixed, permuted
from posenc_jax.lab.tasks.tokens.shards import Stream, TokenFolder
from posenc_jax.lab.tasks.tokens.tokenizer import ByteTokenizer
from scripts import prepare_tokens
from tests.support import ROOT

EMBEDDED = token_task.embedded_tokenizer
WORDS = ["the", "of", "and", "a", "token", "is", "read", "once", "more;", "naïve", "☃", "def x"]


def text_of(rng, words=100):
    return " ".join(rng.choice(WORDS, words))


@pytest.fixture(scope="module")
def texts():
    """Documents of a folder, of which some are copies, with other spaces too."""
    rng = np.random.default_rng(0)
    different = [text_of(rng) + f" {n}" for n in range(160)]
    copies = different[:40] + [text.replace(" ", "  ") for text in different[40:80]]
    return different + copies


@pytest.fixture(scope="module")
def folder_of_text(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for n, text in enumerate(texts):
        (folder / f"{n % 3}").mkdir(exist_ok=True)
        (folder / f"{n % 3}" / f"{n}.txt").write_text(text, "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")
    (folder / "latin.txt").write_bytes("naïve".encode("latin-1"))
    return folder


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(preparing, "PART", 20_000)
    monkeypatch.setattr(preparing, "BATCH", 5_000)


def prepare(source, out, name="bpe:300", **options):
    return preparing.prepare(documents.source(str(source)), name, out, **options)


@pytest.fixture(scope="module")
def prepared(folder_of_text, tmp_path_factory):
    """A folder of tokens with several shards for training."""
    out = tmp_path_factory.mktemp("tokens")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparing, "PART", 20_000)
        prepare(folder_of_text, out)
    return out


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# The order of windows.


@pytest.mark.parametrize("seed", [0, 1])
def test_windows_are_permuted_whatever_their_number(seed):
    for count in (*range(1, 130), 1000):
        index_N = np.arange(count)
        actual = permuted(index_N, count, seed, np.full(count, 3))
        assert np.sort(actual).tolist() == index_N.tolist()


def test_the_control_of_permutations_fails_without_the_walk():
    count, index_N = 100, np.arange(100, dtype=np.uint64)
    with np.errstate(over="ignore"):
        folded_N = _feistel(index_N, np.full(100, _mixed(np.uint64(1))), *_halves(count)) % 100
    assert len(set(folded_N.tolist())) < count


def test_each_seed_and_epoch_has_an_order_of_its_own_that_never_changes():
    order = lambda seed, epoch: permuted(np.arange(10), 10, seed, np.full(10, epoch)).tolist()
    assert order(0, 0) == [5, 2, 6, 0, 3, 7, 4, 8, 1, 9]
    assert order(0, 1) == [9, 1, 3, 6, 2, 4, 8, 0, 7, 5]
    assert order(1, 0) == [3, 9, 5, 8, 2, 6, 7, 0, 4, 1]


def test_places_of_an_order_are_uniform():
    """Where window 0 of 50 is read in 5,000 epochs: chi squared of 49 degrees of freedom."""
    at = permuted(np.zeros(5000, int), 50, 7, np.arange(5000))
    chi = lambda at: ((np.bincount(at, minlength=50) - 100) ** 2 / 100).sum()
    assert chi(at) < 90
    assert chi(np.arange(5000) % 40) > 1000, "control"


# Tokenizers.


@settings(max_examples=60, derandomize=True)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_of_ids_sum_to_the_bytes_of_any_text(text):
    words = EMBEDDED()
    (ids,) = words.encode([text])
    assert words.lengths_V[ids].sum() == len(text.encode())
    assert words.decode(ids) == text.encode()
    assert words.separator not in ids


def test_the_control_of_bytes_counts_letters():
    """Not the characters, and not the letters that a byte-level BPE stores."""
    words, text = EMBEDDED(), "naïve ☃ 𝄞"
    (ids,) = words.encode([text])
    letters = [len(words._tokenizer.id_to_token(int(i))) for i in ids]
    assert words.lengths_V[ids].sum() == sum(letters) == 15 != len(text)
    unprinted = words.encode(["\x00 ü"])[0]
    assert words.decode(unprinted) == "\x00 ü".encode()


def test_text_of_a_special_token_stays_text():
    words = EMBEDDED()
    text = f"a{tokenizer.END_OF_TEXT}b"
    (ids,) = words.encode([text])
    assert words.decode(ids) == text.encode()
    assert words.separator not in ids
    words._tokenizer.encode_special_tokens = False
    with pytest.raises(Refused, match="its tokens spell"):  # control
        words.encode([text])


def test_a_long_document_is_read_piece_by_piece():
    text = "line\n" * 50 + "x" * 30 + "\nend"
    parts = list(tokenizer.pieces(text, 12))
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 12
    assert parts[0] == "line\nline\n"


def test_training_a_bpe_twice_gives_the_same_file(texts):
    assert tokenizer.train_bpe(texts, 300) == tokenizer.train_bpe(texts, 300)
    assert tokenizer.train_bpe(texts, 300) != tokenizer.train_bpe(texts[:20], 300)


def sentencepiece(path, prefix=False):
    """A SentencePiece model of three words, whose other characters are bytes."""
    letters = [f"<0x{n:02X}>" for n in range(256)]
    vocab = {token: n for n, token in enumerate(["</s>", *letters, "▁", "a", "▁a"])}
    words = Tokenizer(models.BPE(vocab, [("▁", "a")], byte_fallback=True, unk_token="</s>"))
    spaces = [normalizers.Replace(" ", "▁")]
    words.normalizer = normalizers.Sequence([*[normalizers.Prepend("▁")] * prefix, *spaces])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    words.decoder = decoders.Sequence(back)
    words.add_special_tokens(["</s>"])
    words.save(str(path))
    return path


def test_sentencepiece_with_bytes_spells_every_text(tmp_path):
    words = ByteTokenizer(sentencepiece(tmp_path / "tokenizer.json"))
    text = "a b\n a ☃"
    (ids,) = words.encode([text])
    assert words.decode(ids) == text.encode()
    assert (words.separator, words.lengths_V[257 + 2]) == (0, 2)


def lower(path):
    words = Tokenizer.from_str(tokenizer.train_bpe(["Abc"], 257).decode())
    words.normalizer = normalizers.Lowercase()
    words.save(str(path))


def word_piece(path):
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.decoder = decoders.WordPiece()
    words.add_special_tokens(["[SEP]"])
    words.save(str(path))


def unseparated(path):
    words = Tokenizer.from_str(tokenizer.train_bpe(["abc"], 257).decode())
    stored = json.loads(words.to_str())
    stored["added_tokens"][0].update(content="<pad>")
    path.write_text(json.dumps(stored).replace(tokenizer.END_OF_TEXT, "<pad>"))


@pytest.mark.parametrize(
    ("write", "separator", "message"),
    [
        (lower, "", "its tokens spell b'a B'|for the text b'A B'"),
        (partial(sentencepiece, prefix=True), "", "its tokens spell b' A B' for the text b'A B'"),
        (word_piece, "", "a WordPiece whose tokens do not spell the bytes"),
        (unseparated, "", "no usual separator for --separator; choices: <pad>"),
        (unseparated, "<sep>", "no special token '<sep>' for --separator"),
        (lambda path: path.write_text("{}"), "", "tokenizer.json: "),
        (lambda path: path.write_bytes(b"\xff\0"), "", "tokenizer.json: "),
        (lambda path: None, "", "it cannot be read: No such file"),
    ],
)
def test_a_tokenizer_that_cannot_serve_is_refused(tmp_path, write, separator, message):
    path = tmp_path / "tokenizer.json"
    write(path)
    with pytest.raises(Refused, match=message) as caught:
        ByteTokenizer(path, separator).encode(["A B"])
    assert "\n" not in str(caught.value)


# Folders of tokens.


def documents_of(folder, split):
    """The documents of a split of a prepared folder, as bytes."""
    stored = TokenFolder(folder)
    stream = stored.stream(split)
    return stored.tokenizer.decode(stream.read(0, len(stream))).split(b"\0")[1:]


def test_documents_come_back_and_no_copy_is_in_two_splits(prepared, folder_of_text, texts):
    actual = {split: documents_of(prepared, split) for split in SPLITS}
    assert Counter(text for part in actual.values() for text in part) == Counter(
        text.encode() for text in texts
    )
    words = {split: {b" ".join(text.split()) for text in part} for split, part in actual.items()}
    assert not any(words[a] & words[b] for a, b in ((0, 1), (0, 2), (1, 2)) for a, b in [
        (SPLITS[a], SPLITS[b])])  # fmt: skip
    assert sum(len(part) - len(words[s]) for s, part in actual.items()) == 80, "control: copies"
    manifest = shards.read_manifest(prepared)
    assert manifest.source.left_out == 2
    assert len(manifest.splits["train"].shards) > 2
    for split in SPLITS:
        entry, held = manifest.splits[split], actual[split]
        assert entry.documents == len(held)
        assert entry.bytes == sum(len(text) + 1 for text in held)
        stream = TokenFolder(prepared).stream(split)
        assert entry.tokens == len(stream)
        assert int((stream.read(0, entry.tokens) == 0).sum()) == entry.documents


def test_held_out_documents_are_in_the_order_of_their_hashes(prepared):
    for split, in_order in (("valid", True), ("test", True), ("train", False)):
        marks = [documents.words_digest(text.decode()) for text in documents_of(prepared, split)]
        assert (marks == sorted(marks)) == in_order


def test_a_stream_reads_over_the_ends_of_shards(prepared):
    stored = TokenFolder(prepared)
    stream, files = stored.stream("train"), sorted(prepared.glob("train-*.bin"))
    whole = np.concatenate([np.fromfile(path, "<u2") for path in files])
    ends = np.cumsum([path.stat().st_size // 2 for path in files])
    for start in (0, *(ends - 3)):
        assert stream.read(int(start), 7).tolist() == whole[start : start + 7].tolist()
    assert stream.read(0, len(whole) + 5).tolist() == whole.tolist()


@pytest.mark.usefixtures("small_parts")
def test_interrupted_at_any_point_it_writes_the_same_files(
    prepared, folder_of_text, tmp_path, monkeypatch
):
    """At each write of a file, and at each point between; the one after goes on with it."""

    class Killed(Exception):
        pass

    def attempt(out, most=10**9):
        left = iter(range(most))

        def count(*args):
            if next(left, None) is None:
                raise Killed

        monkeypatch.setattr(preparing.os, "fsync", count)
        monkeypatch.setattr(failpoints, "reach", count)
        try:
            prepare(folder_of_text, out)
        except Killed:
            return False
        return True

    wanted, ended, seen = content(prepared), 0, set()
    for most in range(0, 200, 5):
        out = tmp_path / str(most)
        if attempt(out, most):
            break
        ended += 1
        seen |= set(content(out))
        assert attempt(out)
        assert content(out) == wanted
    assert ended > 4
    assert {"preparing.json", "part-00000.json", "part-test-00000.bin"} <= seen
    assert any(name.endswith(".part") for name in seen), "control: in the middle of a file"
    assert prepare(folder_of_text, out) == json.loads(wanted[shards.MANIFEST])
    shutil.copytree(prepared, tmp_path / "other")
    (tmp_path / "other" / "manifest.json").unlink()
    with pytest.raises(Refused, match="it holds other files, such as "):
        prepare(folder_of_text, tmp_path / "other")


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_was_damaged_is_made_again(prepared, folder_of_text, tmp_path, monkeypatch):
    def stop(name):
        if name == "preparing part" and len([*tmp_path.glob("*/part-*.json")]) == 2:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    monkeypatch.setattr(failpoints, "reach", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(folder_of_text, out)
    monkeypatch.undo()
    monkeypatch.setattr(preparing, "PART", 20_000)
    damaged = out / "train-00000.bin"
    damaged.write_bytes(b"\1" + damaged.read_bytes()[1:])
    prepare(folder_of_text, out)
    assert content(out) == content(prepared)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_text_of_many_parts_is_read_twice(tmp_path, texts, monkeypatch, interrupted):
    """Also by the command that goes on after an interruption, which skips what is tokenized."""
    path, out = tmp_path / "a.jsonl", tmp_path / "out"
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts * 2))

    def stop(name):
        if len([*out.glob("part-*.json")]) == 2:
            raise KeyboardInterrupt

    if interrupted:
        with monkeypatch.context() as patch:
            patch.setattr(failpoints, "reach", stop)
            with pytest.raises(KeyboardInterrupt):
                prepare(path, out)
    parsed = Counter()
    read = documents._item
    monkeypatch.setattr(documents, "_item", lambda text: parsed.update([text]) or read(text))
    manifest = prepare(path, out)
    assert len(manifest["splits"]["train"]["shards"]) > 5, "control: of many parts"
    assert sum(parsed.values()) == 2 * len(texts * 2)
    if interrupted:
        prepare(path, tmp_path / "whole")
        assert content(out) == content(tmp_path / "whole")


def test_a_source_that_changes_while_it_is_read_ends_with_a_line(folder_of_text, tmp_path):
    source = documents.source(str(folder_of_text))
    reads = iter([source.items])

    def items():
        read = next(reads, None)
        if read:
            return read()
        return (item._replace(text=(item.text or "") + "!") for item in source.items())

    with pytest.raises(Exception, match="it was changed while it was read; start again"):
        preparing.prepare(source._replace(items=items), "bpe:300", tmp_path / "out")
    assert not any((tmp_path / "out").iterdir()), "it is started again on another text"


@pytest.mark.usefixtures("small_parts")
def test_after_a_refused_tokenizer_the_folder_serves_another(
    prepared, folder_of_text, tmp_path, monkeypatch
):
    """Refused at the last document, when parts are tokenized; by its separator, at once."""
    source, out, parts = documents.source(str(folder_of_text)), tmp_path / "out", []

    def items():
        yield from source.items()
        yield documents.Item("in Capitals")

    lower(tmp_path / "lower.json")
    monkeypatch.setattr(failpoints, "reach", lambda name: parts.extend(out.glob("part-*.json")))
    with pytest.raises(Refused, match=r"lower\.json: its tokens spell"):
        preparing.prepare(source._replace(items=items), str(tmp_path / "lower.json"), out)
    assert parts, "control: nothing was tokenized"
    parts.clear()
    with pytest.raises(Refused, match=r"bpe:300: no special token '<s>' for --separator; choices"):
        prepare(folder_of_text, out, separator="<s>")
    assert not parts
    prepare(folder_of_text, out)
    assert content(out) == content(prepared)


# Sources.


def items_of(path, **options):
    return list(documents.source(str(path), **options).items())


def test_lines_of_json(tmp_path, texts):
    rows = [json.dumps({"text": text, "id": n}) for n, text in enumerate(texts[:20])]
    stored = "\n\n".join([*rows, '{"text": "\\ud800"}', '{"text": " "}', '{"text": "a\\u0000b"}'])
    path = tmp_path / "a.jsonl"
    path.write_text(stored)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(stored.encode()))
    expected = [*texts[:20], None, None, "a b"]
    for name in ("a.jsonl", "b.jsonl.gz"):
        assert [item.text for item in items_of(tmp_path / name)] == expected
    (tmp_path / "c.jsonl").write_text('{"body": "x"}')
    assert [item.text for item in items_of(tmp_path / "c.jsonl", field="body")] == ["x"]


def test_a_folder_of_shards_is_read_as_their_lines(tmp_path, texts):
    """C4 and Dolma pack lines as .json.gz; a .json file that is not packed is a text."""
    line = lambda text: json.dumps({"body": text}) + "\n"
    stored = ["".join(map(line, texts[n : n + 10])).encode() for n in range(0, 40, 10)]
    book, settings = "a book\n" * 2000, '{"a": 1}'
    files = {
        "a/1.jsonl": stored[0], "a/2.jsonl.gz": gzip.compress(stored[1]),
        "a/3.json.gz": gzip.compress(stored[2]), "a/4.txt.gz": gzip.compress(book.encode()),
        "a/5.tar.gz": gzip.compress(b"name\0" + book.encode()), "a/6.json": settings.encode(),
        "a/7.jsonl": stored[3],
    }  # fmt: skip
    (tmp_path / "a").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    expected = [*texts[:30], book, None, settings, *texts[30:40]]
    assert [item.text for item in items_of(tmp_path, field="body")] == expected
    with pytest.raises(Refused, match=r"1\.jsonl: line 1 has no text 'text'"):
        items_of(tmp_path)
    (tmp_path / "a" / "4.txt.gz").write_bytes(b"damaged")
    with pytest.raises(Refused, match=r"4\.txt\.gz: it cannot be read: Not a gzipped file"):
        items_of(tmp_path, field="body")


def test_zstandard_is_unpacked_whole(tmp_path):
    """Frames one after the other; one that is cut off is refused, not taken for a shorter text."""
    has_own = sys.version_info >= (3, 14)  # else the package is among the requirements
    zstd = importlib.import_module("compression.zstd" if has_own else "zstandard")
    text = "".join(f"line {n} of a log\n" for n in range(20_000)).encode()
    stored = zstd.compress(text[:5000]) + zstd.compress(text[5000:])
    path = tmp_path / "a.txt.zst"
    path.write_bytes(stored)
    assert "".join(item.text for item in items_of(path)).encode() == text
    path.write_bytes(stored[:-100])
    with pytest.raises(Refused, match="it cannot be read: it is cut off"):
        items_of(path)


@pytest.mark.parametrize("end", [".txt", ".txt.gz"])
def test_a_text_file_is_split_by_position_at_lines(tmp_path, monkeypatch, end):
    monkeypatch.setattr(documents, "BLOCK", 700)
    text = "".join(f"line {n} ☃ of a book\n" for n in range(2000))
    stored = text.encode()
    path = tmp_path / f"book{end}"
    path.write_bytes(gzip.compress(stored) if end.endswith("gz") else stored)
    items = items_of(path)
    assert "".join(item.text for item in items) == text
    assert [item.split for item in items if item.begins] == list(SPLITS)
    sizes = [sum(len(i.text.encode()) for i in items if i.split == s) for s in SPLITS]
    assert np.allclose(np.array(sizes) / len(stored), [0.9, 0.05, 0.05], atol=0.01)
    assert all(item.text.endswith("\n") for item in items)


def test_one_long_line_is_cut_between_characters(tmp_path):
    (tmp_path / "a.txt").write_text("☃" * 5000, "utf-8")
    items = items_of(tmp_path / "a.txt")
    assert "".join(item.text for item in items) == "☃" * 5000
    assert [item.split for item in items if item.begins] == list(SPLITS)


def refusal(arguments, capsys) -> str:
    assert prepare_tokens.main([str(argument) for argument in arguments]) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    return line


@pytest.mark.parametrize(
    ("name", "stored", "message"),
    [
        ("missing.txt", None, "missing.txt: no such file or folder"),
        ("a.txt", b"", "a.txt: too little text: 0 bytes, of which 0 for train; each split needs"),
        ("a.txt", b"word " * 400, "of which 100 for valid; each split needs 1024"),
        ("a.txt", b"\xff\xfe" * 40000, "a.txt: it is not UTF-8 text"),
        ("a.jsonl", b"", "a.jsonl: too little text"),
        ("a.jsonl", b'{"text": "a"}\n[]', "a.jsonl: line 2 has no text 'text' (--field)"),
        ("a.jsonl", b'{"body": "a"}', "line 1 has no text 'text' (--field); its fields: 'body'"),
        ("a.jsonl", b'{"text": "a"}\n{', "a.jsonl: line 2 is not JSON"),
        ("a.jsonl.gz", b"{}", "it cannot be read: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}' * 99, mtime=0)[:-20], "it cannot be read: "),
        ("a.txt.zst", b"\x28\xb5\x2f\xfd", "once: pip install zstandard|cannot be read"),
    ],
)
def test_a_text_that_cannot_serve_is_refused(tmp_path, capsys, name, stored, message):
    if stored is not None:
        (tmp_path / name).write_bytes(stored)
    line = refusal([tmp_path / name, "--tokenizer=bpe:300", f"--out={tmp_path}/out"], capsys)
    assert any(words in line for words in message.split("|"))


def test_wrong_flags_are_refused(tmp_path, capsys, folder_of_text, prepared):
    run = lambda *rest: refusal([folder_of_text, *rest], capsys)
    to = f"--out={tmp_path}/out"
    assert "'bpe:12' is not bpe:SIZE; give 257 to 1048576" in run("--tokenizer=bpe:12", to)
    assert "no.json: it cannot be read: No such file" in run(f"--tokenizer={tmp_path}/no.json", to)
    (tmp_path / "file").write_text("x")
    assert "it is a file; --out is a folder" in run("--tokenizer=bpe:300", f"--out={tmp_path}/file")
    assert "other files, such as file" in run("--tokenizer=bpe:300", f"--out={tmp_path}")
    assert "tokens of another text or tok" in run("--tokenizer=bpe:299", f"--out={prepared}")
    other = tmp_path / "text"
    shutil.copytree(folder_of_text, other)
    (other / "more.txt").write_text("another document")
    line = refusal([other, "--tokenizer=bpe:300", f"--out={prepared}"], capsys)
    assert "tokens of another text or tokenizer" in line
    for text in (folder_of_text, "stdlib"):
        line = refusal([text, "--field=body", "--tokenizer=bpe:300", to], capsys)
        assert f"--field: 'body' is a field of lines of JSON, and {text} has no .jsonl file" in line
    (tmp_path / "empty").mkdir()
    line = refusal([tmp_path / "empty", "--tokenizer=bpe:300", to], capsys)
    assert "empty: too little text: 0 bytes" in line
    for n in range(3):
        (tmp_path / "empty" / f"{n}.parquet").write_bytes(b"PAR1\0")
    line = refusal([tmp_path / "empty", "--tokenizer=bpe:300", to], capsys)
    assert "; 3 left out, which are empty or not UTF-8 text; hidden files and links are" in line
    assert "TFDS has no set" in refusal(["tfds:no_such_set", "--tokenizer=bpe:300", to], capsys)


def test_the_folder_of_tokens_is_no_part_of_the_text(folder_of_text, tmp_path, capsys):
    """Also if a link leads there. It may be a hidden one, which is skipped when the text is read,
    or a link that leads out of the text.
    """
    text, link = tmp_path / "text", tmp_path / "link"
    shutil.copytree(folder_of_text, text)
    link.symlink_to(text / "tokens")
    (text / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refusal([text, "--tokenizer=bpe:300", f"--out={tmp_path}/loop"], capsys)
    for out in (text, text / "new" / "tokens", link):
        line = refusal([text, "--tokenizer=bpe:300", f"--out={out}"], capsys)
        assert f"{out}: it is inside of the text {text}; choose another --out" in line
    assert not (text / "new").exists()
    (tmp_path / "elsewhere").mkdir()
    for out in (text / ".tokens", text / "out"):
        for _ in range(2):
            assert prepare_tokens.main([str(text), "--tokenizer=bpe:300", f"--out={out}"]) == 0


def test_a_folder_that_cannot_be_written_is_refused_at_once(
    folder_of_text, prepared, tmp_path, capsys, monkeypatch
):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    run = lambda out: refusal([folder_of_text, "--tokenizer=bpe:300", f"--out={out}"], capsys)
    assert "out: it cannot be made or read: Not a directory" in run(tmp_path / "file" / "out")
    monkeypatch.setattr(preparing.os, "access", lambda *args: False)  # root may write everywhere
    assert "empty: it cannot be written by this user; choose" in run(tmp_path / "empty")
    assert prepare(folder_of_text, prepared), "control: a finished folder is only read"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_preparation_with_one_line(folder_of_text, tmp_path, number):
    command = [sys.executable, ROOT / "scripts" / "prepare_tokens.py", folder_of_text,
               "--tokenizer=bpe:300", f"--out={tmp_path}/out"]  # fmt: skip
    at = {"POSENC_JAX_FAILPOINT": f"preparing@{number.name.removeprefix('SIG')}"}
    ended = subprocess.run(command, env=os.environ | at, capture_output=True, text=True)
    assert ended.returncode == 75
    assert ended.stderr == "interrupted; the same command goes on with it\n"


def test_the_command_says_what_it_wrote(folder_of_text, tmp_path, capsys):
    arguments = [str(folder_of_text), "--tokenizer=bpe:300", f"--out={tmp_path}/out"]
    assert prepare_tokens.main(arguments) == 0
    out, errors = capsys.readouterr()
    assert errors == ""
    assert out.splitlines()[-1].endswith(f"--config.task.name=tokens:{tmp_path}/out")
    assert "train:" in out
    again = tmp_path / "again"
    assert prepare_tokens.main([*arguments[:1], f"--tokenizer={tmp_path}/out/tokenizer.json",
                                f"--out={again}"]) == 0  # fmt: skip
    for file in ("train-00000.bin", "test-00000.bin", "tokenizer.json"):
        assert (again / file).read_bytes() == (tmp_path / "out" / file).read_bytes()


# The task.


@pytest.fixture(scope="module")
def task(prepared):
    return tasks.make(f"tokens:{prepared}", stretch=1000)


def windows(task, size, split="test"):
    index_B = jnp.arange(task.examples(size) + 1)
    return jax.jit(task.test, static_argnums=(2, 3, 4))(task.data, index_B, size, size, split)


def test_windows_of_any_length_score_the_same_bytes(task, prepared):
    stored = TokenFolder(prepared)
    for split in ("test", "valid"):
        expected = stored.stream(split).read(0, 1001)
        wanted = len(stored.tokenizer.decode(expected[1:]))
        for size in (7, 64, 300, 1000):
            batch = windows(task, size, split)
            counts_BT = np.asarray(batch.weights_BT) == 1
            assert np.asarray(batch.targets_BT)[counts_BT].tolist() == expected[1:].tolist()
            assert np.asarray(batch.bytes_BT)[counts_BT].sum() == wanted
            starts_BT = (np.asarray(batch.tokens_BT) == 0) & (np.arange(size) > 0)
            segments_BT = np.asarray(batch.layout.segment_BT)
            steps_BT = np.diff(segments_BT, axis=1, prepend=1)
            assert (steps_BT == starts_BT)[counts_BT].all()
    assert wanted > 1.2 * 1000, "control: targets are not bytes"
    assert task.facts["bytes_per_token"]["valid"] == wanted / 1000


def test_scores_are_bits_per_byte(task):
    batch = windows(task, 64)
    logits_BTV = jax.random.normal(jax.random.key(0), (*batch.tokens_BT.shape, task.vocab))
    scores = lambda *more: metrics.scores(
        ("bits_per_byte", "loss"), logits_BTV, batch.targets_BT, batch.weights_BT, *more
    )
    actual = scores(batch.bytes_BT)
    log_p = np.asarray(jax.nn.log_softmax(logits_BTV), np.float64)
    chosen = np.take_along_axis(log_p, np.asarray(batch.targets_BT)[..., None], -1)[..., 0]
    counts_BT = np.asarray(batch.weights_BT) == 1
    bits = -chosen[counts_BT].sum() / math.log(2)
    bytes_ = np.asarray(batch.bytes_BT)[counts_BT].sum()
    assert math.isclose(actual.mean("bits_per_byte"), bits / bytes_, rel_tol=1e-5)
    assert math.isclose(actual.mean("loss"), bits * math.log(2) / 1000, rel_tol=1e-5)
    per_token = scores().mean("bits_per_byte")
    assert math.isclose(per_token, bits / 1000, rel_tol=1e-5), "control: bits per token"


def test_an_epoch_reads_every_window_once(task, prepared):
    stream = TokenFolder(prepared).stream("train")
    count = (len(stream) - 1) // 50
    steps = -(-2 * count // 8)
    rows = task.feed(range(2), range(steps), 8, 50).whole().reshape(2, -1, 51)
    window = lambda n: stream.read(50 * n, 51).tobytes()
    expected = Counter(window(n) for n in range(count))
    orders = []
    for seed in range(2):
        for epoch in range(2):
            order = [row.tobytes() for row in rows[seed, epoch * count : (epoch + 1) * count]]
            assert Counter(order) == expected
            orders.append(tuple(order))
    assert len(set(orders)) == 4, "every seed and epoch has an order of its own"


def test_rows_are_a_function_of_seed_step_and_row(task):
    whole = task.feed(range(1, 3), range(40), 6, 32).whole()
    assert whole.dtype == np.uint16
    later = task.feed(range(2, 3), range(7, 12), 6, 32)
    assert later.shape == (1, 5, 6, 33)
    assert (later.whole()[0] == whole[1, 7:12]).all()
    part = later.fill(slice(0, 1), slice(2, 4), slice(3, 6))
    assert (part[0] == whole[1, 9:11, 3:6]).all()
    assert not (later.whole()[0] == whole[0, 7:12]).all(), "control: another seed"


def test_training_rows_become_batches(task):
    rows = task.training_data(3, 4, 32)
    batch = task.sample(rows, jax.random.key(0), jnp.array([32, 5, 32, 32]), 32)
    assert np.asarray(batch.targets_BT[0]).tolist() == rows[0, 1:].tolist()
    assert np.asarray(batch.weights_BT).sum(axis=1).tolist() == [32, 5, 32, 32]


def test_baselines_read_the_bytes_that_are_scored(task, prepared):
    stored = TokenFolder(prepared)
    text = stored.tokenizer.decode(stored.stream("test").read(0, 1001))
    assert text.startswith(b"\0")
    compressed = zlib.compressobj(9, zlib.DEFLATED, 31)
    size = len(compressed.compress(text[1:]) + compressed.flush())
    actual = task.baselines()
    assert math.isclose(actual["gzip"], 8 * size / (len(text) - 1))
    assert actual["unigram"] > actual["trigram"]


def test_baselines_are_fitted_to_all_parts_of_the_training_text(monkeypatch):
    monkeypatch.setattr(token_task, "BLOCKS", 3)
    monkeypatch.setattr(token_task, "BLOCK", 2)
    evenly = lambda count: token_task.evenly(Stream([np.arange(count)])).tolist()
    assert evenly(6) == [*range(6)]
    assert evenly(100) == [0, 1, 49, 50, 98, 99]


def test_units_and_options(prepared):
    assert tasks.unit(f"tokens:{prepared}") == tasks.unit("stdlib_tokens") == "tokens"
    assert tasks.check(f"tokens:{prepared}").streamed
    with pytest.raises(ValueError, match=r"eval.lengths: 501 is not a size .* 1 to 500"):
        tasks.check(f"tokens:{prepared}", {"eval.lengths": [501]}, stretch=500)
    with pytest.raises(ValueError, match=r"task.masked: .* takes no such option"):
        tasks.check(f"tokens:{prepared}", masked=0.1)


def changed_shard(folder):
    path = folder / "test-00000.bin"
    path.write_bytes(b"\1" + path.read_bytes()[1:])


def edited(folder, edit):
    path = folder / shards.MANIFEST
    stored = json.loads(path.read_text())
    edit(stored)
    path.write_text(json.dumps(stored))


def wrong_ids(folder):
    path = folder / "train-00001.bin"
    path.write_bytes(b"\xff\xff" + path.read_bytes()[2:])
    entry = {"sha256": shards.sha256_of(path)}
    edited(folder, lambda stored: stored["splits"]["train"]["shards"][1].update(entry))


def other_tokenizer(folder):
    (folder / tokenizer.FILE).write_bytes(tokenizer.train_bpe(["other text"], 300))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed_shard, "test-00000.bin: it was changed: its SHA-256 is not that of manifest.json"),
        (lambda f: (f / "train-00000.bin").write_bytes(b"ab"), "it was changed: 2 bytes; "),
        (lambda f: (f / "train-00000.bin").unlink(), "it cannot be read: No such file"),
        (wrong_ids, "train-00001.bin: it holds the id 65535; the vocabulary has 300"),
        (other_tokenizer, "not the tokenizer of these tokens: its SHA-256 is"),
        (lambda f: (f / shards.MANIFEST).write_text("{"), "manifest.json: it is not JSON"),
        (lambda f: (f / shards.MANIFEST).write_text("[]"), "manifest.json: it is no JSON object"),
        (lambda f: edited(f, lambda s: s.pop("dtype")), "manifest.json: dtype: Field required"),
        (lambda f: edited(f, lambda s: s["splits"].pop("test")), "manifest.json: splits.test: "),
        (
            lambda f: edited(f, lambda s: s["splits"]["test"]["shards"][0].update(file="../x.bin")),
            "splits.test.shards.0.file: String should match",
        ),
        (
            lambda f: edited(f, lambda s: s["tokenizer"].update(vocab=299)),
            "299 ids with the separator 0; the tokenizer has 300 and 0",
        ),
        (lambda f: shutil.rmtree(f), "no folder of tokens; once, type: python scripts/prepare"),
    ],
)
def test_a_folder_that_was_changed_is_refused(
    prepared, folder_of_text, tmp_path, capsys, damage, message
):
    """By a run, and by the command that prepared it."""
    folder = tmp_path / "tokens"
    shutil.copytree(prepared, folder)
    tasks.make(f"tokens:{folder}", stretch=100)
    damage(folder)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is looked at below
        tasks.make(f"tokens:{folder}", stretch=100)
    line = str(caught.value)
    assert line.startswith("task.name: tokens:")
    assert message in line
    assert "\n" not in line
    if folder.exists():
        again = refusal([folder_of_text, "--tokenizer=bpe:300", f"--out={folder}"], capsys)
        assert message in again
        assert again.endswith(f"; to write it again, first remove {folder}\n")


@pytest.mark.thorough
def test_the_standard_library_as_tokens_is_the_text_of_stdlib():
    embedded, text = tasks.make("stdlib_tokens", stretch=2048), tasks.make("stdlib", stretch=2048)
    words = EMBEDDED()
    for split in SPLITS:
        spelled = words.decode(token_task._standard_library(split))
        assert spelled == b"\0" + np.asarray(text.data[split]).tobytes()
        assert embedded.facts["bytes"][split] == text.facts["bytes"][split] + 1
    assert embedded.facts["bytes_per_token"]["train"] > 3
    assert corpus.standard_library_sha256()


def test_the_committed_tokenizer_is_small_and_of_4096_ids():
    words = EMBEDDED()
    assert words.vocab == 4096
    assert len(json.dumps(json.loads(words._tokenizer.to_str()))) < 500_000


def test_streams_need_no_file():
    stream = Stream([np.arange(5, dtype=np.uint32), np.arange(5, 9, dtype=np.uint32)])
    assert len(stream) == 9
    rows = stream.windows(np.array([[0, 3], [4, 5]]), 4)
    assert rows[0, 1].tolist() == [3, 4, 5, 6]
    assert rows.shape == (2, 2, 4)
