"""Writes a sweep as a file for `wandb sweep`, whose points `wandb agent` runs."""

import math
from pathlib import Path
from typing import Any

import yaml

from posenc_jax.lab.config.searches import KEPT, Range, Search
from posenc_jax.lab.config.sweeps import Sweep, text


def files(sweep: Sweep, project: str, folder: Path) -> dict[Path, str]:
    """Returns FOLDER/wandb.yaml and its text. An agent runs each point in its own process.

    If the points are all combinations of their fields' values, the file has a grid over the fields;
    otherwise a grid over the points' names, which scripts/sweep.py looks up. W&B draws the trials
    of a search, and ends those that fall behind.
    """
    fields = _drawn(sweep) if sweep.search else _grid(sweep)
    shared = [f"--config={sweep.config}", "--config.wandb.mode=online"]
    content = {
        "name": sweep.name,
        "project": project,
        **(_method(sweep.search) if sweep.search else {"method": "grid"}),
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
        plain_values = [_plain(point[field]) for point in points]
        values[field] = list({repr(value): value for value in plain_values}.values())
    if math.prod(map(len, values.values())) != len(points):
        return {}
    return {f"config.{field}": {"values": many} for field, many in values.items()}


def _method(search: Search) -> dict[str, Any]:
    """Returns how W&B draws the trials, how many, what they are compared by, and when."""
    settings: dict[str, Any] = {
        "method": search.method,
        "metric": {"name": search.objective, "goal": search.goal},
        "run_cap": search.trials,
    }
    if search.compare_at:
        settings["early_terminate"] = {
            "type": "hyperband", "min_iter": search.compare_at, "eta": KEPT
        }  # fmt: skip
    return settings


def _drawn(sweep: Sweep) -> dict[str, dict[str, Any]]:
    """Returns W&B parameters of a search: those that all trials share, and those drawn."""
    (shared,), search = sweep.points, sweep.search
    parameters = {field: {"value": _plain(value)} for field, value in shared.overrides.items()}
    for field, values in (search.fields if search else {}).items():
        if isinstance(values, Range):
            even = "int_uniform" if values.whole else "uniform"
            kind = "log_uniform_values" if values.log else even
            parameters[field] = {"distribution": kind, "min": values.low, "max": values.high}
        else:
            parameters[field] = {"values": [*map(_plain, values)]}
    return {f"config.{field}": parameter for field, parameter in parameters.items()}


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else text(value)
