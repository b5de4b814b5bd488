"""The board: the page of all tasks in docs/. The report of a run is the table of its task."""

from collections.abc import Mapping, Sequence
from functools import partial

from experiments.board.leaderboard import bases_page, reversing_page, skills_page
from experiments.board.leaderboard.figures import (
    DRAWN,
    beyond_then_within,
    draw,
    mean_exact,
    windows_of,
)
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.other_settings import (
    by_setting,
    changes,
    is_longer,
    ordered,
    section,
    settled,
)
from experiments.board.leaderboard.standings import Row, mean
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
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.tasks.content_rules import ContentFloor
from posenc_jax.lab.tasks.task_floors import Floor

__all__ = ["by_task", "conclusions", "decided", "document", "sections"]

Tasks = Mapping[str, Mapping[str, Row]]  # task -> method -> row
# task -> window -> metric -> the best scores of rules of content
ContentFloors = Mapping[str, Mapping[int, Mapping[str, ContentFloor]]]
CAPTION = (
    "Sorted by the mean exact match beyond the trained sizes. learned: tasks learned, of those "
    "measured. exact: exact match, the mean over all tasks, where a task that was not learned "
    f"counts as 0. params: of the encoding, all layers. {TOLD} is told the length of the test. "
    "Places next to each other are not apart: tasks and seeds are too few for that."
)

FLOORS = (
    "floor: the best score of predictors without positions at the largest trained size; by: the "
    "one with the best token accuracy. best: exact match of the best method in trained sizes."
)

CONTENT = (
    "Rules that predict from tokens alone: what followed (suffix) or preceded (mirror) the last 3 "
    "or 8 tokens, or fewer, where they stood before; the same of every second token (pairs); what "
    "followed the newest of one token (after); a neighbour of the last token but one (hops). Of "
    "several places the newest, the earliest, the newest of the question (shown), or what most of "
    "them say (vote). best rule: in the longest window, by tokens. A method that scores no better "
    "in a window has not shown that it uses positions there."
)
SOLVED = 0.95  # of the tokens in the longest window, by a rule that looks tokens up by content
FIRST = 30  # methods of the table that fits a screen
TIERS = {"known": "The best-known methods", "others": "All other methods"}


