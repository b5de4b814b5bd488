"""The numbers of each ordering, read from the records of a run."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.board.published.measure_method import FLOOR
from experiments.board.published.orderings import Ordering
from experiments.board.published.settings import Setting
from experiments.board.published.verdicts import Verdict, settled, verdict
from posenc_jax.lab.metrics import Direction, metric
from posenc_jax.lab.runs import Record

Scores = Mapping[str, Sequence[float]]  # method -> the value of every seed


class AtBudget(NamedTuple):
    """An ordering at one budget.

    ours: the scores of the row's test.
    within: the scores that decide whether a method has learned the task; {} without a condition.
    learned: the methods that have, in the paper's order.
    """

    steps: int
    ours: Scores
    within: Scores
    learned: list[str]
    verdict: Verdict


class Result(NamedTuple):
    """An ordering with its published numbers, at half of the budget and at all of it.

    floor: the best score without positions; None if it is unknown.
    rates: method -> the learning rate chosen.
    verdict: on the row, see `verdicts.settled`.
    """

    name: str
    ordering: Ordering
    setting: Setting
    half: AtBudget
    whole: AtBudget
    floor: float | None
    rates: Mapping[str, float]

    @property
    def verdict(self) -> str:
        return settled(self.half.verdict, self.whole.verdict)


class Table:
    """The records of a run by setting, method, test, metric and budget."""

    def __init__(self, records: Iterable[Record]):
        self._seeds: dict[tuple, dict[int, float]] = {}
        self.rates: dict[tuple[str, str], float] = {}
        for record in records:
            labels, seed = record["labels"], record["seed"]
            of = labels["setting"], labels["encoding"]
            if record["metric"] == "rate":
                self.rates[of] = record["value"]
            elif labels["split"] == "test":
                key = *of, labels["test"], record["metric"], record["step"]
                self._seeds.setdefault(key, {})[seed] = record["value"]

    def budgets(self, setting: str) -> list[int]:
        """The budgets of a setting in steps, ascending; that of its floor is left out."""
        return sorted({key[4] for key in self._seeds if key[0] == setting and key[1] != FLOOR})

    def values(
        self, setting: str, method: str, test: str, metric: str, steps: int
    ) -> list[float] | None:
        """The value of every seed, in their order; None if there is none."""
        by_seed = self._seeds.get((setting, method, test, metric, steps))
        return None if by_seed is None else [by_seed[seed] for seed in sorted(by_seed)]


def result(name: str, ordering: Ordering, setting: Setting, table: Table) -> Result:
    """The result of one ordering."""
    half, whole = (
        _at_budget(ordering, setting, table, steps) for steps in table.budgets(ordering.setting)
    )
    floor = table.values(ordering.setting, FLOOR, ordering.test, ordering.ours, 0)
    rates = {method: table.rates[ordering.setting, method] for method in ordering.published}
    return Result(name, ordering, setting, half, whole, floor[0] if floor else None, rates)


def _at_budget(ordering: Ordering, setting: Setting, table: Table, steps: int) -> AtBudget:
    def scores(metric: str, test: str = "") -> dict[str, list[float]]:
        of = lambda method: test or ordering.tests.get(method, ordering.test)
        by_method = {
            method: table.values(ordering.setting, method, of(method), metric, steps)
            for method in ordered(ordering)
        }
        return {method: seeds for method, seeds in by_method.items() if seeds is not None}

    ours = scores(ordering.ours)
    within = scores(setting.learned[0], "trained") if setting.learned else {}
    learned = [
        method for method in ours
        if not setting.learned or np.mean(within[method]) >= setting.learned[1]
    ]  # fmt: skip
    signed = by_seed(ours, ordering.ours, learned)
    return AtBudget(steps, ours, within, learned, verdict(oriented(ordering), signed))


def ordered(ordering: Ordering) -> list[str]:
    """The methods, the paper's best first."""
    values = oriented(ordering)
    return sorted(values, key=lambda method: -values[method])


def oriented(ordering: Ordering) -> dict[str, float]:
    """The paper's numbers, with a sign such that larger is better."""
    return {m: sign(ordering.better) * value for m, value in ordering.published.items()}


def sign(better: Direction | None) -> int:
    """1 if higher values are better, -1 if lower ones are; 0 of a metric without a direction."""
    return {"higher": 1, "lower": -1, None: 0}[better]


def by_seed(scores: Scores, name: str, methods: Sequence[str]) -> dict[str, list[float]]:
    """The values of methods with a sign such that larger is better."""
    return {m: [sign(metric(name).better) * value for value in scores[m]] for m in methods}
