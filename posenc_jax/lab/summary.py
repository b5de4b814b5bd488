"""The summary of a finished run: what summary.json holds, as dataclasses that readers and writers
share.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pydantic

from posenc_jax.lab import metrics

# JSON has no NaN: null in a file.
Number = Annotated[float, pydantic.BeforeValidator(lambda x: math.nan if x is None else x)]


@dataclass(frozen=True)
class Estimate:
    """The mean of a metric over seeds, its 95% interval, and the value of each seed.

    A value that is not finite is null in a file, and read as NaN. `low` and `high` are None where
    there is no interval.
    """

    mean: Number
    low: float | None
    high: float | None
    seeds: list[Number]


@dataclass(frozen=True)
class NotMeasured:
    """An encoding and a length without a result, and the reason."""

    encoding: str
    length: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The entries that the summary of every run has.

    own:        entries of this experiment alone, by name; an `Estimate` may stand anywhere in them.
    incomplete: why the run could not measure all, in one line; "": it measured all.
    facts:      of the data and programs of the run, as `Run.fact` took them.
    starts:     how often the run was started: 1, and once more for each time it was resumed.
    """

    own: dict[str, Any] = field(default_factory=dict)
    incomplete: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    starts: int = 1

    def content(self) -> dict[str, Any]:
        """The content of summary.json, as a dictionary."""
        incomplete = {"incomplete": self.incomplete} if self.incomplete else {}
        ends = {"facts": self.facts, "starts": self.starts}
        return self._table() | _without_estimates(self.own) | incomplete | ends

    def _table(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, kw_only=True)
class LengthSummary(Summary):
    """The results of a run that evaluates encodings at several lengths.

    metric:       the main metric.
    train_length: the longest length in training.
    results:      encoding -> length -> the metric.
    baselines:    name -> value of the metric without a model, the same at every length.
    floors:       length -> the best value that needs no positions.
    content_floors: name -> length -> the best value of rules that look tokens up by content.
    """

    metric: str
    train_length: int
    results: dict[str, dict[int, Estimate]]
    baselines: dict[str, Number] = field(default_factory=dict)
    floors: dict[int, Number] = field(default_factory=dict)
    content_floors: dict[str, dict[int, Number]] = field(default_factory=dict)
    not_measured: list[NotMeasured] = field(default_factory=list)

    @property
    def better(self) -> Literal["lower", "higher"] | None:
        """Which values of the metric are better."""
        return metrics.metric(self.metric).better

    def _table(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "metric_better": self.better,
            "train_length": self.train_length,
            "baselines": self.baselines,
            "floors": self.floors,
            "results": _without_estimates(self.results),
            "not_measured": [dataclasses.asdict(entry) for entry in self.not_measured],
        }


_BY_LENGTH = ("metric", "train_length", "results")  # a file that has these is a LengthSummary
_ESTIMATE = {entry.name for entry in dataclasses.fields(Estimate)}
_READERS = {kind: pydantic.TypeAdapter(kind) for kind in (Summary, LengthSummary)}
_read_estimate = pydantic.TypeAdapter(Estimate).validate_python


def parse(content: Mapping[str, Any]) -> Summary:
    """The summary that a summary.json holds: a `LengthSummary` if it has results by length.

    ValueError: an entry that is missing or of a wrong type, by its name.
    """
    kind = LengthSummary if all(name in content for name in _BY_LENGTH) else Summary
    fields = {entry.name for entry in dataclasses.fields(kind)} - {"own"}
    shared = {name: value for name, value in content.items() if name in fields}
    derived = "metric_better" if kind is LengthSummary else None
    extra = {n: v for n, v in content.items() if n not in fields and n != derived}
    try:
        summary = _READERS[kind].validate_python(shared)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        path, message = ".".join(map(str, first["loc"])), first["msg"]
        raise ValueError(f"summary.{path}: {message[0].lower()}{message[1:]}") from None
    return dataclasses.replace(summary, own=_with_estimates(extra))


def _without_estimates(value: Any) -> Any:
    """The value with each `Estimate` as a dictionary."""
    if isinstance(value, Estimate):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: _without_estimates(entry) for key, entry in value.items()}
    return value


def _with_estimates(value: Any) -> Any:
    """The value with each dictionary that has the fields of an `Estimate` as one."""
    if not isinstance(value, Mapping):
        return value
    if value.keys() == _ESTIMATE:
        return _read_estimate(value)
    return {key: _with_estimates(entry) for key, entry in value.items()}
