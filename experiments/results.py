"""Results over seeds: collected from records, summarised, written as text."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.runs import Record, StoredRun


def collect(
    records: Iterable[Record], key: Callable[[Record], tuple | None]
) -> dict[tuple, list[float]]:
    """The values of the records by their key, in the order recorded; without those of key None."""
    found: dict[tuple, list[float]] = {}
    for record in records:
        if (where := key(record)) is not None:
            found.setdefault(where, []).append(record["value"])
    return found


def nested(found: Mapping[tuple, Any]) -> dict[str, Any]:
    """Nested dictionaries: the key (a, b, c) becomes [a][b][c]."""
    tree: dict[str, Any] = {}
    for (*path, last), value in found.items():
        here = tree
        for name in path:
            here = here.setdefault(name, {})
        here[last] = value
    return tree


def mean_cell(values: Sequence[float]) -> dict[str, Any]:
    """The mean of the seeds, its 95% t interval, and every seed, as a summary holds them."""
    mean, low, high, _ = interval(values)
    return {"mean": mean, "low": low, "high": high, "seeds": list(values)}


def largest(values: Iterable[float | None]) -> float:
    """The largest value; NaN if one is missing or not finite."""
    known = [math.nan if value is None else value for value in values]
    return max(known) if all(map(math.isfinite, known)) else math.nan


def plus_minus(cell: Mapping) -> str:
    """A cell as "0.953 ±0.012"; without an interval "0.953"."""
    half = "" if cell["low"] is None else f" ±{cell['mean'] - cell['low']:.3f}"
    return f"{cell['mean']:.3f}{half}"


def share(cell: Mapping) -> str:
    """A cell of shares as "0.953 ±.012"."""
    return plus_minus(cell).replace("±0.", "±.")


def small(value: float | None, missing: str = "not finite") -> str:
    """A positive number that may be tiny, as text: "12.3", "0.66", "5e-07", "0"."""
    if value is None or not math.isfinite(value):
        return missing
    return "0" if value == 0 else f"{value:.3g}" if value >= 0.01 else f"{value:.0e}"


def lead(run: StoredRun, *facts: str) -> str:
    """The line below the title of a report: the facts, and the day when the run started."""
    return " · ".join([*facts, str(run.environment.get("started", ""))[:10]])
