"""The report and the page of images: what follows from the numbers, the table, the figures."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from experiments.compare.images.config import row_of
from experiments.compare.page import control, ranked
from posenc_jax.lab.report import (
    Grid,
    Picture,
    Section,
    drawing,
    heatmap,
    length_table,
    summaries,
)
from posenc_jax.lab.report.formats import counted, share
from posenc_jax.lab.report.statistics import paired
from posenc_jax.lab.report.summaries import lead
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import Estimate, LengthSummary
from posenc_jax.lab.tasks.images import VIEWS

COUNTED, INTERPOLATED, SHUFFLED = VIEWS
# The same kind of position, flattened and by row and column.
PAIRS = {"learned": "learned_2d", "sinusoidal": "sinusoidal_2d", "rope": "axial"}


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    summary = run.by_length
    names = methods(summary)
    return lead(run, f"{len(names)} methods", counted(summaries.seed_count(summary), "seed")), [
        Section("What follows", findings(summary)),
        Section("Accuracy", [_table(summary), Picture(
            "by_resolution",
            partial(_by_resolution, summary, names),
            "Accuracy by resolution, the mean over seeds, best methods first by their mean over "
            "both panels. Positions go on from those of training, or are squeezed into them. The "
            "last row is the most frequent label.",
        )]),
        Section("The control: shuffled patches", [Picture(
            "control",
            partial(_control, summary, names),
            "Accuracy at the resolution of training on images as they are and on the same images "
            "with their patches shuffled: every seed a mark. The dashed line is the most frequent "
            "label.",
        )]),
        Section("What the model is shown", [Picture(
            "shown",
            partial(_shown, Path(run.path, "shown.npz")),
            "One test image as the model reads it, patch by patch, at each resolution and "
            "shuffled.",
        )]),
    ]  # fmt: skip


def methods(summary: LengthSummary) -> list[str]:
    """The methods, in the order of the run."""
    return [name for name in summary.results if ", " not in name]


def findings(summary: LengthSummary) -> list[str]:
    """Sentences made from the numbers."""
    names, trained = methods(summary), summary.train_length
    at = partial(_cell, summary)
    lines = [
        f"At the resolution of training, {_grid(trained)} patches: "
        f"{best_at(summary, COUNTED, trained)}. Always saying the most frequent label of training "
        f"is right on {summary.baselines['most_frequent']:.3f}."
    ]
    positional = [name for name in names if name != "nope"]
    falls = {n: at(n, COUNTED, trained).mean - at(n, SHUFFLED, trained).mean for n in names}
    if positional:
        lines.append(
            f"Shuffled patches, the control: with positions accuracy falls by "
            f"{min(falls[n] for n in positional):.3f} or more"
            + (f"; without, by {falls['nope']:.3f}." if "nope" in names else ".")
        )
    for size in _sizes(summary):
        if size > trained:
            for view in (COUNTED, INTERPOLATED):
                best = best_at(summary, view, size)
                lines.append(f"{_grid(size)} patches, positions {view}: {best}.")
    missing = [
        f"{_grid(entry.length)} patches, {entry.encoding}: not measured: {entry.reason}."
        for entry in summary.not_measured
    ]
    return lines + _gains(summary, names) + missing


def best_at(summary: LengthSummary, view: str, size: int) -> str:
    """The method with the best accuracy in one view at one resolution, and those near it."""
    cells = {name: {size: _cell(summary, name, view, size)} for name in methods(summary)}
    return ranked(replace(summary, results=cells), size)


def _gains(summary: LengthSummary, names: Sequence[str]) -> list[str]:
    """The gain of two dimensions over one, paired by seed; none without such a pair of methods."""
    pairs = [(flat, grid) for flat, grid in PAIRS.items() if flat in names and grid in names]
    if not pairs:
        return []
    trained = summary.train_length
    places = [(COUNTED, trained), *((INTERPOLATED, n) for n in _sizes(summary) if n > trained)]
    count, lines = len(pairs) * len(places), []
    for view, size in places:
        parts = []
        for flat, grid in pairs:
            ours, theirs = (_cell(summary, name, view, size).seeds for name in (grid, flat))
            gain = paired(ours, theirs, count)
            half = "" if gain.half is None else f" ±{gain.half:.3f}"
            parts.append(f"{grid} less {flat} {gain.mean:+.3f}{half}")
        lines.append(f"{_grid(size)}, {view}: {'; '.join(parts)}.")
    together = f" for all {count} differences together" * (count > 1)
    lines[-1] += f" Paired by seed, intervals at 95%{together}."
    return lines


def _table(summary: LengthSummary) -> Grid:
    trained = summary.train_length
    columns = [(COUNTED, trained), (SHUFFLED, trained)]
    for size in _sizes(summary):
        if size > trained:
            columns += [(COUNTED, size), (INTERPOLATED, size)]
    title = lambda view, size: _grid(size) + ("" if (view, size) == columns[0] else f" {view}")
    rows = [
        (name, *(share(_cell(summary, name, view, size)) for view, size in columns))
        for name in methods(summary)
    ]
    return Grid(
        ("method", *(title(*column) for column in columns)),
        rows,
        "Share of test images named right: mean (95% Wilson interval over seeds). Columns are "
        "patches a side. counted: rows and columns, or numbers, go on from those of training; "
        "interpolated: they are squeezed into those; shuffled: in each image the patches lie in "
        "another order.",
    )


def _cell(summary: LengthSummary, name: str, view: str, size: int) -> Estimate:
    return summary.results[row_of(name, view)][size]


def _grid(size: int) -> str:
    return f"{size} × {size}"


def _sizes(summary: LengthSummary) -> list[int]:
    """The resolutions that every method could be tested at."""
    missing = {entry.length for entry in summary.not_measured}
    return [size for size in summaries.lengths(summary) if size not in missing]


def _by_resolution(summary: LengthSummary, names: Sequence[str]) -> Figure:
    """Accuracy by patches a side, a panel for counted and one for interpolated positions."""
    sizes, trained = _sizes(summary), summary.train_length
    baselines = {name: [value] * len(sizes) for name, value in summary.baselines.items()}
    rows_of = {
        view: {name: [_cell(summary, name, view, n).mean for n in sizes] for name in names}
        for view in (COUNTED, INTERPOLATED)
    }
    order = heatmap.ranked({n: rows_of[COUNTED][n] + rows_of[INTERPOLATED][n] for n in names},
                           summary.better)  # fmt: skip
    figure = Figure(figsize=(drawing.WIDTH, heatmap.height(len(names) + len(baselines))))
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (view, rows) in zip(panels, rows_of.items(), strict=True):
        groups = [{name: rows[name] for name in order}, *([baselines] if baselines else [])]
        within = sum(size <= trained for size in sizes)
        heatmap.draw(axes, groups, [*map(_grid, sizes)], muted=baselines, trained=within)
        axes.set_title(f"positions {view}")
    figure.supxlabel("patches · right of the line: more than in training", fontsize="medium")
    figure.suptitle("Accuracy by resolution (share of images)", x=0.01, ha="left",
                    fontweight="bold")  # fmt: skip
    return figure


def _control(summary: LengthSummary, names: Sequence[str]) -> Figure:
    """Each method's accuracy on images as they are and shuffled."""
    trained = summary.train_length
    rows = {
        name: (_cell(summary, name, COUNTED, trained), _cell(summary, name, SHUFFLED, trained))
        for name in names
    }
    return control(rows, summary.baselines, "accuracy (share of images)", "shuffled patches")


