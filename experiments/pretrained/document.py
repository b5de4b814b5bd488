"""The page of the experiment in docs/; docs/pretrained.md, by hand, says how to use it."""

from collections.abc import Mapping, Sequence

from experiments.pretrained import pages
from posenc_jax.lab.report import Grid, Section
from posenc_jax.lab.report.summaries import only
from posenc_jax.lab.runs import StoredRun

PAGE = "pretrained_results"


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = only(runs)
    _, (_, *measured) = pages.sections(run)
    follows = Section("What follows", pages.details(run.summary.own))
    return pages.findings(run.summary.own), [follows, *measured, _stretches(run.summary.own)]


def _stretches(summary: Mapping) -> Section:
    """Bits per byte of every stretch of text, folded."""
    rows = [
        (row, length, " ".join(f"{value:.2f}" for value in cell.seeds))
        for row, cells in summary["text"].items()
        for length, cell in cells.items()
    ]
    grid = Grid(("row", "tokens", "bits per byte"), rows, "Every stretch, in order.", words=True)
    return Section("Every stretch", [grid], folded=True)
