"""The page of the experiment in docs/."""

from collections.abc import Sequence

from experiments.images.pages import INTERPOLATED, best_at, findings, sections
from posenc_jax.lab.report import Section, length_table, summaries
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import LengthSummary


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page in docs/. ValueError: more than one run."""
    run = summaries.only(runs)
    found = findings(run.by_length)
    _, accuracy, control, _ = sections(run)[1]  # without the pictures, which an archive lacks
    seeds = Section("Every seed", [length_table.every_seed(run.by_length)], folded=True)
    return [*found[:2], _enlarged(run.by_length)], [
        accuracy,
        control,
        Section("By resolution, and two dimensions less one", found[2:]),
        seeds,
    ]


def _enlarged(summary: LengthSummary) -> str:
    """Which methods are right most often at the largest resolution."""
    size = max(summaries.lengths(summary))
    best = best_at(summary, INTERPOLATED, size)
    return (
        f"On the same images enlarged to {size} x {size} patches, positions interpolated, the best "
        f"is {best}."
    )
