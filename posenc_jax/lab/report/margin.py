"""Labels in the right margin of a figure: of the ends of its lines, and of its baselines."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from posenc_jax.lab.report import drawing, formats

LABEL_GAP = 0.055  # between two labels in the margin, as a share of the axes' height
FAN = 0.14  # share of the axes' height between a label and its point that makes it a legend


class Label(NamedTuple):
    """A text in the right margin, with a line in `color` to the point (x, y).

    line: what it names, as a legend shows it; by default a line in that colour.
    """

    text: str
    x: float
    y: float
    color: str
    line: Line2D | None = None


def draw_baselines(axes: Axes, values: Mapping[str, float], right: float) -> list[Label]:
    """Draws the baselines within the axes as dashed lines; returns their labels."""
    low, high = axes.get_ylim()
    within = {name: value for name, value in values.items() if low <= value <= high}
    for value in within.values():
        axes.axhline(value, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1)
    return [
        Label(f"{name} {formats.number(v)}", right, v, drawing.MUTED) for name, v in within.items()
    ]


def outside(axes: Axes, values: Mapping[str, float]) -> str:
    """Returns the baselines that are not within the axes, for the line below a title, or ""."""
    low, high = axes.get_ylim()
    sides = {"above": [n for n in values if values[n] > high],
             "below": [n for n in values if values[n] < low]}  # fmt: skip
    return " · ".join(
        f"{side} the figure: {', '.join(f'{n} {formats.number(values[n])}' for n in names)}"
        for side, names in sides.items()
        if names
    )


def margin_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Writes labels in the right margin at the heights of their points, without overlaps.

    If one would be further than FAN from its point, so that lines fan out of a point, a legend
    below the axes names the lines, and the margin has the grey labels alone.
    """
    placed = _placed(axes, labels)
    lines = [label for label in labels if label.color != drawing.MUTED]
    if lines and any(abs(height - point) > FAN for _, point, height in placed):
        _legend_below(axes, lines)
        placed = _placed(axes, [label for label in labels if label.color == drawing.MUTED])
    line = {"arrowstyle": "-", "linewidth": 1, "shrinkB": 4, "relpos": (0, 0.5)}
    for label, _, height in placed:
        axes.annotate(
            label.text,
            (label.x, label.y),
            (1.045, height),
            textcoords="axes fraction",
            va="center",
            color=drawing.MUTED if label.color == drawing.MUTED else drawing.INK,
            fontsize="small",
            annotation_clip=False,
            arrowprops={**line, "color": label.color},
        )


def _placed(axes: Axes, labels: Sequence[Label]) -> list[tuple[Label, float, float]]:
    """Returns each label with the heights of its point and of its text; texts do not overlap."""
    ordered = sorted(labels, key=lambda label: (label.y, label.color != drawing.MUTED))
    to_axes = axes.transScale + axes.transLimits
    points = [to_axes.transform((label.x, label.y))[1] for label in ordered]
    heights = list(points)
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + LABEL_GAP)
    ceiling = 0.98
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], ceiling)
        ceiling = heights[i] - LABEL_GAP
    return list(zip(ordered, points, heights, strict=True))


def _legend_below(axes: Axes, labels: Sequence[Label]) -> None:
    """Writes a legend of lines below all axes of the figure, in as many columns as fit."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    longest = max(len(label.text) for label in labels)
    columns = int(figure.get_figwidth() / (0.65 + drawing.LETTER * longest))
    figure.legend(
        [label.line or Line2D([], [], color=label.color) for label in labels],
        [label.text for label in labels],
        loc="outside lower left",
        ncols=max(1, min(columns, len(labels))),
        fontsize="small",
    )
