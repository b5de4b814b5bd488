"""A record: one number of a run, as a line of metrics.jsonl.

    {"step": 500, "seed": 0, "labels": {"encoding": "rope", "split": "test", "length": 256},
     "metric": "bits_per_byte", "value": 2.31}

`labels` holds what the number is of, names and whole numbers. Every record has the label `split`;
those of the table by length also have `encoding` and `length`, those of a curve by position
`position`, the first position of a bin.
"""

import json
import math
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

SPLITS = ("train", "valid", "test")
FIELDS = ("step", "seed", "labels", "metric", "value")
# Metrics of wall-clock time: all others are the same in every run of one config.
TIMES = frozenset({"evaluation_seconds", "steps_per_second", "seconds"})
Record = dict[str, Any]

_METRIC = re.compile(r"[a-z][a-z0-9_]*")
_LEAST = {"length": 1}  # of a label that is a whole number; 0 for all others


def parse(text: str, path: Path) -> list[Record]:
    """The records in the text of a metrics.jsonl; an incomplete last line is left out.

    Lines that an earlier version wrote are converted; see `from_flat`.

    Raises:
      ValueError: a damaged line, by its number.
    """
    *lines, _incomplete = text.split("\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            record = from_flat(record) if "encoding" in record else record
            value = math.nan if record["value"] is None else record["value"]
            records.append(check({**record, "value": value}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    return records


def check(record: Mapping) -> Record:
    """The record with plain Python values in the order of FIELDS; `value` may be NaN.

    Raises:
      ValueError: a field or label that is missing, unknown or of the wrong type, by its name.
    """
    for field in FIELDS:
        if field not in record:
            raise ValueError(f"record.{field}: missing; a record has {', '.join(FIELDS)}")
    for field in record:
        if field not in FIELDS:
            raise ValueError(f"record.{field}: unknown field; choices: {', '.join(FIELDS)}")
    metric = record["metric"]
    if not isinstance(metric, str) or not _METRIC.fullmatch(metric):
        raise ValueError(f"record.metric: {metric!r} is not a name of a-z, 0-9 and _")
    return {
        "step": _whole("record.step", record["step"]),
        "seed": _whole("record.seed", record["seed"]),
        "labels": _labels(record["labels"]),
        "metric": metric,
        "value": float(_number("record.value", record["value"], numbers.Real)),
    }


def _labels(labels: Any) -> dict[str, str | int]:
    if not isinstance(labels, Mapping):
        raise ValueError(f"record.labels: {labels!r} is not a dictionary")
    checked: dict[str, str | int] = {}
    for name, label in labels.items():
        field = f"record.labels.{name}"
        if isinstance(label, str):
            if not label:
                raise ValueError(f"{field}: {label!r} is not a name")
            checked[name] = label
        else:
            checked[name] = _whole(field, label, _LEAST.get(name, 0))
    if checked.get("split") not in SPLITS:
        split = checked.get("split")
        raise ValueError(f"record.labels.split: {split!r}; choices: {', '.join(SPLITS)}")
    return checked


def seed_records(
    step: int, seeds: Iterable[int], labels: Mapping, values: Mapping[str, Iterable]
) -> Iterator[Record]:
    """One record for each metric and seed; `values` holds metric -> a value for each seed."""
    seeds = list(seeds)
    for metric, value_S in values.items():
        for seed, value in zip(seeds, value_S, strict=True):
            yield {"step": step, "seed": seed, "labels": dict(labels), "metric": metric,
                   "value": float(value)}  # fmt: skip


def from_flat(line: Mapping) -> Record:
    """The record of a line that an earlier version wrote: its labels were fields of their own
    (encoding, split, length, position), and others were parts of the metric's name, after "/".
    """
    labels = {name: line[name] for name in ("encoding", "split", "length") if name in line}
    metric, more = _old_metric(line["metric"])
    if not _METRIC.fullmatch(metric):  # a claim, whose numbers are named in words
        labels = {"claim": line["encoding"], "number": line["metric"], "split": line["split"]}
        metric, more = "measured", {}
    if "position" in line:
        more = {**more, "position": line["position"]}
    fields = {name: line[name] for name in ("step", "seed", "value")}
    return {**fields, "labels": {**labels, **more}, "metric": metric}


def _old_metric(name: str) -> tuple[str, dict[str, str]]:
    """A metric's old name as its name today and labels."""
    match name.split("/"):
        case ["time", metric]:
            return metric, {}
        case ["order", "right"]:
            return "order_accuracy", {}
        case ["order", "twins"]:
            return "twins", {}
        case ["error" | "carried" as metric, dtype]:
            return metric, {"dtype": dtype}
        case ["content" | "amount" as change, quantity, masks, side]:
            return "leak", {"change": change, "quantity": quantity, "masks": masks, "side": side}
        case ["token" | "pooled" as answer, condition, masks, side]:
            return "accuracy", {
                "answer": answer, "condition": condition, "masks": masks, "side": side
            }  # fmt: skip
        case ["mass", masks, side]:
            return "attention_on_padding", {"masks": masks, "side": side}
        case [*task, metric] if task:
            return metric, {"task": "/".join(task)}
    return name, {}


def plain(field: str, value: Any) -> Any:
    """The value as JSON can hold it: tuples as lists, NaN and infinities as None.

    Raises:
      ValueError: something that is no number, text, list or dictionary, by its field.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(f"{field}.{key}", entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(f"{field}[{i}]", entry) for i, entry in enumerate(value)]
    if value is None or isinstance(value, str | bool):
        return value
    number = _scalar(value)
    if isinstance(number, bool):
        return number
    if isinstance(number, numbers.Integral):
        return int(number)
    if isinstance(number, numbers.Real):
        return float(number) if math.isfinite(number) else None
    raise ValueError(f"{field}: {type(value).__name__} cannot be written as JSON")


def _scalar(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _number(field: str, value: Any, kind: type) -> Any:
    number = _scalar(value)
    if isinstance(number, bool) or not isinstance(number, kind):
        what = "a whole number" if kind is numbers.Integral else "a number"
        raise ValueError(f"{field}: {value!r} is not {what}")
    return number


def _whole(field: str, value: Any, least: int = 0) -> int:
    number = int(_number(field, value, numbers.Integral))
    if number < least:
        raise ValueError(f"{field}: {value} must be {least} or more")
    return number
