"""What the stage "position-rates" chose: a learning rate for each method and problem.
`scripts/board.py` prints it, for `CHOSEN` of configs/leaderboard.py.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.runs import StoredRun


class Tried(NamedTuple):
    """The trainings of a method on a problem, one for each rate.

    rate:   the one that the run chose.
    losses: rate -> nats on validation examples, infinite if they are not finite.
    """

    method: str
    problem: str
    rate: float
    losses: dict[float, float]

    @property
    def at_edge(self) -> bool:
        """Whether no lower or no higher rate than the chosen one was tried."""
        return self.rate in (min(self.losses), max(self.losses))


def tried(runs: Iterable[StoredRun]) -> list[Tried]:
    """The trainings of runs of one method, one problem and one seed."""
    results = []
    for run in runs:
        problem = run.config["task"]["name"]
        (rate,) = {record["value"] for record in run.records if record["metric"] == "rate"}
        losses = {
            float(record["labels"]["rate"]): record["value"]
            if np.isfinite(record["value"])
            else np.inf
            for record in run.records
            if record["metric"] == "loss" and record["labels"]["split"] == "valid"
        }
        results.append(Tried(run.config["encoding"]["name"], problem, rate, losses))
    return results


def program(results: Sequence[Tried]) -> str:
    """`CHOSEN` as Python, and how many rates are at an edge of those that were tried."""
    lines = [f'    ("{t.method}", "{t.problem}"): {t.rate:g},' for t in results]
    edge = sum(t.at_edge for t in results)
    note = f"# {edge} of {len(results)} rates are the lowest or the highest that was tried."
    return "\n".join(["CHOSEN = {", *lines, "}", note])
