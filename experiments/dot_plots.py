"""Parts of figures that have a row for each method and a dot for each seed."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing


def name_rows(axes: Axes, names: Sequence[str], **text) -> None:
    """Makes y an axis of names, from top to bottom."""
    axes.set_yticks(range(len(names)), names, **text)
    axes.set_ylim(len(names) - 0.5, -0.5)


def seed_dots(axes: Axes, y: float, seeds: Sequence[float], number: int, **style) -> None:
    """Draws a dot for each seed at height y, in the colour and marker of that number."""
    look = {"color": drawing.COLORS[number], "marker": drawing.MARKERS[number], "linestyle": ""}
    axes.plot(seeds, [y] * len(seeds), **{**look, **style})


def title_with_legend(figure: Figure, title: str, columns: int) -> None:
    """Writes the figure's title, and below it the legend of the first panel."""
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside upper left",
        ncols=columns,
        title=title,
        alignment="left",
        title_fontproperties={"weight": "bold", "size": "large"},
    )
