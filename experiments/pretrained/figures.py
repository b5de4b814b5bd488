"""Figures of the experiment: text by length and by place, keys by length."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing, formats, heatmap, summaries
from posenc_jax.lab.runs import StoredRun

TUNED = ", tuned"
GUESS = math.log2(10)  # bits of a random digit
PLACE = 0.32  # inches of a column of places
Bits = Mapping[str, Mapping[int, float]]  # row -> length or place -> bits


def by_length(summary: Mapping) -> Figure:
    """Draws bits per byte by length, of released weights and below of fine-tuned ones."""
    means = {
        row: {int(n): cell.mean for n, cell in cells.items()}
        for row, cells in summary["text"].items()
    }
    return _by_length("Bits per byte by length of the window", {"": means}, summary)


def by_position(run: StoredRun) -> Figure:
    """Draws bits per byte by place in the longest windows."""
    wanted = [r for r in run.records if "position" in r["labels"]]
    curves = {
        row: summaries.curve(records, "position")
        for row, records in summaries.by_label(summaries.last_step(wanted), "encoding").items()
    }
    means = {
        row: {place + 1: float(np.mean([*by_stretch.values()])) for place, by_stretch in c.items()}
        for row, c in curves.items()
    }
    places = sorted({place for cells in means.values() for place in cells})
    title = "Bits per byte by place in the longest window"
    trained = sum(place <= run.summary.own["train_length"] for place in places)
    figure = Figure(figsize=(1.5 + PLACE * len(places), heatmap.height(len(means))))
    _draw(figure, title, {"": means}, {place: str(place) for place in places}, trained)
    figure.supxlabel("first token of each stretch of the window", fontsize="medium")
    return figure


def prompts(summary: Mapping) -> Figure:
    """Draws the bits of a digit by length as `by_length` does, a panel for each prompt."""
    means = {
        prompt: {
            row: {int(n): float(np.mean([*depths.values()])) for n, depths in cells.items()}
            for row, cells in rows.items()
        }
        for prompt, rows in summary["prompts"]["bits_per_digit"].items()
    }
    title = f"Bits of a hidden key's digit; a guess has {GUESS:.2f}"
    return _by_length(title, means, summary)


def _by_length(title: str, panels: Mapping[str, Bits], summary: Mapping) -> Figure:
    trained = summary["train_length"]
    rows = next(iter(panels.values()))
    lengths = sorted({n for cells in rows.values() for n in cells})
    columns = {n: f"{n}\n{formats.length_ratio(n, trained)}" for n in lengths}
    figure = Figure(figsize=(drawing.WIDTH, heatmap.height(len(rows))))
    _draw(figure, title, panels, columns, sum(n <= trained for n in lengths))
    figure.supxlabel("length (tokens)", fontsize="medium")
    return figure


def _draw(
    figure: Figure, title: str, panels: Mapping[str, Bits], columns: Mapping[int, str], trained: int
) -> None:
    """Draws a heat map a panel, with the rows of fine-tuned weights in a group of their own."""
    ends = heatmap.limits(
        [[*cells.values()] for rows in panels.values() for cells in rows.values()]
    )
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (name, rows) in zip(grid, panels.items(), strict=True):
        values = {row: [cells.get(n, math.nan) for n in columns] for row, cells in rows.items()}
        groups = [{row: v for row, v in values.items() if row.endswith(TUNED) == tuned}
                  for tuned in (False, True)]  # fmt: skip
        groups = [group for group in groups if group]
        heatmap.draw(axes, groups, [*columns.values()], trained=trained, ends=ends, better="lower")
        if len(panels) > 1:
            axes.set_title(name)
    how = "lower is better, and darker · right of the line: beyond the trained length"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    drawing.set_title(grid[0], "", how) if len(panels) == 1 else None
