"""Builds a W&B workspace: a section for each experiment's results.

The keys of the panels come from finished runs on disk; the panels show all W&B runs of the project
that have them, grouped by our run and by encoding: a line is the mean over the seeds of an
encoding, and the area around it holds every seed.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from posenc_jax.lab import metrics
from posenc_jax.lab.report import plots
from posenc_jax.lab.runs import TIMES, Record, StoredRun
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.wandb import rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about the package's own use of pydantic
    import wandb_workspaces.reports.v2 as panels
    import wandb_workspaces.workspaces as workspaces
    from wandb_workspaces.expr import Config, Metric

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
    sections = {
        "Extrapolation": _extrapolation([r for r in runs if isinstance(r.summary, LengthSummary)])
    }
    for title, experiment in EXPERIMENTS.items():
        panels = _media([run for run in runs if run.config.get("experiment") == experiment])
        sections[title] = panels or [_missing(experiment)]
    sections["Speed"] = _speed(runs) or [_missing("rope_extrap")]
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=name,
        sections=[
            workspaces.Section(
                name=title,
                panels=panels,
                is_open=i == 0,
                layout_settings=workspaces.SectionLayoutSettings(columns=2, rows=3),
            )
            for i, (title, panels) in enumerate(sections.items())
        ],
        runset_settings=workspaces.RunsetSettings(groupby=[Metric("Group"), Config("encoding")]),
        settings=workspaces.WorkspaceSettings(
            x_axis="step", max_runs=MOST, tooltip_number_of_runs="all_runs"
        ),
    )


def serialise(dashboard: Any) -> str:
    """Returns the workspace as the JSON that W&B would get."""
    return dashboard._to_model().model_dump_json(indent=2)


def _extrapolation(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns panels by length and by position for each metric, losses, and media."""
    if not runs:
        return [_missing("rope_extrap")]
    panels: list[Any] = []
    for name in _unique(run.by_length.metric for run in runs):
        of_metric = [run for run in runs if run.by_length.metric == name]
        metric, records = metrics.metric(name), [r for run in of_metric for r in run.records]
        by_position = [r for r in records if r["metric"] == name and "position" in r["labels"]]
        claims = _unique(plots.best_at_longest(run.by_length) for run in of_metric)
        claim = claims[0] if len(claims) == 1 else ""  # runs that do not agree have none
        title = f"{metric.title} by test length{claim}, {metric.better} is better"
        panels += _lines(title, "length", [f"by_length/{name}"], metric.axis_label, log_x=True)
        for key in _keys(by_position):
            at = f"{metric.title} by position, at length {key.rsplit('/', 1)[1]}"
            panels += _lines(at, "position", [key], metric.axis_label, log_x=True)
    losses = [r for run in runs for r in run.records if r["metric"] == "loss"]
    for split, title in {"train": "training loss", "valid": "validation loss"}.items():
        keys = _keys(record for record in losses if record["labels"]["split"] == split)
        panels += _lines(title, "step", keys, metrics.metric("loss").axis_label)
    return [*panels, *_media(runs)]


def _speed(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns a panel for each measured time, and the other numbers of a training's speed."""
    records = [record for run in runs for record in run.records]
    keys = sorted(_keys(record for record in records if record["metric"] in TIMES))
    titles = {key: " ".join(key.split("/")).replace("_", " ") for key in keys}
    return [panel for key in keys for panel in _lines(titles[key], "step", [key])]


def _media(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns panels of the runs' figures, their reports, and the table with every seed."""
    if not runs:
        return []
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


def _lines(
    title: str, axis: str, keys: Sequence[str], label: str | None = None, **options: Any
) -> list[Any]:
    """Returns a panel with a line for each encoding of each run and the range of its seeds; none if
    there are no keys.
    """
    panel = {
        "title": title, "x": axis, "y": list(keys), "title_x": axis, "title_y": label,
        "groupby_aggfunc": "mean", "groupby_rangefunc": "minmax", "max_runs_to_show": MOST,
    }  # fmt: skip
    return [panels.LinePlot(**panel, **options)] if keys else []


def _keys(records: Iterable[Record]) -> list[str]:
    return _unique(rows.key(record) for record in records)


def _missing(config: str) -> Any:
    text = f"No run yet: `python train.py --config=configs/{config}.py --config.wandb.mode=online`"
    return panels.MarkdownPanel(markdown=text)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
