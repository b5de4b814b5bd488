"""The summary of the experiment, what follows from it, its tables and figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from experiments.permutation import figures
from experiments.permutation.config import CAUSAL, LSTM
from posenc_jax.lab.report import Grid, Picture, Section, formats, summaries
from posenc_jax.lab.report.formats import share, small
from posenc_jax.lab.report.statistics import estimate, paired
from posenc_jax.lab.report.summaries import collect, largest, lead, nested
from posenc_jax.lab.runs import Record, StoredRun
from posenc_jax.lab.summary import Summary

STATES = ("untrained", "trained")
EQUIVARIANT = 3e-4  # trained outputs reach 20: rounding in float32 adds up to 1e-4
# Validation perplexity of masked language models: Haviv et al. 2022, arXiv 2203.16634.
HAVIV = {"nope": 147.18, "learned": 4.06, "sinusoidal": 4.07, "alibi": 4.00}
_error = partial(small, missing="out of range")


def summarise(records: Iterable[Record], baselines: Mapping[str, float]) -> Summary:
    """The summary of a run: every mean with its seeds, and the largest error of any seed."""
    records = list(records)
    shares = {key: estimate(v) for key, v in collect(records, _accuracy_key).items()}
    errors = {key: largest(v) for key, v in collect(records, _error_key).items()}
    text = summaries.final_values(records, "bits_per_byte")
    own = {
        "order": nested(shares | errors),
        "text": {name: estimate(list(by_seed.values())) for (name, _), by_seed in text.items()},
        "text_baselines": dict(baselines),
    }
    return Summary(own=own)


def _accuracy_key(record: Record) -> tuple | None:
    if record["metric"] != "order_accuracy":
        return None
    labels = record["labels"]
    return labels["encoding"], {2: "pairs", 3: "triples"}[labels["length"]]


def _error_key(record: Record) -> tuple | None:
    labels, metric, state = record["labels"], record["metric"], STATES[record["step"] > 0]
    if metric == "twins":
        return labels["encoding"], metric, state
    if metric in ("error", "carried"):
        return labels["encoding"], metric, labels["dtype"], state, str(labels["length"])
    return None


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    summary, order = run.summary.own, run.summary.own["order"]
    seeds = len(next(iter(order.values()))["pairs"].seeds)
    accuracy = Picture(
        "order",
        partial(figures.order, order),
        "Share of examples put in the right order, every seed a dot. The lines are one half and "
        "one sixth: what a model gets that cannot tell the orders of the same symbols apart.",
    )
    errors = Picture(
        "equivariance",
        partial(figures.errors, order),
        "Largest |f(Px) - P f(x)| after training, by length. Thin lines are the methods of the "
        "catalogue in an encoder; 0 stands on the lowest line.",
    )
    shown = [
        Section("What follows", findings(order)),
        Section("Every method", [_rows(order), accuracy]),
        Section("How far each is from equivariant", [errors, *_by_length(order)]),
    ]
    if summary["text"]:
        picture = Picture(
            "masked_text",
            partial(figures.text, summary),
            "Bits for each hidden byte, lower is better: every seed a small dot, mean and 95% t "
            "interval. The dashed lines are scores without a model.",
        )
        shown.append(Section("Hidden bytes of real text", [*_text(summary), picture]))
    return lead(run, f"{len(order)} rows", f"{seeds} seeds"), shown


def findings(order: Mapping) -> list[str]:
    """Sentences made from the numbers."""
    encoders = [name for name in order if name not in (CAUSAL, LSTM)]
    half = [n for n in order if all(v == 0.5 for v in order[n]["pairs"].seeds)]
    solved = [n for n in encoders if all(v == 1.0 for v in order[n]["pairs"].seeds)]
    partly = [n for n in encoders if n not in (*half, *solved)]
    lines = [
        f"Exactly one half of the pairs in every seed: {listed(half)}. Their outputs for (a, b) "
        f"and (b, a) differ by at most {_error(_most_twins(order, half))}, trained or not.",
        f"Every pair right in every seed: {len(solved)} of {len(encoders)} encoders"
        + (f"; neither: {listed(partly)}." if partly else "."),
    ]
    for name in (CAUSAL, LSTM):
        if name in order:
            right = order[name]["pairs"].mean, order[name]["triples"].mean
            lines.append(f"{name}: {right[0]:.3f} of pairs and {right[1]:.3f} of triples right.")
    kept = [n for n in order if worst(order[n], "error") < EQUIVARIANT]
    lines.append(
        f"Equivariant, errors below {EQUIVARIANT:g} in float32 at every length: {listed(kept)}."
    )
    other = [n for n in encoders if n not in kept]
    broken = [n for n in other if not worst(order[n], "carried") < EQUIVARIANT]
    lines.append(
        f"Control, positions carried along with their tokens: {len(other) - len(broken)} of the "
        f"other {len(other)} encoders are equivariant again."
        + (f" Not so, since they read more than positions: {listed(broken)}." if broken else "")
    )
    return lines


def listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _most_twins(order: Mapping, names: Sequence[str]) -> float:
    return max((v for n in names for v in order[n]["twins"].values()), default=math.nan)


def worst(row: Mapping, kind: str, states: Sequence[str] = STATES) -> float:
    """The largest error in float32 at any length within the method's range."""
    values = [value for state in states for value in row[kind]["float32"][state].values()]
    return max((v for v in values if v is not None and math.isfinite(v)), default=math.nan)


