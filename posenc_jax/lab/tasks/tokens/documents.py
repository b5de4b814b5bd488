"""The documents of a text, read one after the other, so that memory stays small.

    source                    a document                         its split
    a folder                  each text file; of a .jsonl file   by the hash of its words
                              the text of each line
    FILE.jsonl                the text of each line              by the hash of its words
    FILE.txt or another file  each split is one                  the first 90%, 5%, the last 5%
    tfds:NAME                 the text of each example           the set's own, if it has all three;
                                                                 else by the hash of its words
    stdlib                    each file of the standard library  as in the task `stdlib`

A file may be packed, which the end of its name says: .gz or .zst. A packed .json file holds lines,
as a .jsonl file does: those of C4 and Dolma are named so. Equal documents have one hash, so no copy
of a document is in two splits; neither is one with other spaces or ends of lines.
"""

import codecs
import contextlib
import gzip
import importlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import looked_in
from posenc_jax.lab.tasks import corpus, tfds_folder, tfds_tasks
from posenc_jax.lab.tasks.task import SPLITS, hash_split
from posenc_jax.lab.tasks.user_files import LARGEST, files_in, path_kind, user_path

SHARES = 90, 5  # percent of documents for training and for validation; the rest is for tests
BLOCK = 2**20  # bytes of a text file that are read at once
STANDARD_LIBRARY = "stdlib"
FIELD = "text"  # of a line or an example, unless another one is named


class Item(NamedTuple):
    """A document, or a part of a long one, in the order of the source.

    text:   None: it is empty or not UTF-8 text, and left out.
    split:  None: the hash of its words decides.
    begins: whether it begins a document.
    """

    text: str | None
    split: str | None = None
    begins: bool = True


class Source(NamedTuple):
    """A text that can be read again and again.

    name:  its name, without the folder that it lies in.
    kind:  "folder", "text", "jsonl", "tfds" or "stdlib".
    items: () -> the items, from the beginning.
    root:  the folder whose files it reads; None of another kind.
    """

    name: str
    kind: str
    items: Callable[[], Iterator[Item]]
    root: Path | None = None


def source(name: str, field: str = FIELD) -> Source:
    """The source of a name, see above.

    field: of the text in a line of .jsonl, or in an example of TFDS.

    Refused: there is no such source, or it has no fields and one is named. What cannot be read is
    refused when it is read.
    """
    if name == STANDARD_LIBRARY:
        _check_field(name, field, [])
        return Source(name, "stdlib", _standard_library)
    if name.startswith(tfds_folder.PREFIX):
        return _prepared_set(name, field)
    path = user_path(name, name)
    kind = path_kind(name, path) if name else "none"
    if kind == "none":
        hint = " (for the standard library, give stdlib)" if name.lower() == "stdlib" else ""
        raise Refused(f"{name}: no such file or folder{looked_in(name)}{hint}")
    if kind == "folder":
        _check_field(name, field, _files(path))
        return Source(path.resolve().name, "folder", lambda: _folder(path, field), path)
    _check_field(name, field, [path])
    if _holds_lines(path):
        return Source(path.name, "jsonl", lambda: _lines(path, field))
    return Source(path.name, "text", lambda: _text_file(path))


def split_of(item: Item) -> str:
    """The split of an item that is not left out."""
    return item.split or hash_split(words_digest(item.text or ""), *SHARES)


def words_digest(text: str) -> bytes:
    """The SHA-256 of the words of a text, the same at any indentation."""
    return sha256(b" ".join(text.encode().split())).digest()


def _item(text: str | bytes, split: str | None = None) -> Item:
    """A document; as in `text_windows.document`, a 0 byte becomes a space."""
    try:
        text = text.decode("utf-8") if isinstance(text, bytes) else text
        text.encode()
    except UnicodeError:  # no UTF-8, or half a character of UTF-16, as JSON can hold
        return Item(None, split)
    return Item(text.replace("\0", " ") if text.strip() else None, split)


def _standard_library() -> Iterator[Item]:
    for split, files in corpus.texts(corpus.standard_library()).items():
        for _, text in files:
            yield _item(text, split)


def _check_field(name: str, field: str, files: Iterable[Path]) -> None:
    """Raises Refused if a field is named, and no file holds lines of JSON."""
    if field != FIELD and not any(map(_holds_lines, files)):
        raise Refused(
            f"--field: {field!r} is a field of lines of JSON, and {name} has no .jsonl file; "
            "leave it out"
        )


def _files(root: Path) -> list[Path]:
    """The files of a folder, ordered by their paths, except hidden files and links."""
    try:
        return [root / file for file in sorted(files_in(root), key=Path.as_posix)]
    except OSError as error:
        _refuse(root, error)


def _folder(root: Path, field: str) -> Iterator[Item]:
    """The documents of the files of a folder."""
    for path in _files(root):
        if _holds_lines(path):
            yield from _lines(path, field)
        else:
            yield _document(path)


def _document(path: Path) -> Item:
    """A file of a folder. Most that hold no text, such as archives, are not read to their end."""
    with _unpacked(path) as opened:
        content = _read(path, lambda: opened.read(8192))
        if b"\0" in content:
            return Item(None)
        content += _read(path, lambda: opened.read(LARGEST))
    if len(content) > LARGEST:
        raise Refused(f"{path}: more than {LARGEST / 2**30:.3g} GiB is too large for one document")
    return _item(content)


