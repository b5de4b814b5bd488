"""What the experiment shows: its summary, what follows from it, and its tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from experiments.permutation import figures
from experiments.permutation.config import CAUSAL, LSTM
from posenc_jax.lab.report import Grid, Picture, Section, summaries
from posenc_jax.lab.report.statistics import interval, paired
from posenc_jax.lab.runs import Record, StoredRun

STATES = ("untrained", "trained")
EQUIVARIANT = 3e-4  # trained outputs reach 20, which float32 rounds to 1e-5 and sums to 1e-4
# Validation perplexity of masked language models: Haviv et al. 2022, arXiv 2203.16634.
HAVIV = {"nope": 147.18, "learned": 4.06, "sinusoidal": 4.07, "alibi": 4.00}


def summarise(records: Iterable[Record], baselines: Mapping[str, float]) -> dict:
    """The summary of a run: every mean with its seeds, and the largest error of any seed."""
    order: dict[str, Any] = {}
    found: dict[tuple, list[float]] = {}
    records = list(records)
    for r in records:
        metric, labels, state = r["metric"], r["labels"], STATES[r["step"] > 0]
        if metric == "order_accuracy":
            key = labels["encoding"], {2: "pairs", 3: "triples"}[labels["length"]]
        elif metric == "twins":
            key = labels["encoding"], "twins", state
        elif metric in ("error", "carried"):
            key = labels["encoding"], metric, labels["dtype"], state, str(labels["length"])
        else:
            continue
        found.setdefault(key, []).append(r["value"])
    for key, values in found.items():
        *path, last = key
        here = order
        for name in path:
            here = here.setdefault(name, {})
        here[last] = _cell(values) if last in ("pairs", "triples") else _largest(values)
    text = summaries.final_values(records, "bits_per_byte")
    return {
        "order": order,
        "text": {name: _cell(list(by_seed.values())) for (name, _), by_seed in text.items()},
        "text_baselines": dict(baselines),
    }


def _cell(values: Sequence[float]) -> dict:
    mean, low, high, _ = interval(values)
    return {"mean": mean, "low": low, "high": high, "seeds": list(values)}


def _largest(values: Sequence[float]) -> float:
    return max(values) if all(map(math.isfinite, values)) else math.nan


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line under the page's title, and what `report.present` shows."""
    summary, order = run.summary, run.summary["order"]
    seeds = len(next(iter(order.values()))["pairs"]["seeds"])
    started = str(run.environment.get("started", ""))[:10]
    shown = [
        Section("What follows", findings(order)),
        Section(
            "Every method",
            [_rows(order), Picture("order", partial(figures.order, order), figures.ORDER)],
        ),
        Section(
            "How far each is from equivariant",
            [
                Picture("equivariance", partial(figures.errors, order), figures.ERRORS),
                *_by_length(order),
            ],
        ),
    ]
    if summary["text"]:
        picture = Picture("masked_text", partial(figures.text, summary), figures.TEXT)
        shown.append(Section("Hidden bytes of real text", [*_text(summary), picture]))
    return f"{len(order)} rows · {seeds} seeds · {started}", shown


def findings(order: Mapping) -> list[str]:
    """What follows from the numbers, in sentences made from them."""
    encoders = [name for name in order if name not in (CAUSAL, LSTM)]
    blind = [n for n in order if all(v == 0.5 for v in order[n]["pairs"]["seeds"])]
    solved = [n for n in encoders if all(v == 1.0 for v in order[n]["pairs"]["seeds"])]
    partly = [n for n in encoders if n not in (*blind, *solved)]
    said = [
        f"Exactly one half of the pairs in every seed: {_listed(blind)}. Their outputs for (a, b) "
        f"and (b, a) differ by at most {small(_most_twins(order, blind))}, trained or not.",
        f"Every pair right in every seed: {len(solved)} of {len(encoders)} encoders"
        + (f"; neither: {_listed(partly)}." if partly else "."),
    ]
    for name in (CAUSAL, LSTM):
        if name in order:
            right = order[name]["pairs"]["mean"], order[name]["triples"]["mean"]
            said.append(f"{name}: {right[0]:.3f} of pairs and {right[1]:.3f} of triples right.")
    still = [n for n in order if _worst(order[n], "error") < EQUIVARIANT]
    said.append(
        f"Equivariant, errors below {EQUIVARIANT:g} in float32 at every length: {_listed(still)}."
    )
    moved = [n for n in encoders if n not in still]
    others = [n for n in moved if not _worst(order[n], "carried") < EQUIVARIANT]
    said.append(
        f"Control, positions carried along with their tokens: {len(moved) - len(others)} of the "
        f"other {len(moved)} encoders are equivariant again."
        + (f" Not so, since they read more than positions: {_listed(others)}." if others else "")
    )
    return said


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _most_twins(order: Mapping, names: Sequence[str]) -> float:
    return max((v for n in names for v in order[n]["twins"].values()), default=math.nan)


