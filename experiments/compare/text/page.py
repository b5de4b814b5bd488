"""The report and the page of language models on tokens."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from experiments.compare.text import outcomes, predictions
from experiments.compare.text.context_tests import ABSENT, RECALL
from experiments.compare.text.probes import range_edges
from experiments.compare.text.rows import CONTEXT_GAIN, RECALL_GAIN, WINDOWS, Rows, of_runs
from posenc_jax.lab import metrics
from posenc_jax.lab.report import (
    Grid,
    Picture,
    Section,
    drawing,
    formats,
    length_table,
    plots,
    summaries,
)
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import LengthSummary

Curves = Mapping[str, Mapping[int, Sequence[float]]]  # row -> seed -> influence of each range


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    rows = of_runs([run])
    windows = rows.windows
    _, (results, figures) = length_table.page(rows.as_run)
    trained = f"trained at {windows.train_length} tokens"
    lead = summaries.lead(run, ", ".join(windows.results), trained)
    follows = Section("What follows", _sentences(rows))
    return lead, [follows, results, *_context(rows), *_recall(rows), *_questions(rows), figures]


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/.

    ValueError: runs differ in more than encodings and seeds, or two have the same row and seed.
    """
    rows = of_runs(runs)
    windows = rows.windows
    by_length = [plots.picture_by_length("bits_by_length", windows), _table(windows)]
    if len(windows.results) > 1:
        by_length.append(plots.picture_of_difference("bits_difference", rows.as_run))
    by_length += _by_position(rows)
    return _sentences(rows), [
        Section("Bits per byte by length", by_length),
        *_context(rows),
        *_recall(rows),
        *_questions(rows),
        Section("Every seed", [length_table.every_seed(windows)], folded=True),
    ]


def not_shown(runs: Sequence[StoredRun]) -> list[str]:
    """What the runs cannot show, besides what their configs tell."""
    documents = runs[0].summary.facts.get("documents", {})
    counts = ", ".join(f"{count} ({name})" for name, count in documents.items()) or "none"
    return [
        f"Context and recall on other documents than these: {counts}.",
        "Sinks and massive values after more training: Gu et al. 2024 see sinks after more than a "
        "thousand steps of many more tokens each.",
    ]


def _sentences(rows: Rows) -> list[str]:
    """What is decided, of windows first, what is not, and what one seed cannot decide."""
    windows = rows.windows
    trained, longest = windows.train_length, max(summaries.lengths(windows))
    compared = [
        _compared(rows, WINDOWS, windows.metric, (trained, longest)),
        *(_compared(rows, gain, gain, (longest,)) for gain in (CONTEXT_GAIN, RECALL_GAIN)),
    ]
    decided = [sentence for decided, _ in compared for sentence in decided]
    if not any(decided or left for decided, left in compared):
        reference = next(iter(windows.results))
        decided = [
            f"Nothing is decided: no other encoding has two seeds in common with {reference}, and "
            "a difference of one seed may be that of the seed."
        ]
    undecided = [sentence for _, left in compared for sentence in left]
    return [*decided, *undecided, *_one_seed(rows)]


def _compared(
    rows: Rows, condition: str, metric: str, lengths: Sequence[int]
) -> tuple[list[str], list[str]]:
    """A sentence on the differences from the first row that are decided, and one on those that are
    not: paired by seed, of the rows that share several seeds with it.
    """
    values = summaries.final_values(rows.records[condition], metric)
    reference = next((row for row, _ in values), "")
    shared = {
        row: len(values[row, n].keys() & values[reference, n].keys())
        for row, n in values
        if n == lengths[-1] and (reference, n) in values
    }
    several = {row: seeds for row, seeds in shared.items() if seeds > 1}
    if several.keys() <= {reference}:
        return [], []
    differences = summaries.differences(
        [
            record
            for record in rows.records[condition]
            if record["labels"]["encoding"] in several and record["labels"]["length"] in lengths
        ],
        metric,
    )
    decided, left = [], []
    for row, by_length in differences.intervals.items():
        for length, gap in by_length.items():
            trained = rows.runs[0].by_length.train_length
            where = "the trained length" if length == trained else f"{length:,} tokens"
            size = f"{abs(gap.mean):.3f} {formats.half_width(gap.half)} "
            size += "more" if gap.mean > 0 else "less"
            (decided if gap.sign else left).append(f"{row} has {size} at {where}")
    title, unit = metrics.metric(metric).title, metrics.metric(metric).unit
    said = f"{title}{f' ({unit})' if unit != title else ''} against {reference}"
    seeds = formats.span(min(several.values()), max(several.values()), 0)
    how = f"paired by {seeds} seeds, intervals of 95%"
    if differences.comparisons > 1:
        how += f" for {differences.comparisons} comparisons together"
    sentence = lambda word, parts: [f"{word}, {said}: {'; '.join(parts)} ({how})."] if parts else []
    return sentence("Decided", decided), sentence("Not decided", left)


def _one_seed(rows: Rows) -> Iterator[str]:
    """A sentence on the rows of one seed, beside the range of the seeds of others."""
    windows = rows.windows
    longest = max(summaries.lengths(windows))
    cells = {name: row[longest] for name, row in windows.results.items() if longest in row}
    alone = sorted((cell.mean, name) for name, cell in cells.items() if len(cell.seeds) == 1)
    spans = [
        f"the {len(cell.seeds)} seeds of {name} lie between {min(cell.seeds):.3f} and "
        f"{max(cell.seeds):.3f}"
        for name, cell in cells.items()
        if len(cell.seeds) > 1
    ]
    if alone:
        listed = ", ".join(f"{name} {mean:.3f}" for mean, name in alone)
        beside = f"; {formats.listed(spans, 'and')}" if spans else ""
        unit = metrics.metric(windows.metric).title
        yield f"One seed, so not decided: {unit} at {longest:,} tokens: {listed}{beside}."


