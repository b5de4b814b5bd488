"""The predictions beside what was measured of each row."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from experiments.compare.text import predictions
from experiments.compare.text.predictions import PREDICTIONS, WORDS, Number, Prediction
from experiments.compare.text.probes import INFLUENCE, SINKS, VALUES
from experiments.compare.text.rows import Rows
from posenc_jax.lab.report import Grid
from posenc_jax.lab.report.summaries import by_label, collect, curve
from posenc_jax.lab.runs import Record

MARKS = {"as claimed": "", "refuted": "*", "not decided": "?"}
NUMBERS: dict[Number, tuple[str, str, dict[str, str]]] = {  # probe, metric, labels
    "sinks in text": (SINKS, "sinks", {"tokens": "text"}),
    "sinks in random tokens": (SINKS, "sinks", {"tokens": "random"}),
    "massive in q and k": (VALUES, "massive_qk", {}),
    "massive in v": (VALUES, "massive_v", {}),
    "slow pairs' share": (VALUES, "massive_slow", {}),
}
NONE = "nope"
By = dict[str, dict[int, float]]  # row -> seed -> a number


class Outcome(NamedTuple):
    """A prediction and its number of each row, the mean over seeds; NaN if there is none."""

    prediction: Prediction
    by_row: dict[str, float]

    def word(self, row: str) -> str:
        """What the number of a row says; "" if there is no prediction on it, or no number."""
        number = self.by_row.get(row, math.nan)
        if not predictions.is_of(self.prediction.kind, method(row)) or not math.isfinite(number):
            return ""
        return predictions.outcome(self.prediction, number)


def method(row: str) -> str:
    """The method of a row, which states options after it."""
    return row.partition(", ")[0]


def outcomes(rows: Rows) -> Iterator[Outcome]:
    """The outcome of every prediction."""
    for prediction in PREDICTIONS:
        by_row = numbers(rows, prediction.number, prediction.trained)
        means = {row: float(np.mean([*by_seed.values()])) for row, by_seed in by_row.items()}
        yield Outcome(prediction, means)


def numbers(rows: Rows, number: Number, trained: bool) -> By:
    """A number of each row and seed, before or after training."""
    if number in NUMBERS:
        probe, metric, labels = NUMBERS[number]
        return {
            row: by_seed
            for row, by_seed in _by_row(rows, probe, metric, trained, labels).items()
            if all(map(math.isfinite, by_seed.values()))
        }
    curves = influence(rows, trained)
    if number == "ends over middle":
        return {
            row: {seed: predictions.ends_over_middle(x_P) for seed, x_P in by_seed.items()}
            for row, by_seed in curves.items()
        }
    without = curves.get(NONE, {})
    return {
        row: {
            seed: predictions.largest_factor(by_seed[seed], without[seed])
            for seed in by_seed
            if seed in without
        }
        for row, by_seed in curves.items()
        if by_seed.keys() & without.keys() and row != NONE
    }


def influence(rows: Rows, trained: bool) -> dict[str, dict[int, list[float]]]:
    """row -> seed -> the influence of each range of positions."""
    wanted = [r for r in rows.records[INFLUENCE] if _key(r, "influence", trained, {})]
    curves: dict[str, dict[int, list[float]]] = {}
    for row, records in by_label(wanted, "encoding").items():
        for by_seed in curve(records, "position").values():
            for seed, value in by_seed.items():
                curves.setdefault(row, {}).setdefault(seed, []).append(value)
    return curves


def _by_row(rows: Rows, probe: str, metric: str, trained: bool, labels: Mapping[str, str]) -> By:
    where = lambda r: _key(r, metric, trained, labels)
    by_row: By = {}
    for (row, seed), (value,) in collect(rows.records[probe], where).items():
        by_row.setdefault(row, {})[seed] = value
    return by_row


def _key(
    record: Record, metric: str, trained: bool, labels: Mapping[str, str]
) -> tuple[str, int] | None:
    """The row and the seed of a record with these labels; None of another record."""
    wanted = record["metric"] == metric and (record["step"] > 0) == trained
    if not wanted or not labels.items() <= record["labels"].items():
        return None
    return record["labels"]["encoding"], record["seed"]


def table(outcomes: list[Outcome]) -> Grid:
    """The predictions beside the number of each row."""
    names = list(dict.fromkeys(row for outcome in outcomes for row in outcome.by_row))
    lines = []
    for outcome in outcomes:
        prediction = outcome.prediction
        bounds = prediction.holds, prediction.refuted
        signs = "><" if prediction.holds > prediction.refuted else "<>"
        shown = [f"{sign} {bound:g}" for sign, bound in zip(signs, bounds, strict=True)]
        cells = [_cell(outcome, row) for row in names]
        lines.append([_named(prediction), _of_kind(prediction), *shown, *cells])
    meanings = " ".join(f"{name}: {words}." for name, words in WORDS.items())
    caption = (
        "A number with * refutes the claim, with ? it is between the two bounds and decides "
        "nothing, and without a mark it is as claimed; — where there is no prediction, or no "
        f"number. Means over seeds. {meanings} The predictions "
        f"were fixed before the runs (SHA-256 {predictions.fingerprint()[:12]})."
    )
    return Grid(["number", "methods", "claimed", "refuted if", *names], lines, caption)


def _of_kind(prediction: Prediction) -> str:
    return {"all": "all", "rotary": "that rotate", "others": "that do not"}[prediction.kind]


def _cell(outcome: Outcome, row: str) -> str:
    word = outcome.word(row)
    return f"{outcome.by_row[row]:.2f}{MARKS[word]}" if word else "—"


def sentences(outcomes: list[Outcome]) -> list[str]:
    """A sentence for each outcome: the predictions that have it, and the rows."""
    said: dict[str, list[str]] = {word: [] for word in MARKS}
    for outcome in outcomes:
        words = {row: outcome.word(row) for row in outcome.by_row if outcome.word(row)}
        for word in said:
            if rows := [row for row, its in words.items() if its == word]:
                every = "all" if len(rows) == len(words) > 1 else ", ".join(rows)
                said[word].append(f"{_named(outcome.prediction)} ({every})")
    return [f"{word.capitalize()}: {'; '.join(parts)}." for word, parts in said.items() if parts]


def _named(prediction: Prediction) -> str:
    return f"{prediction.number}, {'after' if prediction.trained else 'before'} training"
