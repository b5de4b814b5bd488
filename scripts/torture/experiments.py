"""Kills every experiment midway and resumes it: it must end with the summary of a whole run."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.lab import runs
from scripts.torture import unprotected
from scripts.torture.processes import TrainProcess, complete, errors, side_by_side
from scripts.torture.results import Attempt, CheckResult


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


def check(folder: Path) -> CheckResult:
    """Runs each experiment once whole, and once killed at each of its points."""
    kills = sum(len(case.points) for case in CASES.values())
    return CheckResult(
        what="every experiment killed in its middle: restarts end in the summary of a whole run",
        attempts=side_by_side(lambda name: attempt(folder, name), CASES),
        control="restart without rollback: rows are doubled",
        control_found=[bool(attempt(folder, "padding_leakage", unprotected.rollback).wrong)],
        settings=f"{', '.join(CASES)}; {kills} kills; two at a time, one pinned core each",
    )


def attempt(folder: Path, name: str, without: Callable[[], None] | None = None) -> Attempt:
    """Kills and resumes one experiment, which is first run whole."""
    config, points = CASES[name]
    whole, run = folder / name, folder / f"{name}-killed{'-control' if without else ''}"
    if not whole.exists():
        TrainProcess(whole, config=config).wait()
    for point in points:
        killed = TrainProcess(run, config=config, failpoint=point).wait()
        if wrong := errors(killed, status=-signal.SIGKILL):
            return Attempt(f"{name} at {point}", wrong)
    last = TrainProcess(run, config=config, without=without)
    return Attempt(name, complete(timeless(whole), last, read=timeless))


def timeless(workdir: Path) -> dict[str, Any]:
    """Returns the records and the summary of a finished run without wall-clock times."""
    run = runs.read(workdir)
    records = sorted(repr(r) for r in run.records if r["metric"] not in runs.TIMES)
    content = run.summary.content()
    summary = {name: _untimed(content[name]) for name in content if name != "starts"}
    return {"records": records} | summary


def _untimed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _untimed(value[name]) for name in value if name not in TIMES}
    return value
