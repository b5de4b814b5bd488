"""Next-byte prediction on real text: the Python standard library of this machine, or any file.

    task       text                                    split
    stdlib     the .py files of the standard library   by file: 90, 5 and 5 of 100
    prose      Python's help topics, in English        by topic: 80, 10 and 10 of 100
    file:PATH  a folder, all its text files            by file: 90, 5 and 5 of 100
    file:PATH  one text file                           by position: the first 90%, 5%, the last 5%
    file:PATH  a FASTA file: .fa, .fasta, also .gz     by position

A hash of a file's path inside the folder decides its split, so it is the same on every machine; no
file and no copy of a file is in two splits. Files are in the order of that hash, so the beginning
of a split is a random sample of it, with a 0 byte between files. Windows are cut from this stream
of bytes, see `text_windows.py`, and may contain parts of several files. Only topics of `prose` and
records of a FASTA file are kept apart: positions start at 0 in each, and no token sees another one.
"""

import platform
import sysconfig
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.hosts.exit_status import Stop
from posenc_jax.lab.hosts.files import looked_in
from posenc_jax.lab.tasks.catalog import register
from posenc_jax.lab.tasks.task import SPLITS, Plan, Task, hash_split
from posenc_jax.lab.tasks.text_windows import (
    SEPARATOR,
    check_options,
    document,
    largest_window,
    windowed,
)
from posenc_jax.lab.tasks.user_files import fasta_records, files_in, is_text, path_kind, user_path
from posenc_jax.options import FieldError

# Folders left out: tests, packages that are not part of the library, generated tables.
_NOT_SOURCE = ("test*", "idle_test", "*-packages", "__pycache__", "encodings", "pydoc_data")


class Corpus(NamedTuple):
    """The files of a text, before they are read.

    pieces: of each split, (path, start, stop): bytes start .. stop of a file.
    binary: the number of files that are not text.
    """

    source: str
    pieces: dict[str, list[tuple[Path, int, int]]]
    binary: int

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each split, with the 0 bytes between files."""
        lengths = {s: [stop - start for _, start, stop in self.pieces[s]] for s in SPLITS}
        return {split: sum(counts) + max(len(counts) - 1, 0) for split, counts in lengths.items()}


@register(unit="bytes")
def stdlib(stretch: int = 65536, masked: float = 0.0) -> Plan:
    """The text of the Python standard library, without its tests and generated tables.

    stretch: bytes of the test split that are predicted, and of the validation split.
    masked: the share of bytes that are hidden and predicted; 0: the next byte is predicted.
    """
    return _plan(standard_library(), stretch, masked)


@register(unit="bytes")
def prose(stretch: int = 65536, masked: float = 0.0) -> Plan:
    """The help topics of Python, reference text in English; options as for `stdlib`.

    Topics repeat each other in part. A paragraph that two splits have stays in one of them: the
    test split, or else the validation split.
    """
    chosen: dict[str, list[str]] = {split: [] for split in SPLITS}
    for name, text in sorted(topics.items()):
        chosen[hash_split(sha256(name.encode()).digest(), 80, 10)].append(text)
    seen: set[str] = set()
    text = {}
    for split in reversed(SPLITS):
        words = lambda paragraph: " ".join(paragraph.split())  # the same at any indentation
        apart = [
            [part for part in topic.split("\n\n") if words(part) not in seen]
            for topic in chosen[split]
        ]
        seen.update(words(part) for topic in apart for part in topic)
        text[split] = b"".join(document("\n\n".join(topic)) for topic in apart if topic)
    counts = {split: len(chosen[split]) for split in SPLITS}
    facts = {"topics": counts, "python": platform.python_version()}
    return _apart("prose", text, stretch, masked, facts)


def file(path: str, stretch: int = 65536, masked: float = 0.0) -> Plan:
    """The text of a file, or of all text files in a folder; options as for `stdlib`.

    FieldError: there is no such file, it is not text, or it is too small.
    """
    if path.lower().removesuffix(".gz").endswith((".fa", ".fasta")):
        return _fasta(path, stretch, masked)
    return _plan(files_at(path), stretch, masked)


def standard_library() -> Corpus:
    """The files of the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    # _sysconfigdata differs between machines.
    files = [f for f in files_in(root, without=_NOT_SOURCE) if f.suffix == ".py"]
    files = [f for f in files if not f.name.startswith("_sysconfigdata")]
    return Corpus("stdlib", _by_file(root, files), 0)


def standard_library_sha256() -> str:
    """The SHA-256 of the text of `stdlib`, which a distribution of Python may change."""
    digest = sha256()
    for files in texts(standard_library()).values():
        for _, text in files:
            digest.update(text)
    return digest.hexdigest()


