"""The figure of the board."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from posenc_jax.lab.report.drawing import name_rows, seed_dots, title_with_legend

BOARD = (
    "Share of answer tokens that are right in the trained window and in the longest one, every "
    "seed a small dot, the mean over tasks; sorted by the mean over all longer windows."
)


def board(summary: Mapping) -> Figure:
    """A row for each method: its score in the trained window and in the longest one."""
    rows, windows = summary["rows"], summary["windows"]
    figure = Figure(figsize=(8, 1.6 + 0.19 * len(rows)))
    axes = figure.subplots()
    ends = ((windows[0], 0, "trained window"), (windows[-1], 1, f"{windows[-1] // windows[0]}×"))
    for y, row in enumerate(rows.values()):
        cells = [(row["scores"][str(n)], number, label) for n, number, label in ends]
        cells = [(cell, number, label) for cell, number, label in cells if cell]
        means = [cell["mean"] for cell, _, _ in cells]
        axes.plot(means, [y] * len(means), color="gray", linewidth=0.8, alpha=0.6, zorder=1)
        for cell, number, label in cells:
            seed_dots(axes, y, cell["seeds"], number, marker=".", ms=4, alpha=0.6)
            seed_dots(axes, y, [cell["mean"]], number, ms=6, label=label)
    name_rows(axes, list(rows), fontsize="small")
    axes.set_xlabel("share of answer tokens right, mean over tasks; sorted by longer windows")
    title_with_legend(figure, "Within the trained window, and beyond", columns=2)
    return figure
