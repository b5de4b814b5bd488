"""The report of a run, and the sections of the page in docs/."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.board.published import chance
from experiments.board.published.orderings import LEFT_OUT, ORDERINGS
from experiments.board.published.row_results import (
    AtBudget,
    Result,
    Table,
    by_seed,
    ordered,
    oriented,
    result,
)
from experiments.board.published.settings import SETTINGS
from experiments.board.published.verdicts import (
    CLEAR,
    LEAST,
    PARTLY,
    REVERSED,
    SAME,
    UNDECIDED,
    turned,
)
from posenc_jax.lab import metrics
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.comparison import differing
from posenc_jax.lab.report.drawing import name_rows, seed_dots, title_with_legend
from posenc_jax.lab.report.formats import counted, number, span
from posenc_jax.lab.report.summaries import lead
from posenc_jax.lab.runs import StoredRun

RULE = (
    "The rule, fixed before the run: Kendall's tau-b between the paper's numbers and our means "
    "over seeds, of the methods that learned the task within the trained sizes. Its interval holds "
    "95% of what a bootstrap finds that draws the seeds of each method with replacement. Above "
    f"{CLEAR}: {SAME}; above 0: {PARTLY}; below -{CLEAR}: {REVERSED}; otherwise, with fewer than "
    f"{LEAST} methods or seeds, or if half of the budget gives another verdict: {UNDECIDED}. One "
    "bound is younger than the runs: until 2026-11-26 all above 0 was called the same order, and "
    "all below it reversed, which with 3 methods let one pair of three be in the other order. Few "
    "methods give few values of tau, 4 with 3 methods, and a bootstrap of 3 seeds is narrow, so "
    "the site shows every seed."
)
BUDGETS = (
    "Each training is scored twice, after half of its steps and after all of them. The learning "
    "rate is constant, and the weights that are scored are averaged over the last 100 steps, so "
    "the score at half of the budget is that of a training with half of the steps. The first seed "
    "tries the learning rates up to half of the budget, and validation examples in the trained "
    "sizes choose one for all seeds."
)
CAPTION = (
    "paper, ours: the methods, the paper's best first, each with its number; ours are means over "
    "seeds at the whole budget, in brackets if the method did not learn the task, which then does "
    "not count. tau: of the whole budget, then of half of it; in brackets its interval, if draws "
    "of seeds differ in tau. chance: that a random order of these methods is the same order."
)
MISSING = "–"


def results(run: StoredRun) -> list[Result]:
    """The results of all rows of a run."""
    table = Table(run.records)
    named = ((name, ORDERINGS[name]) for name in run.summary.own["rows"])
    return [result(name, row, SETTINGS[row.setting], table) for name, row in named]


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    rows = results(run)
    return lead(run, counted(len(rows), "ordering")), parts(run, rows)


def parts(run: StoredRun, rows: Sequence[Result]) -> list[Section]:
    """The table of all rows, how they were measured, and a section for each row."""
    overview = Picture("orderings", partial(_overview, rows), "Rank correlation with the paper; "
                       "bars: intervals over seeds. Hollow: at half of the budget.")  # fmt: skip
    budget = run.config["budget"]
    notes = [RULE, BUDGETS, *(f"Left out: {what}: {why}." for what, why in LEFT_OUT.items())]
    if budget < 1:
        notes.insert(0, f"This run has {budget:g} of the budget and decides nothing.")
    return [
        Section("All rows", [overview, table(rows)]),
        Section("What differs from the papers", [differences(rows)]),
        Section("How", notes),
        *(_row(row) for row in rows),
    ]


def table(rows: Sequence[Result]) -> Grid:
    """A line for each row."""
    lines = [
        (row.name, row.ordering.paper, _numbers(row, None), _numbers(row, row.whole),
         f"{_tau(row.whole)}; half: {_tau(row.half)}", _chance(row), row.verdict)
        for row in rows
    ]  # fmt: skip
    columns = "row", "paper", "paper's numbers", "ours", "tau", "chance", "verdict"
    return Grid(columns, lines, CAPTION, words=True)


def differences(rows: Sequence[Result]) -> Grid:
    """What differs from the papers; rows of which the same is said are together."""
    by_text: dict[str, list[str]] = {}
    for row in rows:
        by_text.setdefault(row.ordering.differs, []).append(row.name)
    lines = [(", ".join(names), text) for text, names in by_text.items()]
    return Grid(
        ("rows", "what differs"), lines, "Rows with the same differences are together.", True
    )


def _numbers(row: Result, at: AtBudget | None) -> str:
    """The methods with the paper's numbers, or with our means."""
    if at is None:
        return ", ".join(f"{m} {row.ordering.published[m]:g}" for m in ordered(row.ordering))
    text = lambda m: f"{m} {number(float(np.mean(at.ours[m])))}"
    return ", ".join(text(m) if m in at.learned else f"({text(m)})" for m in at.ours)


