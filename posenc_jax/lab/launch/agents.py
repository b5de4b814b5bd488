"""Writes a sweep as a file for `wandb sweep`, whose points `wandb agent` runs."""

import math
from pathlib import Path
from typing import Any

import yaml

from posenc_jax.lab.config.sweeps import Sweep, text


def files(sweep: Sweep, project: str, folder: Path) -> dict[Path, str]:
    """Returns FOLDER/wandb.yaml and its text. An agent runs each point in its own process.

    If the points are all combinations of their fields' values, the file has a grid over the fields;
    otherwise a grid over the points' names, which scripts/sweep.py looks up.
    """
    fields = _grid(sweep)
    shared = [f"--config={sweep.config}", "--config.wandb.mode=online"]
    content = {
        "name": sweep.name,
        "project": project,
        "method": "grid",
        "program": "train.py" if fields else "scripts/sweep.py",
        # ${args} keeps the two hyphens that absl needs.
        "command": [
            "${env}", "${interpreter}", "${program}", *shared,
            *([] if fields else [f"--folder={folder}"]), "${args}",
        ],
        "parameters": fields or {"point": {"values": [point.name for point in sweep.points]}},
    }  # fmt: skip
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    return {folder / "wandb.yaml": text}


def _grid(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Returns W&B parameters whose combinations are exactly the points; {} if there are none.

    A value that YAML cannot hold is written as on the command line.
    """
    points = [point.overrides for point in sweep.points]
    if any(set(point) != set(points[0]) for point in points):
        return {}
    values = {}
    for field in points[0]:  # by their text, since True and 1 are equal
        given = [_plain(point[field]) for point in points]
        values[field] = list({repr(value): value for value in given}.values())
    if math.prod(map(len, values.values())) != len(points):
        return {}
    return {f"config.{field}": {"values": many} for field, many in values.items()}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else text(value)
