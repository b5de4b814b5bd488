"""Makes summaries from the records of a run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from posenc_jax.lab import metrics
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.report.formats import interval_of
from posenc_jax.lab.report.statistics import (
    Interval,
    estimate,
    paired,
)
from posenc_jax.lab.runs import Record, StoredRun
from posenc_jax.lab.summary import Estimate, LengthSummary, NotMeasured

SAME = 1e-3  # means that differ by less are not told apart
# The same of shares that all seeds have: their interval has no width, though 2 of 128 examples may
# be all that differs.
SAME_SHARE = 0.02
ALIKE = 1e-4  # between results of methods that are equal by construction: rounding


def summarise(
    records: Iterable[Record],
    *,
    metric: str,
    train_length: int,
    baselines: Mapping[str, float] | None = None,
    floors: Mapping[int, float] | None = None,
    not_measured: Sequence[Mapping[str, Any] | NotMeasured] = (),
) -> LengthSummary:
    """Returns the summary of a run, which summary.json holds and the report reads.

    Args:
      records: as in metrics.jsonl; it uses those of `metric` on the test split at each encoding's
        last step, without curves by position.
      metric: the main metric.
      train_length: the longest length in training.
      baselines: name -> value of the metric, the same at every length.
      floors: length -> the best value that needs no positions.
      not_measured: {"encoding", "length", "reason"} of results that could not be measured.

    Raises:
      ValueError: no record of the metric.
      Unmeasured: no record of the metric, for the reasons in `not_measured`.
    """
    results = nested(
        {
            (encoding, length): estimate(list(by_seed.values()), interval_of(metric))
            for (encoding, length), by_seed in final_values(records, metric).items()
        }
    )
    lost = [
        entry if isinstance(entry, NotMeasured) else NotMeasured(**entry) for entry in not_measured
    ]
    if not results and lost:
        first = min(lost, key=lambda entry: entry.length)
        raise Unmeasured(
            f"nothing was measured: {first.encoding} at {first.length}: {first.reason}"
        )
    if not results:
        raise ValueError(f"metric: no record of {metric!r} on the test split")
    return LengthSummary(
        metric=metric,
        train_length=train_length,
        results=results,
        baselines=dict(baselines or {}),
        floors=dict(floors or {}),
        not_measured=lost,
    )


def final_values(records: Iterable[Record], metric: str) -> dict[tuple[str, int], dict[int, float]]:
    """Returns (encoding, length) -> seed -> value on the test split at each encoding's last step.

    Encodings are in the order of the records, lengths and seeds ascending.
    """
    wanted = (r for r in records if r["metric"] == metric and "position" not in r["labels"])
    return {
        (encoding, length): by_seed
        for encoding, of_encoding in by_label(last_step(wanted), "encoding").items()
        for length, by_seed in curve(of_encoding, "length").items()
    }


def by_label(records: Iterable[Record], label: str) -> dict[Any, list[Record]]:
    """Returns the records by the value of a label, in the order of the records."""
    grouped: dict[Any, list[Record]] = {}
    for record in records:
        grouped.setdefault(record["labels"][label], []).append(record)
    return grouped


def curve(records: Iterable[Record], axis: str) -> dict[int, dict[int, float]]:
    """Returns x -> seed -> value, both ascending; `axis` is "step" or the label that holds x."""
    by_x: dict[int, dict[int, float]] = {}
    x = lambda record: record["step"] if axis == "step" else record["labels"][axis]
    for record in sorted(records, key=lambda record: (x(record), record["seed"])):
        by_x.setdefault(x(record), {})[record["seed"]] = record["value"]
    return by_x


def thin(curve: Mapping[int, Any], most: int) -> list[int]:
    """Returns about `most` of a curve's x, with the first and the last one."""
    every = math.ceil(len(curve) / most) or 1
    return [x for i, x in enumerate(curve) if i % every == 0 or i == len(curve) - 1]


def last_step(records: Iterable[Record]) -> list[Record]:
    """Returns the test records at each encoding's last step."""
    tested = [record for record in records if record["labels"]["split"] == "test"]
    last = {
        encoding: max(record["step"] for record in own)
        for encoding, own in by_label(tested, "encoding").items()
    }
    return [record for record in tested if record["step"] == last[record["labels"]["encoding"]]]


def training_loss(records: Iterable[Record]) -> list[Record]:
    """Returns the records of the training loss."""
    return [r for r in records if r["labels"]["split"] == "train" and r["metric"] == "loss"]


def by_position(records: Iterable[Record], metric: str) -> dict[int, list[Record]]:
    """Returns length, ascending -> records of a metric by position at each encoding's last step."""
    wanted = [r for r in records if r["metric"] == metric and "position" in r["labels"]]
    return dict(sorted(by_label(last_step(wanted), "length").items()))


class Differences(NamedTuple):
    """Differences from the first encoding: encoding -> length -> interval.

    comparisons: for how many the intervals hold together; see `differences`.
    """

    first: str
    intervals: dict[str, dict[int, Interval]]
    comparisons: int