def files_at(path: str) -> Corpus:
    """The text file at a path, or the text files in a folder, without hidden files and links.
    FieldError: as `file`.
    """
    name = f"file:{path}"
    root = user_path(name, path)
    kind = path_kind(name, root) if path else "none"
    if kind == "none":
        raise FieldError("task.name", f"{name}: no such file or folder{looked_in(path)}")
    try:
        if kind == "folder":
            files = list(files_in(root))
            text = [f for f in files if is_text(root / f)]
            return Corpus(name, _by_file(root, text), len(files) - len(text))
        if not is_text(root):
            raise FieldError("task.name", f"{name} is not text; it holds a 0 byte")
        return Corpus(name, _by_position(root), 0)
    except OSError as error:
        raise FieldError("task.name", f"{name} cannot be read: {error.strerror}") from None


def _plan(corpus: Corpus, stretch: int, masked: float) -> Plan:
    """The plan of the windows of a corpus. FieldError: it is too small, or an option is wrong."""
    check_options(stretch, masked)
    if not any(corpus.pieces.values()):
        raise FieldError("task.name", f"{corpus.source} holds no text files")
    most = largest_window(corpus.source, corpus.sizes, stretch)

    def read() -> Task:
        files = texts(corpus)
        joined = {split: SEPARATOR.join(text for _, text in files[split]) for split in SPLITS}
        arrays = {split: np.frombuffer(text, np.uint8) for split, text in joined.items()}
        facts = {
            "files": {split: len(files[split]) for split in SPLITS},
            "binary_files_left_out": corpus.binary,
            "python": platform.python_version(),
        }
        return windowed(corpus.source, arrays, stretch, masked, facts=facts)

    return Plan(1, most, read)


def _apart(
    source: str, text: Mapping[str, bytes], stretch: int, masked: float, facts: Mapping[str, object]
) -> Plan:
    """The plan of documents between which no token attends; `text` is that of each split."""
    check_options(stretch, masked)
    arrays = {split: np.frombuffer(text[split], np.uint8) for split in SPLITS}
    most = largest_window(source, {split: len(text[split]) for split in SPLITS}, stretch)
    read = lambda: windowed(source, arrays, stretch, masked, packed=True, facts=facts)
    return Plan(1, most, read)


def _fasta(path: str, stretch: int, masked: float) -> Plan:
    """The plan of the sequences of a FASTA file in upper case; headers are left out."""
    name = f"file:{path}"
    if path_kind(name, user_path(name, path)) == "none":
        raise FieldError("task.name", f"{name}: no such file{looked_in(path)}")
    text, records = bytearray(), 0
    for record in fasta_records(name, path):
        text += document(record) if record else b""
        records += 1
    cuts = _cuts(len(text))
    parts = {split: bytes(text[cuts[i] : cuts[i + 1]]) for i, split in enumerate(SPLITS)}
    return _apart(name, parts, stretch, masked, {"records": records})


def _by_file(root: Path, files: list[Path]) -> dict[str, list[tuple[Path, int, int]]]:
    """One piece for each file, in the order of the hash that decides its split."""
    pieces = {split: [] for split in SPLITS}
    for digest, path in sorted((sha256(f.as_posix().encode()).digest(), f) for f in files):
        if size := (root / path).stat().st_size:
            pieces[hash_split(digest, 90, 5)].append((root / path, 0, size))
    return pieces


def _by_position(path: Path) -> dict[str, list[tuple[Path, int, int]]]:
    """One piece of the file for each split."""
    cuts = _cuts(path.stat().st_size)
    return {split: [(path, cuts[i], cuts[i + 1])] for i, split in enumerate(SPLITS)}


def _cuts(size: int) -> tuple[int, int, int, int]:
    """The bounds of the three splits of a text of `size` bytes."""
    return 0, size * 90 // 100, size * 95 // 100, size


def texts(corpus: Corpus) -> dict[str, list[tuple[Path, bytes]]]:
    """(path, text) of the files of each split, in order, without copies of earlier files.

    Stop: a file was removed or changed after `files_at` had looked at it.
    """
    by_split: dict[str, list[tuple[Path, bytes]]] = {split: [] for split in SPLITS}
    seen = set()
    for split in SPLITS:
        for path, start, stop in corpus.pieces[split]:
            try:
                text = np.fromfile(path, np.uint8, stop - start, offset=start).tobytes()
            except OSError as error:
                raise Stop(f"{corpus.source}: {path} cannot be read: {error.strerror}") from None
            if len(text) != stop - start:
                raise Stop(f"{corpus.source}: {path} has become shorter; start again")
            if (mark := (start, sha256(text).digest())) not in seen:
                seen.add(mark)
                by_split[split].append((path, text))
    return by_split
