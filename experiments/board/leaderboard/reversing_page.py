"""How path reverses: the page of the stage "position-path", and the rule that decides.

Three ways to reverse a string carry to longer ones. By content: look for the last symbols of the
answer backwards in the question, which fails where a few symbols repeat. By cancelling: the
reflections of a symbol of the question and of its copy in the answer undo each other, which fails
where a symbol stands twice in a row (`cancelling`). By a stack or a count of places, which fails
nowhere. They differ on three kinds of strings: of random symbols, doubled ones, and changing ones,
of which none is like the one before.

The second way is refuted if, where the string and cancelling differ, answers follow the string; or
if path reverses as well with a beta of 1, with which no reflection can be undone. The other two are
refuted if answers follow what cancelling predicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments.board.leaderboard import cancelling
from experiments.board.leaderboard.config import posed
from experiments.board.leaderboard.copying_table import followed
from experiments.board.leaderboard.examples import content_floors, task_of, tests_of
from experiments.board.leaderboard.standings import Row, Seeds, mean
from experiments.board.leaderboard.task_table import UNDEFINED, by_task, config_of, short
from posenc_jax.lab.report import Grid, Picture, Section, drawing
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.report.statistics import Interval, interval
from posenc_jax.lab.runs import StoredRun

PROBLEM = "reverse_letters"
LEARNED = 0.9  # token accuracy within the trained window from which a model says how it reverses
Word = Literal["the string", "cancelling", "neither"]
STRINGS = {"": "as trained", "doubled": "doubled", "changing": "changing"}  # test -> its strings
COLUMNS = ("", 1), ("", 2), ("", 4), ("doubled", 2), ("changing", 2)  # test, multiple of the window

CAPTION = (
    "Token accuracy, the mean over seeds: 1×, 2× and 4× the trained window on strings as in "
    "training, and on strings of doubled symbols and of changing ones, of which none is like the "
    "one before. Without positions: if reflections cancel, and by content, the best rule that "
    "looks for at most 3 symbols. string, cancelling: of the answers where these two differ, "
    "in the trained window and twice as long, those that are as each says. difference: cancelling "
    "less string with half of its 95% interval over seeds, corrected for all rows. Rows below "
    f"{LEARNED} at 1× decide nothing."
)
DRAWN = (
    "Token accuracy by window, as multiples of the trained one, with its interval over seeds. "
    "Dashed: what cancelling reflections predict. Dotted: the best rule of content that looks for "
    "at most 3 symbols."
)


class Decided(NamedTuple):
    """What the answers of a model follow where cancelling and the string differ.

    string, cancelling: shares of these answers, means over seeds and windows.
    difference: of cancelling less string, paired by seed.
    """

    string: float
    cancelling: float
    difference: Interval

    @property
    def word(self) -> Word:
        sign = self.difference.sign
        return "cancelling" if sign > 0 else "the string" if sign < 0 else "neither"


class Strings(NamedTuple):
    """The runs of one alphabet and number of layers."""

    symbols: str
    layers: int
    runs: list[StoredRun]

    @property
    def name(self) -> str:
        return f"{self.symbols}, {self.depth}"

    @property
    def depth(self) -> str:
        return counted(self.layers, "layer")


def is_of(runs: Sequence[StoredRun]) -> bool:
    """Whether these are runs of path on strings of letters, and of nothing else."""
    names = {(run.config["task"]["name"], run.config["encoding"]["name"]) for run in runs}
    return names == {(PROBLEM, "path")}


def alphabets(runs: Iterable[StoredRun]) -> list[Strings]:
    """The runs by alphabet, the largest first, then by layers."""

    def key(run: StoredRun) -> tuple[int, int]:
        return -posed(config_of(run).task).options["alphabet"], run.config["model"]["layers"]

    def name(run: StoredRun) -> str:
        options = posed(config_of(run).task).options
        kind = "distinct letters" if options.get("symbols") == "distinct" else "letters"
        return f"{options['alphabet']} {kind}"

    return [
        Strings(name(group[0]), layers, group)
        for (_, layers), members in groupby(sorted(runs, key=key), key=key)
        for group in [list(members)]
    ]


def decided(by_window: Mapping[int, Mapping[str, Seeds]], rows: int = 1) -> Decided | None:
    """What answers follow; None if string and cancelling differ nowhere.

    by_window: window -> "string" or "cancellation" -> seed -> share of the answers in dispute.
    rows: of the table, for which the interval is corrected by Bonferroni.
    """
    windows = list(by_window.values())
    if not windows:
        return None
    of_seed = lambda what, seed: float(np.mean([shares[what][seed] for shares in windows]))
    seeds = sorted(windows[0]["string"])
    string, cancels = ([of_seed(what, seed) for seed in seeds]
                       for what in ("string", "cancellation"))  # fmt: skip
    difference = interval(np.subtract(cancels, string), 1 - 0.05 / rows)
    return Decided(float(np.mean(string)), float(np.mean(cancels)), difference)


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page."""
    groups = alphabets(runs)
    rows_of = {group.name: by_task(group.runs) for group in groups}
    count = sum(len(rows[PROBLEM]) for rows in rows_of.values())
    lines, words = [], []
    for group in groups:
        rows = rows_of[group.name]
        shares = followed(group.runs).get(PROBLEM, {})
        for method, row in rows[PROBLEM].items():
            result = decided(shares.get(method, {}), count)
            if result and _learned(row):
                words.append(result.word)
            lines.append((f"{group.name}, {method}", *_accuracies(rows, method),
                          *_decision(result, _learned(row))))  # fmt: skip
        if group is [g for g in groups if g.symbols == group.symbols][-1]:
            lines += _predictors(group)
    columns = ["strings, model", "1×", "2×", "4×", "doubled\n2×", "changing\n2×", "string",
               "cancelling", "difference", "follows"]  # fmt: skip
    picture = Picture("reversing", partial(draw, groups, rows_of), DRAWN)
    said = ", ".join(
        f"{words.count(word)} follow {word}" for word in ("cancelling", "the string", "neither")
    )
    sentences = [f"Of {len(words)} models that reverse within the trained window, {said}."]
    sentences += _gates(groups, rows_of)
    return sentences, [
        Section("Reversing by window", [picture]),
        Section("What answers follow", [Grid(columns, lines, CAPTION)]),
    ]


