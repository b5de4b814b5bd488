"""Writes a folder of tokens, which `shards.py` reads: tokenizer, shards, manifest.

The text is read twice. The first pass counts it, hashes it and takes the sample for a BPE; the
second one tokenizes. Both read one document at a time, so memory is bounded by the largest one and
by PART. A preparation that was interrupted goes on after the last part that it had written, and
writes the same files as one that was not: nothing in them depends on the time or the machine.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.hosts.exit_status import Refused, Stop
from posenc_jax.lab.hosts.files import read_object, write_bytes, write_json
from posenc_jax.lab.tasks.task import SPLITS
from posenc_jax.lab.tasks.tokens import tokenizer as tokenizers
from posenc_jax.lab.tasks.tokens.documents import Item, Source, split_of, words_digest
from posenc_jax.lab.tasks.tokens.shards import (
    MANIFEST,
    Stream,
    TokenFolder,
    read_manifest,
    sha256_of,
)
from posenc_jax.lab.tasks.tokens.tokenizer import ByteTokenizer, pieces

PART = 2**26  # bytes of text that become one shard for training
BATCH = 2**21  # bytes that are tokenized at once
SAMPLE = 2**26  # bytes that a BPE is trained on, at most
SMALLEST = 1024  # bytes a split must have
STATE = "preparing.json"  # what an interrupted preparation is of
HELD_OUT = ("valid", "test")
# Of each item that is held out: the hash of its words, its tokens, whether it begins a document.
_INDEX = np.dtype([("high", "<u8"), ("low", "<u8"), ("tokens", "<i8"), ("begins", "?")])


class Part(NamedTuple):
    """Items first .. stop - 1 of a source, which become one shard of each split.

    sha256: of the SHA-256 of each document, in order.
    """

    first: int
    stop: int
    sha256: str


class Survey(NamedTuple):
    """What the first pass says of a source.

    documents, bytes: of each split, without separators.
    sha256: of the SHA-256 of each document, in order.
    sample: texts to train a tokenizer on.
    """

    parts: list[Part]
    documents: dict[str, int]
    bytes: dict[str, int]
    left_out: int
    sha256: str
    sample: list[str]


def prepare(
    source: Source,
    name: str,
    folder: Path,
    field: str = "text",
    separator: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Writes the tokens of a source into a folder, and returns the manifest.

    Args:
      name: the path of a tokenizer.json, or "bpe:SIZE".
      folder: empty, missing, or one in which this preparation was begun or ended.
      field: as given to `documents.source`, for the manifest.
      separator: a special token of the tokenizer.
      say: gets lines about the progress.

    Raises:
      Refused: a wrong source, tokenizer or folder.
      Stop: the source changed between the two passes; a file cannot be written.
    """
    size = tokenizers.trained_size(name)
    if size is None:  # what is wrong is refused before the text is read
        ByteTokenizer(Path(name), separator)
    else:
        tokenizers.separator_token(name, separator, [tokenizers.END_OF_TEXT])
    _check_folder(folder, source)
    with _alone(folder):
        if (folder / MANIFEST).exists():
            _check_finished(folder)
        say(f"reading {source.name}")
        survey = survey_of(source, sample=size is not None)
        _check_survey(source, survey)
        entry = {
            "name": source.name, "kind": source.kind, "field": field,
            "documents": sum(survey.documents.values()), "bytes": sum(survey.bytes.values()),
            "left_out": survey.left_out, "sha256": survey.sha256,
        }  # fmt: skip
        say(f"{entry['documents']:,} documents, {entry['bytes']:,} bytes")
        words = _tokenizer(folder, entry, name, size, separator, survey.sample, say)
        manifest = {
            "format": 1,
            "source": entry,
            "tokenizer": {
                "file": tokenizers.FILE, "sha256": words.sha256, "vocab": words.vocab,
                "separator": words.separator_token, "separator_id": words.separator,
                "trained": name if size else "",
                "trained_on": sum(len(text.encode()) for text in survey.sample),
            },
            "dtype": words.dtype.name,
        }  # fmt: skip
        if not (folder / MANIFEST).exists():
            records = []
            for record in _parts(folder, source, words, survey.parts):
                records.append(record)
                tokens = sum(record["splits"]["train"]["tokens"] for record in records)
                say(f"part {len(records)} of {len(survey.parts)}: {tokens:,} tokens for training")
            splits = {split: _training(records) for split in SPLITS[:1]}
            splits |= {split: _held_out(folder, words, split, records) for split in HELD_OUT}
            write_json(folder / MANIFEST, {**manifest, "splits": splits})
        stored = read_manifest(folder).model_dump(mode="json")
        if {key: stored[key] for key in manifest} != manifest:
            raise Refused(f"{folder}: it holds the tokens of another text or tokenizer; choose "
                          "another --out")  # fmt: skip
        _remove(folder)
    return stored


