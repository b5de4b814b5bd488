"""The report and the page of documents of many windows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from experiments.compare.long_memory.reading import WAYS, row_of
from experiments.compare.page import RULE, ranked
from posenc_jax.lab import metrics
from posenc_jax.lab.report import Picture, Section, drawing, formats, length_table, summaries
from posenc_jax.lab.report.summaries import lead, only
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import LengthSummary

HOW = {
    "memory": "with a memory",
    "cache": "with a cache",
    "alone": "each window alone (the control)",
}


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    window, memory = run.config["window"], run.config["memory"]
    facts = f"windows of {window} tokens", f"memory of {memory}"
    how = (
        "Rows are an encoding and a way of reading: with the hidden states of the last "
        f"{memory} tokens as memory, as in training; with the keys and values of all tokens before "
        "as a cache; each window alone, the control. A length is the first so many tokens of the "
        "documents."
    )
    results = [how, length_table.results(run.by_length)]
    results.append(Section("Every seed", [length_table.every_seed(run.by_length)], folded=True))
    return lead(run, *facts), [
        Section("What follows", findings(run)),
        Section("Results", results),
        Section("Figures", _pictures(run)),
    ]


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = only(runs)
    _, (_, results, figures) = sections(run)
    *said, rule = findings(run)
    first = said[-len(HOW) - bool(run.by_length.baselines)]
    rest = [sentence for sentence in said if sentence != first]
    return [first, rule], [figures, results, Section("Other ways of reading", rest)]


def findings(run: StoredRun) -> list[str]:
    """Sentences made from the numbers: the best of each way at two lengths."""
    summary, lines = run.by_length, []
    for length in dict.fromkeys((summary.train_length, max(summaries.lengths(summary)))):
        windows = length // run.config["window"]
        trained = ", as in training" if length == summary.train_length else ""
        lines += [
            f"Documents of {windows} windows{trained}, {how}: {_best(summary, way, length)}."
            for way, how in HOW.items()
        ]
    baselines = ", ".join(f"{name} {value:.3f}" for name, value in summary.baselines.items())
    return [*lines, *([f"To compare: {baselines}."] if baselines else []), RULE]


def _best(summary: LengthSummary, way: str, length: int) -> str:
    """The best encoding in one way of reading."""
    rows = {n: cells for n, cells in summary.results.items() if n.endswith(f", {way}")}
    names = {name: name.rpartition(", ")[0] for name in rows}
    return ranked(replace(summary, results={names[n]: cells for n, cells in rows.items()}), length)


def _pictures(run: StoredRun) -> list[Picture]:
    window = run.config["window"]
    pictures = [
        Picture("by_window", partial(_panels, run, "loss", "position"),
                f"Loss in each window of {window} tokens, a panel for each way of reading: lines "
                "are means over seeds, bands 95% intervals. The dotted line is the trained "
                "length."),
    ]  # fmt: skip
    if any(record["metric"] == "recall" for record in run.records):
        pictures.append(
            Picture("by_distance", partial(_panels, run, "recall", "distance"),
                    "Right answers by the distance at which the key was shown before, in ranges of "
                    f"{window} tokens; bands are 95% intervals. The dotted line is the memory."),
        )  # fmt: skip
    return pictures


def _panels(run: StoredRun, metric: str, axis: str) -> Figure:
    """A metric by place or distance in windows: a panel for each way, a line for each method."""
    window, places = run.config["window"], axis == "position"
    at = run.by_length.train_length if places else run.config["memory"]
    wanted = [r for r in run.records if r["metric"] == metric and axis in r["labels"]]
    by_row = summaries.by_label(wanted, "encoding")
    names = list(dict.fromkeys(label.rpartition(", ")[0] for label in by_row))
    styles = drawing.line_styles(names)
    figure = Figure(figsize=(8, 3.9))
    panels = figure.subplots(1, len(WAYS), sharey=True)
    for axes, way in zip(panels, WAYS, strict=True):
        for name in names:
            curve = summaries.curve(by_row.get(row_of(name, way), []), axis)
            x = [place / window + places for place in curve]  # the first window is number 1
            seeds = [list(by_seed.values()) for by_seed in curve.values()]
            mean = [float(np.mean(by_seed)) for by_seed in seeds]
            axes.plot(x, mean, label=name, **{**styles[name], "marker": ""})
            if len(names) <= drawing.BANDS:
                interval = formats.interval_of(metric)
                drawing.shade_interval(axes, x, seeds, styles[name]["color"], interval)
        drawing.trained_line(axes, at / window + places / 2)  # between two windows
        axes.set_title(way)
    if metrics.metric(metric).is_share:
        panels[0].set_ylim(-0.03, 1.03)
    panels[0].set_ylabel(metrics.metric(metric).axis_label)
    figure.supxlabel("window" if places else "distance (windows)", fontsize="medium")
    title = f"{metrics.metric(metric).title.capitalize()} by {'window' if places else axis}"
    drawing.title_with_legend(figure, title, columns=6)
    return figure