def draw(groups: Sequence[Strings], rows_of: Mapping[str, Mapping[str, Mapping[str, Row]]]):
    """Draws token accuracy by window: a row of panels for each kind of strings, a column for each
    alphabet, a line for each model that was trained with a beta of each token.
    """
    symbols = list(dict.fromkeys(group.symbols for group in groups))
    figure = Figure(figsize=(2.6 * len(symbols), 2.2 * len(STRINGS)))
    panels = figure.subplots(len(STRINGS), len(symbols), sharex=True, sharey=True, squeeze=False)
    styles = drawing.line_styles(sorted({group.depth for group in groups}))
    for column, name in enumerate(symbols):
        members = [group for group in groups if group.symbols == name]
        for line, (test, strings) in enumerate(STRINGS.items()):
            axes = panels[line, column]
            for group in members:
                rows = rows_of[group.name].get(f"{PROBLEM}, {test}" if test else PROBLEM, {})
                if "path" not in rows:
                    continue
                scores = rows["path"].scores["token_accuracy"]
                windows = sorted(scores)
                multiples = [window // windows[0] for window in windows]
                seeds = [[*scores[window].values()] for window in windows]
                style = styles[group.depth]
                axes.plot(multiples, [np.mean(s) for s in seeds], label=group.depth,
                          zorder=3, **style)  # fmt: skip
                drawing.shade_interval(axes, multiples, seeds, style["color"])
            predicted = _predicted(members[0], test)
            for values, dashes in zip(predicted, ("--", ":"), strict=True):
                axes.plot(config_of(members[0].runs[0]).multiples, values, dashes, linewidth=1,
                          color=drawing.MUTED, zorder=1)  # fmt: skip
            axes.set_title(f"{name}: {strings}", fontsize=8)
    panels[0, 0].set_ylim(0, 1.05)
    multiples = config_of(groups[0].runs[0]).multiples
    for axes in panels[-1]:
        axes.set_xscale("log", base=2)
        axes.set_xticks(multiples, [f"{n}×" for n in multiples])
        axes.set_xlabel("window")
    drawing.title_with_legend(figure, "Reversing strings of three kinds", columns=2)
    return figure


def _learned(row: Row) -> bool:
    return mean(row.scores["token_accuracy"][row.windows[0]]) >= LEARNED


def _accuracies(rows: Mapping[str, Mapping[str, Row]], method: str) -> list[str]:
    """The cells of token accuracy of a model."""
    cells = []
    for test, multiple in COLUMNS:
        row = rows.get(f"{PROBLEM}, {test}" if test else PROBLEM, {}).get(method)
        windows = row.scores["token_accuracy"] if row else {}
        window = multiple * min(windows, default=0)
        cells.append(short(mean(windows[window])) if window in windows else UNDEFINED)
    return cells


def _decision(result: Decided | None, learned: bool) -> tuple[str, ...]:
    if result is None:
        return (UNDEFINED,) * 3 + ("differ nowhere",)
    half = result.difference.half
    shown = f"{result.difference.mean:+.2f}" + ("" if half is None else f" ±{half:.2f}")
    word = result.word if learned else "not learned"
    return short(result.string), short(result.cancelling), shown, word


def _predictors(group: Strings) -> list[tuple[str, ...]]:
    """The rows of predictors without positions."""
    multiples = config_of(group.runs[0]).multiples
    cells: dict[str, list[str]] = {"if reflections cancel": [], "by content": []}
    for test, multiple in COLUMNS:
        for name, values in zip(cells, _predicted(group, test), strict=True):
            tested = multiple in multiples
            cells[name].append(short(values[multiples.index(multiple)]) if tested else UNDEFINED)
    return [(f"{group.symbols}, {name}", *row, *(UNDEFINED,) * 3, "")
            for name, row in cells.items()]  # fmt: skip


def _predicted(group: Strings, test: str) -> tuple[list[float], list[float]]:
    """Token accuracy of cancelling, and of the best short rule of content, in each window."""
    config = config_of(group.runs[0])
    by_window = content_floors(config, test)
    content = [floors["token_accuracy"].short[1] for floors in by_window.values()]
    batches = tests_of(task_of(config, test), config)
    return [cancelling.accuracy(batch) for batch in batches], content


def _gates(groups, rows_of) -> list[str]:
    """What path loses with one beta for all tokens."""
    sentences = []
    for group in groups:
        rows = rows_of[group.name][PROBLEM]
        others = [name for name in rows if name != "path"]
        if "path" in rows and others:
            window = 2 * rows["path"].windows[0]
            at = lambda name, rows=rows, window=window: short(
                mean(rows[name].scores["token_accuracy"][window])
            )
            beside = ", ".join(f"{at(name)} with {name.removeprefix('path, ')}" for name in others)
            sentences.append(
                f"{group.name}, twice the trained window: {at('path')} of the tokens with a beta "
                f"of each token, {beside} of all."
            )
    return sentences
