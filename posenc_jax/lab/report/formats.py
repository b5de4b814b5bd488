"""How reports write numbers, intervals and lengths."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posenc_jax.lab import tasks
from posenc_jax.lab.metrics import metric
from posenc_jax.lab.report.statistics import Interval, interval, share_interval
from posenc_jax.lab.summary import Estimate, LengthSummary

NOT_FINITE = "not finite"


def counted(count: int, noun: str) -> str:
    """A number of things: "1 run", "2 runs"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def with_options(name: str, options: Mapping[str, Any]) -> str:
    """The name of a row whose run states options of the method: "rope, base 14.2"."""
    shown = lambda value: f"{value:.10g}" if isinstance(value, float) else str(value)
    return ", ".join([name, *(f"{option} {shown(value)}" for option, value in options.items())])


def listed(names: Sequence[str], word: str) -> str:
    """Names in a sentence, the last one after a word: "a, b and c"."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def number(value: float | None) -> str:
    """Formats a number with three decimals below 10 and fewer above; says if it is not finite."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    size = abs(value)
    return f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 100 else f"{value:.4g}"


def mean_and_interval(values: Sequence[float], name: str) -> tuple[str, str]:
    """Returns a metric's mean over seeds and its 95% interval as text; "" if it has no interval.

    The interval of a share is given by its ends, ("0.953", ".941–.962"), and that of other metrics
    by half its width, ("2.135", "±0.025"). All reports and pages take these texts from here, so
    that a number is rounded alike wherever it stands.
    """
    spread = interval_of(name)(values)
    if metric(name).is_share:
        return number(spread.mean), share_ends(spread)
    return number(spread.mean), half_width(spread.half)


def plus_minus(cell: Estimate) -> str:
    """Formats a cell as "0.953 ±0.012", or as "0.953" if it has no interval."""
    half = "" if cell.low is None else half_width(cell.mean - cell.low)
    return f"{number(cell.mean)} {half}".rstrip()


def half_width(half: float | None) -> str:
    """Formats half of an interval as "±0.012", or as "" if it is 0: all seeds are alike."""
    return f"±{number(half)}" if half else ""


def span(low: float, high: float, digits: int) -> str:
    """Formats two ends as "0.33 to 0.82", or as "0.33" if they print alike."""
    return " to ".join(dict.fromkeys(f"{value:.{digits}f}" for value in (low, high)))


def share(cell: Estimate) -> str:
    """Formats the mean and the interval of a cell of shares as "0.953 (.941–.962)"."""
    ends = share_ends(share_interval(cell.seeds))
    return f"{cell.mean:.3f}" + (f" ({ends})" if ends else "")


def share_ends(interval: Interval) -> str:
    """Formats the ends of an interval of shares as ".941–.962", or "" if it has no width."""
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return ""
    return "–".join(f"{end:.3f}".removeprefix("0") for end in (interval.low, interval.high))


def small(value: float | None, missing: str = "not finite") -> str:
    """Formats a number that is 0 or positive and may be tiny: "12.3", "0.66", "5e-07", "0"."""
    if value is None or not math.isfinite(value):
        return missing
    return "0" if value == 0 else f"{value:.3g}" if value >= 0.01 else f"{value:.0e}"


def interval_of(name: str) -> Callable[[Sequence[float]], Interval]:
    """Returns the function that makes a metric's 95% interval over seeds from their values."""
    return share_interval if metric(name).is_share else interval


def interval_name(name: str) -> str:
    """Returns what `interval_of` makes, in a sentence."""
    return "95% Wilson interval" if metric(name).is_share else "95% t interval"


def size_unit(summary: LengthSummary) -> str:
    """Returns what the lengths of a run count, in the plural."""
    name = summary.facts.get("task", {}).get("task", "tfds:")
    bytes_ = summary.metric == "bits_per_byte" and name.startswith("tfds:")
    return "bytes" if bytes_ else tasks.unit(name)  # a set of questions has tokens, a text bytes


def length_ratio(length: int, train_length: int) -> str:
    """Returns the ratio of a length to the trained one: "trained", "16×", "0.5×"."""
    return "trained" if length == train_length else f"{length / train_length:.3g}×"
