"""One file for each experiment, with a `Config`, a `check(config)` and a `run(config, workdir)`."""

import contextlib
import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from posenc_jax.lab import report, runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import processes
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.options import choices_for

EXPERIMENTS = (
    "claims",
    "images",
    "leaderboard",
    "length_extrapolation",
    "padding_leakage",
    "permutation",
)
SEVERAL = ("length_extrapolation",)  # those that may run as several processes
# Those that compile for about as long as they run; halves of their batches on two cores are slower.
MANY_PROGRAMS = ("claims", "images", "padding_leakage", "permutation")


def check(config: dict[str, Any]) -> schema.ExperimentConfig:
    """The config as its experiment takes it, every default filled in.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    name = config.get("experiment")
    if name not in EXPERIMENTS:
        hint = choices_for(str(name), EXPERIMENTS)
        raise ValueError(f"config.experiment: no experiment {name!r}{hint}")
    experiment = _experiment(name)
    checked = schema.check(experiment.Config, config)
    try:
        experiment.check(checked)
    except ValueError as error:
        raise ValueError(_in_full(checked, error)) from None
    return checked


def _in_full(config: schema.ExperimentConfig, error: ValueError) -> str:
    """What an error says: the library names its own fields, encoding.base or task.name."""
    part, known = str(error).split(".")[0], type(config).model_fields
    if part == "task" and "tasks" in known:
        return f"config.tasks: {error}"
    return f"config.{error}" if part in known else str(error)


def prepare(config: dict[str, Any], workdir: str) -> Callable[[], None]:
    """The run, ready to start or to go on; of a finished one, what says so.

    Raises:
      ValueError: one line names the field, the value and the choices.
    """
    checked = check(config)
    if processes.is_multiprocess() and checked.experiment not in SEVERAL:
        name = checked.experiment
        raise ValueError(f"config.experiment: {name} is for one process; several: {SEVERAL[0]}")
    if runs.run_status(workdir, checked.model_dump()) == "finished":
        return partial(_say_finished, checked, workdir)
    return partial(_run, checked, workdir)


def _run(config: schema.ExperimentConfig, workdir: str) -> None:
    """Refused: a field is found wrong when the data is read, such as a text that is too small."""
    try:
        _experiment(config.experiment).run(config, workdir)
    except ValueError as error:
        if isinstance(error, Refused) or (said := _in_full(config, error)) == str(error):
            raise
        raise Refused(said) from None


def _say_finished(config: schema.ExperimentConfig, workdir: str) -> None:
    """And does what is left to do where it was killed right after its last record."""
    print(f"{workdir}: finished already; nothing to do", flush=True)
    unseen = not (Path(workdir) / "report.html").exists()
    if unseen and processes.is_first():
        show(workdir)
    with contextlib.suppress(Refused):  # its own process is still there, and does that
        runs.send_report(workdir, config.model_dump(), config.wandb.model_dump())


def show(workdir: str) -> None:
    """The report of a finished run, made again from its folder: the experiment's own, or the table
    by length.

    Raises:
      ValueError: the folder holds no finished run.
    """
    name = runs.read(workdir).config.get("experiment", "")
    experiment = _experiment(name) if name in EXPERIMENTS else None
    getattr(experiment, "show", report.show)(workdir)


def _experiment(name: str) -> Any:
    """The experiment's module; the others are not loaded."""
    return importlib.import_module(f"experiments.{name}")
