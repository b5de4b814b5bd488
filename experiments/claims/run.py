"""Measures the claims at every budget, and writes each measurement to disk at once."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from experiments.claims.config import Config, claim_ids
from experiments.claims.decisions import findings
from experiments.claims.entries import Entry, load, made, save
from experiments.claims.fingerprint import fingerprint
from experiments.claims.models import Lab
from experiments.claims.register import LEDGER
from experiments.parallel_rows import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures the claims; returns the summary, with `incomplete` if one could not be measured."""
    lab, ids, path = Lab(config), claim_ids(config), run.path / "claims.json"
    run.fact(task=dict(lab.text.facts))
    measured = {_stage(e.claim.id, e.budget): e for e in (load(run.path) if path.exists() else ())}
    rules = {id: fingerprint(LEDGER[id]) for id in ids}
    rules |= {e.claim.id: e.rule for e in measured.values()}
    save(path, rules, measured.values())

    def keep(stage, rest):
        claim = LEDGER[rest[0]]
        measured[stage] = Entry(claim, *rest[1:])._replace(rule=rules[claim.id])
        run.log(_records(measured[stage], lab.seeds))
        save(path, rules, measured.values())

    # Claims of one family share programs: apart in time, a process finds them compiled on disk.
    by_family = sorted(ids, key=lambda id: id.split("-")[1])
    for budget in config.budgets:
        stages = [_stage(id, budget) for id in by_family]
        measure_rows(run, f"claims, {budget}x", stages, _measurer, (config, run.path), keep)
        by_family = [id for id in by_family if measured[_stage(id, budget)].trains]
    return _summary(findings([*measured.values()]))


def _summary(ledger: list) -> Summary:
    lost = [f for f in ledger if f.verdict.word == "not measured"]
    incomplete = ""
    if lost:
        first = f"{lost[0].claim.id}: {lost[0].verdict.reason}"
        incomplete = f"{len(lost)} of {len(ledger)} claims not measured: {first}"
    verdicts = {f.claim.id: str(f.verdict) for f in ledger}
    return Summary(own={"claims": verdicts}, incomplete=incomplete)


def _stage(id: str, budget: int) -> str:
    return f"{id}, {budget}x"


def _measurer(given: tuple[Config, Path]) -> Callable[[str], tuple]:
    """A function from a stage to its entry, with the id in place of the claim, which is not
    picklable.
    """
    config, folder = given
    lab = cache(lambda budget: Lab(config, budget, folder / "models"))

    def measured(stage: str) -> tuple:
        id, budget = stage.removesuffix("x").split(", ")
        return id, *made(LEDGER[id], lab(int(budget)), config)[1:]

    return measured


def _records(entry: Entry, seeds: list[int]) -> Iterator[dict]:
    """One record for each number and seed; a single value is recorded for the first seed."""
    for name, values in entry.measured.numbers.items():
        labels = {"claim": entry.claim.id, "budget": entry.budget, "number": name, "split": "test"}
        measured = {"measured": values[: len(seeds)]}
        yield from runs.seed_records(0, seeds[: len(values)], labels, measured)