def _worst(row: Mapping, kind: str) -> float:
    """The largest error in float32 at any length within the method's range, trained or not."""
    values = [v for by_length in row[kind]["float32"].values() for v in by_length.values()]
    return max((v for v in values if v is not None and math.isfinite(v)), default=math.nan)


def small(value: float | None) -> str:
    """Two digits: 0.66, 5e-07, 0; what is not finite lies past the method's range."""
    if value is None or not math.isfinite(value):
        return "out of range"
    return "0" if value == 0 else f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"


def share(cell: Mapping) -> str:
    half = "" if cell["low"] is None else f" ±{cell['mean'] - cell['low']:.3f}".replace("0.", ".")
    return f"{cell['mean']:.3f}{half}"


def _rows(order: Mapping) -> Grid:
    columns = ("method", "pairs", "triples", "twins", "untrained", "trained", "carried")
    rows = [
        (
            name, share(row["pairs"]), share(row["triples"]), small(row["twins"]["trained"]),
            *(small(_over(row["error"]["float32"][state])) for state in STATES),
            small(_over(row["carried"]["float32"]["trained"])),
        )
        for name, row in order.items()
    ]  # fmt: skip
    return Grid(columns, rows, (
        "pairs, triples: share put in order, mean ± half of a 95% t interval over seeds. twins: "
        "largest |f(a, b) - f(b, a)| after training. untrained, trained: largest |f(Px) - P f(x)| "
        "at any length in range, float32. carried: the same after training, with each position "
        "carried along with its token."
    ))  # fmt: skip


def _over(by_length: Mapping[str, float]) -> float | None:
    known = [v for v in by_length.values() if v is not None and math.isfinite(v)]
    return max(known, default=None)


def _by_length(order: Mapping) -> list[Grid]:
    """The rows that were measured in float64 too, by length."""
    both = {name: row["error"] for name, row in order.items() if "float64" in row["error"]}
    if not both:
        return []
    lengths = list(next(iter(both.values()))["float32"]["trained"])
    rows = [
        (f"{name}, {dtype}, {state}", *map(small, by_length.values()))
        for name, errors in both.items()
        for dtype, states in errors.items()
        for state, by_length in states.items()
    ]
    return [Grid(("length", *lengths), rows, "Largest |f(Px) - P f(x)|.")]


def _text(summary: Mapping) -> list[str | Grid]:
    text, rows = summary["text"], []
    for name, cell in text.items():
        half = "" if cell["low"] is None else f" ±{cell['mean'] - cell['low']:.3f}"
        published = f"{HAVIV[name]:.2f}" if name in HAVIV else ""
        rows.append((name, f"{cell['mean']:.3f}{half}", published))
    for name, value in summary["text_baselines"].items():
        rows.append((name, f"{value:.3f}", ""))
    others = [name for name in text if name != "nope"]
    parts: list[str | Grid] = []
    if "nope" in text and others and len(text["nope"]["seeds"]) > 1:
        gaps = {n: paired(text["nope"]["seeds"], text[n]["seeds"], len(others)) for n in others}
        worse = [n for n, gap in gaps.items() if gap.low is not None and gap.low > 0]
        means = [gap.mean for gap in gaps.values()]
        parts.append(
            f"Without positions a hidden byte costs {min(means):.2f} to {max(means):.2f} bits more "
            f"than with them. The difference is clear for: {_listed(worse)} (paired by seed, all "
            f"{len(others)} comparisons together at 95%)."
        )
    caption = (
        "Bits for each hidden byte, mean ± half of a 95% t interval over seeds; unigram: "
        "frequencies of bytes alone. Beside it the perplexity that Haviv et al. 2022 (arXiv "
        "2203.16634) report for masked language models of another size on other text."
    )
    columns = ("encoding", "bits per hidden byte", "Haviv 2022, perplexity")
    return [*parts, Grid(columns, rows, caption)]