def _lines(path: Path, field: str) -> Iterator[Item]:
    """The texts of a .jsonl file; empty lines are skipped."""
    with _unpacked(path) as opened:
        number = 0
        while line := _read(path, lambda: opened.readline(LARGEST + 1)):
            number += 1
            where = f"{path}: line {number}"
            if len(line) > LARGEST:
                raise Refused(f"{where} has more than {LARGEST / 2**30:.3g} GiB")
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                raise Refused(f"{where} is not JSON") from None
            text = record.get(field) if isinstance(record, dict) else None
            if not isinstance(text, str):
                names = ", ".join(map(repr, record)) if isinstance(record, dict) else "none"
                raise Refused(f"{where} has no text {field!r} (--field); its fields: {names[:200]}")
            yield _item(text)


def _text_file(path: Path) -> Iterator[Item]:
    """The text of one file, line after line in parts of about BLOCK bytes. A line belongs to the
    split in which it begins.
    """
    size = _size(path)
    bounds = [size * sum(SHARES[: n + 1]) // 100 for n in range(len(SHARES))]
    longest = min(BLOCK, max(1, size // 100))  # of a line that is not cut
    decoder = codecs.getincrementaldecoder("utf-8")()
    held, held_bytes, place, current, begins = [], 0, 0, SPLITS[0], True

    def part(final: bool) -> Item:
        try:
            return Item(decoder.decode(b"".join(held), final).replace("\0", " "), current, begins)
        except UnicodeDecodeError:
            raise Refused(f"{path}: it is not UTF-8 text") from None

    with _unpacked(path) as opened:
        while line := _read(path, lambda: opened.readline(longest)):
            split = SPLITS[sum(place >= bound for bound in bounds)]
            if held and (split != current or held_bytes >= BLOCK):
                yield part(False)
                begins = split != current
                held, held_bytes = [], 0
            current = split
            held.append(line)
            held_bytes, place = held_bytes + len(line), place + len(line)
        if held:
            yield part(True)


def _size(path: Path) -> int:
    """The bytes of a file, unpacked."""
    if _packing(path) is None:
        return path.stat().st_size
    size = 0
    with _unpacked(path) as opened:
        while block := _read(path, lambda: opened.read(BLOCK)):
            size += len(block)
    return size


def _prepared_set(name: str, field: str) -> Source:
    """The texts of a TFDS set. FieldError: it is not prepared, or has no such text."""
    prepared = tfds_folder.find(name.removeprefix(tfds_folder.PREFIX))
    texts = prepared.features_of_type("Text")
    is_default = field == FIELD and field not in texts and len(texts) == 1
    feature = tfds_tasks.text_feature(prepared, "" if is_default else field)
    splits = prepared.builder.info.splits
    valid = next((split for split in tfds_tasks.VALID_NAMES if split in splits), None)
    has_all = valid is not None and {"train", "test"} <= set(splits)
    named = {"train": "train", valid: "valid", "test": "test"}
    split_of_stored = named if has_all else dict.fromkeys(splits)

    def read() -> Iterator[Item]:
        for stored, split in split_of_stored.items():
            for example in prepared.builder.as_data_source(stored):
                yield _item(example[feature], split)

    return Source(name, "tfds", read)


def _holds_lines(path: Path) -> bool:
    """Whether a file holds a JSON object in each line, by the end of its name."""
    packed = _packing(path) is not None
    suffix = (path.with_suffix("") if packed else path).suffix.lower()
    return suffix == ".jsonl" or (packed and suffix == ".json")


def _packing(path: Path) -> str | None:
    return path.suffix.lower() if path.suffix.lower() in (".gz", ".zst") else None


def _unpacked(path: Path) -> Any:
    """The file, open for reading what it unpacks to. Refused: it cannot be opened."""
    unpack = {None: open, ".gz": gzip.open, ".zst": _zstandard}[_packing(path)]
    try:
        return unpack(path, "rb")
    except OSError as error:
        _refuse(path, error)


def _zstandard(path: Path, mode: str) -> Any:
    """Opens a .zst file. Refused: neither Python (from 3.14 on) nor the package `zstandard` can."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd").open(path, mode)
    try:
        decompressor = importlib.import_module("zstandard").ZstdDecompressor()
    except ImportError:
        raise Refused(
            f"{path}: unpacking it needs a package, once: pip install zstandard"
        ) from None
    return io.BufferedReader(_Frames(path, decompressor.decompressobj), BLOCK)


class _Frames(io.RawIOBase):
    """What the frames of a .zst file unpack to. The package's own reader takes a file that was cut
    off for a whole one.
    """

    def __init__(self, path: Path, begin: Callable[[], Any]):
        self._file, self._begin, self._frame = path.open("rb"), begin, None
        self._held = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held and (block := self._file.read(4096)):
            while block:
                self._frame = self._frame or self._begin()
                self._held += self._frame.decompress(block)
                block = b""
                if self._frame.eof:
                    block, self._frame = self._frame.unused_data, None
        if not self._held and self._frame:
            raise EOFError("it is cut off")
        count = min(len(buffer), len(self._held))
        buffer[:count], self._held = self._held[:count], self._held[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _read(path: Path, read: Callable[[], bytes]) -> bytes:
    """What `read` returns. Refused: the file is damaged or cannot be read."""
    try:
        return read()
    except (OSError, EOFError, zlib.error) as error:
        _refuse(path, error)
    except Exception as error:  # zstd has errors of its own
        if "zst" not in type(error).__module__.lower():
            raise
        _refuse(path, error)


def _refuse(path: Path | str, error: Exception) -> NoReturn:
    """Raises Refused: the file cannot be read."""
    reason = getattr(error, "strerror", None) or str(error) or "it is cut off"
    raise Refused(f"{os.fspath(path)}: it cannot be read: {reason.splitlines()[0]}") from None