def _rows(order: Mapping) -> Grid:
    columns = ("method", "pairs", "triples", "twins", "untrained", "trained", "carried")
    rows = []
    for name, row in order.items():
        errors = [row["twins"]["trained"], *(worst(row, "error", [state]) for state in STATES)]
        errors.append(worst(row, "carried", ["trained"]))
        rows.append((name, share(row["pairs"]), share(row["triples"]), *map(_error, errors)))
    caption = (
        "pairs, triples: share put in order, mean (95% Wilson interval over seeds). twins: "
        "largest |f(a, b) - f(b, a)| after training. untrained, trained: largest |f(Px) - P f(x)| "
        "at any length in range, float32. carried: the same after training, with each position "
        "carried along with its token."
    )
    return Grid(columns, rows, caption)


def _by_length(order: Mapping) -> list[Grid]:
    """The errors at each length, of the rows measured in float64 too."""
    both = {name: row["error"] for name, row in order.items() if "float64" in row["error"]}
    if not both:
        return []
    lengths = list(next(iter(both.values()))["float32"]["trained"])
    rows = [
        (f"{name}, {dtype}, {state}", *map(_error, by_length.values()))
        for name, errors in both.items()
        for dtype, states in errors.items()
        for state, by_length in states.items()
    ]
    return [Grid(("length", *lengths), rows, "Largest |f(Px) - P f(x)|.")]


def _text(summary: Mapping) -> list[str | Grid]:
    text, rows = summary["text"], []
    for name, cell in text.items():
        published = f"{HAVIV[name]:.2f}" if name in HAVIV else ""
        rows.append((name, formats.plus_minus(cell), published))
    for name, value in summary["text_baselines"].items():
        rows.append((name, f"{value:.3f}", ""))
    others = [name for name in text if name != "nope"]
    parts: list[str | Grid] = []
    if "nope" in text and others and len(text["nope"].seeds) > 1:
        gaps = {n: paired(text["nope"].seeds, text[n].seeds, len(others)) for n in others}
        worse = [n for n, gap in gaps.items() if gap.sign > 0]
        means = [gap.mean for gap in gaps.values()]
        parts.append(
            f"Without positions a hidden byte costs {min(means):.2f} to {max(means):.2f} bits more "
            f"than with them. The difference is clear for: {listed(worse)} (paired by seed, all "
            f"{len(others)} comparisons together at 95%)."
        )
    caption = (
        "Bits for each hidden byte, mean ± half of a 95% t interval over seeds; unigram: "
        "frequencies of bytes alone. Beside it the perplexity that Haviv et al. 2022 (arXiv "
        "2203.16634) report for masked language models of another size on other text."
    )
    columns = ("encoding", "bits per hidden byte", "Haviv 2022, perplexity")
    return [*parts, Grid(columns, rows, caption)]
