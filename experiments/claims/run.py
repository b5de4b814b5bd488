"""Measures the claims, writes each as it comes, and reports them."""

from collections.abc import Callable, Iterator
from pathlib import Path

from experiments import workers
from experiments.claims.config import Config, claim_ids
from experiments.claims.entries import Entry, load, made, save
from experiments.claims.models import Lab
from experiments.claims.pages import markdown, sections
from experiments.claims.register import LEDGER
from posenc_jax.lab import report, runs
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.training.progress import Progress


def run(config: Config, workdir: str) -> None:
    """Measures the claims, writes each as it comes, then the report.

    Raises:
      Unmeasured: at the very end, names the first claim that could not be measured.
    """
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        lab, ids = Lab(config), claim_ids(config)
        record.fact(task=dict(lab.text.facts))
        ended = [id for id in ids if record.ended(id)]
        found = {entry.claim.id: entry for entry in (load(workdir) if ended else [])}
        # Claims of one family share programs: apart, one process finds on disk what another made.
        missing = sorted((id for id in ids if id not in ended), key=lambda id: id.split("-")[1])
        record.begin(f"{len(ended)} of {len(ids)} claims")
        with Progress(len(missing), "claims") as progress:
            measured = workers.measured(_measurer, config, missing)
            for done, (id, rest) in enumerate(zip(missing, measured, strict=True), 1):
                found[id] = Entry(LEDGER[id], *rest)
                record.log(_records(found[id], lab.seeds))
                save(record.path / "claims.json", [found[id] for id in ids if id in found])
                failpoints.reach("measured")
                record.end(id)
                progress.update(done)
                signals.stop_if_requested()
        record.finish({"claims": {id: str(found[id].verdict) for id in ids}})
        show(workdir)
    lost = {id: found[id].verdict for id in ids if found[id].verdict.word == "not measured"}
    for id, verdict in lost.items():
        raise Unmeasured(f"{len(lost)} of {len(ids)} claims not measured: {id}: {verdict.reason}")


def show(workdir: str) -> None:
    """The report of a finished run, from its folder."""
    entries = load(workdir)
    (Path(workdir) / "claims.md").write_text(markdown(entries, "figures"), "utf-8")
    report.present(workdir, f"{len(entries)} claims, measured", sections(entries))


def _measurer(config: Config) -> Callable[[str], tuple]:
    """What gives an entry by its claim's id, but for the claim, whose functions cannot travel."""
    lab = Lab(config)
    return lambda id: made(LEDGER[id], lab, config)[1:]


def _records(entry: Entry, seeds: list[int]) -> Iterator[dict]:
    """One record for each number and seed; a single value stands under the first seed."""
    for name, values in entry.measured.numbers.items():
        for seed, value in zip(seeds, values, strict=False):
            labels = {"claim": entry.claim.id, "number": name, "split": "test"}
            yield from runs.seed_records(0, [seed], labels, {"measured": [value]})
