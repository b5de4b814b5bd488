"""A claim: a measurement, and a rule, fixed before the run, that makes a verdict from it.

A measurement is numbers with one value for each seed, or a single value where nothing is random. A
rule is a pure function of their means and 95% t intervals over seeds. The page prints both
docstrings: that of the measuring function says how the numbers are measured, that of the rule what
it asks for and why the thresholds are where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.claims.verdicts import Number, Verdict
from posenc_jax.lab.report.statistics import interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from experiments.claims.models import Lab

Numbers = Mapping[str, Number]
Values = Sequence[float] | np.ndarray


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


class Claim(NamedTuple):
    """One row of the ledger; `figure` draws what was measured."""

    id: str
    text: str
    measure: Callable[[Lab], Measured]
    rule: Callable[[Numbers], Verdict]
    figure: Callable[[Measured], Figure] | None = None


def claim(
    text: str,
    *,
    rule: Callable[[Numbers], Verdict],
    figure: Callable[[Measured], Figure] | None = None,
) -> Callable[[Callable[[Lab], Measured]], Claim]:
    """Makes the decorated `measure(lab) -> Measured` a claim; `text` states it.

    The name of the function is its id: `abs_1` measures abs-1.
    """
    return lambda measure: Claim(measure.__name__.replace("_", "-"), text, measure, rule, figure)
