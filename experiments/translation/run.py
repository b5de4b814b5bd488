"""Trains and tests an encoder-decoder with each encoding."""

from functools import partial

from experiments.stages import Evaluation, evaluation_stages, summarise, train_stage
from experiments.translation.config import Config, encoding_of
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.tasks import floors
from posenc_jax.lab.tasks.pairs import paired
from posenc_jax.lab.training.evaluation import Evaluator, records
from posenc_jax.lab.training.step import State


def measure(config: Config, run: runs.Run) -> dict:
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
    """Trains one encoding, and logs its scores at every size."""
    model = transformer.build(config.model, encodings_of(config, name), task.vocab)
    evaluator = Evaluator(model, task, config.eval)
    plan = [Evaluation(name, n, evaluator, f"{name}: read at {n}") for n in config.eval.lengths]
    if not all(run.ended(one.stage) for one in plan):
        state = train_stage(config, model, task, name, plan, run, config.eval)
        evaluation_stages(plan, run, partial(_evaluate, config, task, state, run))


def _evaluate(config: Config, task: tasks.Task, state: State, run: runs.Run, one: Evaluation):
    scores = one.evaluator(state.params, one.length)
    labels = {"encoding": one.label, "split": "test", "length": one.length}
    run.log(records(scores, task, config.train.steps, config.seed_range, labels))
