"""The figures of the experiment, drawn from its summary."""

import math
from collections.abc import Mapping

from matplotlib.figure import Figure

from experiments.invariance.permutation.config import CAUSAL, LSTM
from posenc_jax.lab.report import drawing, margin
from posenc_jax.lab.report.drawing import name_rows, seed_dots, title_with_legend
from posenc_jax.lab.report.formats import small
from posenc_jax.lab.report.summaries import largest

FLOOR = drawing.ROUNDING["float64"]  # smaller errors, and 0, are drawn here


def order(rows: Mapping) -> Figure:
    """Every seed's share of pairs and of triples in order, a line for each method."""
    names = list(rows)
    half = math.ceil(len(names) / 2) if len(names) > 12 else len(names)
    columns = [names[:half], names[half:]] if half < len(names) else [names]
    figure = Figure(figsize=(8, 1.6 + 0.2 * half))
    panels = figure.subplots(1, len(columns), squeeze=False)[0]
    for axes, shown in zip(panels, columns, strict=True):
        for at, color, task in ((1 / 2, 0, "pairs"), (1 / 6, 1, "triples")):
            axes.axvline(at, color=drawing.COLORS[color], linewidth=1, linestyle=":", zorder=1,
                         label=f"{task}, chance")  # fmt: skip
        for y, name in enumerate(shown):
            for task, color, shift in (("pairs", 0, -0.15), ("triples", 1, 0.15)):
                seeds = rows[name][task].seeds
                seed_dots(axes, y + shift, seeds, color, ms=4, alpha=0.7, label=task)
        axes.set_yticks(range(len(shown)), shown, fontsize="small")
        axes.set_ylim(half - 0.4, -0.6)
        axes.set_xlim(0.05, 1.05)
        axes.set_xlabel("share in the right order")
    solved = sum(min(row["pairs"].seeds) == 1 for row in rows.values())
    title = f"{solved} of {len(rows)} models put every pair of tokens in order, in every seed"
    title_with_legend(figure, title, columns=4)
    return figure


def errors(rows: Mapping) -> Figure:
    """The equivariance error by length on logarithmic axes."""
    figure = Figure(figsize=(8, 4.6))
    axes = figure.subplots()
    labels: dict[str, list[margin.Label]] = {}

    def curve(by_state, number, text, **style):
        by_length, color = by_state["trained"], drawing.COLORS[number]
        finite = [(int(n), v) for n, v in by_length.items() if v is not None and math.isfinite(v)]
        if finite:
            x, y = zip(*((n, max(v, FLOOR)) for n, v in finite), strict=True)
            axes.plot(x, y, color=color, **style)
            labels.setdefault(text, []).append(margin.Label(text, x[-1], y[-1], color))

    for name, row in rows.items():
        if name not in ("nope", CAUSAL, LSTM):
            curve(row["error"]["float32"], 1, "an encoding", linewidth=0.8, alpha=0.5)
            carried = row["carried"]["float32"]
            curve(carried, 2, "positions carried along", linewidth=0.8, alpha=0.5)
    for name, number in ((CAUSAL, 3), (LSTM, 4)):
        if name in rows:
            curve(rows[name]["error"]["float32"], number, name, marker="o")
    for dtype, by_state in rows.get("nope", {}).get("error", {}).items():
        line = "-" if dtype == "float32" else "--"
        curve(by_state, 0, f"nope, {dtype}", marker="s", linestyle=line, zorder=5)
    axes.set_xscale("log", base=2)
    note = drawing.error_axis(axes)
    lengths = [int(n) for n in next(iter(rows.values()))["error"]["float32"]["trained"]]
    axes.set_xticks(lengths, [str(n) for n in lengths])
    axes.set_xlabel("length (tokens, log scale)")
    axes.set_ylabel("largest |f(Px) - P f(x)|")
    # One label for each group of curves, at the middle one.
    middle = lambda group: sorted(group, key=lambda label: label.y)[len(group) // 2]
    margin.margin_labels(axes, [middle(group) for group in labels.values()])
    below = f"after training · the largest over random permutations · {note}"
    title = "Equivariance error by length"
    if "nope" in rows:
        errors = [by["trained"].values() for by in rows["nope"]["error"].values()]
        largest_error = largest(value for values in errors for value in values)
        title = (
            f"Without positions a permutation changes no output by more than {small(largest_error)}"
        )
    drawing.set_title(axes, title, below)
    return figure


def text(summary: Mapping) -> Figure:
    """Bits for each hidden byte: every seed, mean and interval of each encoding."""
    cells, baselines = summary["text"], summary["text_baselines"]
    figure = Figure(figsize=(8, 1.5 + 0.36 * len(cells)))
    axes = figure.subplots()
    for y, cell in enumerate(cells.values()):
        seed_dots(axes, y, cell.seeds, 0, marker=".", ms=5, alpha=0.6, color=drawing.MUTED)
        if cell.low is not None:
            axes.plot([cell.low, cell.high], [y, y], "-", color=drawing.COLORS[0])
        axes.plot([cell.mean], [y], "o", color=drawing.COLORS[0])
    for name, value in baselines.items():
        axes.axvline(value, color=drawing.MUTED, linewidth=1, linestyle="--")
        axes.annotate(f" {name}", (value, 0), (0, 2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", color=drawing.MUTED,
                      fontsize="small")  # fmt: skip
    name_rows(axes, list(cells))
    axes.set_xlabel("bits for each hidden byte")
    mean = lambda name: cells[name].mean
    worst, best = max(cells, key=mean), min(cells, key=mean)
    title = f"A hidden byte takes {mean(worst):.2f} bits with {worst}, {mean(best):.2f} with {best}"
    below = "lower is better · dots: seeds · bar: 95% t interval · dashed: without a model"
    drawing.set_title(axes, title, below)
    return figure
