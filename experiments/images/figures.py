"""The figures of the experiment, drawn from its summary."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing, summaries
from posenc_jax.lab.report.drawing import name_rows, seed_dots, title_with_legend
from posenc_jax.lab.tasks.images import VIEWS

COUNTED, INTERPOLATED, SHUFFLED = VIEWS

SIZES = (
    "Accuracy by resolution: every seed a dot, the line their mean. "
    "Positions go on from those of training, or are squeezed into them."
)
CONTROL = (
    "Accuracy at the resolution of training on images as they are and on the same images with "
    "their patches shuffled: every seed a mark. The dashed line is the most frequent label."
)
SHOWN = "One test image as the model reads it, patch by patch, at each resolution and shuffled."


def sizes(summary: Mapping) -> list[int]:
    """The resolutions that every method could be tested at."""
    lost = {entry["length"] for entry in summary["not_measured"]}
    return [size for size in summaries.lengths(summary) if size not in lost]


def by_resolution(summary: Mapping, names: Sequence[str]) -> Figure:
    """Accuracy by patches a side, a panel for counted and one for interpolated positions."""
    shared, styles = sizes(summary), drawing.line_styles(names)
    figure = Figure(figsize=(8, 4.8))
    panels = figure.subplots(1, 2, sharey=True, gridspec_kw={"wspace": 0.06})
    for axes, view in zip(panels, (COUNTED, INTERPOLATED), strict=True):
        for name in names:
            key = name if view == COUNTED else f"{name}, {view}"
            cells = [summary["results"][key][str(size)] for size in shared]
            color = styles[name]["color"]
            axes.plot(shared, [c["mean"] for c in cells], label=name, zorder=3, **styles[name])
            for size, cell in zip(shared, cells, strict=True):
                axes.plot([size] * len(cell["seeds"]), cell["seeds"], ".", ms=4, alpha=0.6,
                          color=color, zorder=4)  # fmt: skip
        for value in summary["baselines"].values():
            axes.axhline(value, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1)
        drawing.trained_line(axes, summary["train_length"])
        axes.set_xticks(shared, [f"{size} × {size}" for size in shared])
        axes.set_title(f"positions {view}")
    panels[0].set_ylim(0, 1.02)
    panels[0].set_ylabel("accuracy (share of images)")
    figure.supxlabel("patches · dotted line: trained", fontsize="medium")
    title_with_legend(figure, "Accuracy by resolution", columns=4)
    return figure


def control(summary: Mapping, names: Sequence[str]) -> Figure:
    """Each method's accuracy on images as they are and shuffled."""
    trained = str(summary["train_length"])
    figure = Figure(figsize=(8, 1.7 + 0.32 * len(names)))
    axes = figure.subplots()
    for value in summary["baselines"].values():
        axes.axvline(value, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1)
    for y, name in enumerate(names):
        both = [summary["results"][key][trained] for key in (name, f"{name}, {SHUFFLED}")]
        means = [cell["mean"] for cell in both]
        axes.plot(means, [y, y], color=drawing.GRID, linewidth=3, zorder=1)
        for i, (cell, text) in enumerate(zip(both, ("as it is", SHUFFLED), strict=True)):
            seed_dots(axes, y, cell["seeds"], i, ms=5, alpha=0.75, label=text)
    name_rows(axes, names)
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("accuracy (share of images)")
    title_with_legend(figure, "What is left when patches are shuffled", columns=2)
    return figure


def shown(file: Path) -> Figure:
    """Patches [side, side, P, P, C] of one image at each resolution, a panel each."""
    with np.load(file) as stored:
        panels = {title: stored[title] for title in stored.files}
    figure = Figure(figsize=(8, 0.6 + 8 / len(panels)))
    row = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, patch_RCPPC) in zip(row, panels.items(), strict=True):
        axes.imshow(_put_together(patch_RCPPC), interpolation="nearest")
        axes.set_title(title, fontsize="small")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure


def _put_together(patch_RCPPC: np.ndarray) -> np.ndarray:
    """The image in colours, with gaps of a third of a pixel; one channel is drawn dark on light."""
    ink = patch_RCPPC.shape[-1] == 1
    color_RCPP3 = 1 - patch_RCPPC.repeat(3, axis=-1) if ink else patch_RCPPC
    fine = color_RCPP3.repeat(3, axis=2).repeat(3, axis=3)
    gap = ((0, 0), (0, 0), (0, 1), (0, 1), (0, 0))
    rows, columns, high, wide, _ = (apart := np.pad(fine, gap, constant_values=np.nan)).shape
    whole = apart.transpose(0, 2, 1, 3, 4).reshape(rows * high, columns * wide, 3)[:-1, :-1]
    return np.where(np.isnan(whole), to_rgb(drawing.GRID), whole)
