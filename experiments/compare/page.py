"""The report and the page of comparisons with the control of shuffled examples."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from matplotlib.figure import Figure

from experiments.compare.fields import is_shuffled, shuffled_row
from posenc_jax.lab import metrics
from posenc_jax.lab.report import Picture, Section, drawing, formats, length_table, plots, summaries
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import Estimate, LengthSummary

NONE = "nope (no positions)"
RULE = (
    "An encoding is shown to be better than another where their 95% intervals over seeds, which "
    "are in brackets or behind ±, do not meet."
)


class Additions(NamedTuple):
    """What a task adds to the report and the page; each is made from a run.

    opening: sentences before its results.
    figures: sections after its results, with tables or pictures by an axis of its own.
    conclusions: sentences after what follows from every comparison.
    """

    opening: Callable[[StoredRun], list[str]] = lambda run: []
    figures: Callable[[StoredRun], list[Section]] = lambda run: []
    conclusions: Callable[[StoredRun], list[str]] = lambda run: []


NOTHING = Additions()


def sections(run: StoredRun, added: Additions = NOTHING) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    plain = run._replace(
        summary=in_order(run.by_length),
        records=[r for r in run.records if not is_shuffled(r["labels"]["encoding"])],
    )
    lead, shown = length_table.page(plain)
    control = Section("The control: shuffled tokens", [_control("", run.by_length)])
    follows = Section("What follows", [*findings(run.by_length), RULE])
    return lead, [follows, *shown, *added.figures(run), control]


def document(
    runs: Sequence[StoredRun], added: Additions = NOTHING
) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/, one of each for a task: that on the
    longest length. The other sentences on a task are in its section.

    ValueError: two runs of one task.
    """
    by_task: dict[str, StoredRun] = {}
    for run in runs:
        name = _task_name(run.config["task"])
        if by_task.setdefault(name, run) is not run:
            raise ValueError(f"workdir: {by_task[name].path} and {run.path} are both on {name}")
    named = len(by_task) > 1
    said = [f"Task {name}: " * named + findings(run.by_length)[-1] for name, run in by_task.items()]
    said += [sentence for run in runs for sentence in added.conclusions(run)]
    return [*said, RULE], [_of_task(name, run, added) for name, run in by_task.items()]


def _task_name(task: Mapping) -> str:
    """The task with the options that are set: "canvas, what, patch 4"."""
    words = [value for key, value in task.items() if key != "name" and isinstance(value, str)]
    numbers = [f"{key} {value}" for key, value in task.items() if not isinstance(value, str)]
    return ", ".join([task["name"], *words, *numbers])


def _of_task(name: str, run: StoredRun, added: Additions) -> Section:
    plain, stem = in_order(run.by_length), re.sub(r"\W+", "_", name) + "_"
    return Section(name, [
        " ".join([*added.opening(run), *findings(run.by_length)[:-1]]),
        plots.picture_by_length(f"{stem}by_length", plain),
        length_table.results(plain),
        *added.figures(run),
        Section(f"{name}: the control", [_control(stem, run.by_length)], folded=True),
        Section(f"{name}: every seed", [length_table.every_seed(run.by_length)], folded=True),
    ])  # fmt: skip


def in_order(summary: LengthSummary) -> LengthSummary:
    """The summary without the rows of shuffled examples."""
    results = {name: row for name, row in summary.results.items() if not is_shuffled(name)}
    return replace(summary, results=results)


def findings(summary: LengthSummary) -> list[str]:
    """Sentences made from the numbers, the finding last: that at the longest length, or, if none is
    longer than the trained one, that at the trained length.
    """
    trained, longest = summary.train_length, max(summaries.lengths(summary))
    plain, unit = in_order(summary), formats.size_unit(summary)
    cells = {n: row[trained] for n, row in plain.results.items() if trained in row}
    references = {NONE: cells["nope"].mean} if "nope" in cells else {}
    references |= summary.baselines
    lines = [f"At the trained length, {trained} {unit}, {ranked(plain, trained)}."]
    if references:
        values = ", ".join(f"{n.replace('_', ' ')} {value:.3f}" for n, value in references.items())
        lines.append(f"To compare: {values}.")
    first = summaries.leaders(plain, trained)[0]
    shuffled = {n: f"{_shuffled(summary, n).mean:.3f}" for n in cells if n in (first, "nope")}
    had = " and ".join(f"{name} {value}" for name, value in shuffled.items())
    lines.append(f"In the control, with the tokens in random order: {had}.")
    if longest > trained and any(longest in row for row in plain.results.values()):
        return [*lines, f"At the longest length, {longest} {unit}, {ranked(plain, longest)}."]
    at_trained, *others = lines
    return [*others, at_trained]


