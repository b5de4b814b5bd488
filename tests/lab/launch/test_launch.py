"""What a sweep is written as for others to run: W&B agents, Slurm."""

import math
import os
import shlex
import subprocess
import sys

import pytest
import yaml

import train
from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.sweeps import Sweep, expand
from posenc_jax.lab.launch import agents, slurm
from scripts import sweep as script
from tests.support import ROOT

GRID = sweeps.grid({
    "encoding.name": ("rope", "randomized+rope"), "train.lr": (1e-4, 3e-3),
    "eval.lengths": ((8, 16), (32,)), "model.masks.loss": (True, False), "seed": range(2),
})  # fmt: skip
ZIP = sweeps.zipped({"train.length": (16, 32), "train.batch": (8, 4)})


def make(description, config="configs/extrap.py:rope,quick"):
    return Sweep("mine", config, expand(description))


def agent_command(content, arguments):
    """What `wandb agent` would run, put together by W&B's own code where it has a function."""
    from wandb.sdk.launch.sweeps import utils as wandb_sweeps  # a second: one worker alone

    parts = wandb_sweeps.create_sweep_command_args(
        {"args": {name: {"value": value} for name, value in arguments.items()}}
    )
    parts |= {"env": [], "interpreter": ["python"], "program": [content["program"]]}
    command = []
    for word in wandb_sweeps.create_sweep_command(content["command"]):
        command += parts[word[2:-1]] if word.startswith("${") else [word]
    return command[1:]


def combinations(content):
    """Every assignment of the grid, as W&B's server makes them."""
    columns = {
        name: values["values"] if "values" in values else [values["value"]]
        for name, values in content["parameters"].items()
    }
    return sweeps.grid(columns)


def written(sweep, folder):
    return yaml.safe_load(*agents.files(sweep, "p", folder).values())


def reached(sweep, content, monkeypatch):
    """The fields of the sweep as each agent's run has them in its parsed config."""
    fields, actual = list(sweep.points[0].overrides), []
    for arguments in combinations(content):
        config, _ = train.parse(agent_command(content, arguments))
        there = sweeps.dotted(config)
        actual.append({field: there[field] for field in fields})
        assert there["wandb.mode"] == "online"
    return actual


@pytest.mark.thorough
def test_each_combination_of_the_wandb_file_reaches_the_config(tmp_path, monkeypatch):
    sweep = make(GRID)
    content = written(sweep, tmp_path)
    assert content["program"] == "train.py"
    assert list(content) == ["name", "project", "method", "program", "command", "parameters"]
    assert content["method"] == "grid"
    for given in content["parameters"].values():
        ((kind, values),) = given.items()
        assert kind == ("values" if isinstance(values, list) else "value")
    actual = reached(sweep, content, monkeypatch)
    assert len(actual) == 16
    assert sorted(actual, key=str) == sorted((p.overrides for p in sweep.points), key=str)
    # The control: without its hyphens no override is one, and every run is the same.
    content["command"][-1] = "${args_no_hyphens}"
    with pytest.raises(ValueError, match="not a flag"):
        reached(sweep, content, monkeypatch)


@pytest.mark.parametrize("description", [ZIP, GRID[:6], GRID + ZIP], ids=["zip", "part", "sum"])
def test_what_is_no_grid_goes_by_the_points_names(description, tmp_path, monkeypatch, capsys):
    sweep = make(description)
    content = written(sweep, tmp_path)
    assert content["program"] == "scripts/sweep.py"
    assert [row["point"] for row in combinations(content)] == [p.name for p in sweep.points]
    command = agent_command(content, {"point": sweep.points[-1].name})
    # That script passes the point on to train.py: what it would run is its overrides.
    monkeypatch.setattr(script, "read", lambda config, common: (sweep, {"common": common}))
    monkeypatch.setitem(script.LAUNCHERS, "local", lambda *arguments: arguments[0].points)
    (point,) = script.main(command[1:])
    config, workdir = train.parse(sweep.command(point, tmp_path / point.name))
    assert point.overrides.items() <= sweeps.dotted(config).items()
    assert workdir == str(tmp_path / point.name)


def test_an_agents_run_has_a_folder_of_its_own(monkeypatch):
    """Agents that start in one second must not share the folder that is named by the time."""
    sweep = make(sweeps.grid({"encoding.name": ("rope",)}))
    command = sweep.command(sweep.points[0], "x")
    command.remove("--workdir=x")
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    assert train.parse(command)[1] == "runs/extrap/abc123"
    monkeypatch.delenv("WANDB_RUN_ID")
    assert train.parse(command)[1] != "runs/extrap/abc123"


def test_jobs_find_their_config_from_the_repository(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "docs")
    flags = ["--launch=slurm", "--dry-run", f"--folder={tmp_path}"]
    assert script.main(["--config=../configs/extrap.py:rope,quick", *flags]) == 0
    assert "--config=configs/extrap.py:rope,quick " in capsys.readouterr().out
    mine = tmp_path / "mine.py"
    mine.write_text((ROOT / "configs" / "extrap.py").read_text())
    assert script.main([f"--config={mine}:rope,quick", *flags]) == 0
    assert f"--config={mine}:rope" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == [mine], "a dry run writes nothing"
    assert script.main([f"--config={mine}:rope,quick", flags[0], flags[2]]) == 0, "control"
    assert len([*tmp_path.iterdir()]) == 3
    # A cloud machine gets the repository and nothing else.
    assert script.main([f"--config={mine}:rope,quick", "--launch=skypilot", "--dry-run"]) == 2
    assert "lies outside" in capsys.readouterr().err


@pytest.mark.parametrize("status", [0, 75])
def test_a_slurm_array_runs_each_line_and_asks_for_another_go(status, tmp_path, monkeypatch):
    """The script itself, under a bash with an srun and an scontrol of ours."""
    sweep = make(GRID)
    files = slurm.files(sweep, tmp_path / "the folder", ROOT, at_once=4)
    (tmp_path / "the folder").mkdir()
    for path, text in files.items():
        path.write_text(text, "utf-8")
    assert "#SBATCH --array=0-15%4\n" in text
    assert "#SBATCH --array=0-15\n" in [*slurm.files(sweep, tmp_path, ROOT).values()][-1]
    with pytest.raises(ValueError, match=r"^--at-once: -1 is negative"):
        slurm.files(sweep, tmp_path, ROOT, at_once=-1)
    subprocess.run(["bash", "-n", path], check=True)
    python = shlex.join([sys.executable])
    stubs = f"""
run() {{ printf '%s\\n' "$@" > {shlex.quote(str(tmp_path / "ran"))}; exit {status}; }}
srun() {{ local c="${{3#exec {python} }}"; (eval "run $c"); }}
scontrol() {{ echo "$@" > {shlex.quote(str(tmp_path / "asked"))}; }}
"""
    for index in (0, math.prod((2, 2, 2, 2)) - 1):
        env = os.environ | {"SLURM_ARRAY_TASK_ID": str(index), "SLURM_ARRAY_JOB_ID": "9"}
        done = subprocess.run(["bash", "-c", stubs + text], env=env, check=False)
        assert done.returncode == status
        command = (tmp_path / "ran").read_text().splitlines()
        config, workdir = train.parse(command)
        point = sweep.points[index]
        assert point.overrides.items() <= sweeps.dotted(config).items()
        assert workdir == str(tmp_path / "the folder" / point.name)
    assert (tmp_path / "asked").exists() == (status == 75)
