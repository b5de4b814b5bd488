"""The report and the page in docs/: which masks are needed, what leaks, what it costs."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from experiments.invariance import both_pages
from experiments.invariance.padding_leakage import figures, released_page
from experiments.invariance.padding_leakage.leaks import MASKS, Computed
from experiments.invariance.padding_leakage.summary import ALL, CLEAN, NAMES, NECESSARY, RULE
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.formats import counted, share, small, span
from posenc_jax.lab.report.statistics import estimate
from posenc_jax.lab.report.summaries import largest, lead
from posenc_jax.lab.runs import StoredRun


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    if both_pages.is_released(run):
        return lead(run, both_pages.name_of(run)), released_page.sections(run)
    summary = run.summary.own
    count, kind = len(summary["mass"]), run.config["model"]["kind"]
    leak = Picture("leak", partial(figures.leak, summary["leaks"], NAMES), figures.LEAK)
    mass = Picture("mass", partial(figures.mass, summary["mass"], run.config["data"]), figures.MASS)
    draw = partial(figures.accuracy, summary["accuracy"], run.config["data"])
    cost = Picture("accuracy", draw, figures.ACCURACY)
    return lead(run, f"{count} methods", kind, counted(run.config["seeds"], "seed")), [
        Section("How much leaks", [leak, *(_leaks(summary, change) for change in CLEAN)]),
        Section("Which masks are needed", [
            RULE, *said(summary["verdicts"]), _roles(summary), *_not_measured(summary),
        ]),
        Section("Attention to padding", [mass, shares(summary["mass"])]),
        Section("Accuracy by masks", [cost, *(_cost(summary, k) for k in ("token", "pooled"))]),
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
    by_quantity = summary["leaks"][change]
    rows = [
        (m, *(small(largest(by_quantity[q][m].values())) for q in Computed._fields)) for m in NAMES
    ]
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
    by_masks = summary["accuracy"][kind]
    score = lambda cell: f"{cell['mean']:.3f}{'*' if cell['clear'] else ' '}"
    rows = [(m, *map(score, by_masks[m].values())) for m in NAMES]
    what = "the token before each token" if kind == "token" else "the most frequent symbol"
    caption = (
        f"Share of {what} said right by models trained with these masks: mean over encodings, "
        "sides and seeds. *: it differs from all masks, paired by encoding and seed, all "
        "comparisons of the table together at 95%. as trained: zeros, an amount that training had; "
        "junk: as many random symbols; more padding: an amount it never saw."
    )
    return Grid((f"{kind} accuracy", *by_masks[ALL]), rows, caption)


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/, see `both_pages.document`."""
    return both_pages.document(runs, conclusions, sections, _seeds, released_page)


def not_shown(runs: Sequence[StoredRun]) -> list[str]:
    """Sentences on what the runs cannot show, see `both_pages.not_shown`."""
    return both_pages.not_shown(runs, _limits)


def _limits(config: Mapping) -> list[str]:
    data, learning = config["data"], config["learning"]
    amounts = " or ".join(map(str, data["amounts"]))
    return [
        f"Longer inputs: leaks are of {data['measured']} tokens with {amounts} tokens of padding.",
        f"How models of real text spread their attention over padding: these learned lines of "
        f"{data['symbols']} symbols, in {counted(learning['steps'], 'step')}.",
    ]


def conclusions(summary: Mapping) -> list[str]:
    """Three sentences made from the numbers: all masks on, the role of each mask, their effect."""
    most = {change: _all_masks(summary, change) for change in CLEAN}
    count = len(most["content"])
    leaky = list(dict.fromkeys(n for c in CLEAN for n, v in most[c].items() if not v <= CLEAN[c]))
    above = f"{', '.join(leaky) or 'no method'} {'are' if leaky[1:] else 'is'} above"
    needed = "; ".join(f"{mask}: {_necessary(summary, mask)}" for mask in MASKS)
    masses = [np.mean(v) for by_state in summary["mass"].values()
              for v in by_state["trained"].values()]  # fmt: skip
    token = summary["accuracy"]["token"]
    scores = [f"{token[masks]['junk']['mean']:.3f}" for masks in (ALL, NAMES[-2])]
    return [
        f"With all masks on, a result of {counted(count, 'method')} changes "
        f"{_at_most(most['content'])} with other content of the padding, and "
        f"{_at_most(most['amount'])} if it is taken away; {above} the bounds of the rule below.",
        f"What each mask is necessary for, when content and amount of padding change: {needed}.",
        f"With the attention mask off, trained models give {span(min(masses), max(masses), 3)} "
        f"of a token's attention to padding, and among random symbols as padding the share of "
        f"tokens answered right is {scores[1]}, with all masks {scores[0]}.",
    ]


def _at_most(changes: Mapping[str, float]) -> str:
    """Returns "by at most 2e-05", or "not at all" if no method's result changes."""
    most = largest(changes.values())
    return f"by at most {small(most)}" if most else "not at all"


def _necessary(summary: Mapping, mask: str) -> str:
    """The quantities that a mask is necessary for, with the change if it is one of the two."""
    changes: dict[str, list[str]] = {}
    for change, by_quantity in summary["verdicts"].items():
        for quantity, quantity_roles in by_quantity.items():
            if quantity_roles["masks"][mask] == NECESSARY:
                changes.setdefault(quantity, []).append(change)
    named = (q if len(by) == len(CLEAN) else f"{q} ({by[0]})" for q, by in changes.items())
    return ", ".join(named) or "nothing"


def _all_masks(summary: Mapping, change: str) -> dict[str, float]:
    """method -> the largest change of any quantity with all masks on."""
    all_masked = [by_masks[ALL] for by_masks in summary["leaks"][change].values()]
    return {name: largest(by_method[name] for by_method in all_masked) for name in all_masked[0]}


def _seeds(summary: Mapping) -> Section:
    """The values of every seed, folded; those of the leaks are among the records."""
    parts = [shares(summary["mass"], lambda seeds: " ".join(f"{v:.3f}" for v in seeds))]
    methods = list(summary["mass"])
    for kind, by_masks in summary["accuracy"].items():
        values = {
            m: np.reshape(by_masks[m]["as trained"]["values"], (len(methods), -1)) for m in NAMES
        }
        rows = [
            (method, *(" ".join(f"{v:.3f}" for v in values[m][i]) for m in NAMES))
            for i, method in enumerate(methods)
        ]
        caption = f"Accuracy, {kind}, with padding as in training: every seed, mean over sides."
        parts.append(Grid((f"{kind} accuracy", *NAMES), rows, caption))
    return Section("Every seed", parts, folded=True)
