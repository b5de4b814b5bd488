"""Who learned a task, how far it carries, and what is better than the reference: from records.

A task is a stratum: methods are compared with the reference within a task. Rows that read the
reference's own weights are paired with it, seed by seed; all others are trained independently, so
Welch's test compares them. The tests of one task are a family, which Holm's method corrects (1979),
at 5%.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from experiments.board.leaderboard.config import READ_ROPE
from experiments.board.leaderboard.measure_method import SHUFFLED
from experiments.board.leaderboard.overwritten import LABEL as FOLLOWS
from posenc_jax.lab.report.statistics import Interval, holm, interval, p_value, welch
from posenc_jax.lab.runs import Record

LEARNED = 0.95  # exact match within the trained sizes, the mean over seeds
LEVEL = 0.05
DRAWS = 2000  # of the bootstrap
Seeds = Mapping[int, float]  # seed -> value


class Row(NamedTuple):
    """One method on one task.

    rate, parameters: the learning rate chosen, and the parameters of the encoding.
    steps:  steps to learn, NaN for a seed that did not before the budget ended.
    scores: metric -> window -> seed -> value.
    undecided: the differences ("cost", "gain") whose star is another one with more steps.
    """

    rate: float
    parameters: int
    steps: Seeds
    scores: Mapping[str, Mapping[int, Seeds]]
    undecided: frozenset[str] = frozenset()

    @property
    def windows(self) -> list[int]:
        return sorted(self.scores["exact_match"])

    @property
    def learned(self) -> bool:
        """Whether it learned the task within the trained sizes."""
        return mean(self.scores["exact_match"][self.windows[0]]) >= LEARNED

    def beyond(self, windows: Sequence[int]) -> Seeds | None:
        """Token accuracy, the mean over these windows; None if it is not defined in one, or if
        there are none.
        """
        scores = self.scores["token_accuracy"]
        if not windows or any(window not in scores for window in windows):
            return None
        seeds = scores[windows[0]]
        return {seed: float(np.mean([scores[n][seed] for n in windows])) for seed in seeds}


class Comparison(NamedTuple):
    """A method against the reference on one task; a difference is positive if it is larger.

    cost: exact match within the trained sizes, reference minus method.
    gain: token accuracy beyond them, method minus reference; None if one of the two did not learn
      the task or is not defined there.
    stars: the names of those ("cost", "gain") that differ from 0 after the correction.
    undecided: as of the method's row; these have no star.
    """

    cost: Interval
    gain: Interval | None
    stars: frozenset[str]
    undecided: frozenset[str] = frozenset()


def mean(seeds: Seeds) -> float:
    return float(np.mean(list(seeds.values())))


def read(records: Iterable[Record], test: str = "") -> dict[str, Row]:
    """The rows of one task. The control, a method with shuffled positions, has the facts of its
    method, whose weights it has.

    test: the name of a further test of a problem; "": the test that is as the training.
    """
    facts: dict[str, dict[str, dict[int, float]]] = {}
    scores: dict[str, dict[str, dict[int, dict[int, float]]]] = {}
    for record in records:
        labels, metric, seed = record["labels"], record["metric"], record["seed"]
        name, window = labels["encoding"], labels["length"]
        if labels["split"] == "train":
            facts.setdefault(name, {}).setdefault(metric, {})[seed] = record["value"]
        elif labels["split"] == "test" and _is_of(labels, test):
            by_window = scores.setdefault(name, {}).setdefault(metric, {})
            by_window.setdefault(window, {})[seed] = record["value"]
    trained = {name: facts.get(name.partition(SHUFFLED)[0], {}) for name in scores}
    return {
        name: Row(
            rate=next(iter(by_metric["rate"].values())),
            parameters=int(next(iter(by_metric["parameters"].values()))),
            steps=by_metric["steps_to_learn"],
            scores=scores[name],
        )
        for name, by_metric in trained.items()
        if "rate" in by_metric
    }


def tests(records: Iterable[Record]) -> list[str]:
    """The names of the further tests of a problem."""
    return [*dict.fromkeys(r["labels"]["test"] for r in records if "test" in r["labels"])]


def _is_of(labels: Mapping[str, Any], test: str) -> bool:
    return labels.get("test", "") == test and not {"statistic", FOLLOWS} & labels.keys()


def joined(row: Row, more: Row) -> Row:
    """A row with the seeds of another one of the same method.

    Raises:
      ValueError: a seed is in both, or they have other rates.
    """
    if row.rate != more.rate:
        raise ValueError(f"rates {row.rate:g} and {more.rate:g}")
    if twice := row.steps.keys() & more.steps.keys():
        raise ValueError(f"seed {min(twice)} twice")
    scores = {
        metric: {
            window: {**seeds, **more.scores[metric][window]} for window, seeds in by_window.items()
        }
        for metric, by_window in row.scores.items()
    }
    return row._replace(steps={**row.steps, **more.steps}, scores=scores)


def compared(rows: Mapping[str, Row], reference: str) -> dict[str, Comparison]:
    """Every other method against the reference; {} if the reference has no row."""
    if reference not in rows:
        return {}
    base = rows[reference]
    trained, *longer = base.windows
    tested: dict[tuple[str, str], tuple[Interval, float]] = {}
    for name, row in rows.items():
        if name == reference:
            continue
        ours, theirs = (r.scores["exact_match"][trained] for r in (row, base))
        tested[name, "cost"] = _difference(theirs, ours, name in READ_ROPE)
        ours, theirs = (r.beyond(longer) if r.learned else None for r in (row, base))
        if ours and theirs:
            tested[name, "gain"] = _difference(ours, theirs, name in READ_ROPE)
    starred = holm({key: p for key, (_, p) in tested.items()}, LEVEL)
    return {
        name: Comparison(
            tested[name, "cost"][0],
            tested.get((name, "gain"), (None,))[0],
            frozenset(w for w in ("cost", "gain") if (name, w) in starred) - row.undecided,
            row.undecided,
        )
        for name, row in rows.items()
        if name != reference
    }


def _difference(a: Seeds, b: Seeds, paired: bool) -> tuple[Interval, float]:
    """The mean of a minus that of b, with its interval and p-value."""
    if not paired:
        return welch(list(a.values()), list(b.values()))
    differences = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    return interval(differences), p_value(differences)


def ranks(tasks: Mapping[str, Mapping[str, Row]]) -> dict[str, Interval]:
    """Each method's rank by token accuracy beyond the trained window, the mean over tasks.

    The methods are those with a row on every task. One that did not learn a task, or is not defined
    beyond the window, shares the last rank. The interval holds 95% of the ranks that a bootstrap
    finds, which draws the seeds of each task with replacement, the same for all methods.
    """
    names = [name for name in next(iter(tasks.values()))
             if all(name in rows for rows in tasks.values())]  # fmt: skip
    draw = np.random.default_rng(0)
    ranks_RM = []
    for rows in tasks.values():
        values_MS = _beyond(rows, names)
        seeds = values_MS.shape[1]
        chosen_RS = np.vstack([np.arange(seeds), draw.integers(seeds, size=(DRAWS, seeds))])
        means_RM = values_MS[:, chosen_RS].mean(axis=2).T
        ranks_RM.append(rankdata(-means_RM, axis=1))
    rank_RM = np.mean(ranks_RM, axis=0)
    low_M, high_M = np.quantile(rank_RM[1:], (0.025, 0.975), axis=0)
    columns = zip(names, rank_RM[0], low_M, high_M, strict=True)
    return {
        n: Interval(float(r), float(low), float(high), len(tasks)) for n, r, low, high in columns
    }


def _beyond(rows: Mapping[str, Row], names: Sequence[str]) -> np.ndarray:
    """Token accuracy beyond the window, [methods, seeds]; -1 where there is none."""
    seeds = sorted(set.intersection(*(set(rows[name].steps) for name in names)))
    longer = max((rows[name].windows for name in names), key=len)[1:]
    values = []
    for name in names:
        by_seed = rows[name].beyond(longer) if rows[name].learned else None
        values.append([by_seed[seed] for seed in seeds] if by_seed else [-1.0] * len(seeds))
    return np.array(values)
