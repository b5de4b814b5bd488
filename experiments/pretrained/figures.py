"""Figures of the experiment: text by length and by place, keys by length."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing, summaries
from posenc_jax.lab.runs import StoredRun

TUNED = ", tuned"
GUESS = math.log2(10)  # bits of a random digit


def by_length(summary: Mapping) -> Figure:
    """Draws bits per byte by length: a panel without, one with fine-tuning."""
    found = summary["text"]
    figure, panels = _panels(found)
    lengths = sorted({int(length) for cells in found.values() for length in cells})
    for axes, rows in panels:
        for row, style in rows.items():
            cells = {int(length): cell for length, cell in found[row].items()}
            axes.plot([*cells], [cell["mean"] for cell in cells.values()], **style)
            each = [cell["seeds"] for cell in cells.values()]
            drawing.shade_interval(axes, [*cells], each, style["color"])
        drawing.length_axis(axes, lengths, summary["train_length"])
    _limit(figure, [cell["mean"] for cells in found.values() for cell in cells.values()])
    return _finished(figure, "Bits per byte by length", "length of a window (tokens, log scale)")


def by_position(run: StoredRun) -> Figure:
    """Draws bits per byte by place in the longest windows."""
    wanted = [r for r in run.records if "position" in r["labels"]]
    rows_of = summaries.by_label(summaries.last_step(wanted), "encoding")
    figure, panels = _panels(rows_of)
    values = []
    for axes, rows in panels:
        for row, style in rows.items():
            curve = summaries.curve(rows_of[row], "position")
            mean = [np.mean(list(own.values())) for own in curve.values()]
            axes.plot([place + 1 for place in curve], mean, **{**style, "marker": ""})
            values += mean
        drawing.position_axis(axes, run.summary["train_length"])
    _limit(figure, values)
    return _finished(figure, "Bits per byte by place", "place in the longest window (log scale)")


def prompts(summary: Mapping) -> Figure:
    """Draws the bits of a digit by length: a panel for each prompt."""
    found = summary["prompts"]["bits_per_digit"]
    figure = Figure(figsize=(8, 4.2))
    panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    rows = next(iter(found.values()))
    styles, lengths = drawing.line_styles(list(rows)), sorted(map(int, next(iter(rows.values()))))
    for axes, (prompt, rows) in zip(panels, found.items(), strict=True):
        for row, by_length in rows.items():
            mean = [np.mean(list(depths.values())) for depths in by_length.values()]
            axes.plot([int(n) for n in by_length], mean, label=row, **styles[row])
        axes.axhline(GUESS, color=drawing.MUTED, linestyle="--", linewidth=1)
        drawing.length_axis(axes, lengths, summary["train_length"])
        axes.set_title(prompt)
    panels[0].set_ylabel("bits of a digit")
    return _finished(figure, "Hidden keys by length", "length of a prompt (tokens, log scale)")


def _panels(rows: Mapping):
    """A figure, and its panels without and with fine-tuning: (axes, row -> style)."""
    kinds = [[row for row in rows if row.endswith(TUNED) == tuned] for tuned in (False, True)]
    kinds = [kind for kind in kinds if kind]
    styles = drawing.line_styles(kinds[0])
    figure = Figure(figsize=(8, 4.2))
    panels = np.atleast_1d(figure.subplots(1, len(kinds), sharey=True))
    panels[0].set_ylabel("bits per byte")
    found = []
    for axes, kind, title in zip(panels, kinds, ("released weights", "fine-tuned"), strict=False):
        axes.set_title(title)
        bare = {row: row.removesuffix(TUNED) for row in kind}
        found.append((axes, {row: {**styles[name], "label": name} for row, name in bare.items()}))
    return figure, found


def _limit(figure: Figure, values: list[float]) -> None:
    figure.axes[0].set_ylim(*drawing.y_limits(values, []))


def _finished(figure: Figure, title: str, below: str) -> Figure:
    figure.supxlabel(below, fontsize="medium")
    drawing.title_with_legend(figure, title, columns=5)
    return figure
