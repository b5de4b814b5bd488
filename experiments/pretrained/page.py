"""The report and its part of docs/pretrained.md: what follows from the summary, and its tables.

The rest of that page, written by hand, says how to use the experiment.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from experiments.pretrained import figures
from experiments.pretrained.summary import tuned_row
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.formats import counted, half_width, number
from posenc_jax.lab.report.sections import Cell
from posenc_jax.lab.report.statistics import Interval, paired
from posenc_jax.lab.report.summaries import lead, only
from posenc_jax.lab.runs import StoredRun

HALF = 0.5  # share of keys within the trained length from which on longer prompts say something
PLAIN, FOUR = "plain", ("plain", "pi", "ntk", "yarn")
PERPLEXITY = "https://github.com/jquesnelle/yarn, data/proofpile-long-small-8k.csv"
# Perplexity in the order published: (when, where, rows, values, source).
PUBLISHED = (
    ("before", "at the factor", ("pi", "plain"), ("16.10", "> 1000"),
     "LLaMA 7B for 4 times its length, arXiv 2306.15595, tables 1 and 3"),
    ("after", "at the factor", ("pi", "plain"), ("6.95", "7.69"),
     "the same after 1000 steps, and plain after 10000"),
    ("after", "at the factor", ("pi", "yarn", "ntk"), ("3.34", "3.36", "3.59"),
     f"Llama 2 7B for twice its length, {PERPLEXITY}"),
    ("after", "beyond it", ("yarn", "ntk", "pi"), ("6.05", "6.24", "8.07"),
     "the same at 2.5 times its length"),
)  # fmt: skip


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    summary, facts = run.summary.own, run.summary.facts
    length = summary["train_length"]
    how = (
        f"Windows of {length} tokens and more cover the same {facts['stretches']} stretches of "
        f"text. Extensions are made for {summary['factor']:g} times the trained length; "
        f"dynamic_ntk follows the length. ± is half a 95% t interval over stretches, of "
        f"fine-tuning with {counted(run.config['seeds'], 'seed')}."
    )
    pictures = [
        Picture("by_length", partial(figures.by_length, summary),
                "Bits per byte by the length of a window: means over stretches, darker is better. "
                "Right of the line are lengths beyond the trained one; the last rows are of "
                "fine-tuned weights."),
        Picture("by_position", partial(figures.by_position, run),
                "Bits per byte by the place in the longest windows, as above: a column has the "
                "tokens from its number on. Right of the line are positions beyond the trained "
                "length."),
        Picture("prompts", partial(figures.prompts, summary),
                "Bits of each digit of a hidden key, the mean over its depths, a panel for each "
                "prompt, as above."),
    ]  # fmt: skip
    read = [how, pictures[0], text_grid(summary, "text"), pictures[1], *_order(summary)]
    shown = [
        Section("What follows", [*findings(summary), *details(summary)]),
        Section("Text", read),
        Section("Perplexity of a token", [text_grid(summary, "perplexity")], folded=True),
    ]
    if _exact_match(summary):
        keys = [pictures[2], *_prompt_grids(summary), *_depths(summary)]
        shown.append(Section("Hidden keys", keys))
    model = run.config["model"]["checkpoint"] or "the model of this repository"
    return lead(run, model, f"trained at {length}", f"{facts['stretches']} stretches"), shown


def lengths(summary: Mapping) -> list[int]:
    """The lengths that were read, ascending."""
    return sorted(int(length) for length in next(iter(summary["text"].values())))


def text_grid(summary: Mapping, name: str) -> Grid:
    """Rows of cells by length; the best mean of a column, and ties, are bold."""
    every, by_row = lengths(summary), summary[name]
    trained = summary["train_length"]
    best = {n: number(min(cells[str(n)].mean for cells in by_row.values())) for n in every}

    def cell(cells, n):
        value = cells[str(n)]
        half = "" if value.low is None else half_width(value.mean - value.low)
        return Cell(number(value.mean), half, bold=number(value.mean) == best[n])

    rows = [(row, *(cell(cells, n) for n in every)) for row, cells in by_row.items()]
    heads = [f"{n}\n{n / trained:g}×" for n in every]
    title = {"text": "Bits per byte", "perplexity": "Perplexity"}[name]
    return Grid(("row", *heads), rows, f"{title} by the tokens of a window, lower is better.")


def findings(summary: Mapping) -> list[str]:
    """Sentences made from the numbers: which of plain, PI, NTK, YaRN reads furthest, and keys."""
    lines = [
        f"{when.capitalize()} fine-tuning, {_furthest(summary, rows)}."
        for when, rows in _moments(summary).items()
    ]
    every = {row: row for row in summary["text"]}
    rule = (
        f"A row reads to a length if it has no more bits per byte there than plain has at "
        f"{summary['train_length']} tokens, the trained length: in brackets is the difference with "
        "its 95% interval over stretches of the text."
    )
    return [*lines, f"Of all rows, {_furthest(summary, every)}.", rule, *_keys(summary)]


def _furthest(summary: Mapping, rows: Mapping[str, str]) -> str:
    among = f" of {', '.join(rows)}" if len(rows) < len(summary["text"]) else ""
    reach = {name: reads_to(summary, row) for name, row in rows.items()}
    far = max(reach.values())
    if not far:
        return f"none{among} reads to any length"
    mean = {name: _mean(summary, rows[name], far) for name in rows if reach[name] == far}
    best = min(mean, key=lambda name: mean[name])
    gap = _signed(_excess(summary, rows[best], far))
    return f"{best} reads furthest{among}: to {far} tokens ({gap})"


def details(summary: Mapping) -> list[str]:
    """How far each of plain, PI, NTK, YaRN reads, and their order at longer lengths."""
    lines = []
    for when, rows in _moments(summary).items():
        reach = {name: reads_to(summary, row) for name, row in rows.items()}
        reaches = ", ".join(
            f"{name} {far or 'to no length'} ({_signed(_excess(summary, rows[name], far))})"
            for name, far in reach.items()
        )
        lines.append(f"{when.capitalize()} fine-tuning, how far each reads, and its bits less "
                     f"those of plain at {summary['train_length']}: {reaches}.")  # fmt: skip
        lines += [
            f"{when.capitalize()} fine-tuning, {length} tokens ({place}), the fewest bits per byte "
            f"first: {ordered(summary, rows, length)}."
            for place, length in _places(summary).items()
        ]
    return lines


def _keys(summary: Mapping) -> list[str]:
    """Sentences about the keys: within the trained length, and at the longest."""
    trained, longest = str(summary["train_length"]), str(lengths(summary)[-1])
    lines, few = [], []
    for prompt, by_row in _exact_match(summary).items():
        within = _over_depths(by_row[PLAIN][trained])
        if within < HALF:
            few.append(f"{within:.2f} of {prompt}")
            continue
        row = max(by_row, key=lambda row: _over_depths(by_row[row][longest]))
        furthest = f"{_over_depths(by_row[row][longest]):.2f} under {row}"
        lines.append(f"Keys of {prompt}: plain finds {within:.2f} at {trained} tokens; at "
                     f"{longest} {furthest}.")  # fmt: skip
    if few:
        lines.append(f"Keys that plain finds within its trained length: {', '.join(few)}. A model "
                     "that finds none there tells nothing about positions by its keys at greater "
                     "lengths.")  # fmt: skip
    return lines


def _exact_match(summary: Mapping) -> Mapping:
    return summary["prompts"]["exact_match"]


def _over_depths(by_depth: Mapping[str, float]) -> float:
    return float(np.mean(list(by_depth.values())))


def reads_to(summary: Mapping, row: str) -> int:
    """The longest length at which a row has no more bits per byte than plain at the trained one.

    A length counts if the interval of the paired difference, by stretch, is not above 0, at 95% for
    all lengths together. 0: none does.
    """
    fits = [n for n in lengths(summary) if _excess(summary, row, n).sign <= 0]
    return max(fits, default=0)


def _excess(summary: Mapping, row: str, length: int) -> Interval:
    """The bits per byte of a row less those of plain at the trained length; 0: at the shortest."""
    every, by_row = lengths(summary), summary["text"]
    plain = by_row[PLAIN][str(summary["train_length"])].seeds
    return paired(by_row[row][str(length or every[0])].seeds, plain, len(every))


def _signed(gap: Interval) -> str:
    if gap.mean == 0 and not gap.half:
        return "no difference"
    return f"{gap.mean:+.3f}" + (f" ±{gap.half:.3f}" if gap.half else "")


def ordered(summary: Mapping, rows: Mapping[str, str], length: int) -> str:
    """The rows from fewest bits per byte on: "<" where a paired interval has one sign, else "≈"."""
    names = sorted(rows, key=lambda name: _mean(summary, rows[name], length))
    values = [summary["text"][rows[name]][str(length)].seeds for name in names]
    said = f"{names[0]} {_mean(summary, rows[names[0]], length):.3f}"
    for n in range(1, len(names)):
        gap = paired(values[n], values[n - 1], len(names) - 1)
        said += f" {'<' if gap.sign > 0 else '≈'} {names[n]} ({_signed(gap)})"
    return said


def _mean(summary: Mapping, row: str, length: int) -> float:
    return summary["text"][row][str(length)].mean


def _moments(summary: Mapping) -> dict[str, dict[str, str]]:
    """Before and after fine-tuning: which of the four were measured, and their rows."""
    both = {"before": {n: n for n in FOUR}, "after": {n: tuned_row(n) for n in FOUR}}
    have = summary["text"]
    measured = {when: {n: r for n, r in rows.items() if r in have} for when, rows in both.items()}
    return {when: rows for when, rows in measured.items() if rows}


def _places(summary: Mapping) -> dict[str, int]:
    """The length that extensions are made for, and the next one."""
    every, made_for = lengths(summary), summary["factor"] * summary["train_length"]
    at = [n for n in every if n <= made_for][-1:]
    beyond = [n for n in every if n > made_for][:1]
    return dict(zip(("at the factor", "beyond it"), [*at, *beyond], strict=False))


def _order(summary: Mapping) -> list[Grid]:
    """Our order beside the published one, of the same methods."""
    places, moments, rows = _places(summary), _moments(summary), []
    for when, place, names, values, source in PUBLISHED:
        ours_rows = {name: row for name, row in moments.get(when, {}).items() if name in names}
        theirs = " < ".join(f"{n} {v}" for n, v in zip(names, values, strict=True))
        ours = (
            ordered(summary, ours_rows, places[place])
            if ours_rows and place in places
            else "not measured"
        )
        rows.append((f"{when}, {place}", ours, theirs, source))
    caption = (
        "Our bits per byte beside published perplexity, from the best on. In brackets is the "
        "difference from the row before, paired by stretch; ≈ where its interval holds 0."
    )
    return [Grid(("fine-tuning, length", "here", "published", "source"), rows, caption, words=True)]


def _prompt_grids(summary: Mapping) -> list[Grid]:
    """Keys found and bits of a digit of every prompt, by length, the mean over depths."""
    grids = []
    for prompt, by_row in _exact_match(summary).items():
        bits = summary["prompts"]["bits_per_digit"][prompt]
        every = lengths(summary)
        rows = [
            (
                row,
                *(
                    f"{_over_depths(by_length[str(n)]):.2f} · {_over_depths(bits[row][str(n)]):.2f}"
                    for n in every
                ),
            )
            for row, by_length in by_row.items()
        ]
        caption = f"{prompt}: share of keys found · bits of a digit, where a guess has 3.32."
        grids.append(Grid(("row", *map(str, every)), rows, caption))
    return grids


def _depths(summary: Mapping) -> list[Section]:
    """Every depth of every prompt, folded."""
    sections = []
    for prompt, by_row in summary["prompts"]["bits_per_digit"].items():
        depths = list(next(iter(next(iter(by_row.values())).values())))
        rows = [
            (f"{row}, {length}", *(f"{by_depth[d]:.2f}" for d in depths))
            for row, by_length in by_row.items()
            for length, by_depth in by_length.items()
        ]
        heads = [f"{d}%" for d in depths]
        grid = Grid(("row, tokens", *heads), rows, "Bits of a digit by the key's depth.")
        sections.append(Section(f"{prompt} by depth", [grid], folded=True))
    return sections


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = only(runs)
    _, (_, *measured) = sections(run)
    follows = Section("What follows", details(run.summary.own))
    return findings(run.summary.own), [*measured, follows, _stretches(run.summary.own)]


def page_name(runs: Sequence[StoredRun]) -> str:
    """The name of the page in docs/: docs/pretrained.md is written by hand."""
    return "pretrained_results"


def not_shown(runs: Sequence[StoredRun]) -> list[str]:
    """Sentences on what the run cannot show."""
    [run] = runs
    summary, facts, train = run.summary.own, run.summary.facts, run.config["train"]
    seeds = run.config["seeds"]
    lines = [
        f"Larger models: one was read, whose trained length is {summary['train_length']} tokens.",
        f"Other texts: intervals are over {facts['stretches']} stretches of one text.",
        f"Lengths beyond {lengths(summary)[-1] / summary['train_length']:g} times the trained one, "
        f"and other factors than {summary['factor']:g}.",
    ]
    if train["steps"] and any(row.endswith(figures.TUNED) for row in summary["text"]):
        lines.append(
            f"Longer fine-tuning than {train['steps']:,} steps of {train['batch']} windows, and "
            f"how much seeds differ: there {'is one' if seeds == 1 else f'are {seeds}'}."
        )
    return lines


def _stretches(summary: Mapping) -> Section:
    """Bits per byte of every stretch of text, folded."""
    rows = [
        (row, length, " ".join(f"{value:.2f}" for value in cell.seeds))
        for row, cells in summary["text"].items()
        for length, cell in cells.items()
    ]
    grid = Grid(("row", "tokens", "bits per byte"), rows, "Every stretch, in order.", words=True)
    return Section("Every stretch", [grid], folded=True)