def survey_of(source: Source, sample: bool) -> Survey:
    """Reads a source once. Refused: it cannot be read."""
    parts, first, part_bytes = [], 0, 0
    documents: dict[str, int] = dict.fromkeys(SPLITS, 0)
    size: dict[str, int] = dict.fromkeys(SPLITS, 0)
    left_out, whole, digest, stop = 0, sha256(), sha256(), 0
    texts = _Sample(SAMPLE if sample else 0)
    for stop, item in enumerate(source.items(), 1):
        mark = _mark(item)
        whole.update(mark)
        digest.update(mark)
        if item.text is None:
            left_out += 1
            continue
        split, count = split_of(item), len(item.text.encode())
        documents[split] += item.begins
        size[split] += count
        part_bytes += count
        if split == "train" and sample:
            texts.add(item.text)
        if part_bytes >= PART:
            parts.append(Part(first, stop, digest.hexdigest()))
            first, part_bytes, digest = stop, 0, sha256()
    if first < stop:
        parts.append(Part(first, stop, digest.hexdigest()))
    return Survey(parts, documents, size, left_out, whole.hexdigest(), texts.texts())


class _Sample:
    """Random pieces of a text, at most `most` bytes: those whose hash is below a bound, which
    falls by half whenever they are too many. So it depends on the text alone.
    """

    def __init__(self, most: int):
        self._most, self._bound, self._bytes = most, 2**64, 0
        self._held: list[tuple[int, str]] = []

    def add(self, text: str) -> None:
        for piece in pieces(text):
            number = int.from_bytes(words_digest(piece)[8:16], "big")  # not those of the split
            if number < self._bound:
                self._held.append((number, piece))
                self._bytes += len(piece.encode())
        while self._bytes > self._most:
            self._bound //= 2
            self._held = [(n, piece) for n, piece in self._held if n < self._bound]
            self._bytes = sum(len(piece.encode()) for _, piece in self._held)

    def texts(self) -> list[str]:
        return [piece for _, piece in self._held]


def _mark(item: Item) -> bytes:
    """The SHA-256 of an item's text."""
    return sha256(b"left out" if item.text is None else item.text.encode()).digest()


def _check_survey(source: Source, survey: Survey) -> None:
    """Raises Refused if a split has too little text."""
    for split in SPLITS:
        if survey.bytes[split] < SMALLEST:
            how = (
                "documents are put into splits by their hashes, 90, 5 and 5 of 100: few documents "
            )
            how += "are better joined to one FILE.txt, which is split by position"
            if source.kind == "text":
                how = "a file is split by position, 90, 5 and 5 of 100"
            left_out = f"{survey.left_out} left out, which are empty or not UTF-8 text"
            if source.kind == "folder":
                left_out += "; hidden files and links are skipped"
            raise Refused(
                f"{source.name}: too little text: {sum(survey.bytes.values())} bytes, of which "
                f"{survey.bytes[split]} for {split}; each split needs {SMALLEST} or more ({how}; "
                f"{left_out})"
            )


