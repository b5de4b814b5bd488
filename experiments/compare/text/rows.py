"""The records of several runs as rows of a page: an encoding with the options that its run states.

A row may have its seeds from several runs. Two conditions are made of others: the gain by more
context, and by what was read before.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.compare.text.context_tests import ABSENT, RECALL, SAME_END, TESTS
from experiments.compare.text.probes import PROBES
from posenc_jax import encodings
from posenc_jax.lab import runs
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import formats, summaries
from posenc_jax.lab.report.comparison import differing
from posenc_jax.lab.runs import Record, StoredRun
from posenc_jax.lab.summary import LengthSummary, NotMeasured

WINDOWS = "windows"
GAINS = CONTEXT_GAIN, RECALL_GAIN = "context_gain", "recall_gain"  # also their metrics
MADE_OF = {CONTEXT_GAIN: (SAME_END,), RECALL_GAIN: (RECALL, ABSENT)}
REFERENCE = "rope"
MAY_DIFFER = ("encoding", "first_seed", "seeds", "checkpoint", "imports", "start")
Values = Mapping[tuple[str, int], Mapping[int, float]]  # (row, length) -> seed -> value


class Rows(NamedTuple):
    """What several runs measured, by condition: WINDOWS, a test of context, one of GAINS, a probe.

    records: condition -> records, whose label `encoding` is the row; those of training are with
      WINDOWS.
    not_measured: condition -> what could not be measured of each row.
    runs: of which the first one has the config of all, but for encodings and seeds.
    """

    records: dict[str, list[Record]]
    not_measured: dict[str, list[NotMeasured]]
    runs: Sequence[StoredRun]

    @property
    def windows(self) -> LengthSummary:
        """Bits per byte of windows by length."""
        first = self.runs[0].by_length
        return replace(self.summary(WINDOWS, first.metric), baselines=first.baselines)

    @property
    def as_run(self) -> StoredRun:
        """The rows as one run with the records of windows, for figures of a run."""
        return self.runs[0]._replace(records=self.records[WINDOWS], summary=self.windows)

    def measured(self, condition: str) -> bool:
        """Whether a row has a result under a condition."""
        return bool(self.records[condition])

    def summary(self, condition: str, metric: str) -> LengthSummary:
        """A metric by length of the rows under a condition. ValueError: nothing was measured."""
        first = self.runs[0].by_length
        summary = summaries.summarise(
            self.records[condition],
            metric=metric,
            train_length=first.train_length,
            not_measured=self.not_measured[condition],
        )
        return replace(summary, facts=first.facts)


def of_runs(stored: Sequence[StoredRun]) -> Rows:
    """The rows of runs, `REFERENCE` first.

    ValueError: runs differ in more than encodings and seeds, or two have the same row and seed.
    """
    for field in differing([dotted(run.config) for run in stored]):
        if not any(f"{field}.".startswith(f"{free}.") for free in MAY_DIFFER):
            raise ValueError(f"workdir: the runs differ in config.{field}")
    ordered = sorted(stored, key=lambda run: REFERENCE not in _names(run).values())
    later = lambda record: record["labels"]["encoding"] != REFERENCE
    conditions = (WINDOWS, *TESTS, *PROBES, *GAINS)
    records: dict[str, list[Record]] = {condition: [] for condition in conditions}
    not_measured: dict[str, list[NotMeasured]] = {condition: [] for condition in conditions}
    owners: dict[tuple[str, int], StoredRun] = {}
    for run in ordered:
        names = _names(run)
        for record in run.records:
            name, condition = _split(record["labels"]["encoding"])
            row = names[name]
            other = owners.setdefault((row, record["seed"]), run)
            if other is not run:
                seed = f"{row} with seed {record['seed']}"
                raise ValueError(f"workdir: {seed} is in {other.path} and {run.path}")
            labels = {**record["labels"], "encoding": row}
            records[condition].append({**record, "labels": labels})
        for entry in run.by_length.not_measured:
            name, condition = _split(entry.encoding)
            not_measured[condition].append(replace(entry, encoding=names[name]))
    records = {condition: sorted(listed, key=later) for condition, listed in records.items()}
    for gain, values in ((CONTEXT_GAIN, _context_gain), (RECALL_GAIN, _recall_gain)):
        steps = ordered[0].config["train"]["steps"]
        records[gain] = [*_derived(gain, values(records), steps)]
        not_measured[gain] = [entry for test in MADE_OF[gain] for entry in not_measured[test]]
    return Rows(records, not_measured, ordered)


def _context_gain(records: Mapping[str, list[Record]]) -> Values:
    """Bits per byte of the same last tokens with the shortest context, minus those with more."""
    values = summaries.final_values(records[SAME_END], "bits_per_byte")
    shortest = min((n for _, n in values), default=0)
    return {
        (row, n): {s: values[row, shortest][s] - v for s, v in by_seed.items()}
        for (row, n), by_seed in values.items()
        if (row, shortest) in values
    }


def _recall_gain(records: Mapping[str, list[Record]]) -> Values:
    """Bits of a token of a span that was not read before, minus those of one that was.

    They are bits of a token and not of a byte, because the two spans are of different tokens.
    """
    absent = summaries.final_values(records[ABSENT], "loss")
    return {
        (row, n): {s: (absent[row, n][s] - v) / math.log(2) for s, v in by_seed.items()}
        for (row, n), by_seed in summaries.final_values(records[RECALL], "loss").items()
        if (row, n) in absent
    }


def _derived(metric: str, values: Values, steps: int) -> Iterator[Record]:
    for (row, length), by_seed in values.items():
        labels = {"encoding": row, "split": "test", "length": length}
        yield from runs.seed_records(steps, by_seed, labels, {metric: by_seed.values()})


def _names(run: StoredRun) -> dict[str, str]:
    """Encoding -> the name of its row: "rope, base 100000"."""
    options = dict(run.config["encoding"])
    names = options.pop("name").split(",")
    return {name: formats.with_options(name, encodings.taken_by(name, options)) for name in names}


def _split(label: str) -> tuple[str, str]:
    """The encoding and the condition of a label of records, see `run.condition_label`."""
    name, _, condition = label.rpartition(", ")
    return (name, condition) if condition in (*TESTS, *PROBES) else (label, WINDOWS)
