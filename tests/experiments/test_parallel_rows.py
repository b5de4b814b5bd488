"""Experiments that resume row by row: killed between rows, or stopped by one that diverges."""

import importlib
from concurrent.futures import Future

import numpy as np
import pytest

import experiments
from experiments import parallel_rows
from experiments.compare import comparison
from experiments.invariance.padding_leakage import leaks as padding
from experiments.invariance.padding_leakage.fields import Config, Data, Learning
from experiments.invariance.permutation import order_tasks as order
from experiments.invariance.permutation.config import EquivarianceConfig, OrderConfig
from experiments.invariance.small_models import small_encoding
from posenc_jax.lab import runs
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts import failpoints
from posenc_jax.lab.hosts.exit_status import Diverged, Interrupted
from tests.lab.runs.test_resume import Killed

NOPE = small_encoding("nope", {})
MODEL = schema.ModelConfig(kind="encoder", width=8, heads=1, layers=1, mlp=1)
WILD = 1e38  # a learning rate at which every model diverges
ORDER = order.Setting(
    MODEL,
    OrderConfig(symbols=3, steps=4, lr=WILD),
    EquivarianceConfig(lengths=(2,), permutations=1, float64=()),
    (3,),
)
PADDING = Config.model_construct(
    model=MODEL,
    data=Data(symbols=2, min_length=2, length=3, measured=2, amounts=(1,), sides=("left",),
              examples=2),
    learning=Learning(steps=4, batch=2, lr=WILD),
    seeds=1,
    first_seed=3,
)  # fmt: skip


def ordered(setting, subject):
    """Stands in for measuring a row of `permutation`: numbers that differ between rows."""
    number, seeds = float(len(subject.label)), len(setting.seeds)
    errors = np.full((2, len(setting.equivariance.lengths)), number)
    seen = np.full((2, seeds), number)
    return order.Measured(seen, seen, {"float32": (errors, errors)})


def leaked(config, label, encoding):
    """The same for `padding_leakage`."""
    shape = (len(config.data.amounts), 2, len(config.data.sides), config.seeds)
    return {(("content", "outputs"), "none"): np.full(shape, float(len(label)))}


def run(experiment, workdir, patch, kill=0):
    """The lines of a run with stand-ins for what is slow, killed after so many rows if asked."""
    reached = []

    def reach(name):
        reached.append(name)
        if kill and reached.count("measured") == kill:
            raise Killed

    patch.setattr(order, "measure", ordered)
    patch.setattr(padding, "measure", leaked)
    patch.setattr(experiments, "show", lambda workdir: None)
    patch.setattr(comparison, "train_and_evaluate", lambda *arguments: None)
    module = importlib.import_module(f"experiments.invariance.{experiment}.run")
    patch.setattr(module, "summarise", lambda *args: {"said": len(args[0])})
    patch.setattr(failpoints, "reach", reach)
    patch.setattr(parallel_rows, "cores", lambda: [0])  # stand-ins are of this process
    config = importlib.import_module(f"configs.{experiment}").get_config("nope,rope,alibi,quick")
    experiments.prepare(config.to_dict(), str(workdir))()
    return (workdir / "metrics.jsonl").read_text(), runs.read(workdir).summary.own["said"]


@pytest.mark.parametrize("experiment", ["permutation", "padding_leakage"])
def test_a_run_killed_between_rows_and_resumed_equals_a_whole_run(
    experiment, tmp_path, monkeypatch
):
    whole = run(experiment, tmp_path / "whole", monkeypatch)
    for kill in (1, 2):
        with pytest.raises(Killed):
            run(experiment, tmp_path / "run", monkeypatch, kill)
    left = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert run(experiment, tmp_path / "run", monkeypatch) == whole
    assert 0 < len(left) < len(whole[0])
    assert "nope" in left, "control: without what was kept it had nothing to go on from"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "config", "row", "line"),
    [
        (order, ORDER, (order.Subject(*NOPE, "encoder", 1),), "nope, 2 tokens,"),
        (padding, PADDING, NOPE, "nope, masks: none,"),
    ],
    ids=["permutation", "padding_leakage"],
)
def test_a_row_that_diverges_is_no_result(module, config, row, line, monkeypatch):
    with pytest.raises(Diverged, match=rf"^{line}[^\n]* step \d, seed 3: loss [^\n]* not made$"):
        module.measure(config, *row)
    if module is order:  # the control: numbers, as if nothing had happened
        monkeypatch.setattr(module, "refuse_not_finite", lambda *args: None)
        assert np.isfinite(module.measure(config, *row).right_NS).all()


class Lost:
    """A pool of processes whose workers were ended from outside."""

    def __init__(self, *args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def submit(self, *call):
        future = Future()
        future.set_exception(parallel_rows.BrokenProcessPool("a worker was lost"))
        return future


def echo(config):
    return lambda name: f"{config}: {name}"


@pytest.mark.thorough
def test_a_worker_that_is_lost_is_a_reason_to_start_again(monkeypatch):
    monkeypatch.setattr(parallel_rows, "cores", lambda: [0, 1])
    names = list("abcde")
    with monkeypatch.context() as patch:
        patch.setattr(parallel_rows, "ProcessPoolExecutor", Lost)
        with pytest.raises(Interrupted, match="a worker was lost; start it again"):
            list(parallel_rows.measured(echo, "row", names))
    assert list(parallel_rows.measured(echo, "row", names)) == [f"row: {n}" for n in names], (
        "control"
    )
