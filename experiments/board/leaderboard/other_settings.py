"""Whether the board holds: with twice the steps, and in a second setting."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.standings import Comparison, Row, compared, ranks
from experiments.board.leaderboard.task_table import config_of, table
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import Grid, Section
from posenc_jax.lab.runs import StoredRun

Tasks = Mapping[str, Mapping[str, Row]]  # task -> method -> row
SETTING = ("window", "multiples", "examples", "model", "train")  # of a config
FREE = ("train.rates",)
ENDS = 5  # methods at each end of the board


def by_setting(runs: Sequence[StoredRun]) -> list[list[StoredRun]]:
    """The runs of the board, which have the most records, then those of each other setting."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(repr(setting(run)), []).append(run)
    size = lambda group: sum(len(run.records) for run in group)
    return sorted(groups.values(), key=size, reverse=True)


def setting(run: StoredRun) -> dict[str, Any]:
    """The fields that runs of one board share: dotted name -> value."""
    fields = dotted(config_of(run).model_dump(include=set(SETTING)))
    return {field: value for field, value in fields.items() if field not in FREE}


def changes(board: Sequence[StoredRun], other: Sequence[StoredRun]) -> dict[str, Any]:
    """The fields of another setting that are not the board's, with their values."""
    ours = setting(board[0])
    return {name: value for name, value in setting(other[0]).items() if value != ours[name]}


def ends(tasks: Tasks, reference: str) -> list[str]:
    """The methods at both ends of the board, besides the reference."""
    order = [name for name in ordered(tasks) if name != reference]
    return [*order[:ENDS], *order[-ENDS:]] if len(order) > 2 * ENDS else order


def ordered(tasks: Tasks) -> list[str]:
    """The methods that every task has, by rank."""
    rank = ranks(without_control(tasks))
    return sorted(rank, key=lambda name: rank[name].mean)


def without_control(tasks: Tasks) -> dict[str, dict[str, Row]]:
    return {task: {name: row for name, row in rows.items() if SHUFFLED not in name}
            for task, rows in tasks.items()}  # fmt: skip


def unfinished(rows: Mapping[str, Row], names: Sequence[str]) -> list[str]:
    """Those of the methods that a longer training may change: a seed did not learn the task."""
    return [name for name in names if np.isnan(list(rows[name].steps.values())).any()]


def settled(board: Tasks, longer: Tasks, reference: str) -> Tasks:
    """The board, where a star that is another one after a longer training is undecided."""
    rows_by_task = {task: dict(rows) for task, rows in board.items()}
    for task, name, before, after in _pairs(board, longer, reference):
        rows_by_task[task][name] = board[task][name]._replace(undecided=_changed(before, after))
    return rows_by_task


def section(board: Tasks, other: Tasks, changed: Mapping[str, Any], reference: str) -> Section:
    """The results in another setting beside those of the board.

    changed: the fields that differ from the board's, with their values.
    """
    fields = ", ".join(f"{field} {value}" for field, value in changed.items())
    if is_longer(changed):
        return Section(f"With {fields}", [*_doubled(board, other, reference)])
    return Section(f"A second setting: {fields}", [*_second(board, other, reference)])


def is_longer(changed: Mapping[str, Any]) -> bool:
    """Whether a setting with these fields is the board's with other steps."""
    return changed.keys() == {"train.steps"}


def _pairs(board: Tasks, longer: Tasks, reference: str) -> Iterator[tuple]:
    """Task, method, its comparison on the board, and the one where its row, and the others of the
    same training, stand in the place of the board's.
    """
    board = without_control(board)
    for task, rows in without_control(longer).items():
        before = compared(board[task], reference)
        after = compared({**board[task], **rows}, reference)
        yield from ((task, n, before[n], after[n]) for n in rows if n != reference)


def _doubled(board: Tasks, other: Tasks, reference: str) -> Iterator[Any]:
    """Stars, where rows of the other setting stand in the board's place."""
    pairs = [*_pairs(board, other, reference)]
    lines = [
        (task, name, what, *(_star(comparison, what) or "none" for comparison in (before, after)))
        for task, name, before, after in pairs
        for what in sorted(_changed(before, after))
    ]
    both = ends(board, reference)
    wanted = {(task, name) for task, rows in board.items() for name in unfinished(rows, both)}
    measured = {(task, name) for task, name, *_ in pairs}
    others = len(measured - wanted)
    earlier = f", and {others} of methods that stood there when the board had fewer"
    yield (
        f"The methods at both ends of the board ({ENDS} each) are trained with this budget on the "
        f"tasks that a seed had not learned: a training ends when it has learned its task, so more "
        f"steps change no other. Measured are {len(measured & wanted)} of {len(wanted)} such pairs "
        f"of method and task"
        f"{earlier if others else ''}. Of their {2 * len(pairs)} "
        f"differences from {reference}, {len(lines)} have another star than with the board's "
        "budget: these are not decided, and do not count on the board."
    )
    if lines:
        caption = "The sign of a difference that has a star."
        yield Grid(["task", "method", "of", "board", "here"], lines, caption)


def _changed(before: Comparison, after: Comparison) -> frozenset[str]:
    """The differences whose stars are not the same."""
    return frozenset(w for w in ("cost", "gain") if _star(before, w) != _star(after, w))


def _star(comparison: Comparison, what: str) -> str:
    difference = {"cost": comparison.cost, "gain": comparison.gain}[what]
    if difference is None or what not in comparison.stars:
        return ""
    return "+" if difference.mean > 0 else "−"


def _second(board: Tasks, other: Tasks, reference: str) -> Iterator[Any]:
    """Ranks and stars of the methods, among themselves, in both settings; the second's numbers."""
    shared = {task: rows for task, rows in without_control(board).items() if task in other}
    names = ordered(other)
    first = ranks({task: {n: rows[n] for n in names} for task, rows in shared.items()})
    second = ranks(without_control(other))
    counted = [_counts(tasks, reference) for tasks in (shared, without_control(other))]
    here, there = ([rank[name].mean for name in names] for rank in (first, second))
    spearman, p = map(float, spearmanr(here, there))
    yield (
        f"The {len(names)} methods in {len(other)} of the board's {len(board)} tasks; rank "
        f"correlation with the board (Spearman) {spearman:.2f}, p = {p:.2f}. Ranks are among these "
        "methods, and of these tasks."
    )
    lines = [
        (name, f"{first[name].mean:.1f}", f"{second[name].mean:.1f}",
         *(counts.get(name, "reference") for counts in counted))
        for name in names
    ]  # fmt: skip
    columns = ["method", "rank\nboard", "rank\nhere", "better, worse\nboard", "better, worse\nhere"]
    yield Grid(columns, lines, "better, worse: tasks with a star for gain or loss beyond.")
    for task, rows in other.items():
        yield Section(f"{task} in this setting", [table(rows, reference)], folded=True)


def _counts(tasks: Tasks, reference: str) -> dict[str, str]:
    better_worse: dict[str, list[int]] = {}
    for rows in tasks.values():
        for name, comparison in compared(rows, reference).items():
            sign = comparison.gain.mean if comparison.gain and "gain" in comparison.stars else 0.0
            counts = better_worse.setdefault(name, [0, 0])
            counts[0] += sign > 0
            counts[1] += sign < 0
    return {name: ", ".join(map(str, counts)) for name, counts in better_worse.items()}
