"""Measures the methods of every setting that the rows ask for."""

from experiments.board.published import measure_method
from experiments.board.published.config import Config, orderings, settings, trainings
from experiments.board.published.verdicts import rule_hash
from experiments.parallel_rows import measure_rows
from posenc_jax.lab import runs
from posenc_jax.lab.summary import Summary


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains every method of every setting; returns the summary.

    The hash of the rule, the orderings and the settings is recorded first.
    """
    run.fact(rule={"sha256": rule_hash((orderings(config), settings(config)))})
    names = [f"{setting}: {measure_method.FLOOR}" for setting in settings(config)]
    names += [f"{setting}: {method}" for setting, method in trainings(config)]
    keep = lambda _, records: run.log(records)
    measure_rows(run, "published orderings", names, measure_method.measurer, config, keep)
    return Summary(own={"rows": list(orderings(config))})
