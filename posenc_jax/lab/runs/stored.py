"""Reads a finished run from its folder."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from posenc_jax.lab.runs.records import Record, parse


class StoredRun(NamedTuple):
    """The content of a finished run's folder; `config` without its `environment`."""

    path: Path
    config: dict
    environment: dict
    records: list[Record]
    summary: dict


def read(workdir: str | Path) -> StoredRun:
    """Reads a finished run; an incomplete last line of metrics.jsonl is left out.

    Raises:
      ValueError: there is no finished run, or a line is damaged; names the file or the line.
    """
    path = Path(workdir)
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        if not (path / name).is_file():
            raise ValueError(f"workdir: {path} has no {name}; give the folder of a finished run")
    config = json.loads((path / "config.json").read_text("utf-8"))
    summary = json.loads((path / "summary.json").read_text("utf-8"))
    records = parse((path / "metrics.jsonl").read_text("utf-8"), path / "metrics.jsonl")
    return StoredRun(path, config, config.pop("environment", {}), records, summary)


def finished(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders of runs; a folder that is not a run is replaced by the finished runs
    below it.
    """
    found = []
    for folder in folders:
        below = sorted(path.parent for path in folder.glob("**/summary.json"))
        found += [folder] if (folder / "config.json").is_file() or not below else below
    return found
