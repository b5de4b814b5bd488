"""Computes the summary of a run from its records, and formats its numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.report.statistics import Interval, interval, paired
from posenc_jax.lab.runs import Record

NOT_MEASURED = "not measured"
NOT_FINITE = "not finite"

# Metric -> its name in a sentence, and its unit.
METRICS = {
    "bits_per_byte": ("bits per byte", "bits per byte"),
    "accuracy": ("accuracy", "share of images"),
    "exact_match": ("exact match", "share of sequences"),
    "token_accuracy": ("token accuracy", "share of answer tokens"),
    "loss": ("loss", "nats per token"),
}


def summarise(
    records: Iterable[Record],
    *,
    metric: str,
    better: Literal["lower", "higher"],
    train_length: int,
    baselines: Mapping[str, float] | None = None,
    not_measured: Sequence[Mapping] = (),
) -> dict:
    """Returns the summary of a run, which summary.json holds and the report reads.

    Args:
      records: as in metrics.jsonl; it uses those of `metric` on the test split at each encoding's
        last step, without curves by position.
      metric: the main metric.
      better: which values of it are better.
      train_length: the longest length in training.
      baselines: name -> value of the metric, the same at every length.
      not_measured: {"encoding", "length", "reason"} of results that could not be measured.

    Raises:
      ValueError: no record of the metric, or an unknown `better`.
      Unmeasured: no record of the metric, for the reasons in `not_measured`.
    """
    if better not in ("lower", "higher"):
        raise ValueError(f"better: {better!r}; choices: lower, higher")
    results: dict[str, dict] = {}
    for (encoding, length), by_seed in final_values(records, metric).items():
        values = list(by_seed.values())
        mean, low, high, _ = interval(values)
        cell = {"mean": mean, "low": low, "high": high, "seeds": values}
        results.setdefault(encoding, {})[str(length)] = cell
    if not results and not_measured:
        first = min(not_measured, key=lambda entry: entry["length"])
        raise Unmeasured("nothing was measured: {encoding} at {length}: {reason}".format(**first))
    if not results:
        raise ValueError(f"metric: no record of {metric!r} on the test split")
    return {
        "metric": metric,
        "metric_better": better,
        "train_length": train_length,
        "baselines": dict(baselines or {}),
        "results": results,
        "not_measured": [dict(entry) for entry in not_measured],
    }


def final_values(records: Iterable[Record], metric: str) -> dict[tuple[str, int], dict[int, float]]:
    """Returns (encoding, length) -> seed -> value on the test split at each encoding's last step.

    Encodings are in the order of the records, lengths and seeds ascending.
    """
    tested = last_step(
        r for r in records if r["metric"] == metric and "position" not in r["labels"]
    )
    found: dict[tuple[str, int], dict[int, float]] = {}
    for record in sorted(tested, key=lambda record: record["seed"]):
        labels = record["labels"]
        cell = found.setdefault((labels["encoding"], labels["length"]), {})
        cell[record["seed"]] = record["value"]
    encodings = list(dict.fromkeys(record["labels"]["encoding"] for record in tested))
    return dict(sorted(found.items(), key=lambda item: (encodings.index(item[0][0]), item[0][1])))


def last_step(records: Iterable[Record]) -> list[Record]:
    """Returns the test records at each encoding's last step."""
    tested = [record for record in records if record["labels"]["split"] == "test"]
    last: dict[str, int] = {}
    for record in tested:
        encoding = record["labels"]["encoding"]
        last[encoding] = max(record["step"], last.get(encoding, 0))
    return [record for record in tested if record["step"] == last[record["labels"]["encoding"]]]


def training_loss(records: Iterable[Record]) -> list[Record]:
    """Returns the records of the training loss."""
    return [r for r in records if r["labels"]["split"] == "train" and r["metric"] == "loss"]


def by_position(records: Iterable[Record], metric: str) -> dict[int, list[Record]]:
    """Returns length, ascending -> records of a metric by position at each encoding's last step."""
    wanted = [r for r in records if r["metric"] == metric and "position" in r["labels"]]
    found: dict[int, list[Record]] = {}
    for record in sorted(last_step(wanted), key=lambda record: record["labels"]["length"]):
        found.setdefault(record["labels"]["length"], []).append(record)
    return found


def differences(records: Iterable[Record], metric: str) -> dict[str, dict[int, Interval]]:
    """Returns encoding -> length -> its difference from the first encoding, paired by seed, with
    intervals at 95% for all comparisons together.
    """
    cells = final_values(records, metric)
    first = next((encoding for encoding, _ in cells), "")
    pairs = {}
    for (encoding, length), by_seed in cells.items():
        base = cells.get((first, length), {}) if encoding != first else {}
        shared = [seed for seed in by_seed if seed in base]
        if shared:
            pairs[encoding, length] = [(by_seed[seed], base[seed]) for seed in shared]
    found: dict[str, dict[int, Interval]] = {}
    for (encoding, length), rows in pairs.items():
        ours, theirs = zip(*rows, strict=True)
        found.setdefault(encoding, {})[length] = paired(ours, theirs, len(pairs))
    return found


