"""Measurements of claims on disk: claims.json, written after each."""

import itertools
import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.claims.fingerprint import fingerprint
from experiments.claims.ledger import Claim, Curve, Draw, Measured, Verdict
from experiments.claims.models import Lab
from experiments.claims.register import LEDGER
from posenc_jax.lab import runs
from posenc_jax.lab.hosts.exit_status import Diverged
from posenc_jax.lab.hosts.files import write_json
from posenc_jax.lab.report.statistics import interval
from posenc_jax.lab.training.evaluation import DoesNotFit


class Entry(NamedTuple):
    """A claim measured at one budget; `measured` is empty if it could not be measured.

    reason: why it could not be measured.
    trains: whether models were trained for it.
    seconds: how long it took, training included; shared models count for the first claim that uses
      them.
    run: when, at which commit and with which settings it was measured.
    rule: the `fingerprint` of the claim that was recorded before.
    """

    claim: Claim
    budget: int
    measured: Measured
    reason: str
    trains: bool
    seconds: float
    run: Mapping[str, Any]
    rule: str

    @property
    def verdict(self) -> Verdict:
        """The rule's verdict, or "not measured": if there are no numbers, or one is not finite."""
        if not self.measured.numbers:
            return Verdict("not measured", self.reason)
        for name, values in self.measured.numbers.items():
            if not np.isfinite(values).all():
                return Verdict("not measured", f"{name} is not finite in every seed")
        return self.claim.rule(self.measured.intervals)

    @property
    def changed(self) -> bool:
        """Whether the claim or its rule is another one now than before the measurement."""
        return self.rule != fingerprint(self.claim)

    @property
    def figure(self) -> Draw | None:
        """The claim's figure, if there is one and there are numbers to draw."""
        return self.claim.figure if self.measured.numbers else None


def made(claim: Claim, lab: Lab, config: Any) -> Entry:
    """Measures a claim at the budget of `lab`.

    It is not measured if a model diverges or memory does not suffice; any other error is a fault of
    the code and is raised.
    """
    started, reason, lab.trains = time.perf_counter(), "", False
    try:
        measured = claim.measure(lab)
    except (Diverged, DoesNotFit) as error:
        measured, reason = Measured({}), str(error)
    seconds = time.perf_counter() - started
    rule, origin = fingerprint(claim), _origin(config)
    return Entry(claim, lab.budget, measured, reason, lab.trains, seconds, origin, rule)


def _origin(config: Any) -> dict[str, Any]:
    here, text = runs.environment(), config.text
    return {
        **{name: here[name] for name in ("started", "commit", "python", "jax", "device")},
        "scale": config.scale,
        "seeds": config.seeds,
        "first_seed": config.first_seed,
        "text": f"{text.task.name}, windows of {text.train.length} bytes",
        "model": f"{text.model.layers} layers, width {text.model.width}, {text.model.heads} heads",
        "training": f"{text.train.steps} steps of {text.train.batch} windows",
    }


def save(path: Path, rules: Mapping[str, str], entries: Iterable[Entry]) -> None:
    """Writes claims.json in one step; a value that is not finite becomes null.

    rules: the `fingerprint` of each claim; it is recorded before the claim is measured.
    """
    rows = [
        {
            "id": e.claim.id,
            "claim": e.claim.text,
            "budget": e.budget,
            "trains": e.trains,
            "verdict": str(e.verdict),
            "reason": e.reason or e.verdict.reason,
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
    write_json(path, {"rules": dict(rules), "measured": runs.plain("claims", rows)})


def load(*workdirs: str | Path) -> list[Entry]:
    """The measurements of one run, or of several that complete each other, in the ledger's order.

    If two folders have one claim at one budget with the same seeds, the later counts.

    Raises:
      ValueError: a folder without claims.json or with one of an earlier version, a claim that the
        ledger does not have, a number that its rule now reads and that was not measured, or other
        seeds of which some are the same.
    """
    entries: dict[tuple[str, int, int], Entry] = {}
    for workdir in workdirs:
        path = Path(workdir) / "claims.json"
        if not path.is_file():
            raise ValueError(
                f"workdir: {workdir} has no claims.json; give a folder of a claims run"
            )
        for key, entry in _read(path):
            try:
                entry.verdict  # noqa: B018
            except KeyError as error:
                raise ValueError(
                    f"workdir: {path}: {key[0]} lacks the number {error}; measure it again"
                ) from None
            entries[key] = entry
    spans = {(e.run["first_seed"], e.run["seeds"]) for e in entries.values()}
    for (first, count), (other, _) in itertools.permutations(spans, 2):
        if first < other < first + count:
            raise ValueError(
                f"workdir: {count} seeds from {first} on and those from {other} on overlap"
            )
    return sorted(entries.values(), key=lambda e: (list(LEDGER).index(e.claim.id), e.budget))


def _read(path: Path) -> list[tuple[tuple[str, int, int], Entry]]:
    """The measurements of one claims.json by claim, budget and first seed.

    ValueError: as for `load`, or the file holds something else.
    """
    try:
        content = json.loads(path.read_bytes().decode("utf-8"))
        if isinstance(content, list):
            raise ValueError(
                f"workdir: {path} is of an earlier version, without hashes of rules; measure again"
            )
        rows, rules = content["measured"], content["rules"]
        unknown = [row["id"] for row in rows if row["id"] not in LEDGER]
        if not unknown:
            return [
                ((row["id"], int(row["budget"]), int(row["run"]["first_seed"])),
                 _entry(row, rules[row["id"]]))
                for row in rows
            ]  # fmt: skip
    except (KeyError, TypeError, AttributeError, RecursionError, UnicodeDecodeError,
            json.JSONDecodeError):  # fmt: skip
        raise ValueError(f"workdir: {path} is not as a claims run writes it") from None
    raise ValueError(f"workdir: {path}: no claim {unknown[0]!r} in the ledger")


def _entry(row: Mapping, rule: str) -> Entry:
    """A row of claims.json, with the hash of the claim's rule."""
    fields = (row["reason"], row["trains"], row["seconds"], row["run"], rule)
    return Entry(LEDGER[row["id"]], row["budget"], _measured(row), *fields)


def _measured(row: Mapping) -> Measured:
    """The measurement in a row of claims.json; null is read as NaN."""
    numbers, curves = row["numbers"].items(), row["curves"].items()
    return Measured(
        {name: np.array(cell["seeds"], float) for name, cell in numbers},
        {name: Curve(*(np.array(curve[axis], float) for axis in "xy")) for name, curve in curves},
    )


def _listed(values: Any) -> list:
    return np.asarray(values, float).tolist()
