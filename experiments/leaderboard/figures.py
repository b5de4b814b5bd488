"""The figure of the board."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from posenc_jax.report import look

BOARD = (
    "Share of answer tokens that are right in the trained window and in the longest one, every "
    "seed a small dot, the mean over tasks; methods stand by their mean over all longer windows."
)


def board(summary: Mapping) -> Figure:
    """A line for each method: its score within and furthest beyond the trained window."""
    rows, windows = summary["rows"], summary["windows"]
    figure = Figure(figsize=(8, 1.6 + 0.19 * len(rows)))
    axes = figure.subplots()
    ends = ((windows[0], 0, "trained window"), (windows[-1], 1, f"{windows[-1] // windows[0]}×"))
    for y, row in enumerate(rows.values()):
        means = [row["scores"][str(n)]["mean"] for n, _, _ in ends]
        axes.plot(means, [y, y], color="gray", linewidth=0.8, alpha=0.6, zorder=1)
        for n, color, label in ends:
            cell = row["scores"][str(n)]
            axes.plot(cell["seeds"], [y] * len(cell["seeds"]), ".", ms=4, alpha=0.6,
                      color=look.COLORS[color])  # fmt: skip
            axes.plot([cell["mean"]], [y], look.MARKERS[color], ms=6, color=look.COLORS[color],
                      label=label if y == 0 else None)  # fmt: skip
    axes.set_yticks(range(len(rows)), list(rows), fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("share of answer tokens right, mean over tasks")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2,
                  title="Within the trained window, and beyond", alignment="left",
                  title_fontproperties={"weight": "bold", "size": "large"})  # fmt: skip
    return figure
