"""Scores above the floor, and the predictions beside what was measured."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from experiments.board.leaderboard import predictions
from experiments.board.leaderboard.config import Config
from experiments.board.leaderboard.examples import content_floors, table_floor
from experiments.board.leaderboard.predictions import KINDS, PREDICTIONS, Prediction
from experiments.board.leaderboard.problems import PROBLEMS
from experiments.board.leaderboard.standings import Row
from posenc_jax.lab.report import Grid
from posenc_jax.lab.tasks.content_rules import above_floor


class Outcome(NamedTuple):
    """A prediction and g of each method of its kind that was measured, the mean over seeds.

    unlearned: (seeds that learned the problem in its trained sizes, all seeds) of the methods of
      which some did not: their g tells what was learned, not what carries further.
    """

    prediction: Prediction
    by_method: dict[str, float]
    unlearned: dict[str, tuple[int, int]]

    @property
    def g(self) -> float:
        """The mean over methods."""
        return float(np.mean(list(self.by_method.values())))

    @property
    def word(self) -> str:
        return predictions.outcome(self.prediction, self.g)


def floor_at(config: Config, test: str, multiple: int) -> float:
    """The floor of g on the problem of a config, in a window that is a multiple of the trained one.

    test: which test of the problem.
    """
    problem, window = PROBLEMS[config.task.name], config.window * multiple
    if problem.above == "rules":
        return content_floors(config, test)[window][problem.metric].short[1]
    return table_floor(config, test, multiple, problem.metric)


def scores_above(
    rows: Mapping[str, Row], config: Config, test: str, multiple: int
) -> dict[str, dict[int, float]]:
    """method -> seed -> g, of the methods that were tested in this window."""
    floor, metric = floor_at(config, test, multiple), PROBLEMS[config.task.name].metric
    return {
        name: {seed: above_floor(score, floor) for seed, score in by_window[window].items()}
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
        key = prediction.problem, prediction.test
        if key not in measured:
            continue
        config, rows = measured[key]
        chosen = {name: rows[name] for name in KINDS[prediction.kind] if name in rows}
        by_method = scores_above(chosen, config, prediction.test, predictions.MULTIPLE)
        if by_method:
            means = {name: float(np.mean(list(g.values()))) for name, g in by_method.items()}
            learned = {name: np.isfinite([*chosen[name].steps.values()]) for name in by_method}
            unlearned = {
                name: (int(by_seed.sum()), by_seed.size)
                for name, by_seed in learned.items()
                if not by_seed.all()
            }
            yield Outcome(prediction, means, unlearned)


def table(found: list[Outcome]) -> Grid:
    """The predictions beside their outcomes."""
    rows = []
    for outcome in found:
        problem, kind, low, high, test = outcome.prediction
        bounds = [f"> {low:g}"] * (low > -1) + [f"< {high:g}"] * (high <= 1)
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
