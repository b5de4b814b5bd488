"""Builds a W&B workspace: sections for the results of the experiments, with every seed.

The names of metrics, encodings and figures come from finished runs on disk; the panels show all
runs of the project that have them.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from posenc_jax.lab.report import summaries
from posenc_jax.lab.runs import TIMES, StoredRun
from posenc_jax.lab.wandb import logger

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about the package's own use of pydantic
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as workspaces

MOST = 500  # runs in a panel; W&B's default of 10 hides seeds
# Section -> the experiment that it shows.
EXPERIMENTS = {"Order": "permutation", "Padding": "padding_leakage", "Claims": "claims"}


def workspace(entity: str, project: str, name: str, runs: Sequence[StoredRun]) -> Any:
    """Returns the workspace, not yet saved: `save()` uploads it, `serialise` needs no network.

    Args:
      runs: finished runs, which give the names in the panels.

    Raises:
      ValueError: no runs.
    """
    if not runs:
        raise ValueError("workdir: none given; a dashboard takes one finished run or more")
    by_experiment = {
        title: [run for run in runs if run.config.get("experiment") == experiment]
        for title, experiment in EXPERIMENTS.items()
    }
    tables = [run for run in runs if "train_length" in run.summary]
    sections = {
        "Extrapolation": _extrapolation(tables),
        **{title: _pages(found, EXPERIMENTS[title]) for title, found in by_experiment.items()},
        "Speed": _speed(runs),
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[
            workspaces.Section(
                name=title, panels=list(found), is_open=i == 0, layout_settings=_layout()
            )
            for i, (title, found) in enumerate(sections.items())
        ],
        settings=workspaces.WorkspaceSettings(
            x_axis="step", max_runs=MOST, tooltip_number_of_runs="all_runs"
        ),
    )


def serialise(made: Any) -> str:
    """Returns the workspace as the JSON that W&B would get."""
    return made._to_model().model_dump_json(indent=2)


def _layout() -> Any:
    return workspaces.SectionLayoutSettings(columns=2, rows=3)


def _extrapolation(runs: Sequence[StoredRun]) -> Iterable[Any]:
    """Returns panels by length and by position for each metric, training losses, and media.

    In a panel by length each encoding is a line, with dotted ends of its interval.
    """
    if not runs:
        return [_missing("rope_extrap")]
    found: list[Any] = []
    for metric in _unique(run.summary["metric"] for run in runs):
        own = [run for run in runs if run.summary["metric"] == metric]
        names = _unique(name for run in own for name in run.summary["results"])
        means = {f"by_length/{metric}/{name}": name for name in names}
        ends = [f"{key}/{end}" for key in means for end in ("low", "high")]
        found.append(
            _lines(
                f"{summaries.label(metric)} by test length",
                "length",
                [*means, *ends],
                log_x=True,
                line_titles=means,
                line_marks={key: "dotted" for key in ends},
                title_y=summaries.axis_label(metric),
            )
        )
        found.append(_lines(f"{summaries.label(metric)} by position", "position",
                            _keys(own, lambda r, m=metric: "position" in r["labels"]
                                  and r["metric"] == m), log_x=True))  # fmt: skip
    losses = [logger.curve_name(r) for run in runs for r in summaries.training_loss(run.records)]
    found.append(_lines("training loss, every seed", "step", _unique(losses)))
    return [panel for panel in found if panel is not None] + _media(runs)


def _pages(runs: Sequence[StoredRun], experiment: str) -> list[Any]:
    return _media(runs) if runs else [_missing(experiment)]


def _speed(runs: Sequence[StoredRun]) -> list[Any]:
    metrics = _unique(r["metric"] for run in runs for r in run.records)
    found = [
        _lines(name.replace("_", " "), "step",
               _keys(runs, lambda r, name=name: r["metric"] == name))
        for name in metrics if name in TIMES
    ]  # fmt: skip
    return found or [_missing("rope_extrap")]


def _media(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns panels of the runs' figures, their reports, and the table with every seed."""
    names = _unique(path.stem for run in runs for path in sorted(run.path.glob("figures/*.png")))
    figures = [
        panels.MediaBrowser(title=name.replace("_", " "), media_keys=[f"figures/{name}"])
        for name in names
    ]
    return [
        *figures,
        panels.MediaBrowser(title="reports", media_keys=["report"], num_columns=1),
        panels.WeavePanelSummaryTable(table_name="results"),
    ]


def _lines(title: str, axis: str, keys: Sequence[str], **options: Any) -> Any:
    if not keys:
        return None
    return panels.LinePlot(title=title, x=axis, y=list(keys), max_runs_to_show=MOST, **options)


def _keys(runs: Sequence[StoredRun], wanted: Any) -> list[str]:
    """Returns the names in W&B of the records that are wanted."""
    return _unique(logger.curve_name(r) for run in runs for r in run.records if wanted(r))


def _missing(config: str) -> Any:
    text = f"No run yet: `python train.py --config=configs/{config}.py --config.wandb.mode=online`"
    return panels.MarkdownPanel(markdown=text)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
