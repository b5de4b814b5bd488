"""A claim: a measurement, and a rule, hashed before the run, that makes a verdict from it.

A measurement is numbers with one value for each seed, or a single value where nothing is random. A
rule is a pure function of their means and 95% t intervals over seeds. It may ask for what must be
shown (`over`, `under`), never for what must not be: a narrower interval then never takes a "holds"
back. The page prints both docstrings: that of the measuring function says how the numbers are
measured, that of the rule what it asks for and why the thresholds are where they are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from scipy.special import stdtrit

from experiments.claims.models import Lab
from posenc_jax.lab.report.statistics import Interval, interval

NO_CHANGE = -9.0  # the logarithm that stands for no change at all
Values = Sequence[float] | np.ndarray


class Number(Interval):
    """A measured number; as text, in reasons and on pages: "2.36 ± 0.020", "1.00", "1.20e-16"."""

    def __str__(self) -> str:
        digits = lambda value, count: f"{value:#.{count}g}".rstrip(".")  # zeros at the end are kept
        return digits(self.mean, 3) + (f" ± {digits(self.half, 2)}" if self.half else "")

    def over(self, bound: float) -> bool:
        """Whether the whole interval lies above the bound; the mean if there is no interval."""
        return (self.mean if self.low is None else self.low) > bound

    def under(self, bound: float) -> bool:
        """Whether the whole interval lies below the bound; the mean if there is no interval."""
        return (self.mean if self.high is None else self.high) < bound

    def at(self, alpha: float, lenient: bool = False) -> "Number":
        """The number with its interval at level 1 - alpha.

        lenient: with the ends exchanged, so that `over` and `under` are false only if the whole
          interval lies on the other side.
        """
        if self.half is None:
            return self
        half = self.half * stdtrit(self.size - 1, 1 - alpha / 2) / stdtrit(self.size - 1, 0.975)
        half = -half if lenient else half
        return Number(self.mean, self.mean - half, self.mean + half, self.size)

    @property
    def unchanged(self) -> bool:
        """Whether a number made by `decades` shows no change in any seed."""
        return self.mean == NO_CHANGE

    @property
    def power(self) -> str:
        """The change whose mean logarithm the number is: "none", "0.00012", "4.2"."""
        return "none" if self.unchanged else f"{10**self.mean:.2g}"


def decades(change) -> np.ndarray:
    """Log10 of changes, whose intervals make sense over many powers of ten; NO_CHANGE for those
    below 1e-9.
    """
    return np.log10(np.maximum(np.asarray(change, np.float64), 10**NO_CHANGE))


class Curve(NamedTuple):
    """A line of a figure: y over x, with a row of y for each seed, or a single row."""

    x: Values
    y: Sequence[Values] | np.ndarray


class Measured(NamedTuple):
    """The results of a claim.

    numbers: name -> a value for each seed, or a single one. A name says what and where: "bits at
      256, rope". A comparison is a number of its own, paired seed by seed.
    curves: for the figure only.
    """

    numbers: Mapping[str, Values]
    curves: Mapping[str, Curve] = {}

    @property
    def intervals(self) -> dict[str, Number]:
        """The numbers as a rule reads them."""
        return {name: Number(*interval([*values])) for name, values in self.numbers.items()}


class Verdict(NamedTuple):
    """What a rule says of a claim.

    reason: a sentence with at most three numbers.
    when: the condition of "holds when"; of "not decided", at what.

    No rule gives "not measured": training diverged, a number is not finite, or memory ran out. Nor
    "not decided": the budgets disagree, or a difference is not significant; see `decisions.py`.
    """

    word: Literal["holds", "holds when", "does not hold", "not decided", "not measured"]
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


Numbers = Mapping[str, Number]
Rule = Callable[[Numbers], Verdict]
Draw = Callable[[Measured], Figure]


class Claim(NamedTuple):
    """One row of the ledger; `figure` draws what was measured."""

    id: str
    text: str
    measure: Callable[[Lab], Measured]
    rule: Rule
    figure: Draw | None = None


def claim(
    text: str, *, rule: Rule, figure: Draw | None = None
) -> Callable[[Callable[[Lab], Measured]], Claim]:
    """Makes the decorated `measure(lab) -> Measured` a claim; `text` states it.

    The name of the function is its id: `abs_1` measures abs-1.
    """
    return lambda measure: Claim(measure.__name__.replace("_", "-"), text, measure, rule, figure)
