"""The claims ledger: what is said of positional encodings, each claim put to a measured test.

    ledger.py    what a claim, a measurement and a rule are
    register.py  all claims; others are the claims themselves, a module for each family
    lab.py       models trained once and shared, budgets, seeds
    inside.py    hidden states and attention weights of trained models
    figures.py   what claims draw
    entries.py   claims.json
    pages.py     report.html and Markdown

Each claim is written to disk as soon as it is measured, so a ledger that was cut short lacks those
under way alone: started again, it measures what is missing. `scripts/claims.py` takes several
folders.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from experiments import checks, workers
from experiments.claims.entries import Entry, load, made, save
from experiments.claims.lab import Lab
from experiments.claims.pages import markdown, publish, sections
from experiments.claims.register import LEDGER
from posenc_jax import make
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.training.progress import Progress
from posenc_jax.options import choices_for


class TextConfig(schema.Part):
    """The models on text that claims share."""

    task: schema.TaskConfig
    model: schema.ModelConfig
    train: schema.TrainConfig


class Config(schema.ExperimentConfig):
    """`claims`: "all", or ids with commas."""

    claims: str
    budget: Literal["quick", "full"]
    text: TextConfig


def check(config: Config) -> None:
    """Raises ValueError, in one line, for an unknown claim or a text that cannot be read."""
    schema.distinct_in("config.claims", _ids(config))
    for id in _ids(config):
        if id not in LEDGER:
            raise ValueError(f"config.claims: no claim {id!r}{choices_for(id, ['all', *LEDGER])}")
    text = config.text
    if text.model.kind != "decoder":
        raise ValueError(f"text.model.kind: {text.model.kind!r}: the shared models are 'decoder'")
    checks.width("text.model.width", "rope", make("rope"), text.model)
    if "rope-4" in _ids(config) and text.model.heads != 4:
        raise ValueError(f"text.model.heads: {text.model.heads}: rope-4 compares the four of 4")
    try:
        tasks.check(text.task.name, {"train.length": [text.train.length]}, **text.task.options)
    except ValueError as error:  # it names the fields that it knows
        raise ValueError(f"text.{error}") from None


def run(config: Config, workdir: str) -> None:
    """Measures the claims, writes each as it comes, then the report.

    Raises:
      Unmeasured: at the very end, names the first claim that could not be measured.
    """
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        lab, ids = Lab(config), _ids(config)
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


def _ids(config: Config) -> list[str]:
    return list(LEDGER) if config.claims == "all" else config.claims.split(",")


def _records(entry: Entry, seeds: list[int]) -> Iterator[dict]:
    """One record for each number and seed; a single value stands under the first seed."""
    for name, values in entry.measured.numbers.items():
        for seed, value in zip(seeds, values, strict=False):
            labels = {"claim": entry.claim.id, "number": name, "split": "test"}
            yield from runs.seed_records(0, [seed], labels, {"measured": [value]})


__all__ = ["LEDGER", "Config", "check", "load", "publish", "run", "show"]
