"""What W&B gets of a run's records: rows of its history, and the means in its summary.

A W&B run of one encoding and seed has the keys

    train/loss, train/tokens_per_second, valid/loss, ...     over the axis "step"
    test/bits_per_byte/2048, ...                             over "step"
    by_length/bits_per_byte                                  over the axis "length"
    by_position/bits_per_byte/2048                           over the axis "position"

and every other run has the same ones, so that runs overlay. Labels of a record that have no place
in these names, such as the offset of a byte in its file, follow at the end.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from posenc_jax.lab.summary import LengthSummary, Summary

# Axis -> the keys over it begin with one of these.
AXES = {"step": ("train", "valid", "test"), "position": ("by_position",), "length": ("by_length",)}
OBJECTIVE = "extrapolation/mean"
Row = dict[str, Any]
Training = tuple[str, int]  # the encoding and the seed


def training(record: Mapping) -> Training | None:
    """Returns the encoding and the seed of a record; None for one of no encoding."""
    encoding = record["labels"].get("encoding")
    return None if encoding is None else (str(encoding), record["seed"])


def by_training(records: Iterable[Mapping]) -> dict[Training, list[Mapping]]:
    """Returns the records of each encoding and seed, in order, without those of no encoding."""
    parts: dict[Training, list[Mapping]] = {}
    for record in records:
        if (name := training(record)) is not None:
            parts.setdefault(name, []).append(record)
    return parts


def rows(records: Iterable[Mapping]) -> Iterator[Row]:
    """Yields the rows of the records of one encoding and seed.

    A row is a stretch of records that stand for one moment: of one step, split, length and
    position. So the same records make the same rows, however many are given at a time. A value that
    is not finite is left out.
    """
    where = lambda r: (r["step"], *map(r["labels"].get, ("split", "length", "position")))
    for (step, split, length, position), stretch in itertools.groupby(records, where):
        group = list(stretch)
        row: Row = {"step": step} if position is None else {"position": position}
        row |= {key(r): r["value"] for r in group if math.isfinite(r["value"])}
        if split == "test" and length is not None and position is None:
            curve = {_named("by_length", r): r["value"] for r in group if math.isfinite(r["value"])}
            row |= {"length": length} | curve
        yield row


def key(record: Mapping) -> str:
    """Returns the key of a record over the axis "step", or "position" if it has a position."""
    labels = record["labels"]
    return _named("by_position" if "position" in labels else labels["split"], record)


def _named(prefix: str, record: Mapping) -> str:
    """Returns a key that begins with `prefix`, which has the length unless that is an axis."""
    labels = dict(record["labels"])
    for name in ("encoding", "split", "position"):
        labels.pop(name, None)
    length = labels.pop("length", None)
    with_length = prefix in ("test", "by_position") and length is not None
    parts = [prefix, record["metric"], *([length] if with_length else ()), *labels.values()]
    return "/".join(map(str, parts))


def shared_rows(records: Sequence[Mapping]) -> Iterator[Row]:
    """Yields rows with means over the seeds of an encoding, under the keys of `rows` on the axis
    "step". An objective of a search is one of them.
    """
    named = [
        record
        for record in records
        if record["labels"].keys() <= {"encoding", "split", "length"}
        and "length" in record["labels"]
    ]
    where = lambda r: (r["step"], *map(r["labels"].get, ("split", "length", "encoding")))
    for (step, *_), stretch in itertools.groupby(named, where):
        by_key: dict[str, list[float]] = {}
        for record in stretch:
            by_key.setdefault(key(record), []).append(record["value"])
        yield {"step": step} | {name: sum(xs) / len(xs) for name, xs in by_key.items()}


def means(summary: Summary) -> dict[str, float]:
    """Returns the means of a finished run over its encodings and seeds, by their keys in W&B, and
    OBJECTIVE, the mean over the lengths beyond the trained one; {} of a run without results by
    length.
    """
    if not isinstance(summary, LengthSummary):
        return {}
    by_length: dict[int, list[float]] = {}
    for cells in summary.results.values():
        for length, cell in cells.items():
            by_length.setdefault(length, []).append(cell.mean)
    mean_by_length = {
        length: sum(cell_means) / len(cell_means)
        for length, cell_means in by_length.items()
        if all(map(math.isfinite, cell_means))
    }
    beyond = [mean for n, mean in mean_by_length.items() if n > summary.train_length]
    by_key = {f"test/{summary.metric}/{n}": mean for n, mean in mean_by_length.items()}
    return by_key | ({OBJECTIVE: sum(beyond) / len(beyond)} if beyond else {})
