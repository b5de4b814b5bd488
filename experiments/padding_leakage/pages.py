"""What the experiment shows: which masks are needed, how much leaks without, and what it costs."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from experiments.padding_leakage import figures
from experiments.padding_leakage.measuring import MASKS, Reading, subset
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.statistics import interval, paired
from posenc_jax.lab.runs import Record, StoredRun

NAMES = [subset([bool(i & bit) for bit in (1, 2, 4)]) for i in range(8)]
ALL = NAMES[-1]
# Of the padding's content nothing may pass. Without the padding a batch is narrower, and the same
# sums are added up in another order.
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
Values = dict[tuple, list[float]]


def summarise(records: Iterable[Record]) -> dict:
    """The summary of a run: leaks and verdicts, attention on padding, accuracy."""
    records = list(records)
    leaks: dict[str, dict] = {change: {} for change in CLEAN}
    mass: Values = {}
    scores: dict[str, dict[str, dict]] = {"token": {}, "pooled": {}}
    lengths = sorted({r["labels"]["length"] for r in records})
    last = max(r["step"] for r in records)
    for r in records:
        metric, labels = r["metric"], r["labels"]
        encoding, masks, length = labels["encoding"], labels["masks"], labels["length"]
        if metric == "leak":
            by_masks = leaks[labels["change"]].setdefault(labels["quantity"], {})
            known = by_masks.setdefault(masks, {}).get(encoding, 0.0)
            by_masks[masks][encoding] = _larger(known, r["value"])
        elif metric == "attention_on_padding" and masks == NAMES[-2]:
            key = encoding, length, "trained" if r["step"] else "untrained", r["seed"]
            mass.setdefault(key, []).append(r["value"])
        elif metric == "accuracy" and r["step"] == last:
            condition = _condition(labels["condition"], length, lengths)
            if condition:
                by_masks = scores[labels["answer"]].setdefault(masks, {})
                by_pair = by_masks.setdefault(condition, {})
                by_pair.setdefault((encoding, r["seed"]), []).append(r["value"])
    return {
        "verdicts": {change: {q: verdict(change, by) for q, by in by_quantity.items()}
                     for change, by_quantity in leaks.items()},
        "leaks": leaks,
        "mass": _mass(mass),
        "accuracy": {kind: _accuracy(by_masks) for kind, by_masks in scores.items()},
    }  # fmt: skip


def _larger(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


def _condition(kind: str, length: int, lengths: Sequence[int]) -> str | None:
    """What a record of accuracy is about; the shortest padding is the nearest to training's."""
    if kind == "padded":
        return (
            "as trained"
            if length == lengths[0]
            else "more padding"
            if length == lengths[-1]
            else None
        )
    return kind if length == lengths[0] else None


