"""Measures every row of the permutation experiment, then the text."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments.compare import comparison
from experiments.compare.length_extrapolation import run as length_extrapolation
from experiments.invariance.permutation import order_tasks, released
from experiments.invariance.permutation.config import CAUSAL, LENGTHS, LSTM, Config, text_config
from experiments.invariance.permutation.order_tasks import Measured, Setting, Subject
from experiments.invariance.permutation.summary import summarise
from experiments.invariance.small_models import small_encoding
from experiments.parallel_rows import measure_rows
from posenc_jax import encodings
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures every row, then the text; of a released encoder how far it moves. Returns the
    summary.
    """
    if config.model.checkpoint:
        return released.measure(config, run)
    labels = [row.label for row in subjects(config)]
    keep = lambda _, records: run.log(records)
    measure_rows(run, "order", labels, _measurer, config, keep, stage="row {}")
    text = text_config(config)
    with inside("text"):
        task = tasks.make(text.task.name, **text.task.options)
    run.fact(task=dict(task.facts))
    rows = length_extrapolation.rows(text, task)
    comparison.train_and_evaluate(text, run, length_extrapolation.counted(rows, run))
    return summarise(run.records(), dict(task.baselines()))


def subjects(config: Config) -> list[Subject]:
    """All rows: the encodings, and two models that need none."""
    subjects = []
    for name in config.encoding.names:
        label, encoding = small_encoding(name, config.encoding.options)
        subjects.append(Subject(label, encoding, "encoder", encodings.axes(label)))
    nope = encodings.make("nope")
    return [*subjects, Subject(CAUSAL, nope, "decoder", 1), Subject(LSTM, nope, "lstm", 1)]


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """A function from the label of a row to its records."""
    setting = Setting(config.model, config.order, config.equivariance, tuple(config.seed_range))
    by_label = {subject.label: subject for subject in subjects(config)}
    measured = lambda label: order_tasks.measure(setting, by_label[label])
    return lambda label: list(_records(setting, label, measured(label)))


def _records(setting: Setting, label: str, measured: Measured) -> Iterator[dict]:
    """One record for each number and seed; step 0 is the untrained model."""
    seeds, steps = setting.seeds, (0, setting.order.steps)

    def records(metric, values, state, length, seeds=seeds, **more):
        labels = {"encoding": label, "split": "test", "length": length, **more}
        return runs.seed_records(steps[state], seeds, labels, {metric: values})

    for length, right_S in zip(LENGTHS, measured.right_NS, strict=True):
        yield from records("order_accuracy", right_S, 1, length)
    for state, gap_S in enumerate(measured.swap_gap_2S):
        yield from records("twins", gap_S, state, LENGTHS[0])
    for dtype, both in measured.errors.items():
        for metric, error_2L in zip(("error", "carried"), both, strict=True):
            for (state, n), error in np.ndenumerate(error_2L):
                length = setting.equivariance.lengths[n]
                yield from records(metric, [error], state, length, seeds[:1], dtype=dtype)
