"""A new experiment is a package and a config, a new task a function, a new claim a function with
its rule: nothing else.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support import ROOT


@pytest.fixture
def tree(tmp_path):
    """A copy of what `train.py` needs."""
    hidden = shutil.ignore_patterns("__pycache__")
    for folder in ("posenc_jax", "experiments", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=hidden)
    shutil.copy(ROOT / "train.py", tmp_path)
    return tmp_path


def train(tree, config, *flags):
    """(exit status, error, summary or None) of a run in the tree."""
    command = [sys.executable, "train.py", f"--config={config}", "--workdir=run", *flags]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, timeout=120
    )
    path = tree / "run" / "summary.json"
    return (
        done.returncode,
        done.stderr.strip(),
        json.loads(path.read_text()) if path.exists() else None,
    )


CONFIG_PY = """
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(schema.ExperimentConfig):
    mostly_compiles = True
    several_processes = True

    rounds: schema.Count = 3


def check(config):
    if config.rounds > 5:
        raise FieldError("rounds", f"{config.rounds} is past 5")
"""
RUN_PY = """
def measure(config, run):
    return {"rounds": config.rounds, "seeds": config.seeds}
"""
PAGE_PY = """
from posenc_jax.lab.report import Section


def sections(run):
    return "counted", [Section("Rounds", [f"{run.summary.own['rounds']} rounds"])]
"""
CONFIG = """
from configs import common


def get_config(argument=""):
    return common.config("counted", seeds=2 if common.only_quick(argument) else 5)
"""


@pytest.mark.thorough
def test_an_experiment_is_a_package_and_a_config(tree):
    config = "configs/counted.py:quick"
    (tree / "configs" / "counted.py").write_text(CONFIG)
    status, error, _ = train(tree, config)
    assert status == 2, "control: there is no package yet"
    assert error.startswith("error: config.experiment: no experiment 'counted'; choices: claims")
    package = tree / "experiments" / "counted"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, text in (("config", CONFIG_PY), ("run", RUN_PY), ("page", PAGE_PY)):
        (package / f"{name}.py").write_text(text)
    assert train(tree, config, "--config.rounds=6") == (
        2,
        "error: config.rounds: 6 is past 5",
        None,
    )
    status, error, summary = train(tree, config, "--config.rounds=4")
    assert (status, error) == (0, "")
    assert (summary["rounds"], summary["seeds"]) == (4, 2)
    assert "<p>4 rounds</p>" in (tree / "run" / "report.html").read_text()


TASK = '''

@register()
def ones(length: int = 4) -> Task:
    """Predict ones; a size is the length of the line."""

    def line(key, n, place_L):
        return jnp.where(place_L == 0, BOS, SYMBOL), place_L > 0

    return generated("ones", line, lambda n: n + length, symbols=1, padding="right")
'''


@pytest.mark.thorough
def test_a_task_is_a_function(tree):
    small = (
        "--config.encoding.name=nope", "--config.seeds=1", "--config.train.steps=2",
        "--config.train.batch=2", "--config.train.warmup=1", "--config.eval.lengths=(8,)",
        "--config.eval.examples=4", "--config.model.width=8", "--config.model.heads=1",
        "--config.task.length=2",
    )  # fmt: skip
    config = "configs/tasks_extrap.py:ones,quick"
    status, error, _ = train(tree, config, *small)
    assert status == 2, "control: there is no such task yet"
    assert error.startswith("error: config.task.name: no task 'ones'; ")
    tasks = tree / "posenc_jax" / "lab" / "tasks"
    with (tasks / "recall.py").open("a") as module:
        module.write(TASK)
    status, error, summary = train(tree, config, *small)
    assert (status, error) == (0, "")
    assert list(summary["results"]["nope"]) == ["8"]
    assert summary["floors"] == {"8": 1.0}, "the answer is always the same"
    assert summary["facts"]["task"]["options"] == {"length": 2}


CLAIM = '''

def pi_1_rule(n):
    """Pi must be below 4."""
    return verdict(n["pi"].under(4), f"pi is {n['pi']}")


@claim("pi is below four", rule=pi_1_rule)
def pi_1(lab: Lab) -> Measured:
    """Pi as NumPy has it."""
    return Measured({"pi": [np.pi]})
'''


@pytest.mark.thorough
def test_a_claim_is_a_function_and_its_rule(tree):
    config = "configs/claims.py:pi-1,num-1,quick"
    status, error, _ = train(tree, config)
    assert status == 2, "control: there is no such claim yet"
    assert error.startswith("error: config.claims: no claim 'pi-1'")
    with (tree / "experiments" / "claims" / "worked.py").open("a") as module:
        module.write(CLAIM)
    status, error, summary = train(tree, config)
    assert (status, error) == (0, "")
    assert summary["claims"] == {"pi-1": "holds", "num-1": "does not hold"}
    page = (tree / "run" / "claims.md").read_text()
    assert "**Holds**: pi is 3.14." in page
    assert "*Rule*: Pi must be below 4." in page
