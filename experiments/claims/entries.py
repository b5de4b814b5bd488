"""Measured claims on disk: claims.json, written claim by claim."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.claims.ledger import Claim, Curve, Draw, Measured, Verdict
from experiments.claims.models import Lab
from experiments.claims.register import LEDGER
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.training.evaluation import DoesNotFit


class Entry(NamedTuple):
    """A claim, what was measured, and the verdict; `measured` is empty if it could not be measured.

    seconds: how long it took, training included; shared models count for the first claim that uses
      them.
    run: when, at which commit and with which settings it was measured.
    """

    claim: Claim
    measured: Measured
    verdict: Verdict
    seconds: float
    run: Mapping[str, Any]

    @property
    def figure(self) -> Draw | None:
        """The claim's figure, if there is one and there are numbers to draw."""
        return self.claim.figure if self.measured.numbers else None


def made(claim: Claim, lab: Lab, config: Any) -> Entry:
    """Measures a claim.

    It is "not measured" if a model diverges, a number is not finite or memory does not suffice; any
    other error is a fault of the code and is raised.
    """
    started, reason = time.perf_counter(), ""
    try:
        measured = claim.measure(lab)
    except (Diverged, DoesNotFit) as error:
        measured, reason = Measured({}), str(error)
    seconds = time.perf_counter() - started
    return Entry(claim, measured, judged(claim, measured, reason), seconds, _origin(config))


def judged(claim: Claim, measured: Measured, reason: str) -> Verdict:
    """The rule's verdict, or "not measured": for `reason` if there are no numbers, or because one
    is not finite.
    """
    if not measured.numbers:
        return Verdict("not measured", reason)
    for name, values in measured.numbers.items():
        if not np.isfinite(values).all():
            return Verdict("not measured", f"{name} is not finite in every seed")
    return claim.rule(measured.intervals)


def _origin(config: Any) -> dict[str, Any]:
    here, text = runs.environment(), config.text
    return {
        **{name: here[name] for name in ("started", "commit", "python", "jax", "device")},
        "budget": config.budget,
        "seeds": config.seeds,
        "first_seed": config.first_seed,
        "text": f"{text.task.name}, windows of {text.train.length} bytes",
        "model": f"{text.model.layers} layers, width {text.model.width}, {text.model.heads} heads",
        "training": f"{text.train.steps} steps of {text.train.batch} windows",
    }


def save(path: Path, entries: Iterable[Entry]) -> None:
    """Writes claims.json in one step; a value that is not finite becomes null."""
    rows = [
        {
            "id": e.claim.id,
            "claim": e.claim.text,
            "verdict": str(e.verdict),
            "reason": e.verdict.reason,
            "numbers": {
                name: {**interval([*values])._asdict(), "seeds": _listed(values)}
                for name, values in e.measured.numbers.items()
            },
            "curves": {
                name: {"x": _listed(curve.x), "y": _listed(curve.y)}
                for name, curve in e.measured.curves.items()
            },
            "seconds": round(e.seconds, 1),
            "run": e.run,
        }
        for e in entries
    ]
    write_json(path, runs.plain("claims", rows))


def load(*workdirs: str | Path) -> list[Entry]:
    """The claims of one run, or of several that complete each other, in the ledger's order.

    Verdicts are made again from the measurements. If two folders have one claim, the later counts.

    Raises:
      ValueError: a folder without claims.json, a claim that the ledger does not have, or a number
        that its rule now reads and that was not measured.
    """
    found: dict[str, Entry] = {}
    for workdir in workdirs:
        path = Path(workdir) / "claims.json"
        if not path.is_file():
            raise ValueError(
                f"workdir: {workdir} has no claims.json; give a folder of a claims run"
            )
        for row in json.loads(path.read_text("utf-8")):
            if row["id"] not in LEDGER:
                raise ValueError(f"workdir: {path}: no claim {row['id']!r} in the ledger")
            claim, measured = LEDGER[row["id"]], _measured(row)
            try:
                verdict = judged(claim, measured, row["reason"])
            except KeyError as error:
                raise ValueError(
                    f"workdir: {path}: {claim.id} lacks the number {error}; measure it again"
                ) from None
            found[claim.id] = Entry(claim, measured, verdict, row["seconds"], row["run"])
    return [found[id] for id in LEDGER if id in found]


def _measured(row: Mapping) -> Measured:
    """The measurement in a row of claims.json; null is read as NaN."""
    numbers, curves = row["numbers"].items(), row["curves"].items()
    return Measured(
        {name: np.array(cell["seeds"], float) for name, cell in numbers},
        {name: Curve(*(np.array(curve[axis], float) for axis in "xy")) for name, curve in curves},
    )


def _listed(values: Any) -> list:
    return np.asarray(values, float).tolist()
