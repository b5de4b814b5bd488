"""Measured claims on disk: claims.json, written claim by claim."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from experiments.claims.lab import Lab
from experiments.claims.ledger import Claim, Curve, Measured, Verdict, unmeasured
from experiments.claims.register import LEDGER
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.training.evaluation import DoesNotFit


class Entry(NamedTuple):
    """A claim and what its rule says of `measured`; of one that could not be, there is nothing.

    seconds: what it took, with the models that it was the first to ask for.
    run: when, at which commit and with which settings it was measured.
    """

    claim: Claim
    measured: Measured
    verdict: Verdict
    seconds: float
    run: Mapping[str, Any]

    @property
    def figure(self) -> Callable[[Measured], Figure] | None:
        """What draws the measurement, if there is one."""
        return self.claim.figure if self.measured.numbers else None


def made(claim: Claim, lab: Lab, config: Any) -> Entry:
    """Measures a claim: its verdict, and where it comes from.

    A model that diverges, a number that is not finite, or memory that does not suffice make it
    "not measured"; any other failure is a fault of ours.
    """
    started, reason = time.perf_counter(), ""
    try:
        measured = claim.measure(lab)
    except (Diverged, DoesNotFit) as error:
        measured, reason = Measured({}), str(error)
    seconds = time.perf_counter() - started
    return Entry(claim, measured, judged(claim, measured, reason), seconds, _origin(config))


def judged(claim: Claim, measured: Measured, reason: str) -> Verdict:
    """What the rule says; "not measured" of no numbers, for the reason given, or of one that is not
    finite.
    """
    if not measured.numbers:
        return unmeasured(reason)
    for name, values in measured.numbers.items():
        if not all(map(math.isfinite, values)):
            return unmeasured(f"{name} is not finite in every seed")
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
                name: {**interval([*values])._asdict(), "seeds": _floats(values)}
                for name, values in e.measured.numbers.items()
            },
            "curves": {
                name: {"x": _floats(curve.x), "y": [_floats(row) for row in curve.y]}
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

    Verdicts are made again from the measurements. Where two runs have one claim, the later folder
    counts.

    Raises:
      ValueError: a folder without claims.json, or with claims that the ledger does not have or
        reads otherwise by now.
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
    return Measured(
        {name: _back(cell["seeds"]) for name, cell in row["numbers"].items()},
        {
            name: Curve(_back(curve["x"]), [_back(y) for y in curve["y"]])
            for name, curve in row["curves"].items()
        },
    )


def _floats(values: Iterable) -> list[float]:
    return [float(value) for value in values]


def _back(values: Iterable[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
