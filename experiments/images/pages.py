"""The report of the experiment: what follows from its numbers, its table, its figures."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from experiments.images import figures
from posenc_jax.lab.report import Grid, Picture, Section, summaries
from posenc_jax.lab.report.statistics import paired
from posenc_jax.lab.report.summaries import lead, share
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.tasks.images import VIEWS

COUNTED, INTERPOLATED, SHUFFLED = VIEWS
# The same kind of position, flattened and by row and column.
PAIRS = {"learned": "learned_2d", "sinusoidal": "sinusoidal_2d", "rope": "axial"}


def row(name: str, view: str) -> str:
    """The label `encoding` of a method's records in one view."""
    return name if view == COUNTED else f"{name}, {view}"


def sections(run: StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections."""
    summary = run.summary
    names = methods(summary)
    by_resolution = partial(figures.by_resolution, summary, names)
    control = partial(figures.control, summary, names)
    shown = partial(figures.shown, Path(run.path, "shown.npz"))
    accuracy = Picture("by_resolution", by_resolution, figures.SIZES)
    return lead(run, f"{len(names)} methods", f"{summaries.seed_count(summary)} seeds"), [
        Section("What follows", findings(summary)),
        Section("Accuracy", [_table(summary), accuracy]),
        Section("The control: shuffled patches", [Picture("control", control, figures.CONTROL)]),
        Section("What the model is shown", [Picture("shown", shown, figures.SHOWN)]),
    ]


def methods(summary: Mapping) -> list[str]:
    """The methods, in the order of the run."""
    return [name for name in summary["results"] if ", " not in name]


def findings(summary: Mapping) -> list[str]:
    """Sentences made from the numbers."""
    names, trained = methods(summary), summary["train_length"]
    at = partial(_cell, summary)
    best = max(names, key=lambda name: at(name, COUNTED, trained)["mean"])
    said = [
        f"At the resolution of training, {_grid(trained)} patches, {best} is right most often: "
        f"{share(at(best, COUNTED, trained))} of the test images. Always saying the most frequent "
        f"label of training is right on {summary['baselines']['most_frequent']:.3f}."
    ]
    told = [name for name in names if name != "nope"]
    loss = {n: at(n, COUNTED, trained)["mean"] - at(n, SHUFFLED, trained)["mean"] for n in names}
    if told:
        said.append(
            f"Shuffled patches, the control: with positions accuracy falls by "
            f"{min(loss[n] for n in told):.3f} or more"
            + (f"; without, by {loss['nope']:.3f}." if "nope" in names else ".")
        )
    for size in figures.sizes(summary):
        if size > trained:
            for view in (COUNTED, INTERPOLATED):
                first = max(names, key=lambda name: at(name, view, size)["mean"])
                said.append(f"{_grid(size)} patches, positions {view}: the best is {first} with "
                            f"{share(at(first, view, size))}.")  # fmt: skip
    lost = [
        f"{_grid(entry['length'])} patches, {entry['encoding']}: not measured: {entry['reason']}."
        for entry in summary["not_measured"]
    ]
    return said + _gains(summary, names) + lost


def _gains(summary: Mapping, names: Sequence[str]) -> list[str]:
    """The gain of two dimensions over one, paired by seed."""
    pairs = [(flat, grid) for flat, grid in PAIRS.items() if flat in names and grid in names]
    places = [(COUNTED, summary["train_length"])] + [
        (INTERPOLATED, n) for n in figures.sizes(summary) if n > summary["train_length"]
    ]
    said = []
    for view, size in places:
        parts = []
        for flat, grid in pairs:
            ours, theirs = (_cell(summary, name, view, size)["seeds"] for name in (grid, flat))
            gain = paired(ours, theirs, len(pairs) * len(places))
            half = "" if gain.half is None else f" ±{gain.half:.3f}"
            parts.append(f"{grid} less {flat} {gain.mean:+.3f}{half}")
        if parts:
            said.append(f"{_grid(size)}, {view}: {'; '.join(parts)}.")
    if said:
        count = len(pairs) * len(places)
        said[-1] += f" Paired by seed, intervals at 95% for all {count} differences together."
    return said


def _table(summary: Mapping) -> Grid:
    trained = summary["train_length"]
    columns = [(COUNTED, trained), (SHUFFLED, trained)]
    for size in figures.sizes(summary):
        if size > trained:
            columns += [(COUNTED, size), (INTERPOLATED, size)]
    title = lambda view, size: _grid(size) + ("" if (view, size) == columns[0] else f" {view}")
    rows = [
        (name, *(share(_cell(summary, name, view, size)) for view, size in columns))
        for name in methods(summary)
    ]
    return Grid(
        ("method", *(title(*column) for column in columns)),
        rows,
        "Share of test images named right, mean ± half of a 95% t interval over seeds. Columns are "
        "patches a side. counted: rows and columns, or numbers, go on from those of training; "
        "interpolated: they are squeezed into those; shuffled: in each image the patches lie in "
        "another order.",
    )


def _cell(summary: Mapping, name: str, view: str, size: int) -> Mapping:
    return summary["results"][row(name, view)][str(size)]


def _grid(size: int) -> str:
    return f"{size} × {size}"
