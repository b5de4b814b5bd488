"""Which results of the page of skills still change with the budget: they are not decided."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.board.leaderboard.effects import Scores
from experiments.board.leaderboard.task_table import label
from posenc_jax.lab.report import Grid, Section

MOVES = 0.1  # of g


class Cell(NamedTuple):
    """g of a method on a skill, the mean over its problems and the seeds that both budgets share.

    g:      with the steps of the page.
    longer: with more steps.
    """

    method: str
    skill: str
    g: float
    longer: float

    @property
    def moves(self) -> bool:
        return abs(self.longer - self.g) > MOVES


def cells(scores: Scores, longer: Scores, skills: Mapping[str, Sequence[str]]) -> list[Cell]:
    """The cells whose problems were all measured with both budgets."""
    rows = []
    for method in (name for name in scores if name in longer):
        for skill, problems in skills.items():
            pairs = [
                (scores[method].get(problem, {}), longer[method].get(problem, {}))
                for problem in problems
            ]
            if all(short.keys() & long.keys() for short, long in pairs):
                means = [
                    [np.mean([side[seed] for seed in short.keys() & long.keys()])
                     for side in (short, long)]
                    for short, long in pairs
                ]  # fmt: skip
                rows.append(Cell(method, skill, *map(float, np.mean(means, axis=0))))
    return rows


def sentence(measured: Sequence[Cell], steps: int) -> str:
    """How many results change."""
    moving = sum(cell.moves for cell in measured)
    return (
        f"With {steps:,} steps {moving} of {len(measured)} results that were measured again change "
        f"by more than {MOVES}: they are not decided (‡)."
    )


def section(measured: Sequence[Cell], steps: int) -> Section:
    """The results that change, with both budgets."""
    moving = sorted((cell for cell in measured if cell.moves), key=lambda c: (c.skill, c.method))
    rows = [
        (cell.skill, label(cell.method), f"{cell.g:.2f}", f"{cell.longer:.2f}") for cell in moving
    ]
    caption = (
        f"g of the {len(moving)} results, of {len(measured)}, that change by more than {MOVES} "
        f"with {steps:,} steps; both are means over the same seeds."
    )
    columns = ["skill", "method", "g", f"g with\n{steps:,} steps"]
    return Section(f"With {steps:,} steps", [Grid(columns, rows, caption)], folded=True)
