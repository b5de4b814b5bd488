"""Trains decoders with recurrence memory; the same weights read documents in three ways."""

from experiments.long_memory.config import Config, encoding_of
from experiments.long_memory.measuring import metric_of, records, sums
from experiments.long_memory.pages import row, sections
from experiments.long_memory.reading import WAYS, reader
from experiments.stages import train_stage
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.hosts import signals
from posenc_jax.lab.model import transformer

__all__ = ["measure", "sections"]


def measure(config: Config, run: runs.Run) -> dict:
    """Trains and tests every encoding; returns the summary."""
    task = tasks.make(config.task.name, **config.task.options)
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        _measure_method(config, task, name, run)
    return report.summarise(
        run.records(),
        metric=metric_of(task),
        train_length=config.train.length,
        baselines=task.baselines(),
    )


def _measure_method(config: Config, task: tasks.Task, name: str, run: runs.Run) -> None:
    """Trains one encoding, and logs its scores in every way of reading."""
    stages = {way: f"{name}: read with {way}" for way in WAYS}
    if all(run.ended(stage) for stage in stages.values()):
        return
    model = transformer.build(config.model, encoding_of(config, name), task.vocab)
    read = {way: reader(model, config.model, way, config.window, config.memory) for way in WAYS}
    state = train_stage(config, read["memory"], task, name, [], run)
    for way, stage in stages.items():
        if not run.ended(stage):
            run.begin(stage)
            found = sums(config, task, read[way], state.params)
            run.log(records(config, task, found, row(name, way)))
            run.end(stage)
            signals.stop_if_requested()
