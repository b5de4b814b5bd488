"""The two kinds of panels of a card: curves with a spread, and heatmaps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator

from posenc_jax.lab.report.drawing import COLORS, GRID, INK, MUTED

SMALL = 7.5
SIGNED = matplotlib.colormaps["RdBu_r"].with_extremes(bad=GRID)
RISING = matplotlib.colormaps["YlGnBu"].with_extremes(bad=GRID)
CYCLIC = matplotlib.colormaps["twilight_shifted"].with_extremes(bad=GRID)
ORDERED = LinearSegmentedColormap.from_list("ordered", [COLORS[0], COLORS[2], COLORS[4]])
THIN = 1.2  # width of the lines of several heads or layers
FLAT = 1e-3  # curves that vary by less, or by less than this share of their value, look flat
LEGEND = 5  # up to so many lines are all named; of more, the first and the last


class Curve(NamedTuple):
    """y over x, with a band from low to high if these are given; NaN is not drawn.

    width: of the line; None: the style's.
    """

    x: Sequence[float] | np.ndarray
    y: np.ndarray
    label: str = ""
    color: str | tuple = COLORS[0]
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    width: float | None = None


class Panel(NamedTuple):
    """A title, a line below it that says how to read the panel, and a function that draws it."""

    title: str
    below: str
    draw: Callable[[Axes], None]


def curves(
    title: str,
    below: str,
    drawn: Sequence[Curve],
    x: str,
    y: str,
    mark: float | None = None,
    level: float | None = None,
) -> Panel:
    """Returns a panel of curves; `x` and `y` are labels of the axes.

    Args:
      mark: x of a dotted vertical line.
      level: y of a dotted horizontal line.
    """

    def draw(axes: Axes) -> None:
        for curve in drawn:
            axes.plot(curve.x, curve.y, color=curve.color, label=curve.label, linewidth=curve.width)
            if curve.low is not None and curve.high is not None:
                axes.fill_between(curve.x, curve.low, curve.high, color=curve.color, alpha=0.22,
                                  linewidth=0)  # fmt: skip
        for at, dotted in ((level, axes.axhline), (mark, axes.axvline)):
            if at is not None:
                dotted(at, color=MUTED, linewidth=0.9, linestyle=":", zorder=1)
        axes.margins(x=0.01, y=0.08)
        low, high = axes.get_ylim()
        if high - low < FLAT * max(1.0, abs(high)):
            axes.set_ylim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)
        axes.set(xlabel=x, ylabel=y)
        if any(curve.label for curve in drawn):
            axes.legend(loc="lower right", bbox_to_anchor=(1, 1.09), ncols=LEGEND, fontsize=SMALL,
                        handlelength=1, columnspacing=0.8, handletextpad=0.4, borderpad=0,
                        borderaxespad=0)  # fmt: skip

    return Panel(title, below, draw)


def in_order(x: np.ndarray, y_NX: np.ndarray, name: str) -> list[Curve]:
    """Returns curves of numbered heads or layers, from blue to orange; equal ones share a curve."""
    close = 1e-5 * max(float(np.nanmax(np.abs(y_NX), initial=0.0)), 1.0)
    groups: list[list[int]] = []
    for i, y in enumerate(y_NX):
        like = [g for g in groups if np.nanmax(np.abs(y - y_NX[g[0]]), initial=0.0) <= close]
        if like:
            like[0].append(i)
        else:
            groups.append([i])
    if len(groups) == 1:
        return [Curve(x, y_NX[0], f"all {len(y_NX)} {name}s" if len(y_NX) > 1 else "")]
    last, drawn = len(groups) - 1, []
    for n, group in enumerate(groups):
        numbers = ", ".join(str(i + 1) for i in group)
        label = f"{name} {numbers}" if n == 0 else numbers if last < LEGEND or n == last else ""
        drawn.append(Curve(x, y_NX[group[0]], label, ORDERED(n / last), width=THIN))
    return drawn


def heat(
    title: str,
    below: str,
    values: np.ndarray,
    x: str,
    y: str,
    x_ends: tuple[float, float] | None = None,
    first: int = 0,
    square: bool = False,
    cyclic: bool = False,
) -> Panel:
    """Returns a panel with a heatmap of [rows, columns]; NaN is grey.

    If there are values on both sides of zero, negative ones are blue and positive ones red.

    Args:
      values: a pixel each, not smoothed.
      x, y: labels of the axes.
      x_ends: left and right edge; None: columns count from 0.
      first: number of the first row, which is the lowest one.
      square: pixels are square, and the first row is the highest one.
      cyclic: values are turns, of which -1/2 and 1/2 are the same.
    """
    rows, columns = values.shape
    left, right = x_ends or (-0.5, columns - 0.5)
    bottom, top = first - 0.5, first + rows - 0.5
    if square:
        values, bottom, top = values[::-1], top, bottom

    def draw(axes: Axes) -> None:
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        if high - low < 1e-5 * abs(high):  # no colours for rounding errors
            low, high = min(0.0, low), max(0.0, high)
        signed = low < 0 < high
        colors = CYCLIC if cyclic else SIGNED if signed else RISING
        if signed:
            high = max(-low, high)
            low = -high
        shown = axes.imshow(
            values, cmap=colors, vmin=low, vmax=high, interpolation="none",
            origin="lower", extent=(left, right, bottom, top),
            aspect="equal" if square else "auto",
        )  # fmt: skip
        axes.grid(False)
        axes.set(xlabel=x, ylabel=y)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
        if rows < 9:
            axes.set_yticks(first + np.arange(rows))
        assert axes.figure is not None
        bar = axes.figure.colorbar(shown, cax=axes.inset_axes((1.02, 0, 0.04, 1)))
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.ax.tick_params(length=0, labelsize=SMALL - 0.5)
        bar.locator = MaxNLocator(4)
        bar.update_ticks()

    return Panel(title, below, draw)


def put(panel: Panel, axes: Axes) -> None:
    """Draws a panel with its title."""
    panel.draw(axes)
    axes.set_title(panel.title, fontweight="bold", color=INK, pad=15)
    axes.annotate(panel.below, (0, 1), (0, 4.5), xycoords="axes fraction", color=MUTED,
                  textcoords="offset points", fontsize=SMALL)  # fmt: skip