def verdict(change: str, leaks: Mapping[str, Mapping[str, float]]) -> dict:
    """The smallest clean sets of masks, and what that makes of each mask; see RULE.

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


def _mass(found: Values) -> dict:
    """encoding -> state -> width -> mean over sides of each seed."""
    mass: dict[str, dict] = {}
    for (encoding, length, state, _), sides in found.items():
        by_width = mass.setdefault(encoding, {}).setdefault(state, {})
        by_width.setdefault(str(length), []).append(float(np.mean(sides)))
    return mass


def _accuracy(by_masks: Mapping[str, Mapping[str, Mapping]]) -> dict:
    """subset -> condition -> mean, and difference from all masks paired by encoding and seed."""
    conditions = [condition for condition in CONDITIONS if condition in by_masks[ALL]]
    comparisons = (len(NAMES) - 1) * len(conditions)
    found: dict[str, dict] = {}
    for masks in NAMES:
        for condition in conditions:
            ours, theirs = ([float(np.mean(sides)) for sides in by_masks[m][condition].values()]
                            for m in (masks, ALL))  # fmt: skip
            mean, low, high, _ = interval(ours)
            gap = paired(ours, theirs, comparisons)
            clear = gap.low is not None and gap.high is not None and (gap.low > 0 or gap.high < 0)
            found.setdefault(masks, {})[condition] = {
                "mean": mean, "low": low, "high": high, "values": ours,
                "difference": gap.mean, "clear": clear,
            }  # fmt: skip
    return found


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line under the page's title, and what `report.present` shows."""
    summary = run.summary
    names, kind = list(summary["mass"]), run.config["model"]["kind"]
    lead = f"{', '.join(names)} · {kind} · {run.config['seeds']} seeds"
    leak = Picture("leak", partial(figures.leak, summary["leaks"], NAMES), figures.LEAK)
    mass = Picture("mass", partial(figures.mass, summary["mass"], run.config["data"]), figures.MASS)
    cost = Picture("accuracy", partial(figures.accuracy, summary["accuracy"]), figures.ACCURACY)
    return lead, [
        Section("Which masks are needed", [RULE, *said(summary["verdicts"]), _roles(summary)]),
        Section("How much leaks", [*(_leaks(summary, change) for change in CLEAN), leak]),
        Section("Attention to padding", [_shares(summary["mass"]), mass]),
        Section("What it costs", [*(_cost(summary, kind) for kind in ("token", "pooled")), cost]),
        Section("Every encoding", [_by_encoding(summary, c, names) for c in CLEAN], folded=True),
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
    return Grid(("what moves", *MASKS), rows, caption, words=True)


def _largest(by_encoding: Mapping[str, float | None]) -> float:
    values = [math.nan if v is None else v for v in by_encoding.values()]
    return math.nan if any(map(math.isnan, values)) else max(values)


def small(value: float) -> str:
    """0, 3e-07, 0.12, 12.3."""
    if not math.isfinite(value):
        return "not finite"
    return "0" if value == 0 else f"{value:.3g}" if value >= 0.01 else f"{value:.0e}"


def _leaks(summary: Mapping, change: str) -> Grid:
    found = summary["leaks"][change]
    rows = [(m, *(small(_largest(found[q][m])) for q in Reading._fields)) for m in NAMES]
    what = "its zeros become random symbols" if change == "content" else "it is taken away"
    return Grid(
        (f"masks on ({change})", *Reading._fields), rows,
        f"Padding: {what}. Largest change of any encoding, side, amount and seed, trained or not.",
    )  # fmt: skip


def _by_encoding(summary: Mapping, change: str, names: Sequence[str]) -> Grid:
    found = summary["leaks"][change]
    rows = [
        (f"{quantity}: {masks}", *(small(_largest({n: found[quantity][masks][n]})) for n in names))
        for quantity in Reading._fields
        for masks in NAMES
    ]
    return Grid((f"by {change}", *names), rows, "Largest change of any side, amount and seed.")


def _shares(mass: Mapping) -> Grid:
    rows = []
    widths = list(next(iter(mass.values()))["trained"])
    for encoding, states in mass.items():
        for state, by_width in states.items():
            cells = [interval(by_width[width]) for width in widths]
            halves = ["" if c.half is None else f" ±{c.half:.3f}" for c in cells]
            shown = [f"{c.mean:.3f}{half}" for c, half in zip(cells, halves, strict=True)]
            rows.append((f"{encoding}, {state}", *shown))
    return Grid(("tokens in all", *widths), rows, (
        "Share of a real token's attention that goes to padding with the attention mask off and "
        "the others on: mean over layers, heads and sides, ± half of a 95% t interval over seeds. "
        "With the mask on it is 0."
    ))  # fmt: skip


def _cost(summary: Mapping, kind: str) -> Grid:
    found = summary["accuracy"][kind]
    rows = [(m, *map(_score, found[m].values())) for m in NAMES]
    what = "the token before each token" if kind == "token" else "the most frequent symbol"
    return Grid((f"{kind} accuracy", *found[ALL]), rows, (
        f"Share of {what} said right by models trained with these masks: mean over encodings, "
        "sides and seeds. *: it differs from all masks, paired by encoding and seed, all "
        "comparisons of the table together at 95%. as trained: zeros, an amount that training had; "
        "junk: as many random symbols; more padding: an amount it never saw."
    ))  # fmt: skip


def _score(cell: Mapping) -> str:
    return f"{cell['mean']:.3f}{'*' if cell['clear'] else ' '}"
