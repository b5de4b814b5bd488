"""The page of the published orderings in docs/."""

from collections.abc import Sequence

from experiments.published.orderings import ORDERINGS
from experiments.published.pages import parts, results
from experiments.published.results import Result
from experiments.published.verdicts import PARTLY, REVERSED, SAME, UNDECIDED
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import Section
from posenc_jax.lab.report.comparison import differing
from posenc_jax.lab.runs import StoredRun


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page, whose rows may be those of several runs.

    Raises:
      ValueError: two runs have one row, or differ in more than their rows.
    """
    if fields := [f for f in differing([dotted(run.config) for run in runs]) if f != "rows"]:
        raise ValueError(f"workdir: the runs differ in {', '.join(fields)}")
    found = [result for run in runs for result in results(run)]
    names = [result.name for result in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"workdir: two runs have the row {', '.join(twice)}")
    found.sort(key=lambda result: list(ORDERINGS).index(result.name))
    left = [name for name in ORDERINGS if name not in names]
    more = [f"Rows not measured yet: {', '.join(left)}."] if left else []
    shown = [s._replace(folded=s.title in names) for s in parts(runs[0], found)]
    return conclusions(found) + more, shown


def conclusions(found: Sequence[Result]) -> list[str]:
    """Sentences made from the numbers: the verdicts, the reversals, what changed."""
    by_verdict = {v: [own.name for own in found if own.verdict == v]
                  for v in (SAME, PARTLY, REVERSED, UNDECIDED)}  # fmt: skip
    counts = ", ".join(f"{len(names)} {verdict}" for verdict, names in by_verdict.items())
    changed = [own.name for own in found if own.half.verdict.name != own.whole.verdict.name]
    lost = sorted({f"{method} ({own.setting.task})" for own in found
                   for method in own.whole.ours if method not in own.whole.learned})  # fmt: skip
    listed = lambda names: ", ".join(names) or "none"
    return [
        f"{len(found)} published orderings of {len({own.ordering.paper for own in found})} papers, "
        f"posed at the size of two CPU cores: {counts}.",
        f"Partly the same: {listed(by_verdict[PARTLY])}; reversed: {listed(by_verdict[REVERSED])}.",
        f"Not decided: {listed(by_verdict[UNDECIDED])}, of which half of the budget gives another "
        f"verdict: {listed(changed)}.",
        f"Methods that did not learn a task within its trained sizes, and do not count there: "
        f"{listed(lost)}.",
    ]
