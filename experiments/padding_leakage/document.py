"""The page of the experiment in docs/."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.padding_leakage.measuring import MASKS
from experiments.padding_leakage.pages import ALL, CLEAN, NAMES, NECESSARY, sections, shares
from posenc_jax.lab.report import Grid, Section
from posenc_jax.lab.report.formats import small
from posenc_jax.lab.report.summaries import largest, only
from posenc_jax.lab.runs import StoredRun


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = only(runs)
    return conclusions(run.summary.own), [*sections(run)[1], _seeds(run.summary.own)]


def conclusions(summary: Mapping) -> list[str]:
    """Three sentences made from the numbers: all masks on, the role of each mask, their effect."""
    most = {change: _all_masks(summary, change) for change in CLEAN}
    count = len(most["content"])
    leaky = list(dict.fromkeys(n for c in CLEAN for n, v in most[c].items() if not v <= CLEAN[c]))
    needed = "; ".join(f"{mask}: {_necessary(summary, mask)}" for mask in MASKS)
    masses = [np.mean(v) for by_state in summary["mass"].values()
              for v in by_state["trained"].values()]  # fmt: skip
    token = summary["accuracy"]["token"]
    scores = [f"{token[masks]['junk']['mean']:.3f}" for masks in (ALL, NAMES[-2])]
    return [
        f"With all masks on, other content of the padding changes a result of {count} methods by "
        f"at most {small(largest(most['content'].values()))}, and taking the padding away by at "
        f"most {small(largest(most['amount'].values()))}; above the bounds of the rule below: "
        f"{', '.join(leaky) or 'none'}.",
        f"What each mask is necessary for, when content and amount of padding change: {needed}.",
        f"With the attention mask off, trained models give {min(masses):.3f} to {max(masses):.3f} "
        f"of a token's attention to padding, and among random symbols as padding the share of "
        f"tokens answered right is {scores[1]}, with all masks {scores[0]}.",
    ]


def _necessary(summary: Mapping, mask: str) -> str:
    """The quantities that a mask is necessary for, with the change if it is one of the two."""
    changes: dict[str, list[str]] = {}
    for change, by_quantity in summary["verdicts"].items():
        for quantity, found in by_quantity.items():
            if found["masks"][mask] == NECESSARY:
                changes.setdefault(quantity, []).append(change)
    named = (q if len(by) == len(CLEAN) else f"{q} ({by[0]})" for q, by in changes.items())
    return ", ".join(named) or "nothing"


def _all_masks(summary: Mapping, change: str) -> dict[str, float]:
    """method -> the largest change of any quantity with all masks on."""
    found = [by_masks[ALL] for by_masks in summary["leaks"][change].values()]
    return {name: largest(by_method[name] for by_method in found) for name in found[0]}


def _seeds(summary: Mapping) -> Section:
    """The values of every seed, folded; those of the leaks are among the records."""
    parts = [shares(summary["mass"], lambda seeds: " ".join(f"{v:.3f}" for v in seeds))]
    methods = list(summary["mass"])
    for kind, found in summary["accuracy"].items():
        values = {
            m: np.reshape(found[m]["as trained"]["values"], (len(methods), -1)) for m in NAMES
        }
        rows = [
            (method, *(" ".join(f"{v:.3f}" for v in values[m][i]) for m in NAMES))
            for i, method in enumerate(methods)
        ]
        caption = f"Accuracy, {kind}, with padding as in training: every seed, mean over sides."
        parts.append(Grid((f"{kind} accuracy", *NAMES), rows, caption))
    return Section("Every seed", parts, folded=True)
