"""A sweep as the file that `wandb sweep` takes and `wandb agent` runs."""

import math
from pathlib import Path
from typing import Any

import yaml

from posenc_jax.lab.config.sweeps import Sweep, text


def sweep_file(sweep: Sweep, project: str, folder: Path) -> dict[str, Any]:
    """The content of the file. An agent runs each point in a process of its own.

    Points that are every combination of their fields' values become a grid of these fields; others,
    such as zipped ones, a grid over the points' names, which scripts/sweep.py knows.
    """
    native = _grid(sweep)
    shared = [f"--config={sweep.config}", "--config.wandb.mode=online"]
    return {
        "name": sweep.name,
        "project": project,
        "method": "grid",
        "program": "train.py" if native else "scripts/sweep.py",
        # ${args} keeps the two hyphens, without which absl would take no flag for one.
        "command": [
            "${env}", "${interpreter}", "${program}", *shared,
            *([] if native else [f"--folder={folder}"]), "${args}",
        ],
        "parameters": native or {"point": {"values": [point.name for point in sweep.points]}},
    }  # fmt: skip


def write(sweep: Sweep, project: str, folder: Path) -> Path:
    """Writes FOLDER/wandb.yaml and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "wandb.yaml"
    content = sweep_file(sweep, project, folder)
    path.write_text(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def _grid(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Parameters whose every combination is a point, and every point one; {} where there are none.

    Values that YAML has no form for stand as the command line's text.
    """
    points = [point.overrides for point in sweep.points]
    if any(set(point) != set(points[0]) for point in points):
        return {}
    values = {field: _unique([_plain(p[field]) for p in points]) for field in points[0]}
    if math.prod(map(len, values.values())) != len(points):
        return {}
    return {
        f"config.{field}": {"value": many[0]} if len(many) == 1 else {"values": many}
        for field, many in values.items()
    }


def _unique(values: list) -> list:
    return list({repr(value): value for value in values}.values())


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else text(value)
