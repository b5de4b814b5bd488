"""A record: one number of a run, as a line of metrics.jsonl."""

import json
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SPLITS = ("train", "valid", "test")
FIELDS = ("step", "seed", "encoding", "split", "length", "metric", "value")
Record = dict[str, Any]


def parse(text: str, path: Path) -> list[Record]:
    """The records in the text of a metrics.jsonl; a last line that a kill cut short is left out.

    Raises:
      ValueError: a damaged line, by its number.
    """
    *lines, _torn = text.split("\n")
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            records.append(check({**record, "value": _back(record["value"])}))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: line {number}: {error}") from None
    return records


def check(record: Mapping) -> Record:
    """The record with plain Python values in the order of FIELDS; `value` may be NaN.

    Raises:
      ValueError: a field missing, unknown or of the wrong type, by its name.
    """
    allowed = (*FIELDS, "position")
    for field in FIELDS:
        if field not in record:
            raise ValueError(f"record.{field}: missing; a record has {', '.join(FIELDS)}")
    for field in record:
        if field not in allowed:
            raise ValueError(f"record.{field}: unknown field; choices: {', '.join(allowed)}")
    checked: Record = {}
    for field in [field for field in allowed if field in record]:
        value = record[field]
        if field in ("encoding", "split", "metric"):
            if not isinstance(value, str) or not value:
                raise ValueError(f"record.{field}: {value!r} is not a name")
            checked[field] = value
        elif field == "value":
            checked[field] = float(_number(field, value, numbers.Real))
        else:
            checked[field] = int(_number(field, value, numbers.Integral))
            if checked[field] < (least := int(field == "length")):
                raise ValueError(f"record.{field}: {value} must be {least} or more")
    if checked["split"] not in SPLITS:
        raise ValueError(f"record.split: {checked['split']!r}; choices: {', '.join(SPLITS)}")
    return checked


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
        raise ValueError(f"record.{field}: {value!r} is not {what}")
    return number


def _back(value: float | None) -> float:
    return math.nan if value is None else value
