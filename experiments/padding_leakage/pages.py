"""The report of the experiment: which masks are needed, what leaks without them, what they cost."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from experiments.padding_leakage import figures
from experiments.padding_leakage.measuring import MASKS, Computed, subset
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.formats import share, small
from posenc_jax.lab.report.statistics import estimate, interval, paired
from posenc_jax.lab.report.summaries import collect, largest, lead, nested
from posenc_jax.lab.runs import Record, StoredRun
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
    found = nested({key: largest(v) for key, v in collect(records, _leak_key).items()})
    leaks = {change: {name: found[change][name] for name in Computed._fields} for change in CLEAN}
    lengths = sorted({record["labels"]["length"] for record in records})
    last = max(record["step"] for record in records)
    scores = nested(collect(records, partial(_accuracy_key, lengths, last)))
    own = {
        "verdicts": {
            change: {quantity: verdict(change, by_masks) for quantity, by_masks in found.items()}
            for change, found in leaks.items()
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


def _mass(found: Mapping[tuple, Sequence[float]]) -> dict:
    """encoding -> state -> width -> mean over sides of each seed."""
    means: dict[tuple, list[float]] = {}
    for (*path, _seed), sides in found.items():
        means.setdefault(tuple(path), []).append(float(np.mean(sides)))
    return nested(means)


def _accuracy(by_masks: Mapping[str, Mapping[str, Mapping]]) -> dict:
    """subset -> condition -> mean, and difference from all masks paired by encoding and seed."""
    conditions = [condition for condition in CONDITIONS if condition in by_masks[ALL]]
    comparisons = (len(NAMES) - 1) * len(conditions)
    found: dict[str, dict] = {}
    for masks in NAMES:
        for condition in conditions:
            ours, theirs = ([float(np.mean(sides)) for sides in by_masks[m][condition].values()]
                            for m in (masks, ALL))  # fmt: skip
            gap = paired(ours, theirs, comparisons)
            mean, low, high, _ = interval(ours)
            found.setdefault(masks, {})[condition] = {
                "mean": mean, "low": low, "high": high, "values": ours, "difference": gap.mean,
                "clear": gap.sign != 0,
            }  # fmt: skip
    return found


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    summary = run.summary.own
    count, kind = len(summary["mass"]), run.config["model"]["kind"]
    leak = Picture("leak", partial(figures.leak, summary["leaks"], NAMES), figures.LEAK)
    mass = Picture("mass", partial(figures.mass, summary["mass"], run.config["data"]), figures.MASS)
    draw = partial(figures.accuracy, summary["accuracy"], run.config["data"])
    cost = Picture("accuracy", draw, figures.ACCURACY)
    return lead(run, f"{count} methods", kind, f"{run.config['seeds']} seeds"), [
        Section("Which masks are needed", [
            RULE, *said(summary["verdicts"]), _roles(summary), *_not_measured(summary),
        ]),
        Section("How much leaks", [*(_leaks(summary, change) for change in CLEAN), leak]),
        Section("Attention to padding", [shares(summary["mass"]), mass]),
        Section("Accuracy by masks", [*(_cost(summary, k) for k in ("token", "pooled")), cost]),
        Section("Every method", _by_method(summary), folded=True),
    ]  # fmt: skip


def _not_measured(summary: Mapping) -> list[str]:
    """The methods that are left out, by reason."""
    left_out = summary["left_out"]
    names = lambda reason: ", ".join(name for name, why in left_out.items() if why == reason)
    return [
        f"Not measured, {reason}: {names(reason)}." for reason in dict.fromkeys(left_out.values())
    ]


def said(verdicts: Mapping) -> list[str]:
    """The verdicts as sentences."""
    changes = {
        "content": "the content of the padding changes",
        "amount": "the padding is taken away",
    }
    return [
        f"When {changes[change]}, "
        + "; ".join(
            f"{quantity}: {' or '.join(v['smallest']) or 'no set of masks'} is enough"
            for quantity, v in by_quantity.items()
        )
        + "."
        for change, by_quantity in verdicts.items()
    ]


def _roles(summary: Mapping) -> Grid:
    rows = [
        (f"{quantity}, by {change}", *(v["masks"][mask] for mask in MASKS))
        for change, by_quantity in summary["verdicts"].items()
        for quantity, v in by_quantity.items()
    ]
    caption = "What each mask is for each quantity, by the rule above."
    return Grid(("quantity", *MASKS), rows, caption, words=True)


def _leaks(summary: Mapping, change: str) -> Grid:
    found = summary["leaks"][change]
    rows = [(m, *(small(largest(found[q][m].values())) for q in Computed._fields)) for m in NAMES]
    what = "its zeros become random symbols" if change == "content" else "it is taken away"
    caption = (
        f"Padding: {what}. Largest change of any encoding, side, amount and seed, trained or not."
    )
    return Grid((f"masks on ({change})", *Computed._fields), rows, caption)


def _by_method(summary: Mapping) -> list[Grid]:
    """A table of every method and every set of masks for each quantity."""
    return [
        Grid(
            (f"{quantity} by {change}", *NAMES),
            [(method, *(small(by_masks[masks][method]) for masks in NAMES))
             for method in summary["mass"]],
            "Largest change of any side, amount and seed.",
        )
        for change, by_quantity in summary["leaks"].items()
        for quantity, by_masks in by_quantity.items()
    ]  # fmt: skip


def shares(mass: Mapping, cell: Callable[[Sequence[float]], str] | None = None) -> Grid:
    """A row for each method; `cell` formats the seeds of one, by default as mean and interval."""
    cell = cell or (lambda seeds: share(estimate(seeds)))
    widths = list(next(iter(mass.values()))["trained"])
    rows = [
        (f"{method}, {state}", *(cell(by_width[width]) for width in widths))
        for method, states in mass.items()
        for state, by_width in states.items()
    ]
    caption = (
        "Share of a real token's attention that goes to padding with the attention mask off and "
        "the others on: mean over layers, heads and sides (95% Wilson interval over seeds). "
        "With the mask on it is 0."
    )
    return Grid(("tokens in all", *widths), rows, caption)


def _cost(summary: Mapping, kind: str) -> Grid:
    found = summary["accuracy"][kind]
    score = lambda cell: f"{cell['mean']:.3f}{'*' if cell['clear'] else ' '}"
    rows = [(m, *map(score, found[m].values())) for m in NAMES]
    what = "the token before each token" if kind == "token" else "the most frequent symbol"
    caption = (
        f"Share of {what} said right by models trained with these masks: mean over encodings, "
        "sides and seeds. *: it differs from all masks, paired by encoding and seed, all "
        "comparisons of the table together at 95%. as trained: zeros, an amount that training had; "
        "junk: as many random symbols; more padding: an amount it never saw."
    )
    return Grid((f"{kind} accuracy", *found[ALL]), rows, caption)