def _check_folder(folder: Path, source: Source) -> None:
    """Makes the folder. Refused: it is a part of the text, holds other files, or nothing can be
    written there.
    """
    target = Path(os.path.realpath(folder))
    if source.root and target.is_relative_to(root := os.path.realpath(source.root)):
        hidden = any(part.startswith(".") for part in target.relative_to(root).parts)
        if not hidden:  # else it is skipped when the text is read
            raise Refused(f"{folder}: it is inside of the text {root}; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        entries = {path.name for path in folder.iterdir()}
    except FileExistsError:
        raise Refused(f"{folder}: it is a file; --out is a folder") from None
    except OSError as error:
        raise Refused(f"{folder}: it cannot be made or read: {error.strerror}") from None
    if entries and not entries & {MANIFEST, STATE} and entries != {f"{STATE}.part"}:
        raise Refused(
            f"{folder}: it holds other files, such as {min(entries)}; choose another --out"
        )
    if MANIFEST not in entries and not os.access(folder, os.W_OK):
        raise Refused(f"{folder}: it cannot be written by this user; choose another --out")


def _remove(folder: Path, *patterns: str) -> None:
    """Removes the files that only an unfinished preparation needs, and those of the patterns."""
    for pattern in (*patterns, "part-*", "*.part", STATE):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _give_up(folder: Path) -> None:
    """Empties the folder of a preparation that cannot be ended, so another one can begin there."""
    _remove(folder, tokenizers.FILE, *(f"{split}-*.bin" for split in SPLITS))


def _check_finished(folder: Path) -> None:
    """Raises Refused if a file of a finished folder was changed since."""
    try:
        TokenFolder(folder).check()
    except Refused as error:
        raise Refused(f"{error}; to write it again, first remove {folder}") from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a lock on the folder, which ends with the process. Refused: another one holds it."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{folder}: another process is preparing it") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _tokenizer(
    folder: Path,
    source: Mapping[str, Any],
    name: str,
    size: int | None,
    separator: str,
    sample: list[str],
    say: Callable[[str], None],
) -> ByteTokenizer:
    """The tokenizer of the folder, which is written there, or read if it is there already.

    Refused: the folder was begun with another text or tokenizer.
    """
    path, identity = folder / tokenizers.FILE, name if size else sha256_of(Path(name))
    state = {"source": dict(source), "tokenizer": identity, "separator": separator}
    used = path if size else Path(name)  # errors name the user's file, not the folder's copy of it
    if (folder / MANIFEST).exists():
        return ByteTokenizer(used, separator)
    if (folder / STATE).exists() and read_object(folder / STATE) != state:
        raise Refused(
            f"{folder}: it was begun with another text or tokenizer; choose another --out"
        )
    write_json(folder / STATE, state)
    failpoints.reach("preparing")
    if not path.exists():
        if size:
            say(f"training {name} on {sum(map(len, sample)):,} characters")
        content = tokenizers.train_bpe(sample, size) if size else Path(name).read_bytes()
        write_bytes(path, [content])
    return ByteTokenizer(used, separator)


def _parts(
    folder: Path, source: Source, words: ByteTokenizer, parts: list[Part]
) -> Iterator[dict[str, Any]]:
    """The record of each part, which is tokenized unless that is done. The source is read once."""
    items, place = source.items(), 0
    for number, part in enumerate(parts):
        record_path = folder / f"part-{number:05}.json"
        wanted = {"sha256": part.sha256, "tokenizer": words.sha256}
        record = _stored(folder, record_path, wanted)
        if record is None:
            of_part = islice(items, part.first - place, part.stop - place)
            place = part.stop
            splits = _write_part(folder, source, words, number, part, of_part)
            record = {**wanted, "splits": splits}
            write_json(record_path, record)
            failpoints.reach("preparing part")
        yield record


def _stored(folder: Path, path: Path, wanted: Mapping[str, str]) -> dict[str, Any] | None:
    """The record of a part that is whole, else None."""
    with contextlib.suppress(OSError, ValueError):
        record = read_object(path)
        if all(record.get(key) == value for key, value in wanted.items()) and _is_whole(
            folder, record
        ):
            return record
    return None


def _write_part(
    folder: Path,
    source: Source,
    words: ByteTokenizer,
    number: int,
    part: Part,
    items: Iterable[Item],
) -> dict[str, Any]:
    """Tokenizes the items of a part; returns what its record says of each split.

    Held-out documents are stored with their hashes, by which `_held_out` orders them.
    """
    columns: dict[str, _Column] = {split: _Column() for split in SPLITS}
    digest = sha256()
    for batch in _batches(items):
        for item in batch:
            digest.update(_mark(item))
        try:
            _tokenize(words, [item for item in batch if item.text is not None], columns)
        except Refused:
            _give_up(folder)
            raise
    if digest.hexdigest() != part.sha256:
        _give_up(folder)
        raise Stop(f"{source.name}: it was changed while it was read; start again")
    splits = {}
    for split, column in columns.items():
        ids = column.ids(words.dtype)
        file = f"{split}-{number:05}.bin" if split == "train" else f"part-{split}-{number:05}.bin"
        if len(ids):
            write_bytes(folder / file, [ids.tobytes()])
        splits[split] = {
            "documents": sum(column.begins), "tokens": len(ids),
            "bytes": int(words.lengths_V[ids].sum(dtype=np.int64)),
            "file": file, "sha256": sha256(ids.tobytes()).hexdigest(),
        }  # fmt: skip
        if split in HELD_OUT:
            index_file = folder / f"part-{split}-{number:05}.index"
            write_bytes(index_file, [column.index().tobytes()])
    return splits