def page_name(runs: Sequence[StoredRun]) -> str:
    """The name of the page in docs/."""
    if reversing_page.is_of(runs):
        return "path_reversing"
    return "rope_bases" if bases_page.is_of(runs) else "leaderboard"


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the board; of the design "position" those of `skills_page`,
    of its stages of bases and of path those of `bases_page` and `reversing_page`.

    Most runs are of one setting, the board's; those of others are compared with it.

    Raises:
      ValueError: two runs of one setting with the same method and task.
    """
    for questioned in (bases_page, reversing_page):
        if questioned.is_of(runs):
            return questioned.document(runs)
    if skills_page.is_of(runs):
        return skills_page.document(runs)
    (runs, *others), reference = by_setting(runs), runs[0].config["reference"]
    tasks, measured = decided(runs, others), by_task(runs)
    confirmed = [section(measured, by_task(other), changes(runs, other), reference)
                 for other in others]  # fmt: skip
    board = _board(tasks)
    ranked, rest = board.rows[:FIRST], board.rows[FIRST:]
    base = [row for row in rest if row[0] == label(reference)]
    first = board._replace(rows=[*ranked, *base])
    run_of = {run.config["task"]["name"]: run for run in runs}
    # A task of the page is a task, or "TASK, TEST".
    tested = {task: (run_of[task.split(", ")[0]], task.partition(", ")[2]) for task in tasks}
    floors = {task: floor_of(*run_test) for task, run_test in tested.items()}
    exact = {task: floor.exact_match[1] for task, floor in floors.items()}
    by_content = {task: content_floors_of(*run_test) for task, run_test in tested.items()}
    picture = Picture("board", partial(draw, tasks, [*_exact(tasks)], exact, by_content), DRAWN)
    head = f"The first {len(ranked)} of {len(board.rows)} methods" + f", and {reference}" * len(
        base
    )
    return conclusions(tasks, reference, by_content), [
        Section(head, [picture, first, *_notes(runs, tasks)]),
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


def conclusions(tasks: Tasks, reference: str, by_content: ContentFloors) -> list[str]:
    """Three sentences: what is learned, what the tasks test, and whether the control fails."""
    best = {task: max(mean(row.scores["exact_match"][row.windows[0]]) for row in rows.values())
            for task, rows in tasks.items()}  # fmt: skip
    worst = min(best, key=best.__getitem__)
    methods = [{name for name in rows if SHUFFLED not in name} for rows in tasks.values()]
    whole = set.intersection(*methods)
    partly = set.union(*methods) - whole
    solved = [
        task
        for task, windowed in by_content.items()
        if windowed[max(windowed)]["token_accuracy"].long[1] >= SOLVED
    ]
    control = {
        task: mean(row.scores["exact_match"][row.windows[0]])
        for task, rows in tasks.items()
        for name, row in rows.items()
        if SHUFFLED in name
    }
    most = max(control, key=control.__getitem__, default="")
    count = f"{len(tasks)} tasks" if len(tasks) > 1 else "1 task"
    more = f", {len(partly)} more on some of them" if partly else ""
    named = f" ({', '.join(solved)})" if solved else ""
    return [
        f"{len(whole)} methods on {count}{more}; within the trained sizes the best method of each "
        f"task has an exact match of {best[worst]:.3f} ({worst}) or more.",
        f"These tasks measure the matching of content more than positions: in the longest window a "
        f"rule that looks tokens up by content, without positions, has {SOLVED} of the tokens or "
        f"more on {len(solved)} of {len(tasks)}{named}. So no method is named the best here.",
        *([f"The control, {reference} with shuffled positions, has an exact match of at most "
           f"{control[most]:.3f} ({most}) within the trained sizes."] if control else []),
    ]  # fmt: skip


def _exact(tasks: Tasks) -> dict[str, list[float | None]]:
    """Method -> exact match in each window, the mean over tasks: those that every task has, by the
    mean beyond the trained window.
    """
    windows, names = windows_of(tasks), ordered(tasks)
    exact = {
        name: [mean_exact([rows[name] for rows in tasks.values()], window) for window in windows]
        for name in names
    }
    return dict(sorted(exact.items(), key=lambda item: beyond_then_within(item[1]), reverse=True))


def _board(tasks: Tasks) -> Grid:
    windows = windows_of(tasks)
    columns = ["method", "params", "learned"]
    columns += [f"exact\n{window // windows[0]}×" for window in windows]
    lines = []
    for name, exact in _exact(tasks).items():
        rows = [by_name[name] for by_name in tasks.values()]
        lines.append((
            label(name), f"{max(row.parameters for row in rows):,}",
            f"{sum(row.learned for row in rows)}/{len(rows)}",
            *(UNDEFINED if value is None else short(value) for value in exact),
        ))  # fmt: skip
    return Grid(columns, lines, CAPTION)


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


def _content(by_content: ContentFloors) -> Grid:
    """What rules of content score on each task, in every window."""
    rows = [row for task, floors in by_content.items() for row in content_rows(task, floors)]
    windows = max((list(floors) for floors in by_content.values()), key=len)
    return Grid(content_columns(windows), rows, CONTENT)


def _notes(runs: Sequence[StoredRun], tasks: Tasks) -> list[str]:
    """Sentences on methods that are left out or were not measured."""
    reasons: dict[str, str] = {}
    every = {name for rows in tasks.values() for name in rows if SHUFFLED not in name}
    partly = sorted(every - _exact(tasks).keys())
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
        sentences.append(f"{group}: {counted(seeds, 'seed')}; learning rate {'; '.join(rates)}.")
    return sentences


def _seeds(rows: Mapping[str, Row]) -> Section:
    return Section("Every seed", [every_seed(rows)], folded=True)