def _by_position(rows: Rows) -> Iterator[Picture]:
    """The figure of bits per byte by position in the longest window, if there are such records."""
    run = rows.as_run
    if lengths := summaries.by_position(run.records, run.by_length.metric):
        longest = max(lengths)
        of_longest = [r for r in run.records if r["labels"].get("length") == longest]
        caption = (
            f"Bits per byte by position in windows of {longest:,} tokens, each the mean over all "
            "windows; several documents may be in one, and none sees another. The dotted line is "
            "the trained length."
        )
        draw = partial(plots.by_position, run._replace(records=of_longest))
        yield Picture("bits_by_position", draw, caption)


def _context(rows: Rows) -> list[Section]:
    """The section on the same last tokens with more context."""
    title = "What more context is worth"
    if not rows.measured(CONTEXT_GAIN):
        return [Section(title, [_why_not(rows, CONTEXT_GAIN)])]
    gain = rows.summary(CONTEXT_GAIN, CONTEXT_GAIN)
    shortest = min(n for row in gain.results.values() for n in row)
    how = (
        f"The same last 256 tokens of each document are read with {shortest:,} tokens of context "
        "and more. The gain is by how much they take fewer bits; below 0 more context does harm."
    )
    picture = plots.picture_by_length(CONTEXT_GAIN, gain)
    return [Section(title, [how, picture, _table(gain)])]


def _recall(rows: Rows) -> list[Section]:
    """The section on spans that were read before, and on those that were not."""
    title = "Recall of its own context"
    if not rows.measured(RECALL_GAIN):
        return [Section(title, [_why_not(rows, RECALL_GAIN)])]
    gain = rows.summary(RECALL_GAIN, RECALL_GAIN)
    right, floor = (rows.summary(test, "token_accuracy") for test in (RECALL, ABSENT))
    how = (
        "16 tokens of the context, of which no 4 in a row occur elsewhere, are read again, and the "
        "last 12 are scored. The gain is by how much a token takes fewer bits than one of 16 "
        "tokens of another document, which were not read before. Below it is the share of tokens "
        "that are right."
    )
    picture = plots.picture_by_length(RECALL_GAIN, gain)
    not_read = Section("Spans that were not read before", [_table(floor)], True)
    parts = [how, picture, _table(gain), _table(right), not_read]
    return [Section(title, parts)]


def _table(summary: LengthSummary) -> Grid:
    """The table by length; rows of one seed are not the best, where others have several."""
    seeds = {
        name: max(len(cell.seeds) for cell in row.values()) for name, row in summary.results.items()
    }
    alone = [name for name, count in seeds.items() if count == 1 < max(seeds.values())]
    return length_table.results(summary, apart=alone)


def _why_not(rows: Rows, gain: str) -> str:
    reasons = dict.fromkeys(entry.reason for entry in rows.not_measured[gain])
    return f"Not measured: {'; '.join(reasons) or 'the runs have no such test'}."


def _questions(rows: Rows) -> list[Section]:
    """The section on sinks, massive values and the middle; none unless every run recorded these
    predictions.
    """
    recorded = {run.summary.facts.get("predictions") for run in rows.runs}
    if recorded != {predictions.fingerprint()}:
        return []
    measured = [*outcomes.outcomes(rows)]
    parts = [*outcomes.sentences(measured), outcomes.table(measured), *_influence(rows)]
    return [Section("Sinks, massive values, and the middle at birth", parts)]


def _influence(rows: Rows) -> Iterator[Picture]:
    """The figure of influence by position before and after training, if it was measured."""
    panels = {
        "before training": outcomes.influence(rows, trained=False),
        "after training": outcomes.influence(rows, trained=True),
    }
    if all(panels.values()):
        caption = (
            "Influence of the token at each position on the last hidden state: the norm of the "
            "Jacobian in ranges of equal width, over its mean; lines are means over seeds."
        )
        length = rows.runs[0].by_length.train_length
        draw: Callable[[], Figure] = partial(_draw_influence, panels, length)
        yield Picture("influence", draw, caption)


def _draw_influence(panels: Mapping[str, Curves], length: int) -> Figure:
    """Draws influence by position: a panel for each state, a line for each row."""
    names = dict.fromkeys(name for curves in panels.values() for name in curves)
    styles = drawing.line_styles(list(names))
    figure = Figure(figsize=(8, 4.2))
    for axes, (title, curves) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        for name, by_seed in curves.items():
            over_mean = [np.asarray(curve) / np.mean(curve) for curve in by_seed.values()]
            style = {**styles[name], "marker": ""}
            axes.plot(range_edges(length)[:-1], np.mean(over_mean, axis=0), label=name, **style)
        axes.set_yscale("log")
        axes.set_title(title)
    figure.supylabel("influence over its mean (log scale)", fontsize="medium")
    figure.supxlabel("position (tokens)", fontsize="medium")
    drawing.title_with_legend(figure, "Influence on the last token by position", columns=4)
    return figure
