"""Verdicts, and what rules make them from: means and 95% t intervals over seeds.

Some numbers are changes that range over powers of ten. They are measured as base-10 logarithms, so
that their intervals make sense.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from posenc_jax.lab.report.statistics import Interval

NO_CHANGE = -9.0  # the logarithm that stands for no change at all


class Number(Interval):
    """A measured number; as text, in reasons and on pages: "2.36 ± 0.02", "1.2e-16"."""

    def __str__(self) -> str:
        return f"{self.mean:.3g}" + (f" ± {self.half:.2g}" if self.half else "")


class Verdict(NamedTuple):
    """What a rule says of a claim.

    reason: a sentence built from the numbers.
    when: the condition of "holds when".

    No rule gives "not measured": training diverged, a number is not finite, or memory ran out.
    """

    word: Literal["holds", "holds when", "does not hold", "not measured"]
    reason: str
    when: str = ""

    def __str__(self) -> str:
        return f"{self.word} {self.when}".strip()


def verdict(passed: bool, reason: str, *conditions: str) -> Verdict:
    """Returns "holds" if `passed`, "holds when" if there are conditions, else "does not hold".

    An empty condition does not count.
    """
    if not passed:
        return Verdict("does not hold", reason)
    when = " and ".join(filter(None, conditions))
    return Verdict("holds when" if when else "holds", reason, when)


def over(number: Number, bound: float) -> bool:
    """Whether the whole interval lies above the bound; the mean if there is no interval."""
    return (number.mean if number.low is None else number.low) > bound


def under(number: Number, bound: float) -> bool:
    """Whether the whole interval lies below the bound; the mean if there is no interval."""
    return (number.mean if number.high is None else number.high) < bound


def all_over(numbers: Iterable[Number], bound: float) -> bool:
    return all(over(number, bound) for number in numbers)


def all_under(numbers: Iterable[Number], bound: float) -> bool:
    return all(under(number, bound) for number in numbers)


def decades(change) -> np.ndarray:
    """Log10 of changes; NO_CHANGE for those below 1e-9."""
    return np.log10(np.maximum(np.asarray(change, np.float64), 10**NO_CHANGE))


def unchanged(number: Number) -> bool:
    """Whether a number made by `decades` shows no change in any seed."""
    return number.mean == NO_CHANGE


def power(number: Number) -> str:
    """The change whose mean logarithm `number` is: "none", "0.00012", "4.2"."""
    return "none" if unchanged(number) else f"{10**number.mean:.2g}"
