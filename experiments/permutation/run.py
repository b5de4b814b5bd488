"""Measures every row of the permutation experiment, then the text, and reports both."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments import workers
from experiments.length_extrapolation import run as length_extrapolation
from experiments.permutation import pages
from experiments.permutation.config import CAUSAL, LENGTHS, LSTM, Config, text_config
from experiments.permutation.measuring import Measured, Setting, Subject, measure
from experiments.rows import fitted
from posenc_jax import encodings
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.hosts import failpoints, signals
from posenc_jax.lab.training.progress import Progress


def run(config: Config, workdir: str) -> None:
    """Measures every row, then the text, and writes and prints the report."""
    with runs.Run(workdir, config.model_dump(), config.wandb.model_dump()) as record:
        rows = [row.label for row in subjects(config)]
        rows = [row for row in rows if not record.ended(f"row {row}")]
        for row in rows[:1]:
            record.begin(f"row {row}")
        with Progress(len(rows), "order") as progress:
            found = workers.measured(_measurer, config, rows)
            for done, (row, records) in enumerate(zip(rows, found, strict=True), 1):
                record.log(records)
                failpoints.reach("measured")
                record.end(f"row {row}")
                progress.update(done)
                signals.stop_if_requested()
        text = text_config(config)
        with inside("text"):
            task = tasks.make(text.task.name, **text.task.options)
        record.fact(task=dict(task.facts))
        length_extrapolation.measure(text, task, record)
        record.finish(pages.summarise(record.records(), dict(task.baselines())))
        show(workdir)


def show(workdir: str) -> None:
    """The report of a finished run again, from its folder."""
    report.present(workdir, *pages.sections(runs.read(workdir)))


def subjects(config: Config) -> list[Subject]:
    """All rows: the encodings, and two that need none."""
    found = []
    for name in config.encoding.names:
        label, encoding = fitted(name, config.encoding.options)
        found.append(Subject(label, encoding, "encoder", encodings.axes(label)))
    nothing = encodings.make("nope")
    return [
        *found,
        Subject(CAUSAL, nothing, "decoder", 1),
        Subject(LSTM, nothing, "lstm", 1),
    ]


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """What gives the records of a row by its label."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    setting = Setting(config.model, config.order, config.equivariance, tuple(seeds))
    by_label = {subject.label: subject for subject in subjects(config)}
    return lambda label: list(_records(setting, label, measure(setting, by_label[label])))


def _records(setting: Setting, label: str, measured: Measured) -> Iterator[dict]:
    """One record for each number and seed; step 0 is the untrained model."""
    states, first = (0, setting.order.steps), setting.seeds[0]

    def record(metric, value, step, seed, length, **more):
        labels = {"encoding": label, "split": "test", "length": length, **more}
        return {"step": step, "seed": seed, "labels": labels, "metric": metric,
                "value": float(value)}  # fmt: skip

    for (n, s), right in np.ndenumerate(measured.right_NS):
        yield record("order_accuracy", right, states[1], setting.seeds[s], LENGTHS[n])
    for (state, s), gap in np.ndenumerate(measured.twins_2S):
        yield record("twins", gap, states[state], setting.seeds[s], LENGTHS[0])
    for dtype, both in measured.errors.items():
        for name, error_2L in zip(("error", "carried"), both, strict=True):
            for (state, n), error in np.ndenumerate(error_2L):
                length = setting.equivariance.lengths[n]
                yield record(name, error, states[state], first, length, dtype=dtype)
