"""Damages every file of the newest checkpoint: emptied, halved, deleted, one byte flipped."""

import contextlib
import io
import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from posenc_jax.lab.runs import checkpoints
from posenc_jax.lab.runs.checkpoints import Checkpoints
from scripts.torture.processes import TrainProcess, complete, side_by_side, whole
from scripts.torture.results import Attempt, CheckResult

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


def check(folder: Path) -> CheckResult:
    """Restores after every damage to every file; with one damage to each, also resumes the run."""
    wanted = whole(TrainProcess(folder / "whole"))
    TrainProcess(folder / "killed", failpoint="training:4").wait()
    kept, scratch = folder / "killed" / "checkpoints" / "alibi", folder / "scratch"
    restores = list(restored(kept, scratch))
    files = sorted({each.file for each in restores})

    def resumed(case: tuple[str, str]) -> Attempt:
        file, damage = case
        workdir = folder / file.replace("/", "-")
        shutil.copytree(folder / "killed", workdir)
        steps = workdir / "checkpoints" / "alibi"
        _damage(steps / str(max(int(step.name) for step in steps.iterdir())) / file, damage)
        return Attempt(f"{file} {damage}, run to its end", complete(wanted, TrainProcess(workdir)))

    attempts = [
        Attempt(f"{each.file} {each.damage}", ["wrong"] if each.outcome == "wrong" else [])
        for each in restores
    ] + side_by_side(resumed, zip(files, itertools.cycle(DAMAGE), strict=False))
    missed = unseen(kept, scratch)
    same = sum(each.outcome == "same" for each in restores)
    return CheckResult(
        what="a file of the newest checkpoint emptied, halved, deleted or with one byte flipped: "
        "restored the same, or an older step and one line",
        attempts=attempts,
        control="no manifest: wrong values, silently",
        control_found=[missed > 0],
        settings=f"{len(files)} files; {len(restores)} restores, and {len(files)} runs to their "
        "end",
        figures=f"{same} restored the same, {len(restores) - same} fell back; "
        f"without the manifest {missed} flipped bytes of arrays went unseen",
    )


def restored(
    folder: Path, scratch: Path, files: str = "*", damages: Iterable[str] = DAMAGE
) -> Iterator[Restored]:
    """Damages every file of the newest step of a folder's copy in `scratch`, and restores it."""
    saved = {kept.step: kept.leaves for kept in Checkpoints(folder).newest()}
    newest = folder / str(max(saved))
    for file in sorted(path for path in newest.rglob(files) if path.is_file()):
        for damage in damages:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(folder, scratch)
            _damage(scratch / file.relative_to(folder), damage)
            name = file.relative_to(newest).as_posix()
            yield Restored(name, damage, _outcome(scratch, saved))


def _damage(file: Path, damage: str) -> None:
    content = DAMAGE[damage](file.read_bytes())
    file.unlink() if content is None else file.write_bytes(content)


def _outcome(folder: Path, saved: Mapping[int, Leaves]) -> str:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        found = next(Checkpoints(folder).newest(), None)
    if found is None or not _equal(found.leaves, saved[found.step]):
        return "wrong"
    lines = errors.getvalue().splitlines()
    if found.step == max(saved):
        return "wrong" if lines else "same"
    named = len(lines) == 1 and lines[0].startswith(f"{folder / str(max(saved))}: not used: ")
    return "fell back" if named else "wrong"


def _equal(a: Leaves, b: Leaves) -> bool:
    return set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in b)


def unseen(folder: Path, scratch: Path) -> int:
    """The control: returns how many flipped bytes of arrays give wrong values without manifests."""
    with mock.patch.object(checkpoints, "verify", return_value=""):
        found = list(restored(folder, scratch, "d/*", ["one byte flipped"]))
    return sum(each.outcome == "wrong" for each in found)
