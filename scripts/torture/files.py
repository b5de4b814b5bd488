"""Every file of the newest checkpoint emptied, halved, deleted, and with one byte flipped."""

import contextlib
import io
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from posenc_jax.lab.runs import checkpoints
from posenc_jax.lab.runs.checkpoints import Checkpoints

Leaves = Mapping[str, np.ndarray]


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "emptied": lambda content: b"",
    "halved": lambda content: content[: len(content) // 2],
    "deleted": lambda content: None,
    "one byte flipped": _flipped,
}


def attempts(
    folder: Path, scratch: Path, files: str = "*", damages: Iterable[str] = DAMAGE
) -> Iterator[tuple[str, str, str]]:
    """(file, damage, what came of it) for every file of the newest step in a folder:

    "same" as before the damage, "fell back" to an older step and said so in one line, or "wrong":
    other values, no line, or no step at all.
    """
    saved = {kept.step: kept.leaves for kept in Checkpoints(folder).newest()}
    newest = folder / str(max(saved))
    for file in sorted(path for path in newest.rglob(files) if path.is_file()):
        for name in damages:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(folder, scratch)
            target = scratch / file.relative_to(folder)
            content = DAMAGE[name](target.read_bytes())
            target.unlink() if content is None else target.write_bytes(content)
            yield file.relative_to(newest).as_posix(), name, _outcome(scratch, saved)


def _outcome(folder: Path, saved: Mapping[int, Leaves]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        found = next(Checkpoints(folder).newest(), None)
    if found is None or not _equal(found.leaves, saved[found.step]):
        return "wrong"
    lines = said.getvalue().splitlines()
    if found.step == max(saved):
        return "wrong" if lines else "same"
    named = len(lines) == 1 and lines[0].startswith(f"{folder / str(max(saved))}: not used: ")
    return "fell back" if named else "wrong"


def _equal(a: Leaves, b: Leaves) -> bool:
    return set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in b)


def count(folder: Path, scratch: Path) -> Counter[str]:
    """How many attempts came out how."""
    return Counter(what for _, _, what in attempts(folder, scratch))


def unseen(folder: Path, scratch: Path) -> int:
    """The control: flipped bytes of arrays that give wrong values when no manifest is looked at."""
    with believing_everything():
        tried = attempts(folder, scratch, "d/*", ["one byte flipped"])
        return sum(what == "wrong" for _, _, what in tried)


@contextlib.contextmanager
def believing_everything() -> Iterator[None]:
    """No manifest is looked at."""
    kept = checkpoints.verify
    checkpoints.verify = lambda folder: ""
    try:
        yield
    finally:
        checkpoints.verify = kept
