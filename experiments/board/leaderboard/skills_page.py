"""The page of the design "position": what methods reach on each skill, beside the predictions."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from experiments.board.leaderboard import (
    copying_table,
    effects,
    more_steps,
    outcomes,
    problem_tables,
    reversing_page,
)
from experiments.board.leaderboard.config import READ_ROPE, Config
from experiments.board.leaderboard.effects import ALL, Effect
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.more_steps import Cell
from experiments.board.leaderboard.other_settings import by_setting, changes, is_longer
from experiments.board.leaderboard.predictions import FLOOR, fingerprint
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.leaderboard.standings import Row, mean
from experiments.board.leaderboard.task_table import (
    UNDEFINED,
    by_task,
    config_of,
    label,
    short,
    signed,
)
from experiments.board.training import LEARNED
from posenc_jax.lab.report import Grid, Picture, Section, heatmap
from posenc_jax.lab.report.formats import counted
from posenc_jax.lab.report.statistics import Interval
from posenc_jax.lab.runs import StoredRun

SCORED = (2, 4)  # windows, as multiples of the trained one, whose mean is the score
FEW_SEEDS = 2  # no more than for a search of learning rates
DAGGER, MOVING = "†", "‡"
Levels = Mapping[str, Mapping[str, Interval]]
Effects = Mapping[str, Mapping[str, Effect]]

DRAWN = (
    "g of each method on each skill, the mean over its problems at "
    + " and ".join(f"{n}×" for n in SCORED)
    + " the trained window: 0 is the floor, what rules and tables reach that know no positions, "
    f"and all below; 1 is all right. Bold: solved, the whole 95% interval above {effects.SOLVED}. "
    f"Grey: at the floor, the whole interval below {FLOOR}. Methods with as many solved skills are "
    "in the order of their names. †: not every seed learned every problem of the skill in its "
    "trained sizes, see the table of these. ‡: with more steps it is another one. The first row is "
    "the reference with shuffled positions."
)
WITHIN = (
    "Within the trained window: what g is made of, token accuracy, or exact match where the end of "
    "an answer is asked for; the mean over seeds. In brackets the seeds that learned the problem, "
    f"if not all did: {LEARNED} of the validation examples of trained sizes are right in all "
    "tokens at the end of the training."
)
CAPTION = (
    "g minus that of {reference}, with half of its 95% interval for these problems, and in "
    "brackets for other problems like them; * differs from 0 for these problems, corrected for "
    "all {tests} tests of this table at once."
)


def is_of(runs: Sequence[StoredRun]) -> bool:
    """Whether these are runs of the design's problems, some of them with several seeds."""
    return all(run.config["task"]["name"] in PROBLEMS for run in runs) and bool(of_skills(runs))


