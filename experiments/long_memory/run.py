"""Trains decoders with recurrence memory; the same weights read documents in three ways."""

from experiments.long_memory.config import Config
from experiments.long_memory.measuring import Documents, metric_of, records
from experiments.long_memory.page import row
from experiments.long_memory.reading import WAYS, reader
from experiments.named import encoding_of
from experiments.stages import Evaluation, evaluation_stages, train_stage
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import LengthSummary


def measure(config: Config, run: runs.Run) -> LengthSummary:
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
    model = transformer.build(config.model, encoding_of(config, name), task.vocab)
    read = {way: reader(model, config.model, way, config.window, config.memory) for way in WAYS}
    longest = max(config.eval.lengths)
    plan = [Evaluation(name, longest, Documents(config, task, read), f"{name}: read")]
    if all(run.ended(one.stage) for one in plan):
        return
    state = train_stage(config, read["memory"], task, name, plan, run)

    def evaluate(one: Evaluation) -> None:
        found = one.evaluator(state.params, one.length)
        for way in WAYS:
            run.log(records(config, task, found[way], row(name, way)))

    evaluation_stages(plan, run, evaluate)
