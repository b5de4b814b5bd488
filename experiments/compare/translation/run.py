"""Encoder-decoders with each encoding, whose translations are also decoded."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from experiments.compare.comparison import Evaluation, Row, compare, lengths_and_control
from experiments.compare.fields import encoding_of
from experiments.compare.translation.bleu import Translator, signature
from experiments.compare.translation.config import Config
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.tasks.source_target import paired


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and tests every encoding; returns the summary."""
    run.fact(bleu=signature(config))
    baselines = partial(_baselines, config, _line(config))
    return compare(config, run, make_task(config), partial(rows, config), baselines=baselines)


def make_task(config: Config) -> tasks.Task:
    """The task that all rows have: a line's question is the source, its answer the target."""
    return paired(_line(config))


def _line(config: Config) -> tasks.Task:
    return tasks.make(config.task.name, **config.task.options)


def rows(config: Config, task: tasks.Task) -> Iterator[Row]:
    """A row for each encoding."""
    for name in config.encoding.names:
        yield _row(config, task, name)


def encodings_of(config: Config, name: str) -> Encodings:
    """The encodings of the row `name`."""
    sides = config.sides
    encoder, decoder = sides.encoder or name, sides.decoder or name
    return Encodings(
        encoding_of(config, encoder, causal=False),
        encoding_of(config, decoder, causal=True),
        encoding_of(config, sides.cross, causal=False),
    )


def _baselines(config: Config, line: tasks.Task, task: tasks.Task) -> Mapping[str, float]:
    """Those of the task, and the best exact match without positions at the trained length."""
    sizes, length = (config.train.min_length, config.train.length), config.train.length
    floor, exact_match = floors.floor(line, sizes, length, config.eval.examples).exact_match
    return {**task.baselines(), f"{floor}, size {length}": exact_match}


def _row(config: Config, task: tasks.Task, name: str) -> Row:
    """An encoding, with the BLEU of its translations at every size."""
    encodings = encodings_of(config, name)
    model = transformer.build(config.model, encodings, task.vocab)
    translator = Translator(config, task, model)

    def bleu(params: Any, evaluation: Evaluation, scores: Scores) -> Iterator[runs.Record]:
        scores_S = translator(params, evaluation.length)
        labels = {"encoding": evaluation.label, "split": "test", "length": evaluation.length}
        yield from runs.seed_records(
            config.train.steps, config.seed_range, labels, {"bleu": scores_S}
        )

    return lengths_and_control(config, task, encodings, model, name, bleu)