def _tau(at: AtBudget) -> str:
    if at.verdict.tau is None:
        return MISSING
    tau, low, high = at.verdict.tau
    interval = span(low, high, 2)
    return f"{tau:.2f}" if interval == f"{tau:.2f}" else f"{tau:.2f} ({interval})"


def _chance(row: Result) -> str:
    probability = chance.of_row(row)
    return MISSING if probability is None else f"{probability:.2f}"


def _row(row: Result) -> Section:
    """The setting, the sentences, every seed and the figure of one row."""
    picture = Picture(row.name, partial(_figure, row), "Every seed, in the paper's order of "
                      "methods. Hollow: at half of the budget.")  # fmt: skip
    return Section(row.name, [*_said(row), _seeds(row), picture])


def _said(result: Result) -> Iterator[str]:
    row, setting = result.ordering, result.setting
    yield f"{row.paper}. Theirs: {row.metric}; {row.better} is better."
    options = "".join(f", {name} {value}" for name, value in setting.options.items())
    yield (
        f"Ours: {metrics.metric(row.ours).title} on {setting.task}{options}, "
        f"sizes {_span(setting.sizes)} in training, {_span(setting.tests[row.test].sizes)} in the "
        f"test; {setting.kind} of {setting.layers} layers, width {setting.width}, "
        f"{setting.heads} heads, batch "
        f"{setting.batch}; {result.half.steps:,} and {result.whole.steps:,} steps. What differs: "
        f"{row.differs}."
    )
    yield from _outcome(result)


def _span(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]}" if sizes[0] == sizes[1] else f"{sizes[0]} to {sizes[1]}"


def _outcome(row: Result) -> Iterator[str]:
    """Sentences made from the numbers."""
    yield (
        f"Verdict: {row.verdict}; tau {_tau(row.whole)}, at half of the budget {_tau(row.half)}."
    )
    if row.floor is not None:
        yield (
            "Floor, the best score of tables and rules that need no positions, at the smallest "
            f"size of the test: {number(row.floor)}."
        )
    lost = [method for method in row.whole.ours if method not in row.whole.learned]
    if lost and row.setting.learned:
        metric, value = row.setting.learned
        yield (
            f"Not counted, since {metrics.metric(metric).title} in the trained sizes is below "
            f"{value:g}: {', '.join(lost)}."
        )
    values = by_seed(row.whole.ours, row.ordering.ours, row.whole.learned)
    if pairs := turned(oriented(row.ordering), values):
        said = ", ".join(f"{b} above {a}" for a, b in pairs)
        yield f"Pairs in the other order here, by more than the seeds differ: {said}."


def _seeds(result: Result) -> Grid:
    row, condition = result.ordering, result.setting.learned
    columns = ["method", "paper", "rate", "at half", "at all", "every seed, at all"]
    columns += [f"{metrics.metric(condition[0]).title} in trained sizes"] if condition else []
    lines = []
    for method in ordered(row):
        half, whole = result.half.ours.get(method), result.whole.ours.get(method)
        cells = [method, f"{row.published[method]:g}", f"{result.rates[method]:g}"]
        cells += [MISSING if v is None else number(float(np.mean(v))) for v in (half, whole)]
        cells.append(MISSING if whole is None else " ".join(f"{v:.3f}" for v in whole))
        if condition:
            cells.append(" ".join(f"{v:.3f}" for v in result.whole.within[method]))
        lines.append(cells)
    return Grid(
        columns,
        lines,
        f"{metrics.metric(row.ours).title.capitalize()}. rate: the learning rate chosen.",
    )


def _figure(row: Result) -> Figure:
    methods = ordered(row.ordering)
    figure = Figure(figsize=(6.5, 1.3 + 0.3 * len(methods)))
    axes = figure.subplots()
    for at, name, face in ((row.half, "half", "none"), (row.whole, "all", None)):
        for y, method in enumerate(methods):
            style: dict[str, Any] = {"markerfacecolor": face} if face else {}
            seed_dots(axes, y, at.ours.get(method, []), 0, ms=6, label=name, **style)
    name_rows(axes, methods)
    axes.set_xlabel(metrics.metric(row.ordering.ours).axis_label)
    title_with_legend(figure, f"{row.name}: {row.verdict}", columns=2)
    return figure


