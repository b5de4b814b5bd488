"""Scores above the floor, and the predictions beside what was measured."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from experiments.board.leaderboard import predictions
from experiments.board.leaderboard.config import Config
from experiments.board.leaderboard.effects import SOLVED
from experiments.board.leaderboard.examples import content_floors, table_floor
from experiments.board.leaderboard.predictions import BEST, KINDS, PREDICTIONS, Prediction
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.leaderboard.standings import Row
from posenc_jax.lab.report import Grid
from posenc_jax.lab.tasks.content_rules import above_floor


class Outcome(NamedTuple):
    """A prediction and g of each method of its kind that was measured, the mean over seeds.

    unlearned: (seeds that learned the problem in its trained sizes, all seeds) of the methods of
      which some did not: their g tells what was learned, not what carries further.
    by_kind: g of every kind, if the prediction is that this one is the best.
    """

    prediction: Prediction
    by_method: dict[str, float]
    unlearned: dict[str, tuple[int, int]]
    by_kind: Mapping[str, float] = MappingProxyType({})

    @property
    def g(self) -> float:
        """The mean over methods."""
        return float(np.mean(list(self.by_method.values())))

    @property
    def word(self) -> str:
        if self.by_kind:
            others = [g for kind, g in self.by_kind.items() if kind != self.prediction.kind]
            return "as predicted" if self.g > max(others) else "refuted"
        return predictions.outcome(self.prediction, self.g)


def floor_at(config: Config, test: str, multiple: int) -> tuple[str, float]:
    """What reaches the floor of g on the problem of a config, in a window that is a multiple of the
    trained one, and the floor.

    It is the best table of the last tokens, or the best rule of content that looks for few, unless
    such a rule solves the problem: then it is what is asked for.

    test: which test of the problem.
    """
    problem, window = PROBLEMS[config.task.name], config.window * multiple
    by_rule = content_floors(config, test)[window][problem.metric].short
    if problem.above == "rules":
        return by_rule
    by_table = table_floor(config, test, multiple, problem.metric)
    return by_rule if by_table[1] < by_rule[1] < SOLVED else by_table


def scores_above(
    rows: Mapping[str, Row], config: Config, test: str, multiple: int
) -> dict[str, dict[int, float]]:
    """method -> seed -> g, of the methods that were tested in this window; 0 below the floor, where
    how far below tells nothing of the skill.
    """
    _, floor = floor_at(config, test, multiple)
    metric = PROBLEMS[config.task.name].metric
    return {
        name: {
            seed: max(above_floor(score, floor), 0.0) for seed, score in by_window[window].items()
        }
        for name, row in rows.items()
        if (window := config.window * multiple) in (by_window := row.scores[metric])
    }


def outcomes(
    measured: Mapping[tuple[str, str], tuple[Config, Mapping[str, Row]]],
) -> Iterator[Outcome]:
    """The outcome of each prediction of which a method was measured.

    measured: (problem, test) -> a config of it, and its rows.
    """
    for prediction in PREDICTIONS:
        if outcome := _outcome(prediction, measured):
            yield outcome
    for problem, kind in BEST.items():
        of_kinds = {other: _outcome(Prediction(problem, other), measured) for other in KINDS}
        by_kind = {other: outcome.g for other, outcome in of_kinds.items() if outcome}
        best = of_kinds[kind]
        if best and len(by_kind) > 1:
            yield best._replace(by_kind=by_kind)


def _outcome(
    prediction: Prediction,
    measured: Mapping[tuple[str, str], tuple[Config, Mapping[str, Row]]],
) -> Outcome | None:
    """The outcome of a prediction; None if no method of its kind was measured."""
    key = prediction.problem, prediction.test
    if key not in measured:
        return None
    config, rows = measured[key]
    chosen = {name: rows[name] for name in KINDS[prediction.kind] if name in rows}
    by_method = scores_above(chosen, config, prediction.test, predictions.MULTIPLE)
    if not by_method:
        return None
    means = {name: float(np.mean(list(g.values()))) for name, g in by_method.items()}
    learned = {name: np.isfinite([*chosen[name].steps.values()]) for name in by_method}
    unlearned = {
        name: (int(by_seed.sum()), by_seed.size)
        for name, by_seed in learned.items()
        if not by_seed.all()
    }
    return Outcome(prediction, means, unlearned)


def table(found: list[Outcome]) -> Grid:
    """The predictions beside their outcomes."""
    rows = []
    for outcome in found:
        problem, kind, low, high, test = outcome.prediction
        bounds = [f"> {low:g}"] * (low > -1) + [f"< {high:g}"] * (high <= 1)
        if outcome.by_kind:
            bounds = ["best of " + ", ".join(f"{k} {g:.2f}" for k, g in outcome.by_kind.items())]
        rows.append((
            f"{problem}, {test}" if test else problem, kind, " and ".join(bounds),
            f"{outcome.g:.2f}", outcome.word,
            ", ".join(f"{name} {g:.2f}{_learned(outcome, name)}"
                      for name, g in outcome.by_method.items()),
        ))  # fmt: skip
    refuted = sum(outcome.word == "refuted" for outcome in found)
    return Grid(
        ["problem", "kind", "predicted g", "g", "outcome", "methods"], rows,
        f"g at {predictions.MULTIPLE}× the trained window: 0 at the floor, 1 where all is right, "
        f"the mean over methods and seeds; in brackets the seeds that learned the problem in its "
        f"trained sizes, if not all did. {refuted} of {len(rows)} predictions are refuted. They "
        f"were fixed before the runs (SHA-256 {predictions.fingerprint()[:12]}).",
    )  # fmt: skip


def _learned(outcome: Outcome, name: str) -> str:
    """The seeds that learned the problem, in brackets, if not all did."""
    if name not in outcome.unlearned:
        return ""
    learning, seeds = outcome.unlearned[name]
    return f" ({learning} of {seeds})"
