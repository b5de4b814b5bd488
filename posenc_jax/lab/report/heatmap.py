"""A heat map of methods in rows, with the value in each cell."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from posenc_jax.lab import metrics
from posenc_jax.lab.report import drawing, formats, summaries
from posenc_jax.lab.summary import LengthSummary

ROW = 0.235  # inches that a row is high
COLORS = "YlGnBu"
GAP = 0.35  # rows between the methods and what stands below them
# Inks on a cell, whose colour is the same on a light and on a dark page.
ON_LIGHT, ON_DARK = "#20262e", "#ffffff"


def two_digits(value: float) -> str:
    """Formats a value with two decimals and no zero before the point: ".98", "1.00", "12.3"."""
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}"
    text = text.replace("-0.00", "0.00")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def colors(better: str | None) -> str:
    """Returns the colour map in which dark is better."""
    return f"{COLORS}_r" if better == "lower" else COLORS


def draw(
    axes: Axes,
    groups: Sequence[Mapping[str, Sequence[float]]],
    columns: Sequence[str],
    *,
    muted: Collection[str] = (),
    trained: int = 0,
    ends: tuple[float, float] = (0.0, 1.0),
    better: str | None = "higher",
    cell: Callable[[str, int], tuple[str, str]] | None = None,
    size: float = 8,
) -> list[float]:
    """Draws a row of cells for each name, from top to bottom; returns the heights of the rows.

    Args:
      axes: what is drawn in.
      groups: each name -> a value for each column, with a gap between groups; NaN where nothing
        was measured, which is a dash.
      columns: labels of the columns.
      muted: names in grey, such as floors.
      trained: how many columns are within the trained length; a line stands after them.
      ends: values of the lightest and the darkest colour if higher is better.
      better: which values are better; the darker ones.
      cell: the text of a cell and its weight from the row's name and the column's number.
      size: of the text in the cells, in points.
    """
    norm, cmap = Normalize(*ends, clip=True), matplotlib.colormaps[colors(better)]
    rows = {name: values for group in groups for name, values in group.items()}
    gaps = [GAP * i for i, group in enumerate(groups) for _ in group]
    tops = [float(y + gap) for y, gap in enumerate(gaps)]
    edges = np.arange(len(columns) + 1) - 0.5
    for y, (name, values) in zip(tops, rows.items(), strict=True):
        value_1N = np.ma.masked_invalid([values])
        # A mesh is drawn as shapes; a browser would smooth an image.
        axes.pcolormesh(edges, (y - 0.5, y + 0.5), value_1N, cmap=cmap, norm=norm,
                        edgecolor="#ffffff", linewidth=0.4)  # fmt: skip
        for x, value in enumerate(values):
            if math.isfinite(value):
                red, green, blue, _ = cmap(norm(value))
                is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
                ink = ON_LIGHT if is_light else ON_DARK
                text, weight = cell(name, x) if cell else (two_digits(value), "normal")
            else:
                text, weight, ink = "–", "normal", drawing.MUTED
            axes.annotate(text, (x, y), ha="center", va="center", fontsize=size, color=ink,
                          weight=weight)  # fmt: skip
    axes.set_yticks(tops, [*rows], fontsize="small")
    for label, name in zip(axes.get_yticklabels(), rows, strict=False):
        label.set_color(drawing.MUTED if name in muted else drawing.INK)
    axes.set_ylim(tops[-1] + 0.5, -0.5)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_xticks(range(len(columns)), columns)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    if 0 < trained < len(columns):
        axes.axvline(trained - 0.5, color=drawing.INK, linewidth=1.8)
    return tops


def height(rows: int) -> float:
    """Returns the inches of a figure with so many rows, a title and an axis."""
    return 1.5 + ROW * rows


def by_length(summary: LengthSummary, title: str, how: str) -> Figure:
    """Draws the metric of each method by test length, best first, and below it what needs none.

    Args:
      summary: of a run.
      title: of the figure.
      how: the line below the title.
    """
    lengths, better = summaries.lengths(summary), summary.better
    mean = lambda cells, n: cells[n].mean if n in cells else math.nan
    rows = {name: [mean(summary.results.get(name, {}), n) for n in lengths]
            for name in summaries.encodings(summary)}  # fmt: skip
    others = {"floor": summary.floors} if summary.floors else {}
    others |= summary.content_floors
    below = {name: [by_size[n] for n in lengths] for name, by_size in others.items()}
    below |= {name: [value] * len(lengths) for name, value in summary.baselines.items()}
    groups = [ranked(rows, better), *([below] if below else [])]
    ends = (0.0, 1.0)
    if not metrics.metric(summary.metric).is_share:
        ends = limits(rows.values())
    figure = Figure(figsize=(drawing.WIDTH, height(sum(map(len, groups)))))
    axes = figure.subplots()
    columns = [f"{n}\n{formats.length_ratio(n, summary.train_length)}" for n in lengths]
    within = sum(n <= summary.train_length for n in lengths)
    draw(axes, groups, columns, muted=below, trained=within, ends=ends, better=better)
    axes.set_xlabel(f"test length ({formats.size_unit(summary)})")
    drawing.set_title(axes, title, how)
    return figure


def ranked(rows: Mapping[str, Sequence[float]], better: str | None) -> dict[str, Sequence[float]]:
    """Returns the rows by their mean, best first; what was not measured counts as the worst."""
    sign = 1.0 if better == "lower" else -1.0
    finite = [sign * value for values in rows.values() for value in values if math.isfinite(value)]
    worst = max(finite, default=0.0)
    key = lambda name: float(
        np.mean([sign * value if math.isfinite(value) else worst for value in rows[name]])
    )
    return {name: rows[name] for name in sorted(rows, key=key)}


def limits(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Returns the least and the greatest finite value, (0, 1) if there is none."""
    finite = [value for values in rows for value in values if math.isfinite(value)] or [0.0, 1.0]
    return min(finite), max(max(finite), min(finite) + 1e-6)
