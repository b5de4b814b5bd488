"""Next-byte prediction on real text: the Python standard library of this machine, or any file.

    task       text                                    split
    stdlib     the .py files of the standard library   by file: 90, 5 and 5 of 100
    file:PATH  a folder, all its text files            by file: 90, 5 and 5 of 100
    file:PATH  one text file                           by position: the first 90%, 5%, the last 5%

A file's split is a hash of its path inside the folder, so it is the same on every machine; no file
and no copy of one is in two splits. Files stand in the order of that hash, so that the head of a
split is a sample of it, with a 0 byte between two. A window of n bytes reads n and predicts the n
that begin one later; it is cut from the plain stream and may cross from one file into the next.
With `masked`, that share of its bytes is hidden instead, and those are predicted, see `masked.py`.

The test windows of every size lie side by side on the first `stretch` bytes of the test split, so
at every size that divides the stretch the same bytes are predicted.
"""

import os
import platform
import sysconfig
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.layout import layout
from posenc_jax.tasks.baselines import baselines, unigram_bits
from posenc_jax.tasks.masked import check_share, masked
from posenc_jax.tasks.task import Batch, Task, check_least, check_size, check_width

SPLITS = ("train", "valid", "test")
SEPARATOR = b"\0"
SMALLEST = 1024  # bytes a split must have

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
        return _largest_window(self.stretch, [self.size(split) for split in SPLITS])


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
    _check_sizes(plan.source, {split: plan.size(split) for split in SPLITS})
    return plan


def _check_sizes(source: str, sizes: dict[str, int]) -> None:
    for split, size in sizes.items():
        if size < SMALLEST:
            raise ValueError(
                f"task.name: {source} is too small: {sum(sizes.values())} bytes, of which {size} "
                f"for {split}; each split needs {SMALLEST} or more"
            )
    if sum(sizes.values()) >= 2**31:
        raise ValueError(f"task.name: {source} is too large: it must be less than 2 GiB")


def _largest_window(stretch: int, sizes: list[int]) -> int:
    return min(stretch, min(sizes) - 1)


def _read(plan: Plan) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Bytes of each split, and how many files each has; a file read before is left out."""
    texts: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    seen = set()
    for split in SPLITS:
        for _, path, start, stop in (p for p in plan.pieces if p.split == split):
            with path.open("rb") as opened:
                opened.seek(start)
                text = opened.read(stop - start)
            if (mark := (start, sha256(text).digest())) not in seen:
                seen.add(mark)
                texts[split].append(text)
    joined = {s: np.frombuffer(SEPARATOR.join(texts[s]), np.uint8) for s in SPLITS}
    return joined, {split: len(texts[split]) for split in SPLITS}


def _task(plan: Plan) -> Task:
    text, files = _read(plan)
    sizes = {split: len(text[split]) for split in SPLITS}
    _check_sizes(plan.source, sizes)  # again: copies of a file have been left out
    most = _largest_window(plan.stretch, list(sizes.values()))

    def windows(text_N, start_B, size_B, width):
        place_L = jnp.arange(width + 1, dtype=jnp.int32)
        index_BL = jnp.minimum(start_B[:, None] + place_L[None], len(text_N) - 1)
        byte_BL = text_N[index_BL].astype(jnp.int32)
        inside_BT = place_L[None, :-1] < size_B[:, None]
        return Batch(
            jnp.where(inside_BT, byte_BL[:, :-1], 0),
            jnp.where(inside_BT, byte_BL[:, 1:], 0),
            inside_BT.astype(jnp.float32),
            layout(inside_BT.astype(jnp.int32)),
        )

    def sample(data, key, size_B, width):
        start_B = jax.random.randint(key, size_B.shape, 0, len(data["train"]) - size_B)
        return windows(data["train"], start_B, size_B, width)

    def fixed(split):
        def numbered(data, index_B, size, width):
            check_size(plan.source, size, 1, most)
            check_width(plan.source, size, size, width)
            size_B = jnp.broadcast_to(jnp.asarray(size, jnp.int32), index_B.shape)
            batch = windows(data[split], index_B * size_B, size_B, width)
            exists_B = (index_B + 1) * size_B <= most
            return batch._replace(
                weights_BT=jnp.where(exists_B[:, None], batch.weights_BT, 0.0),
            )

        return numbered

    task = Task(
        name=plan.source,
        vocab=256,
        metric="bits_per_byte",
        least=1,
        most=most,
        width=lambda size: size,
        examples=lambda size: most // size,
        data={split: jnp.asarray(text[split]) for split in SPLITS},
        sample=sample,
        test=fixed("test"),
        valid=fixed("valid"),
        baselines=lambda: baselines(text, most),
        facts={
            "sha256": _sha256(text),
            "bytes": sizes,
            "files": files,
            "binary_files_left_out": plan.binary,
            "stretch": most,
            "python": platform.python_version(),
        },
    )
    if not plan.masked:
        return task
    unigram = lambda: {"unigram": unigram_bits(text, most)}
    return masked(task, plan.masked)._replace(baselines=unigram)


def _sha256(text: dict[str, np.ndarray]) -> str:
    """Of the sizes of the three splits and then their bytes."""
    digest = sha256(repr([len(text[split]) for split in SPLITS]).encode())
    for split in SPLITS:
        digest.update(text[split].data)
    return digest.hexdigest()
