"""Damages every file of the newest checkpoint: emptied, halved, deleted, one byte flipped."""

import contextlib
import io
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from posenc_jax.lab.runs import checkpoints
from posenc_jax.lab.runs.checkpoints import Checkpoints
from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, outcome, side_by_side, uninterrupted

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


def show(folder: Path) -> CheckResult:
    """Restores after every damage to every file; with one damage to each, also resumes the run."""
    wanted = uninterrupted(folder / "whole")
    Child(folder / "killed", failpoint="training:4").wait()
    kept = folder / "killed" / "checkpoints" / "alibi"
    tried = list(attempts(kept, folder / "scratch"))
    bad = [f"{file} {damage}" for file, damage, what in tried if what == "wrong"]
    named = sorted({file for file, *_ in tried})

    def one(case: tuple[str, str], core: int) -> list[str]:
        return _ended(folder, *case, core, wanted)

    ends = zip(named, itertools.cycle(DAMAGE), strict=False)
    bad += itertools.chain(*side_by_side(one, ends))
    missed = unseen(kept, folder / "scratch")
    same = sum(what == "same" for *_, what in tried)
    return CheckResult(
        what="a file of the newest checkpoint emptied, halved, deleted or with one byte flipped: "
        "restored the same, or an older step and one line",
        good=len(tried) + len(named) - len(bad),
        tried=len(tried) + len(named),
        control="no manifest: wrong values, silently",
        control_found=int(missed > 0),
        control_tried=1,
        settings=f"{len(named)} files; {len(tried)} restores, and {len(named)} runs to their end",
        figures=f"{same} restored the same, {len(tried) - same} fell back; "
        f"without the manifest {missed} flipped bytes of arrays went unseen",
        bad=tuple(bad),
    )


def _ended(folder: Path, file: str, damage: str, core: int, wanted: dict[str, str]) -> list[str]:
    """Damages the run that was killed and resumes it; returns what was wrong."""
    workdir = folder / file.replace("/", "-")
    shutil.copytree(folder / "killed", workdir)
    steps = workdir / "checkpoints" / "alibi"
    target = steps / str(max(int(step.name) for step in steps.iterdir())) / file
    content = DAMAGE[damage](target.read_bytes())
    target.unlink() if content is None else target.write_bytes(content)
    ended = Child(workdir, cores=(core,)).wait()
    if ended.status:
        return [f"{file} {damage}, run to its end: status {ended.status}: {ended.err}"]
    found = outcome(workdir)
    wrong = [name for name in wanted if wanted[name] != found.get(name)]
    return [f"{file} {damage}, run to its end: {what}" for what in wrong]


def attempts(
    folder: Path, scratch: Path, files: str = "*", damages: Iterable[str] = DAMAGE
) -> Iterator[tuple[str, str, str]]:
    """Yields (file, damage, outcome) for every file of the newest step in a folder.

    Outcomes: "same" values as before the damage; "fell back" to an older step with one line that
    says so; "wrong": other values, no line, or no step at all.
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
    """Returns how many attempts had each outcome."""
    return Counter(what for _, _, what in attempts(folder, scratch))


def unseen(folder: Path, scratch: Path) -> int:
    """The control: returns how many flipped bytes of arrays give wrong values without manifests."""
    with without_manifests():
        tried = attempts(folder, scratch, "d/*", ["one byte flipped"])
        return sum(what == "wrong" for _, _, what in tried)


@contextlib.contextmanager
def without_manifests() -> Iterator[None]:
    """Makes every checkpoint count as valid."""
    kept = checkpoints.verify
    checkpoints.verify = lambda folder: ""
    try:
        yield
    finally:
        checkpoints.verify = kept
