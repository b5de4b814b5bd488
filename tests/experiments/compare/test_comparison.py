"""Stages of an experiment: what is read after training is compiled while it runs."""

import importlib
import threading
import types
from typing import Any

import numpy as np
import pytest

import experiments
from configs import common
from experiments.compare import comparison
from posenc_jax import make
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.model import transformer
from posenc_jax.lab.training import evaluation
from posenc_jax.lab.training.evaluation import Evaluator
from posenc_jax.lab.training.throughput import Timing
from tests.lab.runs.test_runs import CONFIG, RECORD

SIZES = (16, 40)


def trained(workdir, monkeypatch):
    """Trains a small model and reads it at two lengths; the threads that asked for each program."""
    config: Any = common.quick(common.config("length_extrapolation"))
    config.encoding.name = "rope"
    config.task = {"name": "periodic"}
    config.model.update(width=8, heads=1, layers=1)
    config.train.update(length=16, min_length=16, steps=4, chunk=2, batch=2, warmup=1)
    config.eval.update(lengths=SIZES, examples=4)
    config.seeds = 1
    compiled_sizes, compiled, compile = [], threading.Event(), Evaluator.compile

    def seen(self, params, size, part=1):
        actual = compile(self, params, size, part)
        if self._split == "test":
            compiled_sizes.append((size, threading.current_thread() is threading.main_thread()))
        if len(compiled_sizes) == len(SIZES):
            compiled.set()
        return actual

    monkeypatch.setattr(Evaluator, "compile", seen)
    hold = lambda name: name == "training" and compiled.wait(60)
    monkeypatch.setattr(failpoints, "reach", hold)
    experiments.prepare(config.to_dict(), str(workdir))()
    return compiled_sizes, runs.read(workdir)


@pytest.mark.thorough
def test_evaluations_are_compiled_while_training_runs(tmp_path, monkeypatch):
    asked, run = trained(tmp_path, monkeypatch)
    assert asked == [*((size, False) for size in SIZES), *((size, True) for size in SIZES)]
    read = {r["labels"]["length"] for r in run.records if r["metric"] == "exact_match"}
    assert read == set(SIZES)


@pytest.mark.thorough
def test_a_program_is_compiled_once(tmp_path, monkeypatch):
    lowered = []
    score = Evaluator._score_all
    monkeypatch.setattr(
        Evaluator, "_score_all",
        lambda self, *args, width: lowered.append(width) or score(self, *args, width=width),
    )  # fmt: skip
    _, run = trained(tmp_path, monkeypatch)
    assert run.summary.facts["evaluation_programs"] == len(SIZES)
    assert len(lowered) == len(SIZES) + 1, "and that of validation"


def test_rates_are_those_of_each_seed(tmp_path, monkeypatch):
    """They were multiplied by the number of seeds."""
    steps_SN = np.tile(np.arange(1, 5), (3, 1))
    metrics = {"step": steps_SN} | dict.fromkeys(("loss", "grad_norm"), np.ones((3, 4)))

    def stands_in(model, task, config, seeds, first_seed, loss_mask, read, *rest):
        read(metrics, Timing(2.0, 0.5))

    monkeypatch.setattr(comparison, "train", stands_in)
    config = experiments.check(common.config("length_extrapolation", task={"name": "periodic"},
                                             seeds=3).to_dict())  # fmt: skip
    task = tasks.make("periodic")
    model = transformer.build(config.model, make("rope"), task.vocab)
    with runs.Run(tmp_path, {"experiment": "x"}) as run:
        row = comparison.Row("rope", make("rope"), task, model, [], lambda params, row_params: ())
        comparison.train_row(config, row, run)
        values = lambda name: [r["value"] for r in run.records() if r["metric"] == name]
        assert values("steps_per_second") == [2.0] * 3
        assert values("step_seconds") == [0.5] * 3
        assert values("waiting_for_data") == [0.25] * 3
        tokens = config.train.batch * task.width(config.train.length)
        assert values("tokens_per_second") == [2.0 * tokens] * 3


def test_a_length_that_does_not_fit_is_a_fact_with_its_reason(tmp_path):
    def read(params, planned):
        if planned.length == 16:
            raise evaluation.DoesNotFit("needs more")
        yield RECORD

    nothing: Any = None
    plan = [comparison.Evaluation("nope", length, None, f"nope at {length}") for length in (8, 16)]
    row = comparison.Row("nope", nothing, nothing, nothing, plan, read)
    with runs.Run(tmp_path, CONFIG) as record:
        comparison.evaluate(row, record, None)
    with runs.Run(tmp_path, CONFIG) as record:
        comparison.evaluate(row, record, None)  # nothing is repeated
        entry = {"encoding": "nope", "length": 16, "reason": "needs more"}
        assert record.facts["not_measured"] == [entry]
        assert len(record.records()) == 1


@pytest.mark.parametrize(
    ("name", "encodings"),
    [
        ("multimodal", "rope,mrope"),
        pytest.param("vision", "swin_2d,nope", marks=pytest.mark.thorough),
    ],
)
def test_the_trainings_that_a_run_announces_are_those_of_its_rows(
    name, encodings, tmp_path, monkeypatch
):
    """W&B shows a run for each of them, if they are not too many."""
    config = importlib.import_module(f"configs.{name}").get_config(f"{encodings},quick")
    checked, announced, rows = experiments.check(config.to_dict()), [], []
    run: Any = types.SimpleNamespace(
        trainings=announced.append, end_trainings=lambda: None, ended=lambda stage: False,
        fact=lambda **facts: None, is_writer=False, path=tmp_path, facts={},
    )  # fmt: skip
    state = types.SimpleNamespace(weights=None)
    monkeypatch.setattr(comparison, "train_row", lambda c, row, run: rows.append(row.name) or state)
    monkeypatch.setattr(comparison, "evaluate", lambda row, run, params: None)
    importlib.import_module(f"experiments.compare.{name}.run").measure(checked, run)
    assert rows == checked.row_names
    assert announced == [len(rows) * checked.seeds]
    assert len(rows) > len(checked.encoding.names), "control: a method may have several rows"
