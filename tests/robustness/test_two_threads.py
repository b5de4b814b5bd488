"""A resumed run on two cores, where XLA does not promise the same bits twice."""

from pathlib import Path

import numpy as np
import pytest

from posenc_jax.lab.runs.checkpoints import Checkpoints
from tests.support.train_process import TrainProcess

CORES = (0, 1)
LONG = "--config.train.steps=102"  # a run of few steps has one device


def largest(one: Path, other: Path) -> float:
    """Returns the largest difference between the final parameters of two runs."""
    gaps = []
    for folder in (one / "checkpoints").iterdir():
        a = next(Checkpoints(folder).newest()).leaves
        b = next(Checkpoints(other / "checkpoints" / folder.name).newest()).leaves
        gaps += [float(np.abs(a[n] - b[n]).max()) for n in a if n.startswith(".params")]
    return float(np.max(gaps))  # NaN if one is


@pytest.mark.thorough
def test_a_run_resumed_on_two_cores_differs_less_than_one_with_another_seed(tmp_path):
    for name, flags in {"a": (), "other": ("--config.first_seed=7",)}.items():
        TrainProcess(tmp_path / name, LONG, *flags, cores=CORES).wait()
    TrainProcess(tmp_path / "killed", LONG, cores=CORES, failpoint="training:3").wait()
    assert TrainProcess(tmp_path / "killed", LONG, cores=CORES).wait().status == 0
    assert largest(tmp_path / "a", tmp_path / "killed") < 1e-2
    assert largest(tmp_path / "a", tmp_path / "other") > 1e-2, "control"
