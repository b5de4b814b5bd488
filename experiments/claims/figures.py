"""Figures of claims, drawn from what was measured, in the style of all figures."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.claims.ledger import NO_CHANGE, Draw, Measured
from posenc_jax.lab.report import drawing, margin
from posenc_jax.lab.report.drawing import name_rows
from posenc_jax.lab.report.margin import Label
from posenc_jax.lab.report.statistics import Interval, interval, share_interval

# Labels of shares of answers; a share of variance may be below 0.
SHARES = ("accuracy", "right answers", "patches that name", "share of sounds")
BARS = 12  # most points of a line with a bar each
DASHED: dict[str, Any] = {"color": drawing.MUTED, "linewidth": 1, "linestyle": "--", "zorder": 1}


def lines(
    title: str,
    x: str,
    y: str,
    *,
    below: str = "",
    log_x: bool = False,
    log_y: bool = False,
    levels: Mapping[str, float] = {},
) -> Draw:
    """A function that draws all curves in one pair of axes: mean, band and label of each.

    Args:
      below: how to read the figure; by default what line and band are.
      log_x: to the base 2.
      levels: name -> y of a dashed line: chance, a floor, a bound.
    """

    def draw(measured: Measured) -> Figure:
        figure, of = Figure(figsize=(drawing.WIDTH, 4.0)), _interval_of(y)
        axes = figure.subplots()
        styles, labels = drawing.line_styles(list(measured.curves)), []
        spread = sum(len(curve.y) >= drawing.BAND_SEEDS for curve in measured.curves.values())
        for name, curve in measured.curves.items():
            seeds = [*zip(*curve.y, strict=True)]
            x_X, mean, color = [*curve.x], np.mean(seeds, axis=1), styles[name]["color"]
            axes.plot(x_X, mean, **{**styles[name], "marker": ""})
            if spread <= drawing.BANDS:
                drawing.shade_interval(axes, x_X, seeds, color, of)
            elif len(x_X) <= BARS:
                drawing.bar_interval(axes, x_X, seeds, color, of)
            known = np.flatnonzero(np.isfinite(mean))
            if len(known):
                labels.append(Label(name, x_X[known[-1]], mean[known[-1]], color))
        if log_x:
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _power_of_two(x)))
            axes.xaxis.set_major_locator(LogLocator(2, numticks=6))
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            drawing.whole_axis(axes, [at for curve in measured.curves.values() for at in curve.x])
        note = drawing.error_axis(axes) if log_y else ""
        axes.set_xlabel(x)
        drawing.label_y(axes, y)
        for name, level in levels.items():
            axes.axhline(level, **DASHED)
            labels.append(Label(f"{name} {level:.3g}", axes.get_xlim()[1], level, drawing.MUTED))
        axes.set_ylim(axes.get_ylim())
        margin.margin_labels(axes, labels)
        count = max((len(curve.y) for curve in measured.curves.values()), default=0)
        band = "95% Wilson interval" if of is share_interval else "95% t interval"
        said = below or f"bold: mean over seeds · {drawing.interval_note(count, band, spread)}"
        drawing.set_title(axes, title, " · ".join(filter(None, (said, note))))
        return figure

    return draw


def _power_of_two(x: float) -> str:
    """The label of a tick, such as 1/4, 4096 or 2 to the power of 16."""
    if x < 1:
        return f"1/{1 / x:g}"
    return f"{x:g}" if x < 10_000 else f"$2^{{{math.log2(x):.0f}}}$"


def _interval_of(label: str) -> Callable[[Sequence[float]], Interval]:
    """The interval over seeds of what an axis is labelled with: Wilson's for a share."""
    return share_interval if label.startswith(SHARES) else interval


def dots(
    title: str,
    x: str,
    prefix: str = "",
    *,
    log: bool = False,
    levels: Mapping[str, float] = {},
) -> Draw:
    """A function that draws the numbers whose names begin with `prefix`, one in each row.

    levels: name -> x of a dashed line: chance, a floor, a bound.
    """

    def draw(measured: Measured) -> Figure:
        shown = {
            name.removeprefix(prefix).lstrip(", "): values
            for name, values in measured.numbers.items()
            if name.startswith(prefix)
        }
        figure, of = Figure(figsize=(drawing.WIDTH, 1.5 + 0.34 * len(shown))), _interval_of(x)
        axes = figure.subplots()
        for row, values in enumerate(shown.values()):
            mean, low, high, _ = of([*values])
            color = drawing.COLORS[0]
            axes.plot(values, [row] * len(values), ".", ms=5, alpha=0.5, color=drawing.MUTED)
            if low is not None and high is not None:
                axes.plot([low, high], [row, row], "-", color=color)
            axes.plot([mean], [row], "o", color=color)
        for level in levels.values():
            axes.axvline(level, **DASHED)
        name_rows(axes, list(shown))
        axes.set_xlabel(x)
        if log:
            axes.set_xscale("log")
        if any(NO_CHANGE in values for values in shown.values()):
            end = axes.get_xlim()[1]
            ticks = [tick for tick in axes.get_xticks() if NO_CHANGE + 1 < tick < end]
            axes.set_xticks([NO_CHANGE, *ticks], ["none", *(f"{tick:g}" for tick in ticks)])
        kind = "Wilson" if of is share_interval else "t"
        said = [f"small dots: seeds · bar: 95% {kind} interval"]
        if levels:
            said.append("dashed: " + ", ".join(f"{k} {at:.3g}" for k, at in levels.items()))
        drawing.set_title(axes, title, " · ".join(said))
        return figure

    return draw
