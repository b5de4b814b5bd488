"""The report and the page in docs/: what follows from the summary, its tables and figures."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

from experiments.invariance import both_pages
from experiments.invariance.permutation import figures, released_page
from experiments.invariance.permutation.config import CAUSAL, LSTM
from experiments.invariance.permutation.summary import STATES
from posenc_jax.lab.report import Grid, Picture, Section, formats
from posenc_jax.lab.report.formats import share, small
from posenc_jax.lab.report.statistics import paired
from posenc_jax.lab.report.summaries import lead
from posenc_jax.lab.runs import StoredRun

EQUIVARIANT = 3e-4  # trained outputs reach 20: rounding in float32 adds up to 1e-4
# Validation perplexity of masked language models: Haviv et al. 2022, arXiv 2203.16634.
HAVIV = {"nope": 147.18, "learned": 4.06, "sinusoidal": 4.07, "alibi": 4.00}
_error = partial(small, missing="out of range")


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    if both_pages.is_released(run):
        return lead(run, both_pages.name_of(run)), released_page.sections(run)
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
        Section("Every method", [accuracy, _rows(order)]),
        Section("How far each is from equivariant", [errors, *_by_length(order)]),
    ]
    if summary["text"]:
        picture = Picture(
            "masked_text",
            partial(figures.text, summary),
            "Bits for each hidden byte, lower is better: every seed a small dot, mean and 95% t "
            "interval. The dashed lines are scores without a model.",
        )
        shown.append(Section("Hidden bytes of real text", [picture, *_text(summary)]))
    shown.append(Section("What follows", findings(order)))
    return lead(run, f"{len(order)} rows", formats.counted(seeds, "seed")), shown


def findings(order: Mapping) -> list[str]:
    """Sentences made from the numbers."""
    encoders = [name for name in order if name not in (CAUSAL, LSTM)]
    half = [n for n in order if all(v == 0.5 for v in order[n]["pairs"].seeds)]
    solved = [n for n in encoders if all(v == 1.0 for v in order[n]["pairs"].seeds)]
    partly = [n for n in encoders if n not in (*half, *solved)]
    lines = [
        f"Exactly one half of the pairs in every seed: {listed(half)}.{_twins(order, half)}",
        f"Every pair right in every seed: {len(solved)} of {len(encoders)} encoders"
        + (f"; neither: {listed(partly)}." if partly else "."),
    ]
    for name in (CAUSAL, LSTM):
        if name in order:
            right = order[name]["pairs"].mean, order[name]["triples"].mean
            lines.append(f"{name}: {right[0]:.3f} of pairs and {right[1]:.3f} of triples right.")
    exact = [n for n in order if worst(order[n], "error") < EQUIVARIANT]
    lines.append(
        f"Equivariant, errors below {EQUIVARIANT:g} in float32 at every length: {listed(exact)}."
    )
    other = [n for n in encoders if n not in exact]
    broken = [n for n in other if not worst(order[n], "carried") < EQUIVARIANT]
    lines.append(
        f"Control, positions carried along with their tokens: {len(other) - len(broken)} of the "
        f"other {len(other)} encoders are equivariant again."
        + (f" Not so, since they read more than positions: {listed(broken)}." if broken else "")
    )
    return lines


def _twins(order: Mapping, half: Sequence[str]) -> str:
    """A sentence on the outputs of methods for (a, b) and (b, a); "" if there are no methods."""
    if not half:
        return ""
    most = _most_twins(order, half)
    said = f"differ by at most {_error(most)}" if most else "are the same"
    return f" Their outputs for (a, b) and (b, a) {said}, trained or not."


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
        together = f"all {len(others)} comparisons together " * (len(others) > 1)
        parts.append(
            f"Without positions a hidden byte costs {formats.span(min(means), max(means), 2)} bits "
            f"more than with them. {_clear(worse)} (paired by seed, {together}at 95%)."
        )
    caption = (
        "Bits for each hidden byte, mean ± half of a 95% t interval over seeds; unigram: "
        "frequencies of bytes alone. Beside it the perplexity that Haviv et al. 2022 (arXiv "
        "2203.16634) report for masked language models of another size on other text."
    )
    columns = ("encoding", "bits per hidden byte", "Haviv 2022, perplexity")
    return [*parts, Grid(columns, rows, caption)]


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/, see `both_pages.document`."""
    return both_pages.document(runs, conclusions, sections, _seeds, released_page)


def not_shown(runs: Sequence[StoredRun]) -> list[str]:
    """Sentences on what the runs cannot show, see `both_pages.not_shown`."""
    return both_pages.not_shown(runs, _limits)


def _limits(config: Mapping) -> list[str]:
    order, tested = config["order"], config["equivariance"]
    return [
        f"Whether a method learns order in longer lines: these have pairs and triples of "
        f"{order['symbols']} symbols, for {order['steps']} steps.",
        f"Every permutation: {tested['permutations']} random ones were drawn at each of "
        f"{', '.join(map(str, tested['lengths']))} tokens.",
    ]


def conclusions(summary: Mapping) -> list[str]:
    """Three sentences made from the numbers: on order, on equivariance, on hidden bytes."""
    order, text = summary["order"], summary["text"]
    encoders = [name for name in order if name not in (CAUSAL, LSTM)]
    every = lambda value: [n for n in order if all(v == value for v in order[n]["pairs"].seeds)]
    half, solved = every(0.5), [n for n in every(1.0) if n in encoders]
    without = [f"{name} {order[name]['pairs'].mean:.3f}" for name in (CAUSAL, LSTM)
               if name in order]  # fmt: skip
    exact = [n for n in encoders if worst(order[n], "error") < EQUIVARIANT]
    carried = [n for n in encoders if n not in exact and worst(order[n], "carried") < EQUIVARIANT]
    lines = [
        f"{len(solved)} of {len(encoders)} methods in an encoder put all pairs of tokens in order, "
        f"in every seed; exactly one half, in every seed: {listed(half)}; without an encoding, "
        f"share of pairs in order: {listed(without)}.",
        f"A permutation of the tokens permutes the outputs, up to {EQUIVARIANT:g}, with "
        f"{listed(exact)}; when each position moves along with its token, this also holds for "
        f"{len(carried)} of the other {len(encoders) - len(exact)} methods.",
    ]
    if text:
        bits = [f"{cell.mean:.2f} with {name}" for name, cell in text.items()]
        bits += [f"{value:.2f} for {name}" for name, value in summary["text_baselines"].items()]
        lines.append(f"Bits for each hidden byte of real text: {', '.join(bits)}.")
    return lines


def _clear(names: Sequence[str]) -> str:
    return f"The difference is clear for {listed(names)}" if names else "No difference is clear"


def _seeds(summary: Mapping) -> Section:
    """The values of every seed, folded."""
    row = lambda cell: " ".join(f"{value:.3f}" for value in cell.seeds)
    order = [(name, *(row(cells[task]) for task in ("pairs", "triples")))
             for name, cells in summary["order"].items()]  # fmt: skip
    parts = [Grid(("method", "pairs", "triples"), order, "Share put in order, every seed.")]
    if summary["text"]:
        text = [(name, row(cell)) for name, cell in summary["text"].items()]
        parts.append(Grid(("encoding", "bits per hidden byte"), text, "Every seed."))
    return Section("Every seed", parts, folded=True)