def differences(records: Iterable[Record], metric: str) -> Differences:
    """Returns the difference of each encoding from the first, paired by seed.

    Methods that are equal by construction are one comparison, and a difference of 0 in every seed
    is none: it cannot be significant.
    """
    cells = final_values(records, metric)
    first = next((encoding for encoding, _ in cells), "")
    pairs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    distinct: list[tuple[int, list[float]]] = []
    for (encoding, length), by_seed in cells.items():
        base = cells.get((first, length), {}) if encoding != first else {}
        if shared := [(value, base[seed]) for seed, value in by_seed.items() if seed in base]:
            pairs[encoding, length] = shared
            gaps = [value - other for value, other in shared]
            earlier = [[0.0] * len(gaps), *(own for n, own in distinct if n == length)]
            if not any(_alike(gaps, own) for own in earlier):
                distinct.append((length, gaps))
    intervals = {
        where: paired(*zip(*shared, strict=True), comparisons=max(len(distinct), 1))
        for where, shared in pairs.items()
    }
    return Differences(first, nested(intervals), len(distinct))


def equal(summary: LengthSummary) -> list[list[str]]:
    """Returns the measured encodings in groups; those of a group have the same results, in every
    seed at every length, up to ALIKE.
    """
    groups: list[list[str]] = []
    for name, cells in summary.results.items():
        for group in groups:
            if _same(cells, summary.results[group[0]]):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _same(cells: Mapping[int, Estimate], other: Mapping[int, Estimate]) -> bool:
    return list(cells) == list(other) and all(
        _alike(cells[length].seeds, other[length].seeds) for length in cells
    )


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Returns whether two series have the same numbers, up to ALIKE; NaN and None equal nothing."""
    close = lambda x, y: None not in (x, y) and abs(x - y) < ALIKE
    return len(a) == len(b) and all(map(close, a, b))


def collect(
    records: Iterable[Record], key: Callable[[Record], tuple | None]
) -> dict[tuple, list[float]]:
    """Returns the values of the records by their key, in their order, without those of key None."""
    grouped: dict[tuple, list[float]] = {}
    for record in records:
        if (where := key(record)) is not None:
            grouped.setdefault(where, []).append(record["value"])
    return grouped


def nested(by_key: Mapping[tuple, Any]) -> dict[str, Any]:
    """Returns nested dictionaries: the key (a, b, c) becomes [a][b][c]."""
    tree: dict[str, Any] = {}
    for (*path, last), value in by_key.items():
        here = tree
        for name in path:
            here = here.setdefault(name, {})
        here[last] = value
    return tree


def largest(values: Iterable[float | None]) -> float:
    """Returns the largest value; NaN if one is None or not finite."""
    numbers = [math.nan if value is None else value for value in values]
    return max(numbers) if all(map(math.isfinite, numbers)) else math.nan


def lengths(summary: LengthSummary) -> list[int]:
    """Returns the lengths that were measured or should have been, ascending."""
    measured = {length for cells in summary.results.values() for length in cells}
    return sorted(measured | {entry.length for entry in summary.not_measured})


def encodings(summary: LengthSummary) -> list[str]:
    """Returns the encodings that were measured or should have been, in the order of the run."""
    unmeasured = [entry.encoding for entry in summary.not_measured]
    return list(dict.fromkeys([*summary.results, *unmeasured]))


def leaders(summary: LengthSummary, length: int) -> list[str]:
    """Returns the encoding with the best mean at a length, then those not told apart from it: their
    intervals over seeds meet its own, or their means differ by less than SAME, or than SAME_SHARE
    if all seeds of one are alike. A mean that is not finite is left out.
    """
    cells = {name: row[length] for name, row in summary.results.items() if length in row}
    means = {name: cell.mean for name, cell in cells.items()}
    means = {name: m for name, m in means.items() if math.isfinite(m)}
    if not means:
        return []

    def ends(name: str) -> tuple[float, float]:
        mean, low, high, _ = interval_of(summary.metric)(cells[name].seeds)
        return (mean, mean) if low is None or high is None else (low, high)

    choose = min if summary.better == "lower" else max
    first = choose(means, key=means.__getitem__)
    low, high = ends(first)

    def is_near(name: str) -> bool:
        alike = any(len({*cells[n].seeds}) == 1 for n in (name, first))
        share = metrics.metric(summary.metric).is_share
        same = SAME_SHARE if alike and share else SAME
        meet = ends(name)[0] <= high and ends(name)[1] >= low
        return meet or abs(means[name] - means[first]) < same

    return [first, *(name for name in means if name != first and is_near(name))]


def seed_count(summary: LengthSummary) -> int:
    """Returns the largest number of seeds of a cell."""
    cells = [cell for by_length in summary.results.values() for cell in by_length.values()]
    return max((len(cell.seeds) for cell in cells), default=0)


def lead(run: StoredRun, *facts: str) -> str:
    """Returns the line under the title of a page: the facts, whether the weights are those of a
    training that had not ended, and the day when the run started.
    """
    day = str(run.environment.get("started", ""))[:10]
    return " · ".join(filter(None, [*facts, _unfinished(run), day]))


def _unfinished(run: StoredRun) -> str:
    """Returns "weights after 260 of 800 steps" for an evaluation of such weights, else ""."""
    done = run.config.get("train", {}).get("steps")
    for row in run.summary.facts.get("start", {}).values():
        if row["what"] == "state" and row["step"] == done < row.get("steps", done):
            return f"weights after {done:,} of {row['steps']:,} steps"
    return ""


def only(runs: Sequence[StoredRun]) -> StoredRun:
    """Returns the run of a page that is about one run. ValueError: there are several."""
    if len(runs) > 1:
        raise ValueError(f"workdir: {len(runs)} runs are given; the page is about one run")
    return runs[0]
