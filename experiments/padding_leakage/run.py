"""Measures what padding changes for each encoding, and reports it."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments import workers
from experiments.padding_leakage import pages
from experiments.padding_leakage.config import Config
from experiments.padding_leakage.measuring import Leaks, Quantity, Setting, Subject, measure
from experiments.rows import fitted
from posenc_jax.lab import report, runs
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress


def run(config: Config, workdir: str) -> None:
    """Measures every encoding under every subset, and writes and prints the report."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        rows = [name for name in config.encoding.names if not record.ended(name)]
        for row in rows[:1]:
            record.begin(row)
        with Progress(len(rows), "padding") as progress:
            found = workers.measured(_measurer, config, rows)
            for done, (row, records) in enumerate(zip(rows, found, strict=True), 1):
                record.log(records)
                failpoints.reach("measured")
                record.end(row)
                progress.update(done)
                signals.stop_if_requested()
        record.finish(pages.summarise(record.records()))
        show(workdir)


def show(workdir: str) -> None:
    """The report of a finished run again, from its folder."""
    report.present(workdir, *pages.sections(runs.read(workdir)))


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """What gives the records of an encoding by its name."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    setting = Setting(config.model, config.data, config.learning, tuple(seeds))

    def records(name):
        subject = Subject(*fitted(name, config.encoding.options))
        return list(_records(setting, subject.label, measure(setting, subject)))

    return records


def _records(setting: Setting, label: str, leaks: Leaks) -> Iterator[dict]:
    """One record for each number; step 0 is the untrained model."""
    steps, data = (0, setting.learning.steps), setting.data
    for (quantity, masks), value_A2DS in leaks.items():
        metric, more = _metric(quantity)
        for (a, state, side, s), value in np.ndenumerate(value_A2DS):
            length = data.measured + data.amounts[a]
            labels = {"encoding": label, "split": "test", "length": length, **more,
                      "masks": masks, "side": data.sides[side]}  # fmt: skip
            yield {"step": steps[state], "seed": setting.seeds[s], "labels": labels,
                   "metric": metric, "value": float(value)}  # fmt: skip


def _metric(quantity: Quantity) -> tuple[str, dict[str, str]]:
    """What a quantity is called in the records: a metric and labels."""
    match quantity:
        case ("mass",):
            return "attention_on_padding", {}
        case ("token" | "pooled" as answer, condition):
            return "accuracy", {"answer": answer, "condition": condition}
        case (change, name):
            return "leak", {"change": change, "quantity": name}
    raise ValueError(f"quantity: {quantity}")
