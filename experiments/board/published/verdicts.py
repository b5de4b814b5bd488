"""The verdict on an ordering, by a rule that is fixed before the run.

Kendall's tau-b compares the paper's numbers with our means over seeds, of the methods that learned
the task within the trained sizes. It is 1 if all pairs of methods are in the same order, and -1 if
all are reversed. Its interval holds 95% of what a bootstrap finds that draws the seeds of each
method with replacement. An ordering is

    same order       if the interval is above 1/2
    partly the same  if it is above 0: of three methods, two pairs agree and one does not
    reversed         if it is below -1/2
    not decided      otherwise, with fewer than 3 methods or 3 seeds, or if half of the budget gives
                     another verdict
"""

import inspect
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.report.statistics import paired

LEAST = 3  # methods, and seeds
DRAWS = 1000  # of the bootstrap
LEVEL = 0.95
CLEAR = 0.5  # tau beyond which an order is called the same, or reversed
SAME, PARTLY, REVERSED, UNDECIDED = "same order", "partly the same", "reversed", "not decided"


class Verdict(NamedTuple):
    """tau: the correlation and the ends of its interval; None with fewer than `LEAST`."""

    name: str
    tau: tuple[float, float, float] | None


def verdict(published: Mapping[str, float], ours: Mapping[str, Sequence[float]]) -> Verdict:
    """The verdict at one budget.

    Args:
      published: the paper's number of each method; larger is better.
      ours: the value of every seed of each method that learned the task; larger is better.
    """
    names = [name for name in published if name in ours]
    if min(len(names), *(len(ours[name]) for name in names), LEAST) < LEAST:
        return Verdict(UNDECIDED, None)
    theirs_M = np.array([published[name] for name in names])
    draw = np.random.default_rng(0)
    ours_MS = [np.asarray(ours[name], np.float64) for name in names]
    drawn_MR = [draw.choice(own_S, (DRAWS, len(own_S))).mean(axis=1) for own_S in ours_MS]
    means_RM = np.stack([[own_S.mean() for own_S in ours_MS], *np.transpose(drawn_MR)])
    tau, *found = correlations(theirs_M, means_RM)
    low, high = np.quantile(found, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    above = PARTLY if low > 0 else UNDECIDED
    name = SAME if low > CLEAR else REVERSED if high < -CLEAR else above
    return Verdict(name, (float(tau), float(low), float(high)))


def correlations(a_M: np.ndarray, b_RM: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of one row with each of several, [R]; 0 if all values of a row are equal.

    Pairs that are equal on one side count in neither direction (Kendall 1945).
    """
    first, second = np.triu_indices(len(a_M), 1)
    a_P, b_RP = (np.sign(x[..., first] - x[..., second]) for x in (a_M, b_RM))
    norm_R = np.sqrt((a_P**2).sum() * (b_RP**2).sum(axis=1))
    return (b_RP @ a_P) / np.maximum(norm_R, 1)


def settled(half: Verdict, whole: Verdict) -> str:
    """The verdict on the row: that of the whole budget if half of it gives the same."""
    return whole.name if half.name == whole.name else UNDECIDED


def turned(
    published: Mapping[str, float], ours: Mapping[str, Sequence[float]]
) -> list[tuple[str, str]]:
    """Pairs (a, b) of which a is better in the paper, and b here.

    Here means that the t interval of b - a, paired by seed, is above 0, with Bonferroni's
    correction for the number of pairs.
    """
    names = sorted((n for n in published if n in ours), key=lambda n: -published[n])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]
             if published[a] > published[b]]  # fmt: skip
    better = lambda a, b: paired(ours[b], ours[a], len(pairs)).sign > 0
    return [pair for pair in pairs if better(*pair)]


def rule_hash(orderings: object) -> str:
    """The SHA-256 of this module and of the orderings and settings that are measured."""
    return sha256(f"{inspect.getsource(sys.modules[__name__])}{orderings!r}".encode()).hexdigest()
