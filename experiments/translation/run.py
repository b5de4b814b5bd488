"""Trains and tests an encoder-decoder with each encoding."""

from collections.abc import Iterator
from typing import Any

from experiments.controlled import train_and_test
from experiments.named import encoding_of
from experiments.stages import Evaluation, summarise
from experiments.translation.bleu import Translator
from experiments.translation.config import Config
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.tasks.source_target import paired


def measure(config: Config, run: runs.Run) -> LengthSummary:
    """Trains and tests every encoding; returns the summary."""
    line = tasks.make(config.task.name, **config.task.options)
    task = paired(line)
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        _measure_method(config, task, name, run)
    sizes, length = (config.train.min_length, config.train.length), config.train.length
    floor, exact_match = floors.floor(line, sizes, length, config.eval.examples).exact_match
    return summarise(
        config, task, run, {**task.baselines(), f"{floor}, size {length}": exact_match}
    )


def encodings_of(config: Config, name: str) -> Encodings:
    """The encodings of the row `name`."""
    sides = config.sides
    chosen = sides.encoder or name, sides.decoder or name, sides.cross
    return Encodings(*(encoding_of(config, each) for each in chosen))


def _measure_method(config: Config, task: tasks.Task, name: str, run: runs.Run) -> None:
    """Trains one encoding, and logs its scores and the BLEU of its translations at every size."""
    model = transformer.build(config.model, encodings_of(config, name), task.vocab)
    translator = Translator(config, task, model)

    def bleu(params: Any, one: Evaluation, scores: Scores) -> Iterator[runs.Record]:
        found = translator(params, one.length)
        run.fact(bleu=translator.signature())
        labels = {"encoding": one.label, "split": "test", "length": one.length}
        yield from runs.seed_records(config.train.steps, config.seed_range, labels, {"bleu": found})

    train_and_test(config, config.eval, task, model, name, run, bleu)
