"""Builds a W&B workspace: a section for each experiment's results, with every seed.

The names of metrics, encodings and figures come from finished runs on disk; the panels show all
runs of the project that have them.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from posenc_jax.lab import metrics
from posenc_jax.lab.report import plots, summaries
from posenc_jax.lab.runs import TIMES, Record, StoredRun
from posenc_jax.lab.summary import LengthSummary
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
        settings=workspaces.WorkspaceSettings(
            x_axis="step", max_runs=MOST, tooltip_number_of_runs="all_runs"
        ),
    )


def serialise(dashboard: Any) -> str:
    """Returns the workspace as the JSON that W&B would get."""
    return dashboard._to_model().model_dump_json(indent=2)


def _extrapolation(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns panels by length and by position for each metric, training losses, and media.

    In a panel by length each encoding is a line, with dotted ends of its interval.
    """
    if not runs:
        return [_missing("rope_extrap")]
    panels: list[Any] = []
    for metric in _unique(run.by_length.metric for run in runs):
        of_metric = [run for run in runs if run.by_length.metric == metric]
        names = _unique(name for run in of_metric for name in run.by_length.results)
        means = {f"by_length/{metric}/{name}": name for name in names}
        ends = [f"{key}/{end}" for key in means for end in ("low", "high")]
        title, records = metrics.metric(metric).title, [r for run in of_metric for r in run.records]
        by_position = [r for r in records if r["metric"] == metric and "position" in r["labels"]]
        claims = _unique(plots.best_at_longest(run.by_length) for run in of_metric)
        claim = claims[0] if len(claims) == 1 else ""  # runs that do not agree have none
        panels += _lines(
            f"{title} by test length{claim}, {metrics.metric(metric).better} is better",
            "length", [*means, *ends], log_x=True, line_titles=means,
            line_marks=dict.fromkeys(ends, "dotted"), title_y=metrics.metric(metric).axis_label,
        )  # fmt: skip
        panels += _lines(
            f"{title} by position in the window",
            "position",
            _keys(by_position),
            log_x=True,
        )
    losses = [record for run in runs for record in summaries.training_loss(run.records)]
    shared = _lines("training loss, mean over seeds", "step", ["train/loss"])
    every = _lines("training loss, every seed", "step", _keys(losses))
    return [*panels, *(shared if losses else ()), *every, *_media(runs)]


def _speed(runs: Sequence[StoredRun]) -> list[Any]:
    """Returns a panel for each kind of measured time."""
    records = [record for run in runs for record in run.records]
    by_metric = {metric: [r for r in records if r["metric"] == metric] for metric in sorted(TIMES)}
    return [
        panel
        for m in by_metric
        for panel in _lines(m.replace("_", " "), "step", _keys(by_metric[m]))
    ]


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


def _lines(title: str, axis: str, keys: Sequence[str], **options: Any) -> list[Any]:
    """Returns a panel of lines, or none if there are no keys."""
    panel = {"title": title, "x": axis, "y": list(keys), "max_runs_to_show": MOST, **options}
    return [panels.LinePlot(**panel)] if keys else []


def _keys(records: Iterable[Record]) -> list[str]:
    return _unique(logger.curve_name(record) for record in records)


def _missing(config: str) -> Any:
    text = f"No run yet: `python train.py --config=configs/{config}.py --config.wandb.mode=online`"
    return panels.MarkdownPanel(markdown=text)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
