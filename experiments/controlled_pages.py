"""The report and the page of experiments with the control of shuffled examples."""

import re
from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from posenc_jax.lab.report import Picture, Section, drawing, length_table, plots, summaries
from posenc_jax.lab.report.summaries import share
from posenc_jax.lab.runs import StoredRun

_SUFFIX = ", shuffled"


def shuffled_row(name: str) -> str:
    """The label `encoding` of a method's records on shuffled examples."""
    return f"{name}{_SUFFIX}"


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    plain = run._replace(
        summary=in_order(run.summary),
        records=[r for r in run.records if not r["labels"]["encoding"].endswith(_SUFFIX)],
    )
    lead, shown = length_table.page(plain)
    control = Section("The control: shuffled tokens", [_control("", run.summary)])
    follows = Section("What follows", findings(run.summary))
    return lead, [follows, *shown, *_translations(run), control]


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/, one for each task.

    ValueError: two runs of one task.
    """
    by_task: dict[str, StoredRun] = {}
    for run in runs:
        name = ", ".join(map(str, run.config["task"].values()))  # with the options that are set
        if by_task.setdefault(name, run) is not run:
            raise ValueError(f"workdir: {by_task[name].path} and {run.path} are both on {name}")
    said = [f"Task {name}: {' '.join(findings(run.summary))}" for name, run in by_task.items()]
    return said, [_of_task(name, run) for name, run in by_task.items()]


def _of_task(name: str, run: StoredRun) -> Section:
    plain, stem = in_order(run.summary), re.sub(r"\W+", "_", name) + "_"
    caption = "Lines are means over seeds, dots are seeds; dotted: the trained length."
    return Section(name, [
        length_table.results(plain),
        Picture(f"{stem}by_length", partial(plots.by_length, plain), caption),
        _control(stem, run.summary),
        *_translations(run),
        Section(f"{name}: every seed", [length_table.every_seed(run.summary)], folded=True),
    ])  # fmt: skip


def _translations(run: StoredRun) -> list[Section]:
    """The table of BLEU, if the run has decoded translations."""
    if not any(record["metric"] == "bleu" for record in run.records):
        return []
    trained = run.summary["train_length"]
    found = summaries.summarise(run.records, metric="bleu", train_length=trained)
    how = f"Of translations decoded greedily; {run.summary['facts']['bleu']}."
    return [Section("BLEU", [how, length_table.results(found)])]


def in_order(summary: Mapping) -> dict:
    """The summary without the rows of shuffled examples."""
    kept = {name: row for name, row in summary["results"].items() if not name.endswith(_SUFFIX)}
    return {**summary, "results": kept}


def findings(summary: Mapping) -> list[str]:
    """Sentences made from the numbers: at the trained length, shuffled, at the longest length."""
    trained, metric = summary["train_length"], summaries.label(summary["metric"])
    longest = max(summaries.lengths(summary))
    choose = min if summary["metric_better"] == "lower" else max
    plain = in_order(summary)["results"]
    at = lambda length: {n: row[str(length)] for n, row in plain.items() if str(length) in row}
    best = lambda found: choose(found, key=lambda name: found[name]["mean"])
    first = best(found := at(trained))
    floors = "; ".join(f"{n} {value:.3f}" for n, value in summary["baselines"].items())
    lines = [
        f"At the trained length, {trained}, the best encoding is {first}: {metric} "
        f"{share(found[first])}" + (f" ({floors})." if floors else ".")
    ]
    falls = {n: abs(cell["mean"] - _shuffled(summary, n)["mean"]) for n, cell in found.items()}
    told = {n: fall for n, fall in falls.items() if n != "nope"}
    if told:
        least = min(told, key=lambda name: told[name])
        without = f"; without positions by {falls['nope']:.3f}" if "nope" in falls else ""
        lines.append(
            f"Shuffled tokens change {metric} by {told[least]:.3f} ({least}) or more{without}."
        )
    if longest > trained and (far := at(longest)):
        last = best(far)
        lines.append(f"At the longest length, {longest}, the best is {last}: {share(far[last])}.")
    return lines


def _shuffled(summary: Mapping, name: str) -> Mapping:
    return summary["results"][shuffled_row(name)][str(summary["train_length"])]


def _control(stem: str, summary: Mapping) -> Picture:
    trained = str(summary["train_length"])
    rows = {
        name: (row[trained], _shuffled(summary, name))
        for name, row in in_order(summary)["results"].items()
        if trained in row
    }
    caption = (
        "Test examples at the trained length, as they are and with their tokens in random order at "
        "the same positions: every seed a mark. Dashed lines are baselines."
    )
    metric = summaries.axis_label(summary["metric"])
    draw = partial(control, rows, summary["baselines"], metric, "shuffled tokens")
    return Picture(f"{stem}control", draw, caption)


def control(
    rows: Mapping[str, tuple[Mapping, Mapping]],
    baselines: Mapping[str, float],
    metric: str,
    what: str,
) -> Figure:
    """Each method's metric on examples as they are and shuffled.

    Args:
      rows: method -> the cell of the summary for either.
      baselines: values drawn as dashed lines.
      metric: the label of the axis.
      what: what is shuffled.
    """
    figure = Figure(figsize=(8, 1.7 + 0.32 * len(rows)))
    axes = figure.subplots()
    for value in baselines.values():
        axes.axvline(value, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1)
    for y, both in enumerate(rows.values()):
        means = [cell["mean"] for cell in both]
        axes.plot(means, [y, y], color=drawing.GRID, linewidth=3, zorder=1)
        for i, (cell, text) in enumerate(zip(both, ("as it is", "shuffled"), strict=True)):
            drawing.seed_dots(axes, y, cell["seeds"], i, ms=5, alpha=0.75, label=text)
    drawing.name_rows(axes, list(rows))
    values = [value for both in rows.values() for cell in both for value in cell["seeds"]]
    axes.set_xlim(0, 1.02 * max(1.0, *values))
    axes.set_xlabel(metric)
    title = f"{metric.split(' (')[0].capitalize()} with and without {what}"
    drawing.title_with_legend(figure, title, columns=2)
    return figure
