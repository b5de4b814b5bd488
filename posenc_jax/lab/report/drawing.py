"""The style and shared parts of all figures: colours, fonts, axes, dots, legends, labels."""

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from posenc_jax.lab.report import formats
from posenc_jax.lab.report.statistics import Interval, interval

INK, MUTED, GRID = "#1f2328", "#667080", "#e2e6ea"
# Okabe and Ito's colours (2008) without black and yellow, which vanish on a dark or a light page.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b")
# The names of these colours in page.css, which has a light and a dark value of each.
PALETTE = {"ink": INK, "muted": MUTED, "grid": GRID} | {f"c{i}": c for i, c in enumerate(COLORS)}
MARKERS = "osD^vPX"
FAMILIAR = ("nope", "sinusoidal", "rope", "alibi", "t5", "learned")  # by the number of their colour
DASHES = ("-", (0, (4, 1.5)), (0, (1, 1)))
TICKS = 9  # most labelled lengths on an axis
BAND_SEEDS = 3  # the t interval of two seeds, 12.7 standard errors to each side, fills a figure
BANDS = 3  # most lines with a band; the colours of more bands on each other blend
# Half the distance from 1 to the next number: a relative change below it is rounding.
ROUNDING = {"float32": 2.0**-24, "float64": 2.0**-53}
NEAR = 0.155  # a length this share of the axis from the trained one has no room for its ratio
SIDE = 1.12  # a length axis begins this factor below the first length, and ends so past the last
WIDTH = 6.4  # inches of a figure of one panel; in a narrower figure letters are larger on a phone
TALL = 30  # letters beside a y axis
LETTER, BOLD_LETTER = 0.066, 0.1  # inches of a letter in a figure's small text and in its title

STYLE: dict[Any, Any] = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud and coloured
}


