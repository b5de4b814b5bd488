"""Language models with each encoding on tokens, and what they take from their context."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from experiments.compare.comparison import Evaluation, Row, compare
from experiments.compare.fields import encoding_of
from experiments.compare.text import predictions
from experiments.compare.text.config import Config
from experiments.compare.text.context_tests import ContextTest, context_tests
from experiments.compare.text.probes import SINKS, probes
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.metrics import Scores
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import Summary
from posenc_jax.lab.training.evaluation import CannotEvaluate, Evaluator, records


def measure(config: Config, run: runs.Run) -> Summary:
    """Trains and evaluates every encoding; returns the summary."""
    if "predictions" not in run.facts:  # of the first start
        run.fact(predictions=predictions.fingerprint())
    tests = context_tests(config)
    documents = {
        name: test.task.facts["documents_tested"]
        for name, test in tests.items()
        if test.task is not None
    }
    run.fact(documents=documents)
    return compare(config, run, make_task(config), partial(rows, config, tests=tests))


def make_task(config: Config) -> tasks.Task:
    """The task that all rows have."""
    return tasks.make(config.task.name, **config.task.options)


def rows(
    config: Config, task: tasks.Task, tests: Mapping[str, ContextTest] | None = None
) -> Iterator[Row]:
    """A row for each encoding.

    tests: the tests of context; None: they are made here.
    """
    tests = context_tests(config) if tests is None else tests
    for name in config.encoding.names:
        encoding = encoding_of(config, name)
        model = transformer.build(config.model, encoding, task.vocab)
        windows = Evaluator(model, task, config.eval)
        plan = [
            Evaluation(name, n, windows, f"{name}: windows of {n}") for n in config.eval.lengths
        ]
        for test, (test_task, reasons) in tests.items():
            evaluator = test_task and Evaluator(model, test_task, config.eval)
            for n in config.eval.lengths:
                chosen = Unavailable(reasons[n]) if n in reasons else evaluator
                label = condition_label(name, test)
                plan.append(Evaluation(label, n, chosen, f"{name}: {test} of {n}"))
        for probe, evaluator in probes(config, task, encoding, model).items():
            trained = config.train.length
            n = min(predictions.SINK_TOKENS, trained) if probe == SINKS else trained
            plan.append(Evaluation(condition_label(name, probe), n, evaluator, f"{name}: {probe}"))
        yield Row(name, encoding, task, model, plan, partial(_records, config, task), config.eval)


def condition_label(name: str, condition: str) -> str:
    """The label `encoding` of a method's records in a test of context or of a probe."""
    return f"{name}, {condition}"


class Unavailable:
    """Stands in for an evaluation that there is none of."""

    def __init__(self, reason: str):
        self._reason = reason

    def compile(self, params: Any, length: int) -> None:
        """Does nothing."""

    def __call__(self, params: Any, length: int) -> Any:
        """CannotEvaluate: always, with the reason."""
        raise CannotEvaluate(self._reason)


def _records(
    config: Config, task: tasks.Task, params: Any, evaluation: Evaluation
) -> Iterator[runs.Record]:
    """The records of one evaluation; only those of windows have curves by position."""
    seeds, steps = config.seed_range, config.train.steps
    labels = {"encoding": evaluation.label, "split": "test", "length": evaluation.length}
    measured = evaluation.evaluator(params, evaluation.length)
    if not isinstance(measured, Scores):
        for step, more, values in measured:
            yield from runs.seed_records(step, seeds, labels | more, values)
        return
    if not measured.by_example["loss"].count.any():
        raise CannotEvaluate("no document has 16 tokens of which no 4 in a row occur elsewhere")
    is_windows = evaluation.label in config.encoding.names
    for record in records(measured, task, steps, seeds, labels):
        if is_windows or "position" not in record["labels"]:
            yield record