def missing(summary: Mapping) -> list[tuple[str, int]]:
    """Returns the pairs (encoding, length) without a result."""
    pairs = [(e, n) for e in encodings(summary) for n in lengths(summary)]
    return [(e, n) for e, n in pairs if str(n) not in summary["results"].get(e, {})]


class Cell(NamedTuple):
    """One cell of the table as text; `note` says why a number, or a seed of it, is missing."""

    value: str
    half: str = ""
    note: str = ""
    seeds: tuple[str, ...] = ()
    best: bool = False


def lengths(summary: Mapping) -> list[int]:
    """Returns the lengths that were measured or should have been, ascending."""
    measured = {int(length) for cells in summary["results"].values() for length in cells}
    return sorted(measured | {entry["length"] for entry in summary["not_measured"]})


def encodings(summary: Mapping) -> list[str]:
    """Returns the encodings that were measured or should have been, in the order of the run."""
    unmeasured = [entry["encoding"] for entry in summary["not_measured"]]
    return list(dict.fromkeys([*summary["results"], *unmeasured]))


def seed_count(summary: Mapping) -> int:
    """Returns the largest number of seeds of a cell."""
    cells = [cell for by_length in summary["results"].values() for cell in by_length.values()]
    return max((len(cell["seeds"]) for cell in cells), default=0)


def cells(summary: Mapping) -> dict[str, dict[int, Cell]]:
    """Returns the cells of the table: encoding -> length -> cell."""
    reasons = {(e["encoding"], e["length"]): e["reason"] for e in summary["not_measured"]}
    most, best = seed_count(summary), _best(summary)
    found: dict[str, dict[int, Cell]] = {}
    for encoding in encodings(summary):
        row = found.setdefault(encoding, {})
        for length in lengths(summary):
            result = summary["results"].get(encoding, {}).get(str(length))
            if result is None:
                reason = reasons.get((encoding, length), "")
                row[length] = Cell(NOT_MEASURED, note=reason)
                continue
            seeds = tuple(number(value) for value in result["seeds"])
            row[length] = Cell(
                number(result["mean"]),
                "" if result["low"] is None else f"±{number(result['mean'] - result['low'])}",
                "" if len(seeds) == most else f"{len(seeds)} of {most} seeds",
                seeds,
                best.get(length) == number(result["mean"]),
            )
    return found


def _best(summary: Mapping) -> dict[int, str]:
    """Returns length -> the best mean as printed, where at least two means were measured."""
    choose = min if summary["metric_better"] == "lower" else max
    found = {}
    for length in lengths(summary):
        rows = [by_length.get(str(length)) for by_length in summary["results"].values()]
        means = [row["mean"] for row in rows if row is not None and row["mean"] is not None]
        finite = [mean for mean in means if math.isfinite(mean)]
        if len(means) > 1 and finite:
            found[length] = number(choose(finite))
    return found


def notes(summary: Mapping) -> dict[str, int]:
    """Returns the notes of the cells, numbered in order of appearance."""
    found = [cell.note for row in cells(summary).values() for cell in row.values() if cell.note]
    return {note: i for i, note in enumerate(dict.fromkeys(found), 1)}


def number(value: float | None) -> str:
    """Formats a number with three decimals below 10 and fewer above; says if it is not finite."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    size = abs(value)
    return f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 100 else f"{value:.4g}"


def label(metric: str) -> str:
    """Returns the metric's name in a sentence."""
    return METRICS.get(metric, (metric.replace("_", " "), ""))[0]


def axis_label(metric: str) -> str:
    """Returns the metric's name and unit for an axis."""
    name, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
    return name if unit in ("", name) else f"{name} ({unit})"


def length_ratio(length: int, train_length: int) -> str:
    """Returns the ratio of a length to the trained one: "trained", "16×", "0.5×"."""
    return "trained" if length == train_length else f"{length / train_length:.3g}×"


def reading_note(summary: Mapping) -> str:
    """Returns a sentence that says what a cell of the table is."""
    count = seed_count(summary)
    spread = (
        "one seed, so there is no interval"
        if count == 1
        else f"mean ± half of a 95% t interval over {count} seeds"
    )
    better = f"{summary['metric_better']} is better"
    return f"{label(summary['metric'])} on the test split, {better}: {spread}"
