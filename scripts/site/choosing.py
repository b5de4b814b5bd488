"""The page "Which encoding should I use?", made from the records in results/."""

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.page import conclusions, decided
from experiments.board.leaderboard.standings import Row, compared, mean
from experiments.board.leaderboard.task_table import TOLD, label
from experiments.claims.decisions import Finding
from experiments.invariance.both_pages import is_released
from experiments.invariance.padding_leakage import page as padding
from experiments.invariance.permutation import page as permutation
from posenc_jax.lab import runs
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.lab.report.summaries import only
from posenc_jax.lab.runs import StoredRun
from scripts.site import records

# Claims of the ledger that a choice depends on.
CLAIMS = ("rope-2", "alibi-1", "xpos-1", "abs-1", "abs-3", "rel-2", "order-3", "img-1", "local-1")


def page(results: Path, board: Sequence[StoredRun], others: Sequence[Sequence[StoredRun]]) -> str:
    """Returns the page in Markdown.

    Args:
      results: the folder of the archives.
      board, others: the runs of the board, and of each other setting.
    """
    order, leaks = (
        only([run for run in runs.read_archive(results / f"{name}.tar.xz") if not is_released(run)])
        for name in ("permutation", "padding_leakage")
    )
    (puts_in_order, *_), (leak, masks, *_) = (
        permutation.conclusions(order.summary.own), padding.conclusions(leaks.summary.own)
    )  # fmt: skip
    parts = [
        "# Which encoding should I use?", measured(board),
        "## Within and beyond the trained length", *by_length(board, others),
        "## If tokens may see later ones", puts_in_order, "[Every method](permutation.md).",
        "## With padding", leak, masks, "[Every method](padding_leakage.md).",
        "## What is said of them", ledger(records.ledger(results / "claims.tar.xz")),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def measured(board: Sequence[StoredRun]) -> str:
    """Returns how far the answers carry: the sizes of the board's models."""
    config, seeds = board[0].config, {run.config["seeds"] for run in board}
    model, train = config["model"], config["train"]
    return (
        f"Each answer is a measurement of this repository. The models are small: {model['layers']} "
        f"layers of width {model['width']}, windows of {config['window']} tokens, at most "
        f"{train['steps']:,} steps, {' or '.join(map(str, sorted(seeds)))} seeds. They rank the "
        "methods at this size; a large model may rank them otherwise."
    )


def by_length(board: Sequence[StoredRun], others: Sequence[Sequence[StoredRun]]) -> list[str]:
    """Returns the board's sentences, and for each task the methods that learned it by gain.

    others: the runs of each other setting.
    """
    reference, tasks = board[0].config["reference"], decided(board, others)
    parts = [" ".join(conclusions(tasks, reference))]
    for task, rows in tasks.items():
        parts += [f"### {task}", _answer(rows, reference), _table(rows, reference)]
    parts.append(
        f"Gain: token accuracy beyond the trained window, method minus {reference}. Cost: exact "
        f"match within it, {reference} minus method. Both are means ± half of a 95% interval; \\* "
        f"differs from 0, corrected for all tests of the task. {TOLD} is told the length of the "
        "test. [The whole board](leaderboard.md)."
    )
    return parts


def _answer(rows: Mapping[str, Row], reference: str) -> str:
    """Returns two sentences: which methods learned the task, and which carry further."""
    ordered = {name: row for name, row in rows.items() if SHUFFLED not in name}
    learned = {name for name, row in ordered.items() if row.learned}
    gains = {name: comparison.gain.mean for name, comparison in compared(ordered, reference).items()
             if comparison.gain and "gain" in comparison.stars}  # fmt: skip
    better = {name for name, gain in gains.items() if gain > 0}
    missing = ordered.keys() - learned
    without = f"; not {_listed(missing)}" if missing else ""
    return (
        f"{len(learned)} of {len(ordered)} methods learned it{without}. "
        f"Clearly better than {reference} beyond the window: {_listed(better)}; clearly worse: "
        f"{_listed(gains.keys() - better)}. For all others the difference is within its "
        "uncertainty, or they did not learn the task."
    )


def _table(rows: Mapping[str, Row], reference: str) -> str:
    """Returns a row for each method that learned the task, the largest gain first."""
    comparisons = {
        name: comparison
        for name, comparison in compared(rows, reference).items()
        if comparison.gain
    }
    lines = ["| method | parameters | within the window | gain | cost |", "|---|---|---|---|---|"]
    for name in sorted(comparisons, key=lambda name: -_mean(comparisons[name].gain)):
        comparison, row = comparisons[name], rows[name]
        if not row.learned or SHUFFLED in name:
            continue
        gain, cost = (_written(x, what in comparison.stars) for what, x in
                      (("gain", comparison.gain), ("cost", comparison.cost)))  # fmt: skip
        within = mean(row.scores["exact_match"][row.windows[0]])
        lines.append(f"| {label(name)} | {row.parameters:,} | {within:.3f} | {gain} | {cost} |")
    return "\n".join(lines)


def _mean(interval: Interval | None) -> float:
    assert interval is not None
    return interval.mean


def _written(value: Interval | None, star: bool) -> str:
    assert value is not None
    half = "" if value.half is None else f" ± {value.half:.3f}"
    return f"{value.mean:+.3f}{half}" + (" \\*" if star else "")


def _listed(names: Set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def ledger(findings: Sequence[Finding]) -> str:
    """Returns a table of the claims that a choice depends on, with the verdicts of the ledger."""
    by_id = {finding.claim.id: finding for finding in findings}
    lines = ["| claim | our verdict |", "|---|---|"]
    lines += [f"| [{by_id[id].claim.text}](claims.md#{id}) | {by_id[id].verdict} |"
              for id in CLAIMS if id in by_id]  # fmt: skip
    return "\n".join(lines)
