"""The board: the page of all tasks in docs/. The report of a run is the table of its task."""

from collections.abc import Mapping, Sequence
from functools import partial

from experiments.board.leaderboard import skills_page
from experiments.board.leaderboard.figures import DRAWN, draw, mean_exact, windows_of
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.other_settings import (
    by_setting,
    changes,
    is_longer,
    ordered,
    section,
    settled,
    without_control,
)
from experiments.board.leaderboard.standings import Row, compared, mean, ranks
from experiments.board.leaderboard.task_table import (
    TOLD,
    UNDEFINED,
    by_task,
    config_of,
    content_columns,
    content_floors_of,
    content_rows,
    every_seed,
    floor_of,
    label,
    left_out,
    sections,
    short,
    table,
)
from posenc_jax.lab.report import Grid, Picture, Section
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.tasks.content_rules import ContentFloor
from posenc_jax.lab.tasks.task_floors import Floor

__all__ = ["by_task", "conclusions", "decided", "document", "sections"]

Tasks = Mapping[str, Mapping[str, Row]]  # task -> method -> row
CAPTION = (
    "learned: tasks learned, of those measured. rank: by token accuracy beyond the trained window, "
    "the mean over tasks, with the interval that holds 95% of ranks when seeds are drawn again; a "
    "task that was not learned gives the last rank. exact: exact match, the mean over all tasks, "
    "where a task that was not learned counts as 0. better, worse: tasks with a star for the gain "
    "or the loss beyond the trained window; pays: with a star for the cost within it; a star that "
    "is another one with twice the steps does not count. params: of "
    f"the encoding, all layers. {TOLD} is told the length of the test."
)

FLOORS = (
    "floor: the best score of predictors without positions at the largest trained size; by: the "
    "one with the best token accuracy. best: exact match of the best method in trained sizes."
)

