"""What published orderings would agree by chance: if every order of the methods were as likely."""

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from experiments.board.published.row_results import Result, oriented
from experiments.board.published.verdicts import CLEAR, SAME, UNDECIDED, correlations


class Contrast(NamedTuple):
    """The decided rows of one paper on the same methods, which are one contrast, not several.

    same:   whether each of them has the same order as the paper.
    chance: the chance of that, the largest of its rows'.
    """

    rows: Sequence[str]
    same: bool
    chance: float


def of_row(row: Result) -> float | None:
    """The chance that a row has the same order as the paper; None with fewer than two methods."""
    published = oriented(row.ordering)
    theirs = [published[method] for method in published if method in row.whole.learned]
    return of_order(theirs) if len(theirs) > 1 else None


def of_order(theirs: Sequence[float]) -> float:
    """The share of all orders whose tau-b with these numbers is above CLEAR."""
    orders_RM = np.array([*permutations(range(len(theirs)))], np.float64)
    return float((correlations(np.array(theirs, np.float64), orders_RM) > CLEAR).mean())


def contrasts(rows: Sequence[Result]) -> list[Contrast]:
    """The contrasts of rows, in their order; without those of which no row is decided."""
    groups: dict[tuple, list[Result]] = {}
    for row in rows:
        if row.verdict != UNDECIDED:
            key = row.ordering.paper, *sorted(row.ordering.published)
            groups.setdefault(key, []).append(row)
    return [
        Contrast(
            [row.name for row in group],
            all(row.verdict == SAME for row in group),
            max(of_row(row) or 0.0 for row in group),
        )
        for group in groups.values()
    ]


def at_least(count: int, chances: Sequence[float]) -> float:
    """The probability of so many successes or more among independent trials (Poisson binomial)."""
    probability_K = np.ones(1)
    for chance in chances:
        probability_K = np.convolve(probability_K, [1 - chance, chance])
    return float(probability_K[count:].sum())
