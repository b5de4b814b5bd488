"""What a claim is: a measurement, and a rule, fixed before the run, that makes it a verdict.

A measurement is numbers with one value for each seed, or a single one where nothing is random. A
rule is a pure function of their means and 95% t intervals over seeds. Its docstring says, and the
page prints, what it asks for and why the thresholds are where they are; the docstring of the
measuring function says how the numbers come about. No verdict stands anywhere but in a rule.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from posenc_jax.lab.report.statistics import Interval, interval

if TYPE_CHECKING:
    from experiments.claims.lab import Lab

Numbers = Mapping[str, Interval]
Values = Sequence[float] | np.ndarray


class Curve(NamedTuple):
    """Something to draw: y over x, with a row of y for each seed, or a single one."""

    x: Values
    y: Sequence[Values] | np.ndarray


class Measured(NamedTuple):
    """numbers: name -> a value for each seed, or a single one. A name says what and where: "bits
    at 256, rope". A comparison is a number of its own, paired seed by seed.

    curves: for the figure alone.
    """

    numbers: Mapping[str, Values]
    curves: Mapping[str, Curve] = {}

    @property
    def intervals(self) -> dict[str, Interval]:
        """What the rule is shown."""
        return {name: interval([*values]) for name, values in self.numbers.items()}


class Verdict(NamedTuple):
    """`reason` is built from the numbers; `when` is the condition of "holds when".

    "not measured" is no rule's: training diverged, a number is not finite, memory was short.
    """

    word: Literal["holds", "holds when", "does not hold", "not measured"]
    reason: str
    when: str = ""

    def __str__(self) -> str:
        return f"{self.word} {self.when}".strip()


class Claim(NamedTuple):
    """One row of the ledger; `figure` draws what was measured."""

    id: str
    text: str
    measure: Callable[["Lab"], Measured]
    rule: Callable[[Numbers], Verdict]
    figure: Callable[[Measured], Figure] | None = None


def claim(
    id: str,
    text: str,
    *,
    rule: Callable[[Numbers], Verdict],
    figure: Callable[[Measured], Figure] | None = None,
) -> Callable[[Callable[["Lab"], Measured]], Claim]:
    """Makes the decorated `measure(lab) -> Measured` the claim `id`, in the words of `text`."""
    return lambda measure: Claim(id, text, measure, rule, figure)


def holds(reason: str) -> Verdict:
    return Verdict("holds", reason)


def holds_when(condition: str, reason: str) -> Verdict:
    return Verdict("holds when", reason, condition)


def fails(reason: str) -> Verdict:
    return Verdict("does not hold", reason)


def unmeasured(reason: str) -> Verdict:
    return Verdict("not measured", reason)


def either(passed: bool, reason: str) -> Verdict:
    """`holds` or `does not hold`, with one reason that gives the numbers either way."""
    return holds(reason) if passed else fails(reason)


def over(number: Interval, bound: float) -> bool:
    """Whether the whole interval lies above the bound; the value itself where there is just one."""
    return (number.mean if number.low is None else number.low) > bound


def under(number: Interval, bound: float) -> bool:
    """Whether the whole interval lies below the bound; the value itself where there is just one."""
    return (number.mean if number.high is None else number.high) < bound


def said(number: Interval | float) -> str:
    """ "2.36 ± 0.02", "1.2e-16": a number as a reason gives it, to three digits."""
    if not isinstance(number, Interval):
        return f"{number:.3g}"
    return f"{number.mean:.3g}" + (f" ± {number.half:.2g}" if number.half else "")
