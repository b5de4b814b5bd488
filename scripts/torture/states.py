"""Damaged checkpoints of a real run, and the whole run afterwards."""

import itertools
import shutil
from pathlib import Path

from scripts.torture import files
from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, outcome, side_by_side, undisturbed


def show(folder: Path) -> CheckResult:
    """Every damage is restored from; after one damage to each file the run is also ended."""
    wanted = undisturbed(folder / "whole")
    Child(folder / "killed", failpoint="training:4").wait()
    kept = folder / "killed" / "checkpoints" / "alibi"
    tried = list(files.attempts(kept, folder / "scratch"))
    bad = [f"{file} {damage}" for file, damage, what in tried if what == "wrong"]
    named = sorted({file for file, *_ in tried})

    def one(case: tuple[str, str], core: int) -> list[str]:
        return _ended(folder, *case, core, wanted)

    ends = zip(named, itertools.cycle(files.DAMAGE), strict=False)
    bad += itertools.chain(*side_by_side(one, ends))
    unseen = files.unseen(kept, folder / "scratch")
    same = sum(what == "same" for *_, what in tried)
    return CheckResult(
        what="a file of the newest checkpoint emptied, halved, deleted or with one byte flipped: "
        "restored the same, or an older step and one line",
        good=len(tried) + len(named) - len(bad),
        tried=len(tried) + len(named),
        control="no manifest: wrong values, silently",
        control_found=int(unseen > 0),
        control_tried=1,
        settings=f"{len(named)} files; {len(tried)} restores, and {len(named)} runs to their end",
        figures=f"{same} restored the same, {len(tried) - same} fell back; "
        f"without the manifest {unseen} flipped bytes of arrays went unseen",
        bad=tuple(bad),
    )


def _ended(folder: Path, file: str, damage: str, core: int, wanted: dict[str, str]) -> list[str]:
    """What was wrong after a damage to the run that was killed, and a restart."""
    workdir = folder / file.replace("/", "-")
    shutil.copytree(folder / "killed", workdir)
    steps = workdir / "checkpoints" / "alibi"
    target = steps / str(max(int(step.name) for step in steps.iterdir())) / file
    content = files.DAMAGE[damage](target.read_bytes())
    target.unlink() if content is None else target.write_bytes(content)
    ended = Child(workdir, cores=(core,)).wait()
    if ended.status:
        return [f"{file} {damage}, run to its end: status {ended.status}: {ended.err}"]
    found = outcome(workdir)
    wrong = [name for name in wanted if wanted[name] != found.get(name)]
    return [f"{file} {damage}, run to its end: {what}" for what in wrong]
