"""Stages of an experiment: what is read after training is compiled while it runs."""

import threading
from typing import Any

import experiments
from configs import common
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.training.evaluation import Evaluator

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
    asked, compiled, compile = [], threading.Event(), Evaluator.compile

    def seen(self, params, size, part=1):
        found = compile(self, params, size, part)
        if self._split == "test":
            asked.append((size, threading.current_thread() is threading.main_thread()))
        if len(asked) == len(SIZES):
            compiled.set()
        return found

    monkeypatch.setattr(Evaluator, "compile", seen)
    hold = lambda name: name == "training" and compiled.wait(60)
    monkeypatch.setattr(failpoints, "reach", hold)
    experiments.prepare(config.to_dict(), str(workdir))()
    return asked, runs.read(workdir)


def test_evaluations_are_compiled_while_training_runs(tmp_path, monkeypatch):
    asked, run = trained(tmp_path, monkeypatch)
    assert asked == [*((size, False) for size in SIZES), *((size, True) for size in SIZES)]
    read = {r["labels"]["length"] for r in run.records if r["metric"] == "exact_match"}
    assert read == set(SIZES)


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