def _overview(rows: Sequence[Result]) -> Figure:
    figure = Figure(figsize=(7, 1.4 + 0.3 * len(rows)))
    axes = figure.subplots()
    axes.axvline(0, color="#667080", linewidth=1)
    for y, row in enumerate(rows):
        for at, shift, face in ((row.half, 0.18, "none"), (row.whole, -0.18, None)):
            if at.verdict.tau:
                tau, *ends = at.verdict.tau
                axes.plot(ends, [y + shift] * 2, color="#0072b2", linewidth=1.5)
                style: dict[str, Any] = {"markerfacecolor": face} if face else {}
                label = "all of the budget" if face is None else "half"
                seed_dots(axes, y + shift, [tau], 0, ms=6, label=label, **style)
    name_rows(axes, [f"{row.name}: {row.verdict}" for row in rows])
    axes.set_xlim(-1.05, 1.05)
    axes.set_xlabel("Kendall's tau-b with the paper")
    count = lambda verdict: sum(row.verdict == verdict for row in rows)
    title = f"Of {len(rows)} published orderings, {count(SAME)} are the same here"
    more = f"{count(PARTLY)} partly, {count(REVERSED)} reversed"
    title_with_legend(figure, f"{title}, {more}", columns=2)
    return figure


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page, whose rows may be those of several runs.

    Raises:
      ValueError: two runs have one row, or differ in more than their rows.
    """
    if fields := [f for f in differing([dotted(run.config) for run in runs]) if f != "rows"]:
        raise ValueError(f"workdir: the runs differ in {', '.join(fields)}")
    rows = [result for run in runs for result in results(run)]
    names = [result.name for result in rows]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"workdir: two runs have the row {', '.join(twice)}")
    rows.sort(key=lambda result: list(ORDERINGS).index(result.name))
    left = [name for name in ORDERINGS if name not in names]
    more = [f"Rows not measured yet: {', '.join(left)}."] if left else []
    shown = [s._replace(folded=s.title in names) for s in parts(runs[0], rows)]
    return conclusions(rows) + more, shown


def not_shown(runs: Sequence[StoredRun]) -> list[str]:
    """Sentences on what the runs cannot show."""
    rows = [result for run in runs for result in results(run)]
    undecided = sum(row.verdict == UNDECIDED for row in rows)
    rates = sorted({rate for run in runs for rate in run.config["rates"]})
    return [
        "Whether an order holds at the size of its paper: what differs here is listed above.",
        f"Whether the orders of the {undecided} rows that are not decided are wrong: they are not "
        "refuted either.",
        f"Other learning rates than {' and '.join(f'{rate:g}' for rate in rates)}.",
    ]


def conclusions(rows: Sequence[Result]) -> list[str]:
    """Sentences made from the numbers: the verdicts, the reversals, what changed."""
    papers = {row.ordering.paper for row in rows}
    by_verdict = {v: [row.name for row in rows if row.verdict == v]
                  for v in (SAME, PARTLY, REVERSED, UNDECIDED)}  # fmt: skip
    counts = ", ".join(f"{len(names)} {verdict}" for verdict, names in by_verdict.items())
    changed = [row.name for row in rows if row.half.verdict.name != row.whole.verdict.name]
    lost = sorted({f"{method} ({row.setting.task})" for row in rows
                   for method in row.whole.ours if method not in row.whole.learned})  # fmt: skip
    return [
        f"{counted(len(rows), 'published ordering')} of {counted(len(papers), 'paper')}, posed at "
        f"the size of two CPU cores: {counts}.",
        _by_chance(rows),
        *_if_any("Partly the same, which is no evidence for an order", by_verdict[PARTLY]),
        *_if_any("Reversed", by_verdict[REVERSED]),
        *_if_any("Not decided", by_verdict[UNDECIDED]),
        *_if_any("Of another verdict at half of the budget", changed),
        *_if_any("Methods that did not learn a task within its trained sizes, and do not count "
                 "there", lost),
    ]  # fmt: skip


def _if_any(words: str, names: Sequence[str]) -> list[str]:
    return [f"{words}: {', '.join(names)}."] if names else []


def _by_chance(rows: Sequence[Result]) -> str:
    """How many contrasts have the same order, and how many would by chance."""
    decided = chance.contrasts(rows)
    same, chances = sum(c.same for c in decided), [c.chance for c in decided]
    return (
        "Rows of one paper on the same methods are one contrast: of "
        f"{len(decided)} contrasts that are decided, {same} have the same order in each row, where "
        f"{sum(chances):.1f} would if every order were as likely (p = "
        f"{chance.at_least(same, chances):.2g})."
    )
