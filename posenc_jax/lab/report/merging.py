"""Merges many runs for the comparison page: a line for each encoding and config, with its seeds.

Runs whose configs differ only in their seeds are pooled. Everything is computed here; the page only
draws it.
"""

import base64
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import summaries
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.runs import TIMES, Record, StoredRun

IGNORED = ("wandb", "seeds", "first_seed")  # parts of a config that do not tell lines apart
POINTS, DIGITS = 200, 6  # of a training curve; of a number on the page


class Line(NamedTuple):
    """One encoding under one config, with the seeds of all runs that have both.

    folder: of the first of these runs, where attention maps are.
    """

    label: str
    encoding: str
    trained: int
    metric: str
    folder: Path
    records: list[Record]


def merge(runs: Sequence[StoredRun], names: Sequence[str]) -> dict[str, Any]:
    """Returns the data of the page, as JSON can hold it.

    Args:
      runs: finished runs; a run without a table by length is only listed.
      names: a different name for each run.
    """
    configs = [dotted(run.config) for run in runs]
    fields = differing(configs)
    found = lines(runs, names, configs, fields)
    metrics = list(dict.fromkeys(name for line in found for name in _metrics(line)))
    return {
        "metrics": [
            {
                "name": name,
                "label": summaries.axis_label(name),
                "better": _better(name, runs),
            }
            for name in metrics
        ],
        "baselines": _baselines(runs),
        "lines": [
            {
                "label": line.label,
                "encoding": line.encoding,
                "trained": line.trained,
                "cells": {name: _cells(line, name) for name in metrics},
                "training": _training(line),
                "positions": _positions(line),
                "attention": _attention(line),
            }
            for line in found
        ],
        "fields": [_short(field, fields) for field in fields],
        "runs": [
            {"name": name, "values": [_shown(config.get(field, "")) for field in fields]}
            for name, config in zip(names, configs, strict=True)
        ],
    }


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the dotted fields that differ between the configs, in order of appearance."""
    fields = dict.fromkeys(field for config in configs for field in config)
    return [
        field
        for field in fields
        if field.split(".")[0] not in IGNORED
        and len({repr(config.get(field)) for config in configs}) > 1
    ]


def lines(
    runs: Sequence[StoredRun],
    names: Sequence[str],
    configs: Sequence[Mapping[str, Any]],
    fields: Sequence[str],
) -> list[Line]:
    """Returns the lines of all runs with a table by length; runs with the same label are pooled.

    If two runs have the same label and seed, their names are added to the labels instead.
    """
    others = [field for field in fields if field != "encoding.name"]
    parts: list[tuple[str, str, StoredRun, list[Record]]] = []
    for run, name, config in zip(runs, names, configs, strict=True):
        if "train_length" not in run.summary:
            continue
        by_encoding: dict[str, list[Record]] = {}
        for record in run.records:
            by_encoding.setdefault(record["labels"]["encoding"], []).append(record)
        values = [f"{_short(field, fields)} {_shown(config.get(field))}" for field in others
                  if field in config]  # fmt: skip
        for encoding, records in by_encoding.items():
            parts.append((" · ".join([encoding, *values]), name, run, records))
    taken: dict[tuple[str, int], set[str]] = {}
    for label, name, _, records in parts:
        for seed in {record["seed"] for record in records}:
            taken.setdefault((label, seed), set()).add(name)
    doubled = {label for (label, _), by in taken.items() if len(by) > 1}
    found: dict[str, Line] = {}
    for label, name, run, records in parts:
        label = f"{label} ({name})" if label in doubled else label
        trained, metric = run.summary["train_length"], run.summary["metric"]
        encoding = records[0]["labels"]["encoding"]
        fresh = Line(label, encoding, trained, metric, run.path, [])
        found.setdefault(label, fresh).records.extend(records)
    return [line for line in found.values() if _metrics(line) or _training(line)]


def _baselines(runs: Sequence[StoredRun]) -> dict[str, dict[str, float]]:
    """Returns metric -> name -> value of the baselines that are equal in all runs of the metric."""
    found: dict[str, list[dict[str, float]]] = {}
    for run in runs:
        if "train_length" in run.summary:
            found.setdefault(run.summary["metric"], []).append(run.summary["baselines"])
    return {
        metric: {name: value for name, value in first.items()
                 if all(other.get(name) == value for other in rest)}
        for metric, (first, *rest) in found.items()
    }  # fmt: skip


def _metrics(line: Line) -> list[str]:
    """Returns the metrics by length, the run's main one first."""
    tested = [r for r in line.records if r["labels"]["split"] == "test"]
    names = dict.fromkeys(r["metric"] for r in tested if "position" not in r["labels"])
    return sorted(names.keys() - TIMES, key=[line.metric, *names].index)


def _cells(line: Line, metric: str) -> list:
    """Returns [length, mean, low, high, seeds] at each length."""
    return [
        [length, *_spread(by_seed.values()), [_round(value) for value in by_seed.values()]]
        for (_, length), by_seed in summaries.final_values(line.records, metric).items()
    ]


def _training(line: Line) -> list:
    """Returns [step, mean, low, high, seeds] of the training loss, at about POINTS steps."""
    curve = _curve(summaries.training_loss(line.records), lambda record: record["step"])
    every = math.ceil(len(curve) / POINTS) or 1
    return [row for i, row in enumerate(curve) if i % every == 0 or i == len(curve) - 1]


def _positions(line: Line) -> dict[str, list]:
    """Returns length -> [position, mean, low, high, seeds] of the run's main metric."""
    wanted = summaries.by_position(line.records, line.metric)
    return {str(n): _curve(own, lambda r: r["labels"]["position"]) for n, own in wanted.items()}


def _attention(line: Line) -> dict[str, Any] | None:
    """Returns the attention weights [N, H, T, T] as bytes: 255 times their square roots."""
    path = line.folder / "attention" / f"{line.encoding}.npy"
    if not path.is_file():
        return None
    weights_NHTT = np.load(path, allow_pickle=False).astype(np.float32)
    scaled = np.round(255 * np.sqrt(np.clip(weights_NHTT, 0, 1))).astype(np.uint8)
    return {"shape": scaled.shape[:3], "bytes": base64.b64encode(scaled.tobytes()).decode()}


def _curve(records: Iterable[Record], axis: Callable[[Record], int]) -> list:
    """Returns [x, mean, low, high, seeds] at each x = axis(record)."""
    found: dict[int, dict[int, float]] = {}
    for record in records:
        found.setdefault(axis(record), {})[record["seed"]] = record["value"]
    return [
        [at, *_spread(found[at].values()), [_round(found[at][seed]) for seed in sorted(found[at])]]
        for at in sorted(found)
    ]


def _spread(values: Iterable[float]) -> list[float | None]:
    mean, low, high, _ = interval(list(values))
    return [_round(mean), _round(low), _round(high)]


def _round(value: float | None) -> float | None:
    """Rounds to DIGITS digits; None if the value is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{DIGITS}g}")


def _better(metric: str, runs: Sequence[StoredRun]) -> str:
    for run in runs:
        if run.summary.get("metric") == metric:
            return run.summary["metric_better"]
    return "lower" if metric in ("loss", "bits_per_byte") else "higher"


def _short(field: str, fields: Sequence[str]) -> str:
    """Returns the last part of a dotted field if no other field has it; "task" for "task.name"."""
    field = field.removesuffix(".name")
    last = field.split(".")[-1]
    ends = [other.removesuffix(".name").split(".")[-1] for other in fields]
    return last if ends.count(last) == 1 else field


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
