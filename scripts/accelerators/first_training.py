"""The programs of an experiment, which is run up to its first chunk of training."""

import importlib
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

import experiments
from experiments.compare import comparison
from posenc_jax.lab.training import loop
from posenc_jax.lab.training.evaluation import Evaluator


class FirstTraining(NamedTuple):
    """The first training of an experiment, and its evaluations.

    chunk:       the arguments of `loop.chunk_runner`.
    arguments:   those of the function that it returns.
    evaluations: by length, the arguments of `Evaluator`.
    """

    seeds: int
    chunk: list[Any]
    arguments: list[Any]
    evaluations: dict[int, list[Any]]


class Stop(Exception):
    """Ends the experiment: the arguments of all its programs have been seen."""


class CallingThread:
    """Stands in for ThreadPoolExecutor: runs what is submitted at once, in the calling thread."""

    def __init__(self, *_):
        pass

    def submit(self, function: Callable, *arguments: Any) -> None:
        function(*arguments)

    def shutdown(self, **_) -> None:
        pass

    def __enter__(self) -> "CallingThread":
        return self

    def __exit__(self, *_) -> None:
        pass


def first_training(stem: str, name: str) -> FirstTraining:
    """Returns the first training of `configs/STEM.py` where it trains this encoding alone."""
    config = importlib.import_module(f"configs.{stem}").get_config()
    config.encoding.name = name
    first = FirstTraining(config.seeds, [], [], {})

    def chunk_runner(*chunk):
        def run(*arguments):
            if first.chunk:
                raise Stop
            first.chunk.extend(chunk)
            first.arguments.extend(arguments)
            return arguments[0], {}

        return run

    def compile_evaluation(evaluator: Evaluator, params: Any, size: int) -> None:
        if evaluator._split == "test":
            arguments = [evaluator._model, evaluator._task, evaluator._config]
            first.evaluations.setdefault(size, arguments)

    with (
        tempfile.TemporaryDirectory() as folder,
        suppress(Stop),
        mock.patch.object(loop, "chunk_runner", chunk_runner),
        mock.patch.object(comparison, "ThreadPoolExecutor", CallingThread),
        mock.patch.object(Evaluator, "compile", compile_evaluation),
        mock.patch.object(Evaluator, "__call__", side_effect=Stop),
    ):
        experiments.prepare(config.to_dict(), folder)()
    return first
