"""Next-byte prediction on real text: the Python standard library of this machine, or any file.

    task       text                                    split
    stdlib     the .py files of the standard library   by file: 90, 5 and 5 of 100
    file:PATH  a folder, all its text files            by file: 90, 5 and 5 of 100
    file:PATH  one text file                           by position: the first 90%, 5%, the last 5%

A file's split is a hash of its path inside the folder, so it is the same on every machine; no file
and no copy of one is in two splits. Files stand in the order of that hash, so that the head of a
split is a sample of it, with a 0 byte between two. Windows are cut from the plain stream, see
`text_windows.py`, and may cross from one file into the next.
"""

import os
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.tasks.masked import check_share
from posenc_jax.lab.tasks.task import Task, check_least
from posenc_jax.lab.tasks.text_windows import SEPARATOR, SPLITS, check_sizes, largest_window, windowed

# Folders of the standard library left out: tests, what is not part of it, generated tables.
_NOT_SOURCE = ("test*", "idle_test", "*-packages", "__pycache__", "encodings", "pydoc_data")


class Piece(NamedTuple):
    """Bytes start .. stop of a file, and the split they go to."""

    split: str
    path: Path
    start: int
    stop: int


class Plan(NamedTuple):
    """What will be read, known from names and sizes alone."""

    source: str
    pieces: list[Piece]
    binary: int  # files left out because they are not text
    stretch: int
    masked: float

    least = 1

    def width(self, size: int) -> int:
        return size

    def size(self, split: str) -> int:
        sizes = [p.stop - p.start for p in self.pieces if p.split == split]
        return sum(sizes) + max(len(sizes) - 1, 0)

    @property
    def most(self) -> int:
        return largest_window(self.stretch, [self.size(split) for split in SPLITS])


def stdlib(stretch: int = 65536, masked: float = 0.0) -> Task:
    """The text of the Python standard library, without its tests and generated tables.

    stretch: bytes of the test split that are predicted, and of the validation split.
    masked: the share of bytes that are hidden and predicted; 0: the next byte is.
    """
    return _task(plan_stdlib(stretch, masked))


def file(path: str, stretch: int = 65536, masked: float = 0.0) -> Task:
    """The text of a file, or of all text files in a folder (hidden ones and links left out)."""
    return _task(plan_file(path, stretch, masked))


def plan_stdlib(stretch: int = 65536, masked: float = 0.0) -> Plan:
    """What `stdlib` will read. ValueError: this machine has no standard library as files."""
    root = Path(sysconfig.get_path("stdlib"))
    # _sysconfigdata is written by the build of each machine.
    files = [f for f in _files(root, without=_NOT_SOURCE) if f.suffix == ".py"]
    files = [f for f in files if not f.name.startswith("_sysconfigdata")]
    return _checked(Plan("stdlib", _by_file(root, files), 0, stretch, masked))


def plan_file(path: str, stretch: int = 65536, masked: float = 0.0) -> Plan:
    """What `file` will read. ValueError: nothing there, not text, or too little of it."""
    name, root = f"file:{path}", Path(path).expanduser()
    if not path or not root.exists():
        raise ValueError(f"task.name: {name}: no such file or folder")
    try:
        if root.is_dir():
            files = list(_files(root))
            text = [f for f in files if _is_text(root / f)]
            skipped = len(files) - len(text)
            return _checked(Plan(name, _by_file(root, text), skipped, stretch, masked))
        if not _is_text(root):
            raise ValueError(f"task.name: {name} is not text; it holds a 0 byte")
        return _checked(Plan(name, _by_position(root), 0, stretch, masked))
    except OSError as error:
        raise ValueError(f"task.name: {name} cannot be read: {error.strerror}") from None


def _files(root: Path, without: Sequence[str] = ("__pycache__",)) -> Iterator[Path]:
    """Plain files under a folder, as paths inside it; links, and what is hidden, left out.

    without: patterns of the names of folders that are not entered.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not any(fnmatch(f, skip) for skip in (".*", *without))]
        for name in names:
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path.relative_to(root)


def _is_text(path: Path) -> bool:
    with path.open("rb") as opened:
        return b"\0" not in opened.read(8192)


def _by_file(root: Path, files: list[Path]) -> list[Piece]:
    """One piece for each file, in the order of the hash that also gives its split."""
    pieces = []
    for digest, path in sorted((sha256(f.as_posix().encode()).digest(), f) for f in files):
        percent = int.from_bytes(digest[:8], "big") % 100
        split = "train" if percent < 90 else "valid" if percent < 95 else "test"
        pieces.append(Piece(split, root / path, 0, (root / path).stat().st_size))
    return [piece for piece in pieces if piece.stop > 0]


def _by_position(path: Path) -> list[Piece]:
    size = path.stat().st_size
    cuts = (0, size * 90 // 100, size * 95 // 100, size)
    return [Piece(split, path, *cuts[i : i + 2]) for i, split in enumerate(SPLITS)]


def _checked(plan: Plan) -> Plan:
    check_least("stretch", plan.stretch, 1)
    check_share(plan.masked)
    if not plan.pieces:
        raise ValueError(f"task.name: {plan.source} holds no text files")
    check_sizes(plan.source, {split: plan.size(split) for split in SPLITS})
    return plan


def texts(plan: Plan) -> dict[str, list[tuple[Path, bytes]]]:
    """(path, text) of the files of each split, in its order; one read before is left out."""
    found: dict[str, list[tuple[Path, bytes]]] = {split: [] for split in SPLITS}
    seen = set()
    for split in SPLITS:
        for _, path, start, stop in (p for p in plan.pieces if p.split == split):
            with path.open("rb") as opened:
                opened.seek(start)
                text = opened.read(stop - start)
            if (mark := (start, sha256(text).digest())) not in seen:
                seen.add(mark)
                found[split].append((path, text))
    return found


def _task(plan: Plan) -> Task:
    files = texts(plan)
    joined = {split: SEPARATOR.join(text for _, text in files[split]) for split in SPLITS}
    return windowed(
        plan.source,
        {split: np.frombuffer(text, np.uint8) for split, text in joined.items()},
        plan.stretch,
        plan.masked,
        facts={
            "files": {split: len(files[split]) for split in SPLITS},
            "binary_files_left_out": plan.binary,
            "python": platform.python_version(),
        },
    )
