"""What each method reaches on each problem of the page of skills, at every length and in every test
of the problem.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from experiments.board.leaderboard import outcomes
from experiments.board.leaderboard.config import Config
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.leaderboard.standings import Row, mean
from experiments.board.leaderboard.task_table import METRICS, UNDEFINED, label, short
from posenc_jax.lab.report import Grid, Section

ENDS = "end_accuracy"


def sections(
    tasks: Mapping[str, Mapping[str, Row]], configs: Mapping[str, Config]
) -> Iterator[Section]:
    """A folded section for each problem.

    tasks: the rows of each problem, and of each further test as "problem, test".
    configs: a config of each problem.
    """
    for problem, config in configs.items():
        tests = ("", *(test for test in PROBLEMS[problem].tests if f"{problem}, {test}" in tasks))
        grids = [
            _table(tasks[f"{problem}, {test}" if test else problem], config, test) for test in tests
        ]
        yield Section(f"{problem} at every length", grids, folded=True)


def _table(rows: Mapping[str, Row], config: Config, test: str) -> Grid:
    metric = PROBLEMS[config.task.name].metric
    longer = config.multiples[1:]
    above = {n: outcomes.scores_above(rows, config, test, n) for n in longer}
    has_ends = any(np.isfinite(_at(row, ENDS, config.window)) for row in rows.values())
    ends = config.multiples if has_ends else ()
    lines = [
        (
            label(name),
            f"{np.isfinite([*row.steps.values()]).sum()}/{len(row.steps)}",
            *(_cell(_at(row, metric, n * config.window)) for n in config.multiples),
            *(_cell(mean(above[n][name])) if name in above[n] else UNDEFINED for n in longer),
            *(_cell(_at(row, ENDS, n * config.window)) for n in ends),
        )
        for name, row in sorted(rows.items())
    ]
    columns = ["method", "learned"]
    columns += [f"{METRICS[metric]}\n{n}×" for n in config.multiples]
    columns += [f"g\n{n}×" for n in longer] + [f"ends\n{n}×" for n in ends]
    floors = ", ".join(
        f"{short(floor)} ({rule}) at {n}×"
        for n in longer
        for rule, floor in [outcomes.floor_at(config, test, n)]
    )
    caption = (
        (f"In the test {test}. " if test else "")
        + "Means over seeds. learned: the seeds that learned the problem in its trained sizes. "
        + f"{METRICS[metric]}: in windows of these multiples of the trained one. Floors of g: "
        + floors + "."
        + (" ends: answers that end where they should, of those whose end is asked for."
           if has_ends else "")
    )  # fmt: skip
    return Grid(columns, lines, caption)


def _at(row: Row, metric: str, window: int) -> float:
    """The mean over seeds; NaN where it was not measured."""
    seeds = row.scores.get(metric, {}).get(window)
    return mean(seeds) if seeds else np.nan


def _cell(value: float) -> str:
    return short(value) if np.isfinite(value) else UNDEFINED
