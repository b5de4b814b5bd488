"""Measures the claims, and writes each to disk as soon as it is measured."""

from collections.abc import Callable, Iterator

from experiments.claims import pages
from experiments.claims.config import Config, claim_ids
from experiments.claims.entries import Entry, load, made, save
from experiments.claims.models import Lab
from experiments.claims.register import LEDGER
from experiments.workers import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.report import Section


def measure(config: Config, run: runs.Run) -> dict:
    """Measures the claims; returns the summary, `incomplete` if one could not be measured."""
    lab, ids = Lab(config), claim_ids(config)
    run.fact(task=dict(lab.text.facts))
    found = {e.claim.id: e for e in load(run.path)} if any(map(run.ended, ids)) else {}

    def keep(id, rest):
        found[id] = Entry(LEDGER[id], *rest)
        run.log(_records(found[id], lab.seeds))
        save(run.path / "claims.json", [found[id] for id in ids if id in found])

    # Claims of one family share programs: apart in time, a process finds them compiled on disk.
    by_family = sorted(ids, key=lambda id: id.split("-")[1])
    measure_rows(run, "claims", by_family, _measurer, config, keep)
    verdicts = {id: found[id].verdict for id in ids}
    summary: dict = {"claims": {id: str(verdict) for id, verdict in verdicts.items()}}
    lost = [id for id in ids if verdicts[id].word == "not measured"]
    if lost:
        first = f"{lost[0]}: {verdicts[lost[0]].reason}"
        summary["incomplete"] = f"{len(lost)} of {len(ids)} claims not measured: {first}"
    return summary


def sections(run: runs.StoredRun) -> tuple[str, list[Section]]:
    """The line below the title of the report, and its sections; writes claims.md as well."""
    entries = load(run.path)
    (run.path / "claims.md").write_text(pages.markdown(entries, "figures"), "utf-8")
    return f"{len(entries)} claims, measured", pages.sections(entries)


def _measurer(config: Config) -> Callable[[str], tuple]:
    """A function from the id of a claim to its entry without the claim, which is not picklable."""
    lab = Lab(config)
    return lambda id: made(LEDGER[id], lab, config)[1:]


def _records(entry: Entry, seeds: list[int]) -> Iterator[dict]:
    """One record for each number and seed; a single value is recorded for the first seed."""
    for name, values in entry.measured.numbers.items():
        labels = {"claim": entry.claim.id, "number": name, "split": "test"}
        measured = {"measured": values[: len(seeds)]}
        yield from runs.seed_records(0, seeds[: len(values)], labels, measured)
