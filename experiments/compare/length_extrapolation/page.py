"""The page of the experiment in docs/, about runs on several tasks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from posenc_jax.lab import metrics, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.sweeps import dotted
from posenc_jax.lab.report import Grid, Section, formats, length_table, plots, summaries
from posenc_jax.lab.report.comparison import differing
from posenc_jax.lab.report.statistics import paired
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import Estimate, LengthSummary
from posenc_jax.lab.tasks import content_rules
from posenc_jax.lab.tasks import task_floors as floors

LEARNED = 0.95  # share of exact matches at the trained length with which a task counts as learned
MOVED = 0.05  # a change of a mean with more steps, in its metric: the budget was not enough there
MAY_DIFFER = ("encoding", "eval.variants", "train.steps", "checkpoint")
STRICT, LENIENT = "exact_match", "token_accuracy"
Floors = dict[str, dict[int, float]]  # metric -> test length -> the best score without positions
ContentFloors = dict[str, dict[str, dict[int, float]]]  # metric -> row -> test length -> score


class Budget(NamedTuple):
    """All runs of one task with one number of steps; `summaries`: metric -> summary of them all."""

    task: str
    steps: int
    config: dict
    summaries: dict[str, LengthSummary]
    records: list

    @property
    def metric(self) -> str:
        """The metric that tells methods apart beyond the trained length."""
        return list(self.summaries)[-1]

    @property
    def main(self) -> str:
        """The main metric of the task."""
        return next(iter(self.summaries))


class Group(NamedTuple):
    """One task: the fewest steps, and encodings that were trained for more."""

    base: Budget
    longer: list[Budget]


def document(runs: Sequence[StoredRun]) -> tuple[list[str], list[Section]]:
    """The sentences and the sections of the page.

    Raises:
      ValueError: runs of one task differ in more than encodings, steps and seeds, or two have the
        same encoding, steps and seed.
    """
    groups = [*of_tasks(runs).values()]
    within = "; ".join(_within(group) for group in groups)
    sentences = [f"At the trained length: {within}.", _more_steps(groups)]
    learned = Section("What was learned, and in which budget", sentences)
    beyond = [f"{_beyond(group.base)}." for group in groups]
    return beyond, [*(_section(group) for group in groups), learned]


def of_tasks(runs: Sequence[StoredRun]) -> dict[str, Group]:
    """The runs of each task together. ValueError: as of `document`."""
    by_task: dict[str, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: "rope" not in run.by_length.results):
        by_task.setdefault(run.config["task"]["name"], []).append(run)
    return {task: _group(task, task_runs) for task, task_runs in sorted(by_task.items())}


def _group(task: str, runs: Sequence[StoredRun]) -> Group:
    fields = differing([dotted(run.config) for run in runs])
    for field in fields:
        if not any(f"{field}.".startswith(f"{free}.") for free in MAY_DIFFER):
            raise ValueError(f"workdir: runs on {task} differ in config.{field}")
    by_steps: dict[int, list[StoredRun]] = {}
    for run in runs:
        by_steps.setdefault(run.config["train"]["steps"], []).append(run)
    without, by_content = floors_of(runs[0]), content_floors_of(runs[0])
    base, *longer = (
        _budget(task, steps, budget_runs, without, by_content)
        for steps, budget_runs in sorted(by_steps.items())
    )
    return Group(base, longer)


def _budget(
    task: str,
    steps: int,
    runs: Sequence[StoredRun],
    without: Floors,
    by_content: ContentFloors,
) -> Budget:
    owners: dict[tuple[str, int], StoredRun] = {}
    for run in runs:
        config = run.config
        for seed in range(config["first_seed"], config["first_seed"] + config["seeds"]):
            for name in run.by_length.results:
                other = owners.setdefault((name, seed), run)
                if other is not run:
                    where = f"{other.path} and {run.path}"
                    raise ValueError(f"workdir: {name} on {task} with seed {seed} is in {where}")
    first, records = runs[0].by_length, [record for run in runs for record in run.records]
    metrics = (STRICT, LENIENT) if first.metric == STRICT else (first.metric,)
    by_metric = {
        metric: summaries.summarise(
            records,
            metric=metric,
            train_length=first.train_length,
            baselines=first.baselines if metric == first.metric else {},
            floors=without.get(metric),
            not_measured=[entry for run in runs for entry in run.by_length.not_measured],
        )
        for metric in metrics
    }
    by_metric = {
        metric: replace(summary, facts=first.facts, content_floors=by_content.get(metric, {}))
        for metric, summary in by_metric.items()
    }
    return Budget(task, steps, runs[0].config, by_metric, records)


def floors_of(run: StoredRun) -> Floors:
    """The best scores without positions; {} for a task of a file, or of another metric."""
    if (arguments := _strings(run)) is None:
        return {}
    return floors.by_metric(*arguments)


def content_floors_of(run: StoredRun) -> ContentFloors:
    """The best scores of rules that look tokens up by content, of a few and of many tokens; {} as
    of `floors_of`.
    """
    if (arguments := _strings(run)) is None:
        return {}
    by_size = content_rules.by_size(*arguments)
    few, many = (f"content, {k} tokens" for k in (content_rules.SHORT, content_rules.LENGTHS[-1]))
    return {
        metric: {
            few: {size: by_metric[metric].short[1] for size, by_metric in by_size.items()},
            many: {size: by_metric[metric].long[1] for size, by_metric in by_size.items()},
        }
        for metric in (STRICT, LENIENT)
    }


def _strings(run: StoredRun) -> tuple[tasks.Task, tuple[int, int], Sequence[int], int] | None:
    """The task of a run whose answers are right or wrong, the sizes in training and in tests, and
    the number of examples of a test.
    """
    task_config = schema.TaskConfig(**run.config["task"])
    if run.by_length.metric != STRICT or task_config.name not in tasks.CATALOG:
        return None
    train, tests = run.config["train"], run.config["eval"]
    task = tasks.make(task_config.name, **task_config.options)
    return task, (train["min_length"], train["length"]), tests["lengths"], tests["examples"]


def _more_steps(groups: Sequence[Group]) -> str:
    """Which encodings were trained for more steps, and where that moves a mean: not decided."""
    trained = [
        f"{', '.join(budget.summaries[base.main].results)} on {base.task} "
        f"({budget.steps / base.steps:.3g}× the steps)"
        for base, longer in groups
        for budget in longer
    ]
    moved = [
        f"{group.base.task} {place} the trained length ({', '.join(names)})"
        for group in groups
        for place, names in _moved(group).items()
        if names
    ]
    if not trained:
        return "More steps of training were not measured."
    end = (
        f"A mean moves by more than {MOVED}, so this is not decided: {'; '.join(moved)}."
        if moved
        else f"No mean moves by more than {MOVED}."
    )
    return f"Trained again for more steps: {'; '.join(trained)}. {end}"


def _moved(group: Group) -> dict[str, list[str]]:
    """place -> the encodings of which a mean moves with more steps, in either metric."""
    base = group.base
    trained = base.summaries[base.main].train_length
    moved = [
        ("at" if length == trained else "beyond", name)
        for budget in group.longer
        for metric in base.summaries
        for name, by_length in _changes(base, budget, metric).items()
        for length, mean in by_length.items()
        if abs(mean) > MOVED
    ]
    return {
        place: [*dict.fromkeys(n for p, n in moved if p == place)] for place in ("at", "beyond")
    }


def _within(group: Group) -> str:
    """Which encodings learned the task; for a metric of text, the range of their means."""
    base, length = group.base, group.base.summaries[group.base.main].train_length
    means = _means(base, base.main, length)
    if base.main != STRICT:
        low, high = min(means.values()), max(means.values())
        return f"{base.task}: {formats.span(low, high, 3)} {metrics.metric(base.main).title}"
    missed = _missed(base)
    rest = f", not {', '.join(missed)}" if missed else ""
    count = f"{len(means) - len(missed)} of {len(means)} methods"
    learned = {n for b in group.longer for n in b.summaries[b.main].results}
    learned -= {n for b in group.longer for n in _missed(b)}
    late = [name for name in missed if name in learned]
    also = f", but with more steps {', '.join(late)} too" if late else ""
    return f"{base.task}: {count} reach {LEARNED} in {metrics.metric(base.main).title}{rest}{also}"


def _beyond(base: Budget) -> str:
    """The best mean at the longest length, of the methods that learned the task."""
    summary = base.summaries[base.metric]
    length = max(summaries.lengths(summary))
    missed = _missed(base)
    means = {n: v for n, v in _means(base, base.metric, length).items() if n not in missed}
    if not means:
        return f"{base.task}: no method learned it"
    best = (min if metrics.metric(base.metric).better == "lower" else max)(means.values())
    names = [name for name, mean in means.items() if f"{mean:.3f}" == f"{best:.3f}"]
    rows = replace(summary, results={name: summary.results[name] for name in means})
    near = [name for name in summaries.leaders(rows, length) if name not in names]
    not_apart = f" (not told apart from {', '.join(near)})" if near else ""
    rope = f", rope {means['rope']:.3f}" if "rope" in means else ""
    at = f"{base.task} at {formats.length_ratio(length, summary.train_length)}"
    metric, floor = metrics.metric(base.metric).title, summary.floors.get(length)
    contents = [by_length[length] for by_length in summary.content_floors.values()]
    by_content = f", rules of content {max(contents):.3f}" if contents else ""
    if floor is not None and best <= floor:
        return f"{at}: no method is above the floor, {floor:.3f} {metric}{by_content}"
    least = "" if floor is None else f", the floor {floor:.3f}{by_content}"
    best_names = f"{', '.join(names)}{not_apart}"
    return f"{at}, the best that learned it: {best_names}, {best:.3f} {metric}{rope}{least}"


def _changes(base: Budget, longer: Budget, metric: str) -> dict[str, dict[int, float]]:
    """encoding -> length -> the mean with more steps minus that with fewer, paired by seed."""
    before = summaries.final_values(base.records, metric)
    after = summaries.final_values(longer.records, metric)
    changes: dict[str, dict[int, float]] = {}
    for (name, length), by_seed in after.items():
        shared = [s for s in by_seed if s in before.get((name, length), {})]
        if shared:
            now, then = ([v[s] for s in shared] for v in (by_seed, before[name, length]))
            changes.setdefault(name, {})[length] = paired(now, then).mean
    return changes


def _missed(base: Budget) -> list[str]:
    """The encodings that did not learn the task within the trained length; none for text."""
    means = _means(base, base.main, base.summaries[base.main].train_length)
    return [name for name, mean in means.items() if base.main == STRICT and not mean >= LEARNED]


def _means(base: Budget, metric: str, length: int) -> dict[str, float]:
    """encoding -> the mean over seeds at one length, of the encodings that were measured there."""
    results = base.summaries[metric].results
    return {n: cells[length].mean for n, cells in results.items() if length in cells}


def _section(group: Group) -> Section:
    """Settings, tables, figures and every seed of one task."""
    base = group.base
    parts: list[Any] = [_setting(base)]
    stem = re.sub(r"\W+", "_", base.task)
    if missed := _missed(base):
        parts.append(
            f"Not learned at the trained length: {', '.join(missed)}. Their numbers at "
            "longer lengths say nothing about extrapolation; none is marked as the best."
        )
    for metric, summary in base.summaries.items():
        parts.append(plots.picture_by_length(f"{stem}_{metric}", summary))
    tables = [length_table.results(summary, apart=missed) for summary in base.summaries.values()]
    tables += [_longer(group, metric) for metric in base.summaries] if group.longer else []
    parts.append(tables[0])
    if tables[1:]:
        title = f"{base.task}: other metrics and budgets"
        parts.append(Section(title, tables[1:], folded=True))
    for metric, summary in base.summaries.items():
        title = f"{base.task}, {metrics.metric(metric).title}: every seed"
        parts.append(Section(title, [length_table.every_seed(summary)], folded=True))
    return Section(base.task, parts)


def _setting(base: Budget) -> str:
    train, model = base.config["train"], base.config["model"]
    return (
        f"{base.steps} steps of {train['batch']} examples of length "
        f"{formats.span(train['min_length'], train['length'], 0)}, learning rate {train['lr']:g}; "
        f"a {model['kind']} of {formats.counted(model['layers'], 'layer')}, width "
        f"{model['width']}, {formats.counted(model['heads'], 'head')}."
    )


def _longer(group: Group, metric: str) -> Grid:
    """The encodings that were trained for more steps, at each number of steps."""
    budgets = [group.base, *group.longer]
    names = list(dict.fromkeys(n for b in group.longer for n in b.summaries[metric].results))
    lengths = summaries.lengths(group.base.summaries[metric])
    rows = [
        (
            f"{name}, {b.steps} steps",
            *(_cell(b.summaries[metric].results[name], n) for n in lengths),
        )
        for name in names
        for b in budgets
        if name in b.summaries[metric].results
    ]
    caption = f"{metrics.metric(metric).title} with more steps of training."
    return Grid(("length", *map(str, lengths)), rows, caption)


def _cell(cells: Mapping[int, Estimate], length: int) -> str:
    return formats.plus_minus(cells[length]) if length in cells else "—"
