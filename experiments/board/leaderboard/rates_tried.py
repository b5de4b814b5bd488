"""What the stage "position-rates" chose: a learning rate for each method and problem, and the base
of rope. `scripts/board.py` prints it, for `CHOSEN` and `BASE` of configs/leaderboard.py.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from posenc_jax.lab.runs import StoredRun


class Tried(NamedTuple):
    """The trainings of a method on a problem, one for each rate.

    base:   of rope; None: the default, 10,000.
    rate:   the one that the run chose.
    losses: rate -> nats on validation examples, infinite if they are not finite.
    """

    method: str
    base: float | None
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
        encoding, problem = run.config["encoding"], run.config["task"]["name"]
        (rate,) = {record["value"] for record in run.records if record["metric"] == "rate"}
        losses = {
            float(record["labels"]["rate"]): record["value"]
            if np.isfinite(record["value"])
            else np.inf
            for record in run.records
            if record["metric"] == "loss" and record["labels"]["split"] == "valid"
        }
        results.append(Tried(encoding["name"], encoding.get("base"), problem, rate, losses))
    return results


def base(results: Sequence[Tried]) -> float | None:
    """The base of rope with the lowest loss, the mean over the problems that were tried with all
    bases; None: the default has it, or no other base was tried with a problem.
    """
    losses = {(t.base, t.problem): min(t.losses.values()) for t in results if t.method == "rope"}
    bases = {base for base, _ in losses}
    shared = {p for _, p in losses if all((base, p) in losses for base in bases)}
    if not shared or bases == {None}:
        return None
    return min(bases, key=lambda base: np.mean([losses[base, p] for p in sorted(shared)]))


def program(results: Sequence[Tried]) -> str:
    """`CHOSEN` and `BASE` as Python, and how many rates are at an edge of those that were tried."""
    default = [t for t in results if t.base is None]
    lines = [f'    ("{t.method}", "{t.problem}"): {t.rate:g},' for t in default]
    edge = sum(t.at_edge for t in results)
    note = f"# {edge} of {len(results)} rates are the lowest or the highest that was tried."
    text = ["CHOSEN = {", *lines, "}", f"BASE = {base(results)}", note]
    return "\n".join(text)
