"""Experiments that train one model at a time: two processes have the records that one has."""

import importlib

import numpy as np
import pytest

import experiments
from posenc_jax.lab import runs
from posenc_jax.lab.hosts import processes
from posenc_jax.options import FieldError
from tests.support.small_runs import COMPARISONS, small
from tests.support.train_process import TrainProcess, errors, shared

SEVERAL = [name for name in experiments.names() if experiments.config_class(name).several_processes]


def values(folder) -> dict[tuple, float]:
    """The value of each record, but for times, by what it is of."""
    return {
        (r["metric"], r["seed"], r["step"], *sorted(r["labels"].items())): r["value"]
        for r in runs.read(folder).records
        if r["metric"] not in runs.TIMES
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*COMPARISONS, "pretrained"])
def test_two_processes_have_the_records_of_one(name, tmp_path):
    """Each has half of the rows of every batch, or half of the weights."""
    how = {"config": (name,), "program": ("-m", "tests.support.small_runs")}
    alone = TrainProcess(tmp_path / "one", "seeds=1", **how).wait()
    both = [process.wait() for process in shared(tmp_path / "two", "seeds=1", **how)]
    assert not errors(alone, *both)
    assert ["report:" in process.out for process in both] == [True, False]
    wanted, actual = values(tmp_path / "one"), values(tmp_path / "two")
    assert wanted.keys() == actual.keys()
    keys = sorted(wanted, key=str)
    one, two = (np.array([each[key] for key in keys]) for each in (wanted, actual))
    np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-6)
    assert not np.allclose(two, np.roll(one, 1), rtol=1e-4, atol=1e-6), "control: other records"


def test_every_experiment_of_one_model_at_a_time_may_have_several_processes():
    assert {*SEVERAL} == {*COMPARISONS, "length_extrapolation", "pretrained"}


@pytest.mark.parametrize("name", sorted({*experiments.names()} - {*SEVERAL}))
def test_the_others_refuse_them_in_one_line(name, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "is_multiprocess", lambda: True)
    config = importlib.import_module(f"configs.{name}").get_config("quick").to_dict()
    said = rf"^config.experiment: {name} runs as one process; those "
    with pytest.raises(FieldError, match=said):
        experiments.prepare(config, str(tmp_path))


def test_an_experiment_of_one_model_is_not_refused(tmp_path, monkeypatch):
    """The control of the test before."""
    monkeypatch.setattr(processes, "is_multiprocess", lambda: True)
    experiments.prepare(small("dna"), str(tmp_path))