CONTENT = (
    "Rules that predict from tokens alone: what followed (suffix) or preceded (mirror) the last 3 "
    "or 8 tokens, or fewer, where they stood before, or what followed the newest of one token "
    "(after). best rule: in the longest window, by tokens. A method that scores no better in a "
    "window has not shown that it uses positions there."
)
FIRST = 30  # methods of the table that fits a screen
TIERS = {"known": "The best-known methods", "others": "All other methods"}


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the board; of the design "position" those of `skills_page`.

    Most runs are of one setting, the board's; those of others are compared with it.

    Raises:
      ValueError: two runs of one setting with the same method and task.
    """
    if skills_page.is_of(runs):
        return skills_page.document(runs)
    (runs, *others), reference = by_setting(runs), runs[0].config["reference"]
    tasks, measured = decided(runs, others), by_task(runs)
    confirmed = [section(measured, by_task(other), changes(runs, other), reference)
                 for other in others]  # fmt: skip
    board = _board(tasks, reference)
    ranked, rest = board.rows[:FIRST], board.rows[FIRST:]
    base = [row for row in rest if row[0] == label(reference)]
    first = board._replace(rows=[*ranked, *base])
    run_of = {run.config["task"]["name"]: run for run in runs}
    # A task of the page is a task, or "TASK, TEST".
    tested = {task: (run_of[task.split(", ")[0]], task.partition(", ")[2]) for task in tasks}
    floors = {task: floor_of(*run_test) for task, run_test in tested.items()}
    exact = {task: floor.exact_match[1] for task, floor in floors.items()}
    by_content = {task: content_floors_of(*run_test) for task, run_test in tested.items()}
    picture = Picture("board", partial(draw, tasks, [*_order(tasks)], exact, by_content), DRAWN)
    head = f"The first {len(ranked)} of {len(board.rows)} methods" + f", and {reference}" * len(
        base
    )
    return conclusions(tasks, reference), [
        Section(head, [first, picture, *_notes(runs, tasks)]),
        Section("The tasks", [_tasks(floors, tasks), _content(by_content)]),
        *confirmed,
        Section("Every method, all tasks", [board], folded=True),
        *(
            Section(task, [table(rows, reference), _seeds(rows)], folded=True)
            for task, rows in tasks.items()
        ),
    ]


def decided(runs: Sequence[StoredRun], others: Sequence[Sequence[StoredRun]]) -> Tasks:
    """The rows of the board's runs; what runs with twice the steps contradict is undecided.

    others: the runs of each other setting. ValueError: as `document`.
    """
    tasks: Tasks = by_task(runs)
    for other in others:
        if is_longer(changes(runs, other)):
            tasks = settled(tasks, by_task(other), runs[0].config["reference"])
    return tasks


def conclusions(tasks: Tasks, reference: str) -> list[str]:
    """Three sentences: what is learned, what carries beyond, and whether the control fails."""
    best = {task: max(mean(row.scores["exact_match"][row.windows[0]]) for row in rows.values())
            for task, rows in tasks.items()}  # fmt: skip
    worst = min(best, key=best.__getitem__)
    methods = [{name for name in rows if SHUFFLED not in name} for rows in tasks.values()]
    whole = set.intersection(*methods)
    partly = set.union(*methods) - whole
    counts = _stars(tasks, reference)
    better = [name for name in counts if counts[name][0]]
    first = sorted(better, key=lambda name: (-counts[name][0], counts[name][1]))[:3]
    listed = ", ".join(f"{name} on {counts[name][0]}" for name in first) or "none"
    control = [
        mean(row.scores["exact_match"][row.windows[0]])
        for rows in tasks.values()
        for name, row in rows.items()
        if SHUFFLED in name
    ]
    count = f"{len(tasks)} tasks" if len(tasks) > 1 else "1 task"
    more = f", {len(partly)} more on some of them" if partly else ""
    return [
        f"{len(whole)} methods on {count}{more}; within the trained sizes the best method of each "
        f"task has an exact match of {best[worst]:.3f} ({worst}) or more.",
        f"Beyond them, clearly better than {reference} on the most tasks: {listed} "
        f"of {len(tasks)}.",
        f"The control, {reference} with shuffled positions, has an exact match of at most "
        f"{max(control, default=0.0):.3f} within the trained sizes.",
    ]  # fmt: skip


def _stars(tasks: Tasks, reference: str) -> dict[str, tuple[int, ...]]:
    """Method -> the number of tasks on which it is better, worse, and pays within."""
    by_method: dict[str, list[tuple[bool, ...]]] = {}
    for rows in tasks.values():
        methods = {name: row for name, row in rows.items() if SHUFFLED not in name}
        for name, comparison in compared(methods, reference).items():
            gain = comparison.gain.mean if comparison.gain and "gain" in comparison.stars else 0.0
            pays = "cost" in comparison.stars and comparison.cost.mean > 0
            by_method.setdefault(name, []).append((gain > 0, gain < 0, pays))
    return {name: tuple(map(sum, zip(*counts, strict=True))) for name, counts in by_method.items()}


def _order(tasks: Tasks) -> dict[str, Interval]:
    """The methods that every task has, by rank."""
    rank = ranks(without_control(tasks))
    return {name: rank[name] for name in ordered(tasks)}


def _board(tasks: Tasks, reference: str) -> Grid:
    windows = windows_of(tasks)
    stars = _stars(tasks, reference)
    columns = ["method", "params", "learned", "rank"]
    columns += [f"exact\n{window // windows[0]}×" for window in windows]
    lines = []
    for name, rank in _order(tasks).items():
        rows = [by_name[name] for by_name in tasks.values()]
        exact = [mean_exact(rows, window) for window in windows]
        counted = ("reference", "", "") if name == reference else map(str, stars.get(name, ()))
        lines.append((
            label(name), f"{max(row.parameters for row in rows):,}",
            f"{sum(row.learned for row in rows)}/{len(rows)}",
            f"{rank.mean:.1f} ({rank.low:.1f}–{rank.high:.1f})",
            *(UNDEFINED if value is None else short(value) for value in exact), *counted,
        ))  # fmt: skip
    return Grid([*columns, "better", "worse", "pays"], lines, CAPTION)


def _tasks(floors: Mapping[str, Floor], tasks: Tasks) -> Grid:
    """A line for each task: what is possible without positions, and how many methods learned it."""
    lines = []
    for task, rows in tasks.items():
        tokens, exact = floors[task]
        methods = [row for name, row in rows.items() if SHUFFLED not in name]
        best = max(mean(row.scores["exact_match"][row.windows[0]]) for row in methods)
        learned = f"{sum(row.learned for row in methods)}/{len(methods)}"
        lines.append((task, *map(short, (exact[1], tokens[1])), tokens[0], short(best), learned))
    columns = ["task", "floor\nexact", "floor\ntokens", "by", "best\nexact", "learned by"]
    return Grid(columns, lines, FLOORS)


def _content(by_content: Mapping[str, Mapping[int, Mapping[str, ContentFloor]]]) -> Grid:
    """What rules of content score on each task, in every window."""
    rows = [row for task, floors in by_content.items() for row in content_rows(task, floors)]
    windows = max((list(floors) for floors in by_content.values()), key=len)
    return Grid(content_columns(windows), rows, CONTENT)


def _notes(runs: Sequence[StoredRun], tasks: Tasks) -> list[str]:
    """Sentences on methods that are left out or were not measured."""
    reasons: dict[str, str] = {}
    every = {name for rows in tasks.values() for name in rows if SHUFFLED not in name}
    partly = sorted(every - _order(tasks).keys())
    lost = [f"Measured on some of these tasks only: {', '.join(partly)}."] if partly else []
    for run in runs:
        reasons |= run.summary.own["left_out"]
        lost += [f"{name} on {run.config['task']['name']}: not measured, {why}."
                 for name, why in run.summary.own["not_measured"].items()]  # fmt: skip
    return [*_tiers(runs), *left_out(reasons), *lost]


def _tiers(runs: Sequence[StoredRun]) -> list[str]:
    """A sentence for each group of methods: how many seeds it has, and which learning rates."""
    tiers: dict[tuple[str, int], dict[str, list[str]]] = {}
    for run in runs:
        config = config_of(run)
        group = TIERS.get(config.encoding.name, config.encoding.name)
        first, *more = rates = [f"{rate:g}" for rate in config.train.rates]
        told = f"the best of {', '.join(rates)}" if more else first
        tiers.setdefault((group, config.seeds), {}).setdefault(told, []).append(config.task.name)
    sentences = []
    for (group, seeds), by_rate in tiers.items():
        rates = [told + f" on {', '.join(tasks)}" * (len(by_rate) > 1)
                 for told, tasks in by_rate.items()]  # fmt: skip
        sentences.append(f"{group}: {seeds} seeds; learning rate {'; '.join(rates)}.")
    return sentences


def _seeds(rows: Mapping[str, Row]) -> Section:
    return Section("Every seed", [every_seed(rows)], folded=True)
