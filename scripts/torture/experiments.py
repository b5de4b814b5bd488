"""Kills every experiment midway and resumes it: it must end with the summary of a whole run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.lab import runs
from scripts.torture.check_result import CheckResult
from scripts.torture.child import Child, side_by_side


class Case(NamedTuple):
    """A small config, and the failpoints at which it is killed, one after another."""

    config: tuple[str, ...]
    points: tuple[str, ...]


# The failpoint "measured" is after the records of a row are on disk and before its stage ends.
CASES = {
    "images": Case(
        (
            "--config=configs/images.py:nope,axial,quick", "--config.eval.lengths=(4,)",
            "--config.checkpoint.seconds=0.0",
        ),
        ("training:2", "evaluating"),
    ),
    "permutation": Case(
        (
            "--config=configs/permutation.py:nope,quick", "--config.equivariance.lengths=(2,)",
            "--config.order.steps=20", "--config.text.encoding.name=nope",
            "--config.text.train.steps=20",
        ),
        ("measured:2", "evaluating"),
    ),
    "padding_leakage": Case(
        ("--config=configs/padding_leakage.py:rope,alibi,quick", "--config.data.amounts=(4,)"),
        ("measured:2",),
    ),
    "claims": Case(("--config=configs/claims.py:sin-2,abs-2,num-1,quick",), ("measured:2",)),
    "leaderboard": Case(
        ("--config=configs/leaderboard.py:nope,rope,quick", "--config.train.steps=20"),
        ("measured", "measured:2"),
    ),
}  # fmt: skip
TIMES = ("seconds", "started")  # of the wall clock, in summaries


def show(folder: Path) -> CheckResult:
    """Each experiment once whole, once killed at each of its points."""
    tried = side_by_side(lambda name, core: attempt(folder, name, core), CASES)
    bad = [f"{name}: {wrong}" for name, wrong in zip(CASES, tried, strict=True) if wrong]
    kills = sum(len(case.points) for case in CASES.values())
    doubled = attempt(folder, "padding_leakage", 0, without="rollback")
    return CheckResult(
        what="every experiment killed in its middle: restarts end in the summary of a whole run",
        good=len(CASES) - len(bad),
        tried=len(CASES),
        control="restart without rollback: rows are doubled",
        control_found=int(bool(doubled)),
        control_tried=1,
        settings=f"{', '.join(CASES)}; {kills} kills; two at a time, one pinned core each",
        bad=tuple(bad),
    )


def attempt(folder: Path, name: str, core: int, without: str = "") -> str:
    """Kills and resumes one experiment; returns what was wrong, or ""."""
    config, points = CASES[name]
    whole, run = folder / name, folder / f"{name}-killed{without}"
    if not whole.exists():
        Child(whole, config=config, cores=(core,)).wait()
    for point in points:
        killed = Child(run, config=config, cores=(core,), failpoint=point).wait()
        if killed.status != -9:
            return f"not killed at {point}: status {killed.status} {killed.err}"
    last = Child(run, config=config, cores=(core,), without=without).wait()
    if last.status or last.traceback:
        return f"status {last.status} at the restart: {last.err}"
    wanted, found = _timeless(whole), _timeless(run)
    return ", ".join(part for part in wanted if wanted[part] != found.get(part))


def _timeless(workdir: Path) -> dict[str, Any]:
    """Returns the records and the summary of a finished run without wall-clock times."""
    run = runs.read(workdir)
    records = sorted(repr(r) for r in run.records if r["metric"] not in runs.TIMES)
    return {"records": records} | {k: _without(v) for k, v in run.summary.items() if k != "starts"}


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without(v) for k, v in value.items() if k not in TIMES}
    return value
