"""Damages every file of the newest checkpoint: emptied, halved, deleted, one byte flipped."""

import contextlib
import io
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

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


class Restored(NamedTuple):
    """What restoring gave after one damage to one file.

    outcome: "same" values as before the damage; "fell back" to an older step with one line that
    says so; "wrong": other values, no line, or no step at all.
    """

    file: str
    damage: str
    outcome: str


def restored(
    folder: Path, scratch: Path, files: str = "*", damages: Iterable[str] = DAMAGE
) -> Iterator[Restored]:
    """Damages every file of the newest step of a folder's copy in `scratch`, and restores it."""
    saved = {one.step: one.leaves for one in Checkpoints(folder).newest()}
    newest = folder / str(max(saved))
    for file in sorted(path for path in newest.rglob(files) if path.is_file()):
        for damage in damages:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(folder, scratch)
            damage_file(scratch / file.relative_to(folder), damage)
            name = file.relative_to(newest).as_posix()
            yield Restored(name, damage, _outcome(scratch, saved))


def damage_file(file: Path, damage: str) -> None:
    """Damages a file in one way of DAMAGE."""
    content = DAMAGE[damage](file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)


def _outcome(folder: Path, saved: Mapping[int, Leaves]) -> str:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        newest = next(Checkpoints(folder).newest(), None)
    if newest is None or not _equal(newest.leaves, saved[newest.step]):
        return "wrong"
    lines = errors.getvalue().splitlines()
    if newest.step == max(saved):
        return "wrong" if lines else "same"
    says_so = len(lines) == 1 and lines[0].startswith(f"{folder / str(max(saved))}: not used: ")
    return "fell back" if says_so else "wrong"


def _equal(a: Leaves, b: Leaves) -> bool:
    return set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in b)


def unseen(folder: Path, scratch: Path) -> int:
    """The control: returns how many flipped bytes of arrays give wrong values without manifests."""
    with mock.patch.object(checkpoints, "verify", return_value=""):
        restores = list(restored(folder, scratch, "d/*", ["one byte flipped"]))
    return sum(restore.outcome == "wrong" for restore in restores)
