"""A finished run, read from its folder."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from posenc_jax.lab.runs.records import Record, parse


class StoredRun(NamedTuple):
    """A finished run as read from its folder; `config` is without the environment."""

    path: Path
    config: dict
    environment: dict
    records: list[Record]
    summary: dict


def read(workdir: str | Path) -> StoredRun:
    """Reads a finished run; a last line that a kill cut short is left out.

    Raises:
      ValueError: no such run, one that has not ended, or a damaged line, by its number.
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
    """The folders of runs; one that is none itself stands for the finished runs below it."""
    found = []
    for folder in folders:
        below = sorted(path.parent for path in folder.glob("**/summary.json"))
        found += [folder] if (folder / "config.json").is_file() or not below else below
    return found