def ranked(summary: LengthSummary, length: int, named: int | None = None) -> str:
    """The best method, and those whose interval over seeds meets its own.

    named: how many of those are named, the others are counted; None: all.
    """
    first, *near = summaries.leaders(summary, length)
    cells = {n: row[length] for n, row in summary.results.items() if length in row}
    metric, name = summary.metric, metrics.metric(summary.metric).title
    shown = formats.share if metrics.metric(metric).is_share else formats.plus_minus
    if len({f"{cell.mean:.3f}" for cell in cells.values()}) == 1 < len(cells):
        return f"all encodings have the same {name}, {cells[first].mean:.3f}"
    said = f"{first} has the best {name}, {shown(cells[first])}"
    if len(near) + 1 == len(cells) > 1:
        last = max(near, key=lambda n: abs(cells[n].mean - cells[first].mean))
        worst = f"{last} has the worst, {shown(cells[last])}"
        return f"{said}, but is not shown to be better than any other; {worst}"
    others = formats.listed(near, "or")
    if named is not None and len(near) > named + 1:
        others = f"{', '.join(near[:named])} and {len(near) - named} others"
    return said + f", but is not shown to be better than {others}" * bool(near)


def _shuffled(summary: LengthSummary, name: str) -> Estimate:
    return summary.results[shuffled_row(name)][summary.train_length]


def _control(stem: str, summary: LengthSummary) -> Picture:
    trained = summary.train_length
    rows = {
        name: (row[trained], _shuffled(summary, name))
        for name, row in in_order(summary).results.items()
        if trained in row
    }
    caption = (
        "Test examples at the trained length, as they are and with their tokens in random order at "
        "the same positions: every seed a mark. Dashed lines are baselines."
    )
    metric = metrics.metric(summary.metric).axis_label
    draw = partial(control, rows, summary.baselines, metric, "shuffled tokens")
    return Picture(f"{stem}control", draw, caption)


def control(
    rows: Mapping[str, tuple[Estimate, Estimate]],
    baselines: Mapping[str, float],
    metric: str,
    what: str,
) -> Figure:
    """Each method's metric on examples as they are and shuffled.

    Args:
      rows: method -> its metric on either.
      baselines: values drawn as dashed lines.
      metric: the label of the axis.
      what: what is shuffled.
    """
    figure = Figure(figsize=(8, 1.7 + 0.32 * len(rows)))
    axes = figure.subplots()
    for name, value in baselines.items():
        axes.axvline(value, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1,
                     label=f"{name} {formats.number(value)}")  # fmt: skip
    for y, both in enumerate(rows.values()):
        means = [cell.mean for cell in both]
        axes.plot(means, [y, y], color=drawing.GRID, linewidth=3, zorder=1)
        for i, (cell, text) in enumerate(zip(both, ("as it is", "shuffled"), strict=True)):
            drawing.seed_dots(axes, y, cell.seeds, i, ms=5, alpha=0.75, label=text)
    drawing.name_rows(axes, list(rows))
    values = [value for both in rows.values() for cell in both for value in cell.seeds]
    axes.set_xlim(0, 1.02 * max(1.0, *values))
    axes.set_xlabel(metric)
    moved = max(rows, key=lambda name: abs(rows[name][0].mean - rows[name][1].mean))
    own, other = (cell.mean for cell in rows[moved])
    name = metric.partition(" (")[0]
    title = f"{what.capitalize()} take the {name} of {moved} from {formats.span(own, other, 2)}"
    if f"{own:.2f}" == f"{other:.2f}":
        title = f"{what.capitalize()} change no method's {name}"
    drawing.title_with_legend(figure, title, columns=4)
    return figure
