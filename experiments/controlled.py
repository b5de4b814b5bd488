"""Trains encodings, and tests them at every length and on shuffled examples, the control."""

from collections.abc import Callable, Iterable
from typing import Any

from experiments.controlled_pages import shuffled_row
from experiments.encoders import EncoderConfig
from experiments.named import encoding_of
from experiments.stages import Evaluation, evaluation_stages, summarise, train_stage
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.summary import LengthSummary
from posenc_jax.lab.tasks.shuffled import shuffled
from posenc_jax.lab.training.evaluation import Evaluator, records

More = Callable[[Any, Evaluation, Scores], Iterable[runs.Record]]


def measure(config: EncoderConfig, run: runs.Run) -> LengthSummary:
    """Trains and tests an encoder with every encoding; returns the summary."""
    task = tasks.make(config.task.name, **config.task.options)
    run.fact(task=dict(task.facts))
    for name in config.encoding.names:
        train_and_test(config, config.eval, task, _model(config, task, name), name, run)
    return summarise(config, task, run, task.baselines())


def _model(config: EncoderConfig, task: tasks.Task, name: str) -> Model:
    """The model of one encoding: it answers for each token, or once for the sequence."""
    encoding = encoding_of(config, name)
    if task.metric != "accuracy":
        return transformer.build(config.model, encoding, task.vocab)
    return transformer.classifier(config.model, encoding, task.vocab, pooling=config.pooling)


def train_and_test(
    config: schema.TrainedConfig,
    limits: schema.EvalConfig,
    task: tasks.Task,
    model: Model,
    name: str,
    run: runs.Run,
    more: More = lambda params, one, scores: (),
) -> None:
    """Trains one encoding, and logs its scores at every length and those of the control.

    more: (params, evaluation, scores) -> further records of an evaluation of examples in order.
    """
    evaluator, control = (Evaluator(model, t, limits) for t in (task, shuffled(task)))
    plan = [Evaluation(name, n, evaluator, f"{name}: read at {n}") for n in limits.lengths]
    row, length = shuffled_row(name), config.train.length
    plan.append(Evaluation(row, length, control, f"{name}: read shuffled"))
    if all(run.ended(one.stage) for one in plan):
        return
    state = train_stage(config, model, task, name, plan, run, limits)

    def evaluate(one: Evaluation) -> None:
        scores = one.evaluator(state.params, one.length)
        labels = {"encoding": one.label, "split": "test", "length": one.length}
        run.log(records(scores, task, config.train.steps, config.seed_range, labels))
        if one.evaluator is evaluator:
            run.log(more(state.params, one, scores))

    evaluation_stages(plan, run, evaluate)
