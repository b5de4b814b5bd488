"""Figures of the experiment: text by length and by place, keys by length."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from posenc_jax.lab.report import drawing, summaries
from posenc_jax.lab.runs import StoredRun

TUNED = ", tuned"
GUESS = math.log2(10)  # bits of a random digit


def by_length(summary: Mapping) -> Figure:
    """Draws bits per byte by length: a panel without, one with fine-tuning."""
    by_row = summary["text"]
    figure, panels = _panels(by_row)
    lengths = sorted({int(length) for cells in by_row.values() for length in cells})
    for axes, rows in panels:
        for i, (row, style) in enumerate(rows.items()):
            cells = {int(length): cell for length, cell in by_row[row].items()}
            x = [length * drawing.aside(i, len(rows), lengths) for length in cells]
            axes.plot(x, [cell.mean for cell in cells.values()], **style)
            seeds = [cell.seeds for cell in cells.values()]
            drawing.bar_interval(axes, x, seeds, style["color"])
        drawing.length_axis(axes, lengths, summary["train_length"])
    _limit(figure, [cell.mean for cells in by_row.values() for cell in cells.values()])
    return _finished(figure, "Bits per byte by length", "length of a window (tokens, log scale)")


def by_position(run: StoredRun) -> Figure:
    """Draws bits per byte by place in the longest windows."""
    trained = run.summary.own["train_length"]
    wanted = [r for r in run.records if "position" in r["labels"]]
    rows_of = summaries.by_label(summaries.last_step(wanted), "encoding")
    figure, panels = _panels(rows_of)
    values = []
    for axes, rows in panels:
        for row, style in rows.items():
            curve = summaries.curve(rows_of[row], "position")
            mean = [np.mean(list(by_stretch.values())) for by_stretch in curve.values()]
            axes.plot([place + 1 for place in curve], mean, **{**style, "marker": ""})
            values += mean
        drawing.position_axis(axes, trained)
    _limit(figure, values)
    return _finished(figure, "Bits per byte by place", "place in the longest window (log scale)")


def prompts(summary: Mapping) -> Figure:
    """Draws the bits of a digit by length: panels as of `by_length`, a row of them a prompt."""
    by_prompt = summary["prompts"]["bits_per_digit"]
    lengths = sorted(int(length) for length in next(iter(summary["text"].values())))
    figure, *rows_of_panels = _panels(
        next(iter(by_prompt.values())), [f"{name}, " for name in by_prompt]
    )
    for by_row, panels in zip(by_prompt.values(), rows_of_panels, strict=True):
        for axes, rows in panels:
            for row, style in rows.items():
                mean = {int(n): np.mean([*depths.values()]) for n, depths in by_row[row].items()}
                axes.plot([*mean], [*mean.values()], **style)
            axes.axhline(GUESS, color=drawing.MUTED, linestyle="--", linewidth=1,
                         label="a guess")  # fmt: skip
            drawing.length_axis(axes, lengths, summary["train_length"])
            axes.set_ylabel("bits of a digit" if axes.get_subplotspec().is_first_col() else "")
    return _finished(
        figure, "Bits of a hidden key's digit", "length of a prompt (tokens, log scale)"
    )


def _panels(rows: Mapping, names: Sequence[str] = ("",)) -> tuple[Any, ...]:
    """A figure, and for each name its panels without and with fine-tuning: (axes, row -> style)."""
    kinds = [[row for row in rows if row.endswith(TUNED) == tuned] for tuned in (False, True)]
    kinds = [kind for kind in kinds if kind]
    styles = drawing.line_styles(kinds[0])
    figure = Figure(figsize=(8, 2.2 + 2.8 * len(names)))
    grid = figure.subplots(len(names), len(kinds), sharey=True, squeeze=False)
    grid[0, 0].set_ylabel("bits per byte")
    panel_rows = []
    for name, panels in zip(names, grid, strict=True):
        panel_rows.append([])
        for axes, kind, title in zip(
            panels, kinds, ("released weights", "fine-tuned"), strict=False
        ):
            axes.set_title(f"{name}{title}")
            bare = {row: row.removesuffix(TUNED) for row in kind}
            styled = {row: {**styles[short], "label": short} for row, short in bare.items()}
            panel_rows[-1].append((axes, styled))
    return figure, *panel_rows


def _limit(figure: Figure, values: list[float]) -> None:
    figure.axes[0].set_ylim(*drawing.y_limits(values, []))


def _finished(figure: Figure, title: str, below: str) -> Figure:
    figure.supxlabel(below, fontsize="medium")
    drawing.title_with_legend(figure, title, columns=5)
    return figure
