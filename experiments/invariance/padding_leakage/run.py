"""Measures what padding changes for each encoding."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments.invariance.padding_leakage import leaks, released
from experiments.invariance.padding_leakage.config import Config, left_out, names
from experiments.invariance.padding_leakage.leaks import Leaks, Quantity
from experiments.invariance.padding_leakage.summary import summarise
from experiments.invariance.small_models import small_encoding
from experiments.parallel_rows import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Measures every encoding, or a released encoder, with every subset of the masks; returns the
    summary.
    """
    if config.model.checkpoint:
        return released.measure(config, run)
    keep = lambda _, records: run.log(records)
    measure_rows(run, "padding", names(config), _measurer, config, keep)
    return summarise(run.records(), left_out(config))


def _measurer(config: Config) -> Callable[[str], list[dict]]:
    """A function from the name of an encoding to its records."""

    def records(name):
        label, encoding = small_encoding(name, config.encoding.options)
        return list(_records(config, label, leaks.measure(config, label, encoding)))

    return records


def _records(config: Config, label: str, measured: Leaks) -> Iterator[dict]:
    """One record for each number; step 0 is the untrained model."""
    steps, data = (0, config.learning.steps), config.data
    for (quantity, masks), value_A2DS in measured.items():
        metric, more = _metric(quantity)
        for a, state, side in np.ndindex(value_A2DS.shape[:-1]):
            length = data.measured + data.amounts[a]
            labels = {"encoding": label, "split": "test", "length": length, **more}
            labels |= {"masks": masks, "side": data.sides[side]}
            values = {metric: value_A2DS[a, state, side]}
            yield from runs.seed_records(steps[state], config.seed_range, labels, values)


def _metric(quantity: Quantity) -> tuple[str, dict[str, str]]:
    """The metric of a quantity in the records, and its labels."""
    if quantity == ("mass",):
        return "attention_on_padding", {}
    kind, name = quantity
    if kind in ("token", "pooled"):
        return "accuracy", {"answer": kind, "condition": name}
    return "leak", {"change": kind, "quantity": name}
