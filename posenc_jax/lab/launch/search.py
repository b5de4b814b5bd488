"""Runs a search on this machine: Optuna draws the values of each trial from the trials before it.

The folders of the trials are the only record. A search that is started again reads them in order,
comes to the same decisions, and goes on where it stopped.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from posenc_jax.lab import runs
from posenc_jax.lab.config.searches import KEPT, Range, Search
from posenc_jax.lab.config.sweeps import Point, Sweep, dotted, text
from posenc_jax.lab.hosts.files import read_object
from posenc_jax.lab.launch import local
from posenc_jax.lab.launch.local import Status
from posenc_jax.lab.wandb import rows
from posenc_jax.options import FieldError

INSTALL = "pip install '.[search]'"


class Trial(NamedTuple):
    """A trial: the fields that were drawn, how far its run is, and the value of the objective."""

    name: str
    drawn: dict[str, Any]
    status: Status
    value: float | None = None


def run(
    sweep: Sweep,
    search: Search,
    folder: Path,
    script: Path,
    check: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    show: Callable[[Trial], None],
) -> list[Trial]:
    """Runs the trials that are not finished, one after another, and returns all of them.

    Args:
      sweep: its one point has the fields that all trials share.
      folder: has a folder and a log for each trial.
      check: returns the checked config of a trial's overrides; ValueError: they do not fit.
      show: called with the trial at hand, every half second while it runs, and when it ends.

    Raises:
      ValueError: Optuna is not installed, or a folder holds another run.
    """
    optuna = _optuna()
    pruner = (
        optuna.pruners.SuccessiveHalvingPruner(search.compare_at, KEPT)
        if search.compare_at
        else optuna.pruners.NopPruner()
    )
    study = optuna.create_study(direction=search.goal, pruner=pruner)
    sampler = {"bayes": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    folder.mkdir(parents=True, exist_ok=True)
    (shared,), trials = sweep.points, []
    for number in range(search.trials):
        # A sampler for each trial: what it draws depends on the trials before it, not on restarts.
        study.sampler = sampler[search.method](seed=number)
        name = f"trial-{number:03}"
        if stored := _stored(folder / name, search):
            study.enqueue_trial(stored)
        optuna_trial = study.ask(_distributions(optuna, search))
        drawn = {
            field: _value(search, field, optuna_trial.params[field]) for field in search.fields
        }
        point = Point(name, shared.overrides | drawn)
        follow = _Follower(optuna_trial, search, folder / name)
        told = lambda status, name=name, drawn=drawn: show(Trial(name, drawn, status))
        status = _run_trial(sweep, point, folder, script, check, follow, told)
        value = follow.final() if status.state == "finished" else None
        if status.state == "finished" and value is None:
            status = Status("failed", f"it has no {search.objective}", status.seconds)
        trials.append(Trial(name, drawn, status, value))
        states = optuna.trial.TrialState
        ended = {"finished": states.COMPLETE, "stopped": states.PRUNED, "failed": states.FAIL}
        study.tell(optuna_trial, value, state=ended[status.state])
        show(trials[-1])
    return trials


def best(trials: list[Trial], search: Search) -> Trial | None:
    """Returns the finished trial with the best value; None if there is none."""
    finished = [trial for trial in trials if trial.value is not None]
    sign = 1 if search.goal == "minimize" else -1
    return min(finished, key=lambda trial: sign * (trial.value or 0.0), default=None)


def _run_trial(sweep, point, folder, script, check, follow, told) -> Status:
    """Runs or resumes the run of a trial until it ends or falls behind the others."""
    workdir = folder / point.name
    try:
        config = check(point.overrides)
    except ValueError as error:
        return Status("failed", str(error))
    if runs.run_status(workdir, config, flag="--folder") == "finished":
        follow.behind()  # the pruner compares later trials with this one
        return Status("finished", "before")
    if follow.behind():
        return Status("stopped", "before")

    def watch(status: Status) -> bool:
        told(status)
        return follow.behind()

    status = local.run_point(sweep, point, folder, script, watch)
    follow.behind()
    return status


class _Follower:
    """Reports the objective of a run to Optuna, value by value, as they come to its records."""

    def __init__(self, optuna_trial: Any, search: Search, workdir: Path):
        self._optuna_trial, self._workdir, self._reported = optuna_trial, workdir, 0
        self._objective, self._compares = search.objective, search.compare_at > 0

    def behind(self) -> bool:
        """Reports the new values; returns whether the trial is to be stopped."""
        values = list(self._values()) if self._compares else []
        for value in values[self._reported :]:
            self._reported += 1
            self._optuna_trial.report(value, self._reported)
            if self._optuna_trial.should_prune():
                return True
        return False

    def final(self) -> float | None:
        """Returns the objective of the finished run: of its summary, or else the last value."""
        summary = runs.read_summary(self._workdir)
        last = [*self._values()][-1:] or [None]
        value = rows.means(summary).get(self._objective, last[0])
        return value if value is not None and math.isfinite(value) else None

    def _values(self) -> Iterator[float]:
        """Yields the values in the records, without those of a step that is being written."""
        shared = list(rows.shared_rows(runs.stored_records(self._workdir)))
        if not (self._workdir / "summary.json").is_file():
            shared = shared[:-1]
        return (row[self._objective] for row in shared if self._objective in row)


def _stored(workdir: Path, search: Search) -> dict[str, Any]:
    """Returns the values that an earlier start drew for a trial; {} if it has no run yet.

    FieldError: one is outside of the search, which has been changed since.
    """
    if not (workdir / "metrics.jsonl").is_file() or not (workdir / "config.json").is_file():
        return {}
    config = dotted(read_object(workdir / "config.json"))
    drawn = {}
    for field, values in search.fields.items():
        value = config.get(field)
        if isinstance(values, Range):
            inside = isinstance(value, int | float) and values.low <= value <= values.high
        else:
            value = text(value)
            inside = value in map(text, values)
        if not inside:
            raise FieldError(field, f"{value} of {workdir} is outside of this search; "
                             "choose another --folder")  # fmt: skip
        drawn[field] = value
    return drawn


def _distributions(optuna: Any, search: Search) -> dict[str, Any]:
    """Returns Optuna's distribution of each field; a choice is named by its text."""
    kinds = optuna.distributions
    distributions = {}
    for field, values in search.fields.items():
        if not isinstance(values, Range):
            distributions[field] = kinds.CategoricalDistribution([*map(text, values)])
        elif values.whole:
            distributions[field] = kinds.IntDistribution(int(values.low), int(values.high))
        else:
            distributions[field] = kinds.FloatDistribution(values.low, values.high, log=values.log)
    return distributions


def _value(search: Search, field: str, drawn: Any) -> Any:
    values = search.fields[field]
    if isinstance(values, Range):
        return drawn
    return next(value for value in values if text(value) == drawn)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError(f"--launch=local: a search needs Optuna; install it: {INSTALL}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
