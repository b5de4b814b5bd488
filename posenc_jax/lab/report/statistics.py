"""A mean and its t interval over seeds, alone or paired."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit


class Interval(NamedTuple):
    """A mean over `size` values and its interval; `low` and `high` are None if there is none."""

    mean: float
    low: float | None
    high: float | None
    size: int

    @property
    def half(self) -> float | None:
        return None if self.low is None else self.mean - self.low


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Returns the mean and the two-sided Student t interval of independent values (Student 1908).

    One value has no interval. If a value is not finite, the mean is NaN.

    Raises:
      ValueError: no values, or a level outside (0, 1).
    """
    if not len(values):
        raise ValueError("values: none given; an interval takes one value or more")
    if not 0 < level < 1:
        raise ValueError(f"level: {level} must lie between 0 and 1")
    x = np.asarray(values, np.float64)
    if not np.isfinite(x).all():
        return Interval(math.nan, None, None, x.size)
    mean = float(x.mean())
    if x.size == 1:
        return Interval(mean, None, None, 1)
    half = stdtrit(x.size - 1, (1 + level) / 2) * x.std(ddof=1) / math.sqrt(x.size)
    return Interval(mean, mean - float(half), mean + float(half), x.size)


def paired(a: Sequence[float], b: Sequence[float], comparisons: int = 1) -> Interval:
    """Returns the interval of the mean of a - b over pairs, at 95% for all `comparisons` together.

    The level has the Bonferroni correction: an interval without 0 is a paired t test that rejects
    at a family-wise error rate of 5%.

    Raises:
      ValueError: sides of different lengths, no pairs, or fewer than one comparison.
    """
    if len(a) != len(b):
        raise ValueError(f"pairs: {len(a)} values against {len(b)}; each needs its partner")
    if comparisons < 1:
        raise ValueError(f"comparisons: {comparisons} must be 1 or more")
    return interval([x - y for x, y in zip(a, b, strict=True)], 1 - 0.05 / comparisons)
