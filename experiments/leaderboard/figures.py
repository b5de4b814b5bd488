"""The figure of the board."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing

BOARD = (
    "Share of answer tokens that are right in the trained window and in the longest one, every "
    "seed a small dot, the mean over tasks; sorted by the mean over all longer windows."
)


def board(summary: Mapping) -> Figure:
    """A line for each method: its score within and furthest beyond the trained window."""
    rows, windows = summary["rows"], summary["windows"]
    figure = Figure(figsize=(8, 1.6 + 0.19 * len(rows)))
    axes = figure.subplots()
    ends = ((windows[0], 0, "trained window"), (windows[-1], 1, f"{windows[-1] // windows[0]}×"))
    for y, row in enumerate(rows.values()):
        cells = [(row["scores"][str(n)], color, label) for n, color, label in ends]
        cells = [(cell, color, label) for cell, color, label in cells if cell]
        means = [cell["mean"] for cell, _, _ in cells]
        axes.plot(means, [y] * len(means), color="gray", linewidth=0.8, alpha=0.6, zorder=1)
        for cell, color, label in cells:
            axes.plot(cell["seeds"], [y] * len(cell["seeds"]), ".", ms=4, alpha=0.6,
                      color=drawing.COLORS[color])  # fmt: skip
            axes.plot([cell["mean"]], [y], drawing.MARKERS[color], ms=6,
                      color=drawing.COLORS[color], label=label if y == 0 else None)  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows), fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("share of answer tokens right, mean over tasks; sorted by longer windows")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2,
                  title="Within the trained window, and beyond", alignment="left",
                  title_fontproperties={"weight": "bold", "size": "large"})  # fmt: skip
    return figure
