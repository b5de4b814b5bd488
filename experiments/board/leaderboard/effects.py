"""What methods reach on each skill, and their effects against the reference: intervals, one
correction, groups; no ranks.

A score is g, the share of what a rule without positions leaves: 0 at the floor and below, 1 where
all is right. Random-effects model: g of a method on a problem with a seed is the mean of the
problem, the effect of the method, that of the method on this problem, and that of the seed.

These problems:  the interval if the same problems were trained with other seeds.
Other problems:  the interval if problems were drawn anew as well, from those like them. Methods
                 differ more from problem to problem than from seed to seed, so it is the wider one.

A few seeds of one method do not tell their variance, and where neither side varies they would tell
0. So seeds of all methods on a problem help: g of a seed has the variance phi g (1 - g), as a share
has, with one phi for the problem (the quasi-binomial model of McCullagh and Nelder 1989, section
4.5). A method's variance is that of its own seeds and of this model, which counts as `PRIOR` more
seeds (as the moderated t of Smyth 2004). So methods that reach the end of the scale, where seeds
hardly differ, have narrow intervals. In a simulation, 95% intervals of 3 seeds hold the mean of .94
of the methods, and of .88 of those in the middle of the scale whose phi is over 2.5 times the
median. Where three seeds in ten fail, they hold that of .63: 3 seeds do not tell it
(`tests/experiments/board/test_effects.py`).

Tests use Satterthwaite's degrees of freedom (1946). Holm's method corrects all tests of the page at
once.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from experiments.board.leaderboard.predictions import FLOOR
from posenc_jax.lab.report.statistics import Interval, holm, interval

PRIOR = 4.0  # seeds that the model of all methods counts as, in the variance of one
END = 0.01  # the model takes g between this and 1 minus this
FEWEST = 3  # seeds on both sides for a star
LEVEL = 0.05
SOLVED = 0.9  # g
ALL = "all skills"

Seeds = Mapping[int, float]  # seed -> g
Scores = Mapping[str, Mapping[str, Seeds]]  # method -> problem -> seed -> g


class Effect(NamedTuple):
    """g of a method minus that of the reference, the mean over the problems of a skill.

    these:  the interval for these problems; without ends where no seed of any method varies.
    others: the interval for other problems; without ends if there is one problem alone.
    p:      of a two-sided test, for these problems; 1 without an interval.
    star:   whether it differs from 0 after the correction for the page.
    """

    these: Interval
    others: Interval
    p: float
    star: bool = False


def levels(scores: Scores, skills: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Interval]]:
    """method -> skill -> g, the mean over its problems, with the interval for these problems.

    skills: skill -> its problems. A method without a score on one of them has no entry there.
    """
    variance = _variances(scores)
    return {
        method: {
            skill: _interval(*_mean(method, problems, scores, variance), len(problems))
            for skill, problems in _whole(skills, by_problem).items()
        }
        for method, by_problem in scores.items()
    }


def group(g: Interval) -> str:
    """The group of a method: "solved" or "floor" if the whole interval is there, else "between"."""
    low, high = (g.mean if end is None else end for end in (g.low, g.high))
    return "solved" if low > SOLVED else "floor" if high < FLOOR else "between"


def effects(
    scores: Scores, skills: Mapping[str, Sequence[str]], reference: str
) -> dict[str, dict[str, Effect]]:
    """method -> skill -> its effect against the reference; `ALL` is the mean over skills.

    Raises:
      ValueError: the reference has no scores.
    """
    if reference not in scores:
        raise ValueError(f"reference: {reference!r} has no scores; choose from {sorted(scores)}")
    variance = _variances(scores)
    problems_of = {**skills, ALL: [p for problems in skills.values() for p in problems]}
    by_method: dict[str, dict[str, Effect]] = {}
    for method, by_problem in scores.items():
        if method == reference:
            continue
        whole = _whole(skills, by_problem.keys() & scores[reference].keys())
        units = {skill: [[problem] for problem in problems] for skill, problems in whole.items()}
        if len(whole) == len(skills) > 1:
            units[ALL] = [list(problems) for problems in whole.values()]
        by_method[method] = {
            skill: _effect(method, reference, of_skill, scores, variance)
            for skill, of_skill in units.items()
        }
    tests = {
        (method, skill): effect.p
        for method, by_skill in by_method.items()
        for skill, effect in by_skill.items()
        if _seeds(scores, (method, reference), problems_of[skill]) >= FEWEST
    }
    starred = holm(tests, LEVEL)
    return {
        method: {s: e._replace(star=(method, s) in starred) for s, e in by_skill.items()}
        for method, by_skill in by_method.items()
    }


def _whole(
    skills: Mapping[str, Sequence[str]], scored: Collection[str]
) -> dict[str, Sequence[str]]:
    """The skills of which every problem is scored."""
    return {s: problems for s, problems in skills.items() if all(p in scored for p in problems)}


def _seeds(scores: Scores, methods: Sequence[str], problems: Sequence[str]) -> int:
    """The fewest seeds of these methods on these problems."""
    return min(len(scores[m][p]) for m in methods for p in problems)


def _variances(scores: Scores) -> dict[tuple[str, str], tuple[float, float]]:
    """(method, problem) -> the variance of a seed, and its degrees of freedom."""
    squares: dict[str, float] = {}
    expected: dict[str, float] = {}
    for by_problem in scores.values():
        for problem, seeds in by_problem.items():
            values = np.array([*seeds.values()])
            squares[problem] = squares.get(problem, 0.0) + float(values.var() * values.size)
            of_seeds = (values.size - 1) * _spread(values)
            expected[problem] = expected.get(problem, 0.0) + of_seeds
    result = {}
    for method, by_problem in scores.items():
        for problem, seeds in by_problem.items():
            values = np.array([*seeds.values()])
            freedom = PRIOR + values.size - 1
            phi = squares[problem] / expected[problem] if expected[problem] else 0.0
            total = PRIOR * phi * _spread(values) + float(values.var() * values.size)
            result[method, problem] = total / freedom, freedom
    return result


def _spread(values: np.ndarray) -> float:
    """g (1 - g) of the mean: the variance that the model expects, divided by phi."""
    g = float(np.clip(values.mean(), END, 1 - END))
    return g * (1 - g)


def _mean(method, problems, scores, variance) -> tuple[float, list[tuple[float, float]]]:
    """The mean over problems, and the parts of its variance with their degrees of freedom."""
    cells = [(scores[method][problem], *variance[method, problem]) for problem in problems]
    mean = float(np.mean([np.mean([*seeds.values()]) for seeds, *_ in cells]))
    return mean, [(v / len(seeds) / len(cells) ** 2, freedom) for seeds, v, freedom in cells]


def _effect(method, reference, units: Sequence[Sequence[str]], scores, variance) -> Effect:
    """The mean over units, each a few problems; other problems are other units."""
    means, parts = [], []
    for problems in units:
        (ours, our_parts), (theirs, their_parts) = (
            _mean(name, problems, scores, variance) for name in (method, reference)
        )
        means.append(ours - theirs)
        parts += [(v / len(units) ** 2, freedom) for v, freedom in our_parts + their_parts]
    mean = float(np.mean(means))
    return Effect(_interval(mean, parts, len(parts) // 2), interval(means), _p(mean, parts))


def _error(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The standard error of a sum of independent parts, and its degrees of freedom."""
    total = sum(v for v, _ in parts)
    if not total:
        return 0.0, math.inf
    return math.sqrt(total), total**2 / sum(v**2 / freedom for v, freedom in parts)


def _interval(mean: float, parts: Sequence[tuple[float, float]], size: int) -> Interval:
    error, freedom = _error(parts)
    if not error or not np.isfinite(mean):
        return Interval(mean, None, None, size)
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    return Interval(mean, mean - half, mean + half, size)


def _p(mean: float, parts: Sequence[tuple[float, float]]) -> float:
    error, freedom = _error(parts)
    if not error or not np.isfinite(mean):
        return 1.0
    return float(2 * stdtr(freedom, -abs(mean) / error))
