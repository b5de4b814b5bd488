"""A record: one number of a run, as a line of metrics.jsonl.

    {"step": 500, "seed": 0, "labels": {"encoding": "rope", "split": "test", "length": 256},
     "metric": "bits_per_byte", "value": 2.31}

`labels` holds what the number is of, names and whole numbers. Every record has the label `split`;
those of the table by length also have `encoding` and `length`, those of a curve by position
`position`, the first position of a bin.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SPLITS = ("train", "valid", "test")
FIELDS = ("step", "seed", "labels", "metric", "value")
# Metrics of wall-clock time and memory: all others are the same in every run of one config.
TIMES = frozenset({
    "evaluation_seconds", "seconds", "steps_per_second", "step_seconds", "tokens_per_second",
    "waiting_for_data", "peak_memory_gib", "mfu",
})  # fmt: skip
Record = dict[str, Any]

_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_FIELDS, _WHOLE = set(FIELDS), "a whole number from 0 on"


def parse(content: bytes, path: Path) -> list[Record]:
    """Returns the records in the content of a metrics.jsonl; an incomplete last line is left out.

    Raises:
      ValueError: a damaged line, by its number.
    """
    *lines, _incomplete = content.split(b"\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line.decode("utf-8"))
            if not isinstance(record, dict):
                raise ValueError(f"it holds a {type(record).__name__}, not a record")
            value = math.nan if record["value"] is None else record["value"]
            records.append(check({**record, "value": value}))
        except KeyError as error:
            raise ValueError(f"{path}: line {number}: record.{error.args[0]}: missing") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    return records


def check(record: Mapping) -> Record:
    """Returns the record with plain Python values in the order of FIELDS; `value` may be NaN.

    Raises:
      ValueError: a field or label that is missing, unknown or of the wrong type, by its name.
    """
    if record.keys() != _FIELDS:
        field = next(f for f in (*FIELDS, *record) if f not in record or f not in FIELDS)
        wrong = "unknown field" if field in record else "missing"
        raise ValueError(f"record.{field}: {wrong}; a record has {', '.join(FIELDS)}")
    step, seed, labels, metric, value = (_scalar(record[field]) for field in FIELDS)
    if not isinstance(labels, Mapping):
        raise ValueError(f"record.labels: {labels!r} is not a dictionary")
    labels = {name: _scalar(label) for name, label in labels.items()}
    split, length = labels.get("split"), labels.get("length", 1)
    _need(_is_whole(step), "step", step, _WHOLE)
    _need(_is_whole(seed), "seed", seed, _WHOLE)
    for name, label in labels.items():
        if not (_is_name(label) or _is_whole(label)):
            _need(False, f"labels.{name}", label, "a name or a whole number from 0 on")
    _need(split in SPLITS, "labels.split", split, f"one of {', '.join(SPLITS)}")
    _need(length != 0, "labels.length", length, "1 or more")
    _need(_is_name(metric) and _METRIC.fullmatch(metric), "metric", metric, "of a-z, 0-9 and _")
    _need(type(value) in (int, float), "value", value, "a number")
    fields = (step, seed, labels, metric, float(value))
    return dict(zip(FIELDS, fields, strict=True))


def _need(fits: Any, field: str, value: Any, wanted: str) -> None:
    if not fits:
        raise ValueError(f"record.{field}: {value!r} is not {wanted}")


def to_line(record: Record) -> str:
    """Returns a checked record as a line of metrics.jsonl, without its end; NaN becomes null."""
    value = record["value"] if math.isfinite(record["value"]) else None
    return json.dumps({**record, "value": value}, ensure_ascii=False)


def _is_whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _scalar(value: Any) -> Any:
    """Returns a scalar of NumPy or JAX as Python's number, all else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def seed_records(
    step: int, seeds: Iterable[int], labels: Mapping, values: Mapping[str, Iterable]
) -> Iterator[Record]:
    """Yields a record for each metric and seed; `values` holds metric -> a value for each seed."""
    seeds = list(seeds)
    for metric, value_S in values.items():
        for seed, value in zip(seeds, value_S, strict=True):
            yield {"step": step, "seed": seed, "labels": dict(labels), "metric": metric,
                   "value": float(value)}  # fmt: skip


def plain(field: str, value: Any) -> Any:
    """Returns the value as JSON can hold it: tuples as lists, NaN and infinities as None.

    Raises:
      ValueError: something that is no number, text, list or dictionary, by its field.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(f"{field}.{key}", entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(f"{field}[{i}]", entry) for i, entry in enumerate(value)]
    value = _scalar(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise ValueError(f"{field}: {type(value).__name__} cannot be written as JSON")
