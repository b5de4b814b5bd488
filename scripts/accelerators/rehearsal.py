"""What an experiment asks for: it is run up to its first chunk of training, which does not run."""

import importlib
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from unittest import mock

import experiments
from experiments import stages
from posenc_jax.lab.training import loop
from posenc_jax.lab.training.evaluation import Evaluator


class Asked(NamedTuple):
    """The first training that an experiment asks for, and its evaluations.

    chunk:       the arguments of `loop.chunk_runner`.
    given:       those of the function that it returns.
    evaluations: by length, the arguments of `Evaluator`.
    """

    seeds: int
    chunk: list[Any]
    given: list[Any]
    evaluations: dict[int, list[Any]]


class Rehearsed(Exception):
    """All is known."""


class Now:
    """As an executor with one thread, without the thread."""

    def __init__(self, *_):
        pass

    def submit(self, function: Callable, *given: Any) -> None:
        function(*given)

    def shutdown(self, **_) -> None:
        pass


def asked(stem: str, name: str) -> Asked:
    """Returns what `configs/STEM.py` asks for where it trains this encoding alone."""
    config = importlib.import_module(f"configs.{stem}").get_config()
    config.encoding.name = name
    found = Asked(config.seeds, [], [], {})

    def chunk_runner(*chunk):
        def run(*given):
            if found.chunk:
                raise Rehearsed
            found.chunk.extend(chunk)
            found.given.extend(given)
            return given[0], {}

        return run

    def compile_evaluation(evaluator: Evaluator, params: Any, size: int) -> None:
        if evaluator._split == "test":
            given = [evaluator._model, evaluator._task, evaluator._config]
            found.evaluations.setdefault(size, given)

    with (
        tempfile.TemporaryDirectory() as folder,
        suppress(Rehearsed),
        mock.patch.object(loop, "chunk_runner", chunk_runner),
        mock.patch.object(stages, "ThreadPoolExecutor", Now),
        mock.patch.object(Evaluator, "compile", compile_evaluation),
        mock.patch.object(Evaluator, "__call__", side_effect=Rehearsed),
    ):
        experiments.prepare(config.to_dict(), folder)()
    return found
