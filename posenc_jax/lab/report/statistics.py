"""A mean and its interval over seeds: the t interval, alone or paired, and one for shares."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import stdtr, stdtrit

from posenc_jax.lab.summary import Estimate

K = TypeVar("K", bound=Hashable)
ROUNDING = 1e-6  # by which a float32 share may lie outside [0, 1]


class Interval(NamedTuple):
    """A mean of `size` values and its interval; `low` and `high` are None if there is none."""

    mean: float
    low: float | None
    high: float | None
    size: int

    @property
    def half(self) -> float | None:
        """Half the width; None if there is no interval."""
        return None if self.low is None else self.mean - self.low

    @property
    def sign(self) -> int:
        """1 if the interval is above 0, -1 if it is below 0, else 0."""
        return int((self.low or 0.0) > 0) - int((self.high or 0.0) < 0)


def interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> Interval:
    """Returns the mean and the two-sided t interval of independent values (Student 1908).

    One value has no interval. If a value is not finite, the mean is NaN and has no interval.

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


def share_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Returns the mean of independent shares, and a two-sided interval that lies within 0 and 1.

    Wilson's score interval (1927) for n trials, with the t quantile and the effective n: the number
    of trials whose binomial variance is the variance of the mean over these values, as for
    clustered samples (Korn and Graubard 1998). Equal values have an interval without width; one
    value has none, nor do values that are not finite.

    Raises:
      ValueError: a value outside [0, 1] by more than ROUNDING; or as `interval`.
    """
    outside = [value for value in values if value < -ROUNDING or value > 1 + ROUNDING]
    if outside:
        raise ValueError(f"values: {outside[0]} is no share, which lies between 0 and 1")
    mean, low, high, size = interval(np.clip(values, 0, 1), level)
    if low is None or high is None or low == high:
        return Interval(mean, low, high, size)
    spread = (high - low) ** 2 / 4 / (mean * (1 - mean))  # squared quantile / effective n
    half = math.sqrt(spread**2 + 4 * spread * mean * (1 - mean))
    middle = 2 * mean + spread
    low, high = ((middle + side) / (2 * (1 + spread)) for side in (-half, half))
    return Interval(mean, max(low, 0.0), min(high, 1.0), size)


def estimate(
    values: Sequence[float], interval_fn: Callable[[Sequence[float]], Interval] = interval
) -> Estimate:
    """Returns the mean over seeds, its 95% interval and every seed, as a summary holds them."""
    mean, low, high, _ = interval_fn(values)
    return Estimate(mean, low, high, list(values))


def paired(a: Sequence[float], b: Sequence[float], comparisons: int = 1) -> Interval:
    """Returns the mean of a - b over pairs and its interval, at 95% for all `comparisons` together.

    The level has the Bonferroni correction: where the interval does not hold 0, a paired t test
    rejects at a family-wise error rate of 5%.

    Raises:
      ValueError: sides of different lengths, no pairs, or fewer than one comparison.
    """
    if len(a) != len(b):
        raise ValueError(
            f"pairs: {len(a)} values against {len(b)}; each value needs one of the other side"
        )
    if comparisons < 1:
        raise ValueError(f"comparisons: {comparisons} must be 1 or more")
    return interval([x - y for x, y in zip(a, b, strict=True)], 1 - 0.05 / comparisons)


def p_value(values: Sequence[float]) -> float:
    """Returns the p-value of a two-sided t test that the mean of independent values is 0.

    One value has 1; so has a value that is not finite. Equal values have 1 if they are 0, else 0.
    """
    x = np.asarray(values, np.float64)
    if x.size < 2 or not np.isfinite(x).all():
        return 1.0
    if (x == x[0]).all():
        return float(x[0] == 0)
    return float(2 * stdtr(x.size - 1, -abs(x.mean()) / (x.std(ddof=1) / math.sqrt(x.size))))


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[Interval, float]:
    """Returns the mean of a minus that of b, its 95% interval, and its p-value (Welch 1947).

    The sides are independent and may differ in their size and their variance. With fewer than two
    values on a side, or a value that is not finite, there is no interval and the p-value is 1; if
    neither side varies, it is 1 if they are equal, else 0.
    """
    x, y = (np.asarray(side, np.float64) for side in (a, b))
    size, mean = min(x.size, y.size), float(x.mean() - y.mean())
    if size < 2 or not np.isfinite(mean):
        return Interval(mean if np.isfinite(mean) else math.nan, None, None, size), 1.0
    parts = [side.var(ddof=1) / side.size for side in (x, y)]
    if not (error := math.sqrt(sum(parts))):
        return Interval(mean, mean, mean, size), float(mean == 0)
    freedom = sum(parts) ** 2 / sum(p**2 / (s.size - 1) for p, s in zip(parts, (x, y), strict=True))
    half = float(stdtrit(freedom, 0.975)) * error
    p = float(2 * stdtr(freedom, -abs(mean) / error))
    return Interval(mean, mean - half, mean + half, size), p


def holm(p_values: Mapping[K, float], level: float = 0.05) -> set[K]:
    """Returns the tests that reject at this family-wise error rate (Holm 1979)."""
    rejected: set[K] = set()
    for left, key in zip(
        range(len(p_values), 0, -1), sorted(p_values, key=p_values.__getitem__), strict=True
    ):
        if p_values[key] > level / left:
            break
        rejected.add(key)
    return rejected
