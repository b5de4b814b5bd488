"""How reports write numbers, and what they call metrics and lengths."""

import math
from collections.abc import Callable, Mapping, Sequence

from posenc_jax.lab import tasks
from posenc_jax.lab.report.statistics import Interval, interval, share_interval
from posenc_jax.lab.tasks.task import BITS

NOT_FINITE = "not finite"

# Metric -> its name in a sentence, and its unit.
METRICS = {
    **{metric: (metric.replace("_", " "), metric.replace("_", " ")) for metric in BITS},
    "accuracy": ("accuracy", "share of examples"),
    "exact_match": ("exact match", "share of sequences"),
    "token_accuracy": ("token accuracy", "share of answer tokens"),
    "bleu": ("BLEU", ""),
    "recall": ("recall", "share of answers"),
    "completed": ("completion", "share of bytes that count"),
    "loss": ("loss", "nats per token"),
}
LOWER = (*BITS, "loss")  # metrics of which lower values are better


def number(value: float | None) -> str:
    """Formats a number with three decimals below 10 and fewer above; says if it is not finite."""
    if value is None or not math.isfinite(value):
        return NOT_FINITE
    size = abs(value)
    return f"{value:.3f}" if size < 10 else f"{value:.2f}" if size < 100 else f"{value:.4g}"


def plus_minus(cell: Mapping) -> str:
    """Formats a cell as "0.953 ±0.012", or as "0.953" if it has no interval."""
    half = "" if cell["low"] is None else f" ±{cell['mean'] - cell['low']:.3f}"
    return f"{cell['mean']:.3f}{half}"


def share(cell: Mapping) -> str:
    """Formats the mean and the interval of a cell of shares as "0.953 (.941–.962)"."""
    ends = share_ends(share_interval(cell["seeds"]))
    return f"{cell['mean']:.3f}" + (f" ({ends})" if ends else "")


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


def better(metric: str) -> str:
    """Returns which values of a metric are better, "lower" or "higher"."""
    return "lower" if metric in LOWER else "higher"


def is_share(metric: str) -> bool:
    """Returns whether a metric is a share, which lies between 0 and 1."""
    return METRICS.get(metric, ("", ""))[1].startswith("share")


def interval_of(metric: str) -> Callable[[Sequence[float]], Interval]:
    """Returns the function that makes a metric's 95% interval over seeds from their values."""
    return share_interval if is_share(metric) else interval


def interval_name(metric: str) -> str:
    """Returns what `interval_of` makes, in a sentence."""
    return "95% Wilson interval" if is_share(metric) else "95% t interval"


def label(metric: str) -> str:
    """Returns the metric's name in a sentence."""
    return METRICS.get(metric, (metric.replace("_", " "), ""))[0]


def axis_label(metric: str) -> str:
    """Returns the metric's name and unit for an axis."""
    name, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
    return name if unit in ("", name) else f"{name} ({unit})"


def size_unit(summary: Mapping) -> str:
    """Returns what the lengths of a run count, in the plural."""
    name = summary.get("facts", {}).get("task", {}).get("task", "tfds:")
    bytes_ = summary["metric"] == "bits_per_byte" and name.startswith("tfds:")
    return "bytes" if bytes_ else tasks.unit(name)  # a set of questions has tokens, a text bytes


def length_ratio(length: int, train_length: int) -> str:
    """Returns the ratio of a length to the trained one: "trained", "16×", "0.5×"."""
    return "trained" if length == train_length else f"{length / train_length:.3g}×"
