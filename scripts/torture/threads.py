"""Measures how much a resumed run on two cores differs from one that was not interrupted."""

from pathlib import Path

import numpy as np

from posenc_jax.lab.runs.checkpoints import Checkpoints
from scripts.torture.processes import TrainProcess
from scripts.torture.results import Attempt, CheckResult

CORES = (0, 1)
LONG = "--config.train.steps=102"  # a run of few steps has one device


def check(folder: Path) -> CheckResult:
    """Compares parameters; the control is a run with another seed."""
    for name, flags in {"a": (), "b": (), "other": ("--config.first_seed=7",)}.items():
        TrainProcess(folder / name, LONG, *flags, cores=CORES).wait()
    TrainProcess(folder / "killed", LONG, cores=CORES, failpoint="training:3").wait()
    ended = TrainProcess(folder / "killed", LONG, cores=CORES).wait()
    again, resumed, other = (largest(folder / "a", folder / n) for n in ("b", "killed", "other"))
    wrong = [f"status {ended.status}"] if ended.status else []
    wrong += [f"differs by {resumed:.2g}"] if resumed >= 1e-2 else []
    return CheckResult(
        what="on two cores: an interrupted run ends, its difference is measured",
        attempts=[Attempt("resumed", wrong)],
        control="another seed differs by more",
        control_found=[other > 1e-2],
        settings="two devices of one core each, as train.py makes them",
        figures=f"largest difference of a parameter: {again:.2g} between two runs never "
        f"interrupted, {resumed:.2g} between one of them and one killed and resumed",
    )


def largest(one: Path, other: Path) -> float:
    """Returns the largest difference between the final parameters of two runs."""
    gaps = []
    for folder in (one / "checkpoints").iterdir():
        a = next(Checkpoints(folder).newest()).leaves
        b = next(Checkpoints(other / "checkpoints" / folder.name).newest()).leaves
        gaps += [float(np.abs(a[n] - b[n]).max()) for n in a if n.startswith(".params")]
    return max(gaps)
