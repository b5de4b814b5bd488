"""The report and the page of an experiment on code: completing functions, closing brackets."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.compare import page
from posenc_jax.lab import metrics
from posenc_jax.lab.report import Picture, Section, drawing, formats, summaries
from posenc_jax.lab.report.formats import share
from posenc_jax.lab.report.statistics import estimate, share_interval
from posenc_jax.lab.runs import StoredRun


class Words(NamedTuple):
    """What a question asks, what counts, where that stands, and a figure's name and axis."""

    asked: str
    counted: str
    ends: str
    stem: str
    label: str


WORDS = {
    "complete": Words(
        "Functions of held-out files are completed; the first bytes of each body count.",
        "a function's first bytes", "the function", "by_place",
        metrics.metric("completed").axis_label,
    ),
    "brackets": Words(
        "Closing brackets of held-out files are hidden, and the model says of each whether it is "
        "round, square or curly. Its opening bracket in the window determines that: the kind of a "
        "pair is drawn for each example. To compare are the best guess from nothing and from the "
        "byte before, and the kind of the bracket that was opened last.",
        "closing brackets", "the last bracket", "brackets_by_place", "share of closing brackets",
    ),
}  # fmt: skip


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    # What counts is at the end of a window; curves by place in the window would be mostly empty.
    records = [record for record in run.records if "position" not in record["labels"]]
    added = page.Additions(figures=lambda _: [by_place(run)])
    return page.sections(run._replace(records=records), added)


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/, one of each for a question.

    ValueError: two runs of one task.
    """
    with_question = [run._replace(config=run.config | {"task": _task(run)}) for run in runs]
    added = page.Additions(
        opening=lambda run: [_words(run).asked],
        figures=lambda run: [by_place(run)],
        conclusions=lambda run: [conclusion(run)],
    )
    return page.document(with_question, added)


def _task(run: StoredRun) -> dict[str, Any]:
    """The fields of the task with its question, which older runs do not state."""
    return {"name": run.config["task"]["name"], "question": "complete", **run.config["task"]}


def _words(run: StoredRun) -> Words:
    return WORDS[_task(run)["question"]]


def by_place(run: StoredRun) -> Section:
    """The figure of what is right by the place of an example in its file."""
    words = _words(run)
    caption = (
        f"Share of {words.counted} that are right, given the bytes before each, by the bytes of "
        f"the file before {words.ends}: lines are means over seeds, at the trained and at the "
        "longest length of the window."
    )
    return Section("By place in the file", [Picture(words.stem, partial(_by_place, run), caption)])


def conclusion(run: StoredRun) -> str:
    """A sentence on the beginning of files and places far from it, at the trained length."""
    trained = run.by_length.train_length
    cells = {
        offset: {name: estimate(list(seeds.values()), share_interval)
                 for name, curve in _curves(run, trained).items()
                 for at, seeds in curve.items() if at == offset}
        for offset in _offsets(run, trained)
    }  # fmt: skip
    first, last = min(cells), max(cells)
    where = {first: "anywhere in a file"}
    if last > first:
        second = sorted(cells)[1]
        near = f"from byte {first} to {second}" if first else f"in the first {second} bytes"
        where = {first: f"{near} of a file", last: f"from byte {last} on"}
    parts = []
    for offset, said in where.items():
        rows = {name: {offset: cell} for name, cell in cells[offset].items()}
        shares = replace(run.by_length, metric="completed", results=rows)
        best, *near = summaries.leaders(shares, offset)
        also = "any other" if len(near) + 1 == len(rows) > 1 else formats.listed(near, "or")
        not_apart = f", but is not shown to be better than {also}" if near else ""
        parts.append(f"{said} {best} has the best, {share(cells[offset][best])}{not_apart}")
    return f"Share of {_words(run).counted} that are right: {'; '.join(parts)}."


def _curves(run: StoredRun, length: int) -> dict[str, dict[int, dict[int, float]]]:
    """Encoding -> place in the file -> seed -> completion."""
    wanted = [
        r for r in run.records if r["metric"] == "completed" and r["labels"]["length"] == length
    ]
    by_row = summaries.by_label(wanted, "encoding")
    return {name: summaries.curve(records, "offset") for name, records in by_row.items()}


def _offsets(run: StoredRun, length: int) -> list[int]:
    return sorted({offset for curve in _curves(run, length).values() for offset in curve})


def _by_place(run: StoredRun) -> Figure:
    """Completion by place in the file: a panel for each of two lengths, a line for each method."""
    trained, longest = run.by_length.train_length, max(summaries.lengths(run.by_length))
    panels = list(dict.fromkeys((trained, longest)))
    places = _offsets(run, trained)
    styles = drawing.line_styles(list(_curves(run, trained)))
    figure = Figure(figsize=(8, 4.2))
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, length in zip(row, panels, strict=True):
        for name, curve in _curves(run, length).items():
            x = [places.index(offset) for offset in curve]
            seeds = [list(by_seed.values()) for by_seed in curve.values()]
            axes.plot(x, [np.mean(by_seed) for by_seed in seeds], label=name, **styles[name])
            if len(styles) <= drawing.BANDS:
                interval = formats.interval_of("completed")
                drawing.shade_interval(axes, x, seeds, styles[name]["color"], interval)
        axes.set_xticks(range(len(places)), [f"{offset}" for offset in places])
        axes.set_title(f"window of {length} bytes")
    row[0].set_ylabel(_words(run).label)
    place = f"place in the file (bytes before {_words(run).ends}, at least)"
    figure.supxlabel(place, fontsize="medium")
    drawing.title_with_legend(figure, "Right by place in the file", columns=5)
    return figure
