"""The table of encodings by test length, and the sections of the page around it."""

import math
from collections.abc import Collection

from posenc_jax.lab import metrics
from posenc_jax.lab.report import curves, formats, plots, summaries
from posenc_jax.lab.report.formats import number
from posenc_jax.lab.report.sections import Cell, Grid, Section
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks.baselines import CONTEXT

NOT_MEASURED = "not measured"
FEW = 7  # most rows of differences that are shown without being asked for


def page(run: StoredRun) -> tuple[str, list[Section]]:
    """Returns the line under the page's title, and the page's sections."""
    summary, count = run.by_length, summaries.seed_count(run.by_length)
    trained = summary.train_length
    how = (
        "Each row is an encoding, each column a length that the same weights were tested at. They "
        f"were trained at length {trained}; longer ones are extrapolation. The best mean of each "
        "column is bold, and so are those that print the same; nothing is bold where all do."
    )
    parts = [how, results(summary), *_contexts(summary), *curves.overtrained(run)]
    differences = summaries.differences(run.records, summary.metric)
    if differences.intervals and count > 1:
        grid, title = _differences(summary, differences), f"Difference from {differences.first}"
        few = len(grid.rows) <= FEW
        parts += [f"{title}:", grid] if few else [Section(title, [grid], folded=True)]
    parts.append(Section("Every seed", [every_seed(summary)], folded=True))
    names, seeds = ", ".join(summaries.encodings(summary)), formats.counted(count, "seed")
    lead = summaries.lead(run, names, f"trained at length {trained}", seeds)
    return lead, [Section("Results", parts), Section("Figures", plots.pictures(run))]


def _contexts(summary: LengthSummary) -> list[str]:
    """Returns a sentence on what the baselines of a text read, if it has such baselines."""
    read = [f"{name}: {CONTEXT[name]}" for name in summary.baselines if name in CONTEXT]
    return (
        [f"What a baseline reads before the byte it predicts: {'; '.join(read)}."] if read else []
    )


def results(summary: LengthSummary, apart: Collection[str] = ()) -> Grid:
    """Returns the table: each cell the mean and its interval, or why there is none.

    apart: encodings that are not compared with the others, so never the best.
    """
    count, name = summaries.seed_count(summary), formats.interval_name(summary.metric)
    share = metrics.metric(summary.metric).is_share
    spread = (
        "one seed, so there is no interval"
        if count == 1
        else f"mean {'and' if share else '± half of'} a {name} over {count} seeds"
    )
    metric, better = metrics.metric(summary.metric).title, summary.better
    lengths, best = summaries.lengths(summary), _best(summary, apart)
    rows = []
    for encoding in summaries.encodings(summary):
        wanted = {} if encoding in apart else best
        rows.append([encoding, *(_cell(summary, encoding, n, wanted.get(n)) for n in lengths)])
    baselines = [
        [name, *[number(value)] * len(lengths)] for name, value in summary.baselines.items()
    ]
    caption = f"{metric} on the test split, {better} is better: {spread}"
    if floors := summary.floors:
        baselines.append(["floor", *(number(floors[n]) for n in lengths)])
        caption += "; floor: the best predictor that needs no positions"
    if summary.content_floors:
        baselines += [
            [name, *(number(by_length[n]) for n in lengths)]
            for name, by_length in summary.content_floors.items()
        ]
        caption += "; content: the best rule that looks up so many of the last tokens by content"
    return Grid(_columns(summary), rows, caption, below=baselines)


def _columns(summary: LengthSummary) -> list[str]:
    trained, lengths = summary.train_length, summaries.lengths(summary)
    return ["length\n ", *(f"{n}\n{formats.length_ratio(n, trained)}" for n in lengths)]


def _cell(summary: LengthSummary, encoding: str, length: int, best: str | None) -> Cell:
    result = summary.results.get(encoding, {}).get(length)
    if result is None:
        reasons = [entry.reason for entry in summary.not_measured
                   if (entry.encoding, entry.length) == (encoding, length)]  # fmt: skip
        return Cell(NOT_MEASURED, note="".join(reasons[-1:]), muted=True)
    mean, half = formats.mean_and_interval(result.seeds, summary.metric)
    seeds, most = len(result.seeds), summaries.seed_count(summary)
    note = "" if seeds == most else f"{seeds} of {most} seeds"
    return Cell(mean, half, note, bold=mean == best)


def _best(summary: LengthSummary, apart: Collection[str]) -> dict[int, str]:
    """Returns length -> the best mean as printed, where not all are printed alike."""
    compared = [row for name, row in summary.results.items() if name not in apart]
    choose = min if summary.better == "lower" else max
    best = {}
    for length in summaries.lengths(summary):
        rows = [by_length.get(length) for by_length in compared]
        means = [row.mean for row in rows if row is not None]
        finite = [mean for mean in means if math.isfinite(mean)]
        if finite and len(set(map(number, means))) > 1:
            best[length] = number(choose(finite))
    return best


def every_seed(summary: LengthSummary) -> Grid:
    """Returns a table whose cells hold the values of all seeds, one on a line."""
    rows = []
    for encoding in summaries.encodings(summary):
        cells = summary.results.get(encoding, {})
        seeds = [cells[n].seeds if n in cells else () for n in summaries.lengths(summary)]
        rows.append(
            [encoding, *("\n".join(map(number, values)) or NOT_MEASURED for values in seeds)]
        )
    caption = f"{metrics.metric(summary.metric).title} of every seed, in the order of the seeds"
    return Grid(_columns(summary), rows, caption)


def _differences(summary: LengthSummary, differences: summaries.Differences) -> Grid:
    lengths = summaries.lengths(summary)
    rows = [
        [name, *(_difference(row.get(n)) for n in lengths)]
        for name, row in differences.intervals.items()
    ]
    count = differences.comparisons
    together = f" for all {count} comparisons together"
    together += " (Bonferroni; equal methods are one comparison)"
    return Grid(_columns(summary), rows, (
        f"{metrics.metric(summary.metric).title} minus that of {differences.first}, paired by "
        f"seed. Intervals hold at 95%{together * (count > 1)}; bold: 0 lies outside. The first "
        "name of encoding.name is the one that others are compared with."
    ))  # fmt: skip


def _difference(difference: Interval | None) -> str | Cell:
    if difference is None:
        return "—"
    mean = difference.mean
    if difference.half is None:
        return number(mean)
    text = f"{'+' if mean > 0 else ''}{number(mean)}".replace("-", "−")
    return Cell(text, f"±{number(difference.half)}", bold=difference.sign != 0)
