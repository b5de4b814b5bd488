"""Uploads the report of a finished run to W&B: tables, figures, the page, artifacts.

Names in W&B: the tables "results", with a row for each seed, and "by_position"; "figures/NAME";
"report", the page; the artifact "...-report" with the run's files and, if asked, "...-checkpoint".
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

POSITION_COLUMNS = ("encoding", "length", "position", "seed", "metric", "value")
FILES = ("report.html", "config.json", "metrics.jsonl", "summary.json", "figures/*", "tables/*")


def publish(run: Any, folder: Path, records: Sequence[Mapping], checkpoint: bool) -> list[Any]:
    """Logs the results of a finished run to an open W&B run; files that are missing are left out.

    Returns the artifacts, which W&B uploads later; `checkpoint`: with the checkpoints.
    """
    import wandb  # takes a second; the logger has imported it already

    columns, rows = table(records)
    if rows:
        run.log({"results": wandb.Table(columns=[*columns], data=rows)})
    curves = by_position(records)
    if curves:
        run.log({"by_position": wandb.Table(columns=[*POSITION_COLUMNS], data=curves)})
    for path in sorted(folder.glob("figures/*.png")):
        run.log({f"figures/{path.stem}": wandb.Image(str(path))})
    if (folder / "report.html").is_file():
        run.log({"report": wandb.Html((folder / "report.html").read_text("utf-8"), inject=False)})
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", run.group or f"{run.project}-{folder.name}")
    sent = _artifact(run, wandb.Artifact(f"{name}-report", "report"), folder, FILES)
    if checkpoint:
        model = wandb.Artifact(f"{name}-checkpoint", "model")
        sent += _artifact(run, model, folder, ("checkpoints/**/*",))
    return sent


def table(records: Sequence[Mapping]) -> tuple[list[str], list[list]]:
    """Returns columns and rows of all test metrics at each encoding's last step, without curves by
    position; a row for each seed, a column for each label.
    """
    tested = [
        r for r in records if r["labels"]["split"] == "test" and "position" not in r["labels"]
    ]
    encoding = lambda r: r["labels"].get("encoding")
    last = {encoding(r): r["step"] for r in sorted(tested, key=lambda r: r["step"])}
    tested = [r for r in tested if r["step"] == last[encoding(r)]]
    labels = list(dict.fromkeys(name for r in tested for name in r["labels"] if name != "split"))
    rows = [
        [*(r["labels"].get(name) for name in labels), r["seed"], r["metric"], r["value"]]
        for r in tested
    ]
    return [*labels, "seed", "metric", "value"], rows


def by_position(records: Sequence[Mapping]) -> list[list]:
    """Returns a row for each value by position: encoding, length, position, seed, metric, value."""
    return [
        [*(r["labels"].get(name) for name in ("encoding", "length", "position")),
         r["seed"], r["metric"], r["value"]]
        for r in records if "position" in r["labels"]
    ]  # fmt: skip


def _artifact(run: Any, artifact: Any, folder: Path, patterns: Sequence[str]) -> list[Any]:
    """Logs the files that match, under their paths in the folder; returns [] if there are none."""
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    paths = [path for path in paths if path.is_file()]
    for path in paths:
        artifact.add_file(str(path), name=path.relative_to(folder).as_posix())
    return [run.log_artifact(artifact)] if paths else []
