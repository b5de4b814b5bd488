"""Kills every experiment midway and resumes it: it must end with the summary of a whole run."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from posenc_jax.lab import runs
from tests.support.train_process import TrainProcess, complete, errors

pytestmark = pytest.mark.thorough


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def killed_and_resumed(folder, name, without=""):
    """Kills and resumes one experiment, which is first run whole; returns what went wrong."""
    config, points = CASES[name]
    whole, run = folder / name, folder / f"{name}-killed{without}"
    if not whole.exists():
        TrainProcess(whole, config=config).wait()
    for point in points:
        killed = TrainProcess(run, config=config, failpoint=point).wait()
        if wrong := errors(killed, status=-signal.SIGKILL):
            return wrong
    last = TrainProcess(run, config=config, without=without)
    return complete(timeless(whole), last, read=timeless)


@pytest.mark.parametrize("name", CASES)
def test_an_experiment_killed_in_its_middle_ends_in_the_summary_of_a_whole_run(folder, name):
    assert not killed_and_resumed(folder, name)


def test_the_control_without_rollback_doubles_rows(folder):
    assert killed_and_resumed(folder, "padding_leakage", "rollback")


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