def of_skills(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs that measure skills: with several seeds, on problems as they are posed. A search of
    rates has one seed, and the runs of one question, as of bases, state options of the task.
    """
    return [run for run in runs if run.config["seeds"] >= FEW_SEEDS
            and [*run.config["task"]] == ["name"]
            and run.config["task"]["name"] != reversing_page.PROBLEM]  # fmt: skip


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections; the setting with the most records comes first.

    Raises:
      ValueError: two runs of one setting with the same method and problem.
    """
    settings = by_setting(of_skills(runs))
    again, others = [], []
    for group in settings[1:]:
        (again if is_longer(changes(settings[0], group)) else others).append(group)
    repeated = [(config_of(group[0]).train.steps, _repeated(settings[0], group)) for group in again]
    moving = {(cell.method, cell.skill) for _, cells in repeated for cell in cells if cell.moves}
    sentences, sections = _setting(settings[0], "Skills and methods", "skills", moving)
    for steps, cells in repeated:
        sentences.append(more_steps.sentence(cells, steps))
        sections.append(more_steps.section(cells, steps))
    for number, group in enumerate(others, 2):
        fields = ", ".join(f"{k} {v}" for k, v in changes(settings[0], group).items())
        _, more = _setting(group, f"Another setting: {fields}", f"skills-{number}")
        sections += more
    sections += [_floors(settings[0]), _undecided(settings), _cost(runs)]
    return sentences, sections


def _repeated(runs: Sequence[StoredRun], longer: Sequence[StoredRun]) -> list[Cell]:
    """The results that were measured again with more steps, of each skill on the problems that
    were.
    """
    configs = lambda runs: {run.config["task"]["name"]: config_of(run) for run in runs}
    scores = lambda runs: _methods(scores_of(by_task(runs), configs(runs)))
    both = by_task(runs).keys() & by_task(longer).keys()
    return more_steps.cells(scores(runs), scores(longer), skills_of(both))


def _setting(
    runs: Sequence[StoredRun],
    title: str,
    picture: str,
    moving: Collection[tuple[str, str]] = (),
) -> tuple[list[str], list[Section]]:
    """What the runs of one setting show.

    moving: the (method, skill) whose g changes with more steps.
    """
    tasks, reference = by_task(runs), runs[0].config["reference"]
    configs = {run.config["task"]["name"]: config_of(run) for run in runs}
    scores = scores_of(tasks, configs)
    skills = skills_of(tasks)
    names = list(skills)
    control = {name: by_problem for name, by_problem in scores.items() if SHUFFLED in name}
    levels = effects.levels(control, skills) | effects.levels(_methods(scores), skills)
    compared = effects.effects(_methods(scores), skills, reference)
    fixed = {run.config["task"]["name"] for run in runs
             if run.summary.facts.get("predictions") == fingerprint()}  # fmt: skip
    measured = {
        (name, test): (configs[name], rows)
        for task, rows in tasks.items()
        for name, _, test in [task.partition(", ")]
        if name in fixed
    }
    predicted = [*outcomes.outcomes(measured)]
    learned = {problem: tasks[problem] for problem in configs}
    unsure = {(method, PROBLEMS[problem].skill)
              for problem, method, learning, seeds in learners(learned)
              if learning < seeds}  # fmt: skip
    sections = [
        Section(title, [Picture(picture, partial(draw, levels, names, unsure, moving), DRAWN)]),
        Section(f"{title}: within the window", [_within(learned)], folded=True),
        Section(f"{title}: effects", [_effects(compared, names, reference)], folded=True),
        Section(f"{title}: each problem", [_each_problem(scores, configs)], folded=True),
    ]
    if followed := copying_table.section(runs, tasks):
        sections.append(followed)
    sections += problem_tables.sections(tasks, configs)
    if predicted:
        sections.insert(1, Section("Predictions and outcomes", [outcomes.table(predicted)]))
    sentences = _sentences(levels, compared, predicted, names, reference)
    return [*sentences, _trainings(learned)], sections


def learners(tasks: Mapping[str, Mapping[str, Row]]) -> Iterator[tuple[str, str, int, int]]:
    """(problem, method, seeds that learned the problem in its trained sizes, all seeds)."""
    for problem, rows in tasks.items():
        for method, row in rows.items():
            if SHUFFLED not in method:
                yield problem, method, int(np.isfinite([*row.steps.values()]).sum()), len(row.steps)


def scores_of(
    tasks: Mapping[str, Mapping[str, Row]], configs: Mapping[str, Config]
) -> dict[str, dict[str, dict[int, float]]]:
    """method -> problem -> seed -> g, the mean over the windows of `SCORED`.

    A method that is not defined in one of them has no score on the problem.
    """
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for problem, config in configs.items():
        rows = tasks[problem]
        by_window = [outcomes.scores_above(rows, config, "", multiple) for multiple in SCORED]
        for method in rows:
            if all(method in window for window in by_window):
                seeds = by_window[0][method]
                means = {n: float(np.mean([w[method][n] for w in by_window])) for n in seeds}
                scores.setdefault(method, {})[problem] = means
    return scores


def skills_of(tasks: Collection[str]) -> dict[str, tuple[str, ...]]:
    """skill -> its problems that were measured."""
    skills: dict[str, tuple[str, ...]] = {}
    for name, problem in PROBLEMS.items():
        if name in tasks:
            skills[problem.skill] = (*skills.get(problem.skill, ()), name)
    return skills


def _methods(scores):
    return {name: by_problem for name, by_problem in scores.items() if SHUFFLED not in name}


def _sentences(levels: Levels, compared: Effects, predicted, skills, reference) -> list[str]:
    """What the page shows, from its numbers."""
    groups = {
        skill: Counter(
            effects.group(by_skill[skill])
            for method, by_skill in levels.items()
            if SHUFFLED not in method and skill in by_skill
        )
        for skill in skills
    }
    counts = "; ".join(
        f"{skill}: {groups_of_skill['solved']} of {groups_of_skill.total()} solved, "
        f"{groups_of_skill['floor']} at the floor"
        for skill, groups_of_skill in groups.items()
    )
    better = sum(e[ALL].star and e[ALL].these.mean > 0 for e in compared.values() if ALL in e)
    worse = sum(e[ALL].star and e[ALL].these.mean < 0 for e in compared.values() if ALL in e)
    whole = sum(ALL in by_skill for by_skill in compared.values())
    wide = sum(bool(e[ALL].others.sign) for e in compared.values() if ALL in e)
    refuted = sum(outcome.word == "refuted" for outcome in predicted)
    shuffled = [g.mean for name, by_skill in levels.items() if SHUFFLED in name
                for skill, g in by_skill.items() if skill != "bag"]  # fmt: skip
    sentences = [
        f"Beyond the trained window, of the rows of each skill, which are methods and some with "
        f"other options: {counts}.",
        f"Over all skills, {better} of {whole} rows are better than {reference} on these "
        f"problems and {worse} are worse; for other problems like these {wide} of the differences "
        "are told from 0, before any correction.",
    ]
    if predicted:
        learned = [outcome for outcome in predicted if not outcome.unlearned]
        refuted_too = sum(outcome.word == "refuted" for outcome in learned)
        sentences.append(
            f"Of {len(predicted)} predictions that were fixed before the runs, {refuted} are "
            f"refuted. Every training of {len(learned)} of them learned its problem in the trained "
            f"sizes; of these {refuted_too} are refuted."
        )
    if shuffled:
        sentences.append(
            f"The control, {reference} with shuffled positions, reaches at most "
            f"{max(shuffled):.2f} where positions are needed."
        )
    return sentences


def _trainings(tasks: Mapping[str, Mapping[str, Row]]) -> str:
    """How many trainings did not learn what they were trained on, and whose they are."""
    every = [row for row in learners(tasks) if row[1] not in READ_ROPE]  # trained once, as rope
    total = sum(seeds for _, _, _, seeds in every)
    failed = Counter()
    for problem, _, learning, seeds in every:
        failed[problem] += seeds - learning
    if not sum(failed.values()):
        return f"All {total:,} trainings learned their problem in its trained sizes."
    by_problem = ", ".join(f"{problem} {count}" for problem, count in failed.items() if count)
    return (
        f"{sum(failed.values())} of {total:,} trainings did not learn their problem in its trained "
        f"sizes ({by_problem})."
    )


def _each_problem(
    scores: Mapping[str, Mapping[str, Mapping[int, float]]], problems: Collection[str]
) -> Grid:
    """g of each row on each problem, also of rows that were not measured on a whole skill."""
    rows = [
        (label(name), *(f"{mean(by_problem[p]):.2f}" if p in by_problem else UNDEFINED
                        for p in problems))
        for name, by_problem in sorted(scores.items())
    ]  # fmt: skip
    multiples = " and ".join(f"{n}×" for n in SCORED)
    caption = f"g at {multiples} the trained window, the mean over seeds."
    return Grid(["method", *problems], rows, caption)


def _within(tasks: Mapping[str, Mapping[str, Row]]) -> Grid:
    """What each method reaches within the trained window, and how many seeds learned it."""
    cells: dict[str, dict[str, str]] = {}
    for problem, method, learning, seeds in learners(tasks):
        row = tasks[problem][method]
        score = mean(row.scores[PROBLEMS[problem].metric][row.windows[0]])
        some = "" if learning == seeds else f" ({learning} of {seeds})"
        cells.setdefault(method, {})[problem] = short(score) + some
    rows = [
        (label(method), *(by_problem.get(problem, UNDEFINED) for problem in tasks))
        for method, by_problem in sorted(cells.items())
    ]
    return Grid(["method", *tasks], rows, WITHIN)


def draw(
    levels: Levels,
    skills: Sequence[str],
    unsure: Collection[tuple[str, str]] = (),
    moving: Collection[tuple[str, str]] = (),
) -> Figure:
    """A heat map of g, methods x skills.

    unsure: the (method, skill) of which a training did not learn.
    moving: those whose g changes with more steps.
    """
    solved = lambda name: sum(effects.group(g) == "solved" for g in levels[name].values())
    order = sorted(levels, key=lambda name: (SHUFFLED not in name, -solved(name), name))
    value = lambda by_skill, skill: by_skill[skill].mean if skill in by_skill else math.nan
    rows = {label(name): [value(levels[name], skill) for skill in skills] for name in order}
    named = {label(name): name for name in order}

    def cell(row: str, column: int) -> tuple[str, str]:
        g = levels[named[row]][skills[column]]
        half = f" ±{heatmap.two_digits(g.half)}" if g.half else ""
        place = named[row], skills[column]
        marks = DAGGER * (place in unsure) + MOVING * (place in moving)
        weight = "bold" if effects.group(g) == "solved" else "normal"
        return heatmap.two_digits(g.mean) + half + marks, weight

    figure = Figure(figsize=(1.6 + 0.85 * len(skills) + 1.2, 1.2 + 0.2 * len(order)))
    axes = figure.subplots()
    columns = [skill.replace(" and ", "\nand ") for skill in skills]
    heatmap.draw(axes, [rows], columns, cell=cell, size=6.5)
    axes.xaxis.tick_top()
    return figure


def _effects(compared: Effects, skills: Sequence[str], reference: str) -> Grid:
    """Every effect, with both intervals."""
    columns: list[str] = [*skills, ALL]

    def cell(effect: Effect | None) -> str:
        if effect is None:
            return UNDEFINED
        half = "" if effect.these.half is None else f" ±{short(effect.these.half)}"
        others = "" if effect.others.half is None else f" (±{short(effect.others.half)})"
        return f"{signed(effect.these)}{'*' * effect.star}{half}{others}"

    rows = [
        (label(method), *(cell(by_skill.get(skill)) for skill in columns))
        for method, by_skill in sorted(compared.items())
    ]
    tests = sum(len(by_skill) for by_skill in compared.values())
    return Grid(["method", *columns], rows, CAPTION.format(reference=reference, tests=tests))


def _floors(runs: Sequence[StoredRun]) -> Section:
    """What solves each problem without positions."""
    configs = {run.config["task"]["name"]: config_of(run) for run in runs}
    multiples = [n for n in next(iter(configs.values())).multiples if n > 1]
    rows = [
        (name, problem.skill, problem.floor,
         outcomes.floor_at(configs[name], "", SCORED[-1])[0],
         *(short(outcomes.floor_at(configs[name], "", n)[1]) for n in multiples))
        for name, problem in PROBLEMS.items() if name in configs
    ]  # fmt: skip
    caption = (
        "Without positions: what solves the problem, with its token accuracy, as it was written "
        "before the runs. Floor: where g is 0 in windows of these multiples of the trained one: "
        "the best rule of content that looks for at most 3 tokens, or where such a rule solves the "
        f"problem, the best table of the last 3 tokens. Rule: what has the floor at {SCORED[-1]}×. "
        "Three were found after the first runs and are above what was written: the second tokens "
        "of pairs looked up among the first ones (pairs), a neighbour of the named token (hops), "
        "and what most places say (vote)."
    )
    columns = ["problem", "skill", "without positions", "rule",
               *(f"floor\n{n}×" for n in multiples)]  # fmt: skip
    return Section("The problems and their floors", [Grid(columns, rows, caption, words=True)])


def _undecided(settings: Sequence[Sequence[StoredRun]]) -> Section:
    """What the page does not decide."""
    runs = settings[0]
    config, skills = config_of(runs[0]), skills_of(by_task(runs))
    alone = [skill for skill, problems in skills.items() if len(problems) == 1]
    sizes = f"{config.model.layers} layers of width {config.model.width}"
    lines = [
        "How often a method fails that did not with any seed here: 3 seeds do not tell.",
        f"Whether it holds beyond {sizes}, windows of {config.window} tokens in training and "
        f"{config.train.steps:,} steps: "
        + ("one setting was measured." if len(settings) == 1 else "see the other settings above."),
        "Text: lines here are made so that content does not help, which is not so in text.",
        "Which method is best: methods in one group are not told apart.",
    ]
    if alone:
        lines.append(
            f"Other problems of these skills, of which one was measured: {', '.join(alone)}."
        )
    return Section("What this does not decide", lines)


def _cost(runs: Sequence[StoredRun]) -> Section:
    """What the trainings took, with their tests, by the processor; also those of other rates."""
    counts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for run in runs:
        processor = run.environment.get("processor", "an unknown processor")
        tried = {
            (record["labels"]["encoding"], record["labels"]["rate"], record["seed"])
            for record in run.records
            if "rate" in record["labels"]
        }
        trainings = Counter(name for name, _, _ in tried)
        took = {r["labels"]["encoding"]: r["value"] for r in run.records
                if r["metric"] == "seconds"}  # fmt: skip
        for name, value in took.items():  # those of a method on average
            counts[processor] += trainings[name]
            seconds[processor] += value * trainings[name]
    lines = [
        f"{counted(counts[processor], 'training')}, with tests, took {total / 3600:,.1f} hours of "
        f"one core of {processor}."
        for processor, total in sorted(seconds.items())
    ]
    return Section("What it took", lines)
