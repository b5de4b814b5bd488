"""The page of the question how large the base of rope must be.

Two answers are published. Men et al. 2024 (arXiv 2405.14591): retrieval over a window needs a base
of `method_options.least_base` or more. Jobanputra et al. 2025 (arXiv 2505.21785) and others: what
training has shown carries to longer windows, so that every pair of channels must have made a turn
in the trained window, which a base of `method_options.turning_base` or less does. In windows longer
than the trained one the two ask for opposite bases.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from experiments import method_options
from experiments.board.leaderboard import config as board
from experiments.board.leaderboard import outcomes
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.task_table import by_task, config_of
from posenc_jax.lab.report import Grid, Picture, Section, drawing
from posenc_jax.lab.report.statistics import Interval, interval
from posenc_jax.lab.runs import StoredRun

LEAST = 4  # bases of a page
ROUNDED = 1.001  # a base may be rounded to the wrong side of a bound
Word = Literal["the bound", "the turns", "neither"]
Scores = Mapping[float, Mapping[int, float]]  # base -> seed -> g

CAPTION = (
    "g: 0 is the floor, what tables of the last tokens reach without positions, 1 is all right. "
    "turns: the largest base of which every pair of channels makes a turn in the trained window. "
    "bound: the least base for the window by arXiv 2405.14591. difference: g of the bases from the "
    "bound on, less that of the bases up to the turns, the mean over bases, paired by seed, with "
    "half of its 95% interval for all rows at once. more than 0 is what the bound predicts, less "
    "than 0 what the turns predict; neither: the interval holds 0."
)


class Compared(NamedTuple):
    """g of large bases and of small ones in one window.

    bound, turns: see `bounds`.
    difference: of the means of the bases from `bound` on and of those up to `turns`; None: there
      are none on a side.
    """

    window: int
    multiple: int
    turns: float
    bound: float
    difference: Interval | None

    @property
    def word(self) -> Word:
        """What the window decides for."""
        sign = self.difference.sign if self.difference else 0
        return "the bound" if sign > 0 else "the turns" if sign < 0 else "neither"


def is_of(runs: Sequence[StoredRun]) -> bool:
    """Whether these are runs of rope with several bases, and of nothing else."""
    only_rope = {run.config["encoding"]["name"] for run in runs} == {"rope"}
    return only_rope and len({base_of(run) for run in runs}) >= LEAST


def base_of(run: StoredRun) -> float:
    """The base of the rope of a run."""
    return run.config["encoding"].get("base", method_options.BASE)


def bounds(window: int, multiple: int, head: int) -> tuple[float, float]:
    """(turns, bound): the largest base of which every pair of channels makes a turn in the trained
    window, and the least base for a window that is a multiple of it, infinite if there is none.
    """
    bound = method_options.least_base(window * multiple, head)
    return method_options.turning_base(window, head), math.inf if bound is None else bound


def compared(scores: Scores, window: int, multiple: int, head: int, rows: int) -> Compared:
    """The comparison in one window; `rows` of them are corrected for, by Bonferroni."""
    turns, bound = bounds(window, multiple, head)
    large = [by_seed for base, by_seed in scores.items() if base * ROUNDED >= bound]
    small = [by_seed for base, by_seed in scores.items() if base <= turns * ROUNDED]
    if not large or not small:
        return Compared(window, multiple, turns, bound, None)
    mean = lambda side, seed: float(np.mean([by_seed[seed] for by_seed in side]))
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in large + small)))
    differences = [mean(large, seed) - mean(small, seed) for seed in seeds]
    return Compared(window, multiple, turns, bound, interval(differences, 1 - 0.05 / rows))


def scores_of(runs: Sequence[StoredRun]) -> dict[int, dict[int, dict[float, dict[int, float]]]]:
    """window -> multiple of it -> base -> seed -> g."""
    scores: dict[int, dict[int, dict[float, dict[int, float]]]] = {}
    for run in sorted(runs, key=base_of):
        config = config_of(run)
        rows = {name: row for name, row in by_task([run])[config.task.name].items()
                if SHUFFLED not in name}  # fmt: skip
        for multiple in config.multiples:
            (by_seed,) = outcomes.scores_above(rows, config, "", multiple).values()
            by_base = scores.setdefault(config.window, {}).setdefault(multiple, {})
            by_base.setdefault(base_of(run), {}).update(by_seed)
    return scores


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page."""
    scores, head = scores_of(runs), board.setting(config_of(runs[0])).head
    count = sum(multiple > 1 for by_multiple in scores.values() for multiple in by_multiple)
    results = [
        compared(by_base, window, multiple, head, count)
        for window, by_multiple in sorted(scores.items())
        for multiple, by_base in sorted(by_multiple.items())
        if multiple > 1
    ]
    picture = Picture("bases", partial(draw, scores, head), DRAWN)
    table = Grid(
        ["trained", "tested", "turns", "bound", "difference", "decides for"],
        [(f"{r.window}", f"{r.window * r.multiple}", f"{r.turns:.1f}", f"{r.bound:.0f}", _cell(r),
          r.word) for r in results],
        CAPTION,
    )  # fmt: skip
    words = [result.word for result in results]
    said = ", ".join(f"{words.count(word)} for {word}" for word in ("the bound", "the turns"))
    problem = runs[0].config["task"]["name"]
    sentence = (
        f"{problem}, in {len(words)} windows longer than the trained one: {said}, "
        f"{words.count('neither')} for neither."
    )
    return [sentence], [Section("g by base", [picture]), Section("Bound or turns", [table])]


DRAWN = (
    "g by the base of rope, in the trained window and in longer ones, with its mean and interval "
    "over seeds: 0 is the floor without positions, 1 is all right. Dashed: the largest base of "
    "which every pair of channels makes a turn in the trained window. Dotted: the bound of arXiv "
    "2405.14591 for each window, in its colour."
)


def draw(scores: Mapping[int, Mapping[int, Scores]], head: int) -> Figure:
    """Draws g by base, a panel for each trained window and a line for each test."""
    figure = Figure(figsize=(4.4 * len(scores), 3.4))
    panels = np.atleast_1d(figure.subplots(1, len(scores), sharey=True))
    for axes, (window, by_multiple) in zip(panels, sorted(scores.items()), strict=True):
        names = [f"{multiple}×" for multiple in by_multiple]
        styles = drawing.line_styles(names)
        for name, (multiple, by_base) in zip(names, by_multiple.items(), strict=True):
            bases, seeds = [*by_base], [[*by_seed.values()] for by_seed in by_base.values()]
            axes.plot(bases, [np.mean(g) for g in seeds], label=name, zorder=3, **styles[name])
            drawing.shade_interval(axes, bases, seeds, styles[name]["color"])
            bound = bounds(window, multiple, head)[1]
            if math.isfinite(bound):
                axes.axvline(
                    bound, color=styles[name]["color"], linewidth=1, linestyle=":", zorder=1
                )
        turns = bounds(window, 1, head)[0]
        axes.axvline(turns, color=drawing.MUTED, linewidth=1, linestyle="--", zorder=1)
        axes.set_xscale("log")
        axes.set_xlabel(f"base of rope, trained on {window} tokens (log scale)")
    panels[0].set_ylim(-0.15, 1.05)
    drawing.label_y(panels[0], "g")
    title = "What is right beyond the floor, by base and window"
    drawing.title_with_legend(figure, title, columns=4)
    return figure


def _cell(result: Compared) -> str:
    if result.difference is None:
        return "–"
    half = result.difference.half
    return f"{result.difference.mean:+.2f}" + ("" if half is None else f" ±{half:.2f}")