@contextmanager
def styled(name: str) -> Iterator[None]:
    """Applies the style while one figure is made and saved; `name` seeds the ids in its SVG."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        yield


@contextmanager
def laid_out(figure: Figure, dpi: float) -> Iterator[None]:
    """Lays the figure out at this resolution, once for all files that it is saved to meanwhile.

    With a layout engine Matplotlib draws a figure twice for each file.
    """
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(dpi)
        engine.execute(figure)
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)
        yield


def line_styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns a colour, marker and dash for each name, as arguments of `Axes.plot`.

    FAMILIAR methods look the same in every figure; the others take what these leave, in order.
    """
    familiar = {name: FAMILIAR.index(name) for name in names if name in FAMILIAR}
    free = (i for i in itertools.count() if i not in familiar.values())
    numbers = {name: familiar[name] if name in familiar else next(free) for name in names}
    return {
        name: {
            "color": COLORS[i % len(COLORS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[i // len(COLORS) % len(DASHES)],
        }
        for name, i in numbers.items()
    }


def shade_interval(
    axes: Axes,
    x: Sequence[float],
    seeds: Sequence[Sequence[float]],
    color: str,
    interval_fn: Callable[[Sequence[float]], Interval] = interval,
) -> None:
    """Shades the 95% interval over seeds at each x that has BAND_SEEDS seeds or more."""
    if intervals := _intervals(x, seeds, interval_fn):
        at, low, high = zip(*intervals, strict=True)
        axes.fill_between(at, low, high, color=color, alpha=0.16, linewidth=0)


def bar_interval(
    axes: Axes,
    x: Sequence[float],
    seeds: Sequence[Sequence[float]],
    color: str,
    interval_fn: Callable[[Sequence[float]], Interval] = interval,
) -> None:
    """Draws the intervals of `shade_interval` as bars, for figures of more than BANDS lines."""
    if intervals := _intervals(x, seeds, interval_fn):
        axes.vlines(*zip(*intervals, strict=True), color=color, linewidth=1.2, alpha=0.8)


def _intervals(
    x: Sequence[float],
    seeds: Sequence[Sequence[float]],
    interval_fn: Callable[[Sequence[float]], Interval],
) -> list[tuple[float, float, float]]:
    """Returns (x, low, high) of each x that has BAND_SEEDS seeds or more and an interval."""
    enough = [
        (at, interval_fn(values))
        for at, values in zip(x, seeds, strict=True)
        if len(values) >= BAND_SEEDS
    ]
    return [(at, ends.low, ends.high) for at, ends in enough
            if ends.low is not None and ends.high is not None]  # fmt: skip


def aside(number: int, count: int, lengths: Sequence[int]) -> float:
    """Returns the factor on a log axis that keeps the bars of `count` lines side by side.

    The bars of one length are nearer to it than to the next, and take little of the axis.
    """
    axis = (lengths[-1] / lengths[0]) * SIDE**2
    gap = min((b / a for a, b in itertools.pairwise(lengths)), default=axis)
    return min(1.2, axis**0.08, gap**0.4) ** ((number + 0.5) / count - 0.5)


def interval_note(seeds: int, band: str = "95% t interval", lines: int = 1) -> str:
    """Returns a note on the bands or bars of so many lines: what they are, or why there is none."""
    kind = "bar" if lines > BANDS else "band"
    if seeds < BAND_SEEDS:
        return f"no {kind}: fewer than {BAND_SEEDS} seeds"
    return f"{kind}: {band}"


def y_limits(values: Iterable[float], baselines: Iterable[float]) -> tuple[float, float]:
    """Returns axis limits around all values, and around baselines at most one range away."""
    finite = [value for value in values if value is not None and math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    span = max(high - low, 0.05 * abs(high), 1e-3)
    near = [b for b in baselines if low - span <= b <= high + span]
    low, high = min([low, *near]), max([high, *near])
    room = 0.06 * max(high - low, span)
    return low - room, high + room


def length_axis(axes: Axes, lengths: Sequence[int], trained: int) -> None:
    """Makes x a log axis of lengths; tick labels are a length and its ratio to the trained one."""
    every = math.ceil(len(lengths) / TICKS)
    shown = [length for i, length in enumerate(lengths) if i % every == 0 or length == trained]
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / SIDE, lengths[-1] * SIDE)
    whole = math.log(lengths[-1] / lengths[0] * SIDE**2)
    beside = lambda n: n != trained and abs(math.log(n / trained)) < NEAR * whole
    ratio = lambda n: "" if beside(n) else formats.length_ratio(n, trained)
    axes.set_xticks(shown, [f"{n}\n{ratio(n)}" for n in shown])
    axes.minorticks_off()
    trained_line(axes, trained)


def position_axis(axes: Axes, trained: int) -> None:
    """Makes x a log axis of positions with plain numbers."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    trained_line(axes, trained)


def error_axis(axes: Axes) -> str:
    """Makes y a log axis of errors, and returns what it shows of rounding, for the line below.

    A dotted line stands at the rounding error of each dtype of ROUNDING within the axis, which ends
    at that of float64: smaller errors, and 0, are drawn there.
    """
    least = min(ROUNDING.values())
    for line in axes.lines:
        line.set_ydata(np.maximum(np.asarray(line.get_ydata(), np.float64), least))
    axes.set_yscale("log")
    axes.relim()
    axes.autoscale_view()
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, least / 3), high)
    shown = {dtype: at for dtype, at in ROUNDING.items() if low < at < high}
    for at in shown.values():
        axes.axhline(at, color=MUTED, linewidth=1, linestyle=":", zorder=1)
    said = " and ".join(f"{dtype} {at:.0e}" for dtype, at in shown.items())
    return f"dotted: rounding of {said}" if said else ""


def whole_axis(axes: Axes, x: Iterable[float]) -> None:
    """Makes the ticks of the x axis whole numbers, if all x are."""
    if all(float(value).is_integer() for value in x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def trained_line(axes: Axes, trained: int) -> None:
    """Draws a dotted vertical line at the trained length."""
    axes.axvline(trained, color=MUTED, linewidth=1, linestyle=":", zorder=1)


def set_title(axes: Axes, title: str, below: str) -> None:
    """Sets a title and, below it in small type, a text that says how to read the figure; both are
    wrapped at the figure's width, less that of the names beside the axes.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    names = [label.get_text() for label in axes.get_yticklabels()]
    longest = max((len(name) for name in names if "$" not in name), default=0)  # $: a power
    width = figure.get_figwidth() - max(0.75, 0.35 + 1.3 * LETTER * longest)
    title = textwrap.fill(title, int(width / BOLD_LETTER))
    lines = _wrapped(below.split(" · "), int(width / LETTER))
    axes.set_title(title, fontweight="bold", fontsize="large", pad=11 + 13 * len(lines))
    axes.annotate("\n".join(lines), (0, 1), (0, 8), xycoords="axes fraction",
                  textcoords="offset points", color=MUTED, fontsize="small",
                  linespacing=1.25)  # fmt: skip


def label_y(axes: Axes, text: str) -> None:
    """Labels the y axis, in lines that are no longer than the axis."""
    axes.set_ylabel(textwrap.fill(text, TALL))


def _wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Returns the parts in lines of at most so many letters; a longer part is a line."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], longer] if len(longer) <= width else [*lines, part]
    return [line for line in lines if line]


def name_rows(axes: Axes, names: Sequence[str], **text: Any) -> None:
    """Makes y an axis of names, from top to bottom; `text` is the style of the names."""
    axes.set_yticks(range(len(names)), names, **text)
    axes.set_ylim(len(names) - 0.5, -0.5)


def seed_dots(axes: Axes, y: float, seeds: Sequence[float], number: int, **style: Any) -> None:
    """Draws a dot for each seed at height y, in the colour and the marker of that number."""
    look = {"color": COLORS[number], "marker": MARKERS[number], "linestyle": ""}
    axes.plot(seeds, [y] * len(seeds), **{**look, **style})


def title_with_legend(figure: Figure, title: str, columns: int) -> None:
    """Writes the figure's title, and below it a legend of all labels, each once."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper left",
        ncols=min(columns, len(handles)),
        title=title,
        alignment="left",
        title_fontproperties={"weight": "bold", "size": "large"},
    )