class _Column:
    """The tokens of one split of a part: of each item its ids, the hash of its words, whether it
    begins a document.
    """

    def __init__(self):
        self._ids: list[np.ndarray] = []
        self._digests: list[bytes] = []
        self.begins: list[bool] = []

    def add(self, ids: np.ndarray, item: Item) -> None:
        self._ids.append(ids)
        self._digests.append(words_digest(item.text or ""))
        self.begins.append(item.begins)

    def ids(self, dtype: np.dtype) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *self._ids])

    def index(self) -> np.ndarray:
        rows = zip(self._digests, self._ids, self.begins, strict=True)
        number = lambda part: int.from_bytes(part, "big")
        return np.array(
            [(number(d[:8]), number(d[8:16]), len(ids), begins) for d, ids, begins in rows], _INDEX
        )


def _batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items one after the other, of about BATCH bytes together."""
    batch, held = [], 0
    for item in items:
        batch.append(item)
        held += len(item.text or "")
        if held >= BATCH:
            yield batch
            batch, held = [], 0
    yield batch


def _tokenize(words: ByteTokenizer, batch: list[Item], columns: Mapping[str, _Column]) -> None:
    """Adds the tokens of each item of a batch to the column of its split. Refused: the tokenizer
    changes a text.
    """
    encoded = words.encode([item.text or "" for item in batch])
    for item, ids in zip(batch, encoded, strict=True):
        before = [words.separator] if item.begins else []
        columns[split_of(item)].add(np.concatenate([np.array(before, words.dtype), ids]), item)


def _is_whole(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the files of a part are those that its record names. Refused: one is missing."""
    entries = [entry for entry in record["splits"].values() if entry["tokens"]]
    return all(sha256_of(folder / entry["file"]) == entry["sha256"] for entry in entries)


def _total(records: list[dict[str, Any]], split: str) -> dict[str, int]:
    """The numbers of a split, over all parts."""
    names = ("documents", "tokens", "bytes")
    return {name: sum(record["splits"][split][name] for record in records) for name in names}


def _training(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest's entry of the training split: a shard for each part, in order."""
    entries = [record["splits"]["train"] for record in records]
    shards = [{key: entry[key] for key in ("file", "tokens", "sha256")}
              for entry in entries if entry["tokens"]]  # fmt: skip
    return {**_total(records, "train"), "shards": shards}


def _held_out(
    folder: Path, words: ByteTokenizer, split: str, records: list[dict[str, Any]]
) -> dict[str, Any]:
    """Writes one shard of a split that is not for training, and returns the manifest's entry.

    Documents are in the order of their hashes, so the beginning, on which models are tested, is a
    random sample of all.
    """
    ids, indices = [], []
    for number, record in enumerate(records):
        entry, name = record["splits"][split], f"part-{split}-{number:05}"
        if entry["tokens"]:
            ids.append(np.memmap(folder / entry["file"], words.dtype, "r"))
            indices.append(np.fromfile(folder / f"{name}.index", _INDEX))
    stream, index_N = Stream(ids), np.concatenate(indices)
    start_N = np.cumsum(index_N["tokens"]) - index_N["tokens"]
    first_D = np.flatnonzero(index_N["begins"])  # items of a document follow each other
    start_D = np.append(start_N[first_D], len(stream))
    order_D = np.lexsort((index_N["low"][first_D], index_N["high"][first_D]))
    file, digest = f"{split}-00000.bin", sha256()

    def blocks() -> Iterator[bytes]:
        for document in order_D:
            first, end = int(start_D[document]), int(start_D[document + 1])
            for start in range(first, end, PART):
                stop = min(start + PART, end)
                block = stream.read(start, stop - start).tobytes()
                digest.update(block)
                yield block

    write_bytes(folder / file, blocks())
    shard = {"file": file, "tokens": len(stream), "sha256": digest.hexdigest()}
    return {**_total(records, split), "shards": [shard]}