def _shown(file: Path) -> Figure:
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
    """One image of all patches, with gaps of a third of a pixel between them; a single channel is
    drawn dark on light.
    """
    ink = patch_RCPPC.shape[-1] == 1
    color_RCPP3 = 1 - patch_RCPPC.repeat(3, axis=-1) if ink else patch_RCPPC
    fine = color_RCPP3.repeat(3, axis=2).repeat(3, axis=3)
    gap = ((0, 0), (0, 0), (0, 1), (0, 1), (0, 0))
    rows, columns, high, wide, _ = (apart := np.pad(fine, gap, constant_values=np.nan)).shape
    whole = apart.transpose(0, 2, 1, 3, 4).reshape(rows * high, columns * wide, 3)[:-1, :-1]
    return np.where(np.isnan(whole), to_rgb(drawing.GRID), whole)


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = summaries.only(runs)
    found = findings(run.by_length)
    _, accuracy, control, _ = sections(run)[1]  # without the pictures, which an archive lacks
    seeds = Section("Every seed", [length_table.every_seed(run.by_length)], folded=True)
    table, picture = accuracy.parts
    return [_enlarged(run.by_length), *found[:2]], [
        Section(accuracy.title, [picture, table]),
        control,
        Section("By resolution, and two dimensions less one", found[2:]),
        seeds,
    ]


def _enlarged(summary: LengthSummary) -> str:
    """Which methods are right most often at the largest resolution."""
    size = max(summaries.lengths(summary))
    return (
        f"On the same images enlarged to {size} x {size} patches, positions interpolated: "
        f"{best_at(summary, INTERPOLATED, size)}."
    )
