"""The summary of the experiment, made from its records, and the rule of its verdicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from experiments.invariance.padding_leakage.leaks import MASKS, Computed, subset
from posenc_jax.lab.report.statistics import interval, paired
from posenc_jax.lab.report.summaries import collect, largest, nested
from posenc_jax.lab.runs import Record
from posenc_jax.lab.summary import Summary

NAMES = [subset([bool(i & bit) for bit in (1, 2, 4)]) for i in range(8)]
ALL = NAMES[-1]
# The content of the padding may change no bit. Without the padding a batch is narrower, and the
# same sums are added in another order.
CLEAN = {"content": 0.0, "amount": 1e-4}
RULE = (
    "A set of masks is clean for a quantity if it moves by exactly 0 when the content of the "
    f"padding changes, by at most {CLEAN['amount']:g} when the padding is taken away; for every "
    "encoding, side, amount and seed, untrained and trained. A mask is necessary if every clean "
    "set has it, one of several ways if only some of the smallest clean sets have it, and only "
    "tidy if none of them has."
)
NECESSARY, ONE_WAY, TIDY, NO_HELP = "necessary", "one of several ways", "only tidy", "no help"
CONDITIONS = ("unpadded", "as trained", "junk", "more padding")


def summarise(records: Iterable[Record], left_out: Mapping[str, str]) -> Summary:
    """The summary of a run: leaks and verdicts, attention on padding, accuracy.

    left_out: the methods that are not measured, with the reasons.
    """
    records = list(records)
    by_change = nested({key: largest(v) for key, v in collect(records, _leak_key).items()})
    leaks = {
        change: {name: by_change[change][name] for name in Computed._fields} for change in CLEAN
    }
    lengths = sorted({record["labels"]["length"] for record in records})
    last = max(record["step"] for record in records)
    scores = nested(collect(records, partial(_accuracy_key, lengths, last)))
    own = {
        "verdicts": {
            change: {
                quantity: verdict(change, by_masks) for quantity, by_masks in by_quantity.items()
            }
            for change, by_quantity in leaks.items()
        },
        "leaks": leaks,
        "mass": _mass(collect(records, _mass_key)),
        "accuracy": {answer: _accuracy(scores[answer]) for answer in ("token", "pooled")},
        "left_out": dict(left_out),
    }
    return Summary(own=own)


def _leak_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] != "leak":
        return None
    return labels["change"], labels["quantity"], labels["masks"], labels["encoding"]


def _mass_key(record: Record) -> tuple | None:
    labels = record["labels"]
    if record["metric"] != "attention_on_padding" or labels["masks"] != NAMES[-2]:
        return None
    state = "trained" if record["step"] else "untrained"
    return labels["encoding"], state, str(labels["length"]), record["seed"]


def _accuracy_key(lengths: Sequence[int], last: int, record: Record) -> tuple | None:
    """Of the trained models, where the record belongs to one of CONDITIONS."""
    labels = record["labels"]
    if record["metric"] != "accuracy" or record["step"] != last:
        return None
    condition, length = labels["condition"], labels["length"]
    if condition == "padded":
        condition = {lengths[-1]: "more padding", lengths[0]: "as trained"}.get(length)
    elif length != lengths[0]:
        condition = None
    if condition is None:
        return None
    return labels["answer"], labels["masks"], condition, (labels["encoding"], record["seed"])


def verdict(change: str, leaks: Mapping[str, Mapping[str, float]]) -> dict:
    """The smallest clean sets of masks, and the role of each mask; see RULE.

    leaks: subset -> encoding -> largest change.
    """
    sets = [
        frozenset(masks.split("+")) - {"none"}
        for masks, by_encoding in leaks.items()
        if all(value <= CLEAN[change] for value in by_encoding.values())
    ]
    smallest = [s for s in sets if not any(other < s for other in sets)]
    return {
        "smallest": sorted("+".join(m for m in MASKS if m in s) or "none" for s in smallest),
        "masks": {mask: _role(mask, smallest) for mask in MASKS},
    }


def _role(mask: str, smallest: Sequence[Collection[str]]) -> str:
    if not smallest:
        return NO_HELP
    share = sum(mask in s for s in smallest) / len(smallest)
    return NECESSARY if share == 1 else ONE_WAY if share else TIDY


def _mass(sides_by_path: Mapping[tuple, Sequence[float]]) -> dict:
    """encoding -> state -> width -> mean over sides of each seed."""
    means: dict[tuple, list[float]] = {}
    for (*path, _seed), sides in sides_by_path.items():
        means.setdefault(tuple(path), []).append(float(np.mean(sides)))
    return nested(means)


def _accuracy(by_masks: Mapping[str, Mapping[str, Mapping]]) -> dict:
    """subset -> condition -> mean, and difference from all masks paired by encoding and seed."""
    conditions = [condition for condition in CONDITIONS if condition in by_masks[ALL]]
    comparisons = (len(NAMES) - 1) * len(conditions)
    scores: dict[str, dict] = {}
    for masks in NAMES:
        for condition in conditions:
            ours, theirs = ([float(np.mean(sides)) for sides in by_masks[m][condition].values()]
                            for m in (masks, ALL))  # fmt: skip
            gap = paired(ours, theirs, comparisons)
            mean, low, high, _ = interval(ours)
            scores.setdefault(masks, {})[condition] = {
                "mean": mean, "low": low, "high": high, "values": ours, "difference": gap.mean,
                "clear": gap.sign != 0,
            }  # fmt: skip
    return scores
