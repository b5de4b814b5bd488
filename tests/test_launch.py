"""What a sweep is written as for others to run: W&B agents, SkyPilot, Slurm."""

import json
import math
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest
import yaml
from pydantic import Field, NonNegativeInt

from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.schema import Part
from posenc_jax.lab.config.sweeps import Point, Sweep, expand
from posenc_jax.lab.launch import agents, skypilot, slurm
from scripts import sweep as script
from tests.test_sweeps import parsed

ROOT = Path(__file__).parents[1]
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
        name: given["values"] if "values" in given else [given["value"]]
        for name, given in content["parameters"].items()
    }
    return sweeps.grid(columns)


def written(sweep, folder):
    return yaml.safe_load(*agents.files(sweep, "p", folder).values())


def reached(sweep, content, monkeypatch):
    """The fields of the sweep as each agent's run has them in its parsed config."""
    fields, found = list(sweep.points[0].overrides), []
    for arguments in combinations(content):
        config, _ = parsed(agent_command(content, arguments), monkeypatch)
        there = sweeps.dotted(config)
        found.append({field: there[field] for field in fields})
        assert there["wandb.mode"] == "online"
    return found


def test_each_combination_of_the_wandb_file_reaches_the_config(tmp_path, monkeypatch):
    sweep = make(GRID)
    content = written(sweep, tmp_path)
    assert content["program"] == "train.py"
    assert list(content) == ["name", "project", "method", "program", "command", "parameters"]
    assert content["method"] == "grid"
    for given in content["parameters"].values():
        ((kind, values),) = given.items()
        assert kind == ("values" if isinstance(values, list) else "value")
    found = reached(sweep, content, monkeypatch)
    assert len(found) == 16
    assert sorted(found, key=str) == sorted((p.overrides for p in sweep.points), key=str)
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
    monkeypatch.setitem(script.LAUNCHERS, "local", lambda *given: given[0].points)
    (point,) = script.main(command[1:])
    config, workdir = parsed(sweep.command(point, tmp_path / point.name), monkeypatch)
    assert point.overrides.items() <= sweeps.dotted(config).items()
    assert workdir == str(tmp_path / point.name)


def test_an_agents_run_has_a_folder_of_its_own(monkeypatch):
    """Agents that start in one second must not share the folder that is named by the time."""
    sweep = make(sweeps.grid({"encoding.name": ("rope",)}))
    command = sweep.command(sweep.points[0], "x")
    command.remove("--workdir=x")
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    assert parsed(command, monkeypatch)[1] == "runs/extrap/abc123"
    monkeypatch.delenv("WANDB_RUN_ID")
    assert parsed(command, monkeypatch)[1] != "runs/extrap/abc123"


OPTIONS = {"tpu": "v6e-8", "bucket": "gs://mine/runs", "spot": True, "recovery": "FAILOVER"}


class Recovery(Part):
    """What is done when a machine is taken away, or a run leaves with one of the codes."""

    strategy: Literal[skypilot.STRATEGIES]
    max_restarts_on_errors: NonNegativeInt
    recover_on_exit_codes: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)]


class Resources(Part):
    """One slice of TPUs."""

    infra: Literal["gcp"]
    accelerators: Literal[tuple(map(skypilot.accelerator, skypilot.TPUS))]
    use_spot: bool
    job_recovery: Recovery


class Mount(Part):
    """A bucket as a folder."""

    source: Annotated[str, Field(pattern=skypilot.BUCKET)]
    mode: Literal["MOUNT_CACHED"]


class Task(Part):
    """One task as SkyPilot's YAML has it, with SkyPilot's rule for a job's name."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9]+(?:[._-]{1,2}[a-zA-Z0-9]+)*$")]
    resources: Resources
    workdir: str
    file_mounts: dict[Literal["/posenc_runs"], Mount]
    setup: str
    run: str


def hundred():
    return make(sweeps.grid({"encoding.name": ("rope", "randomized+rope"),
                             "train.lr": [10 ** -(i / 10) for i in range(1, 51)]}))  # fmt: skip


def tasks(sweep, folder):
    return [*map(yaml.safe_load, skypilot.files(sweep, folder, **OPTIONS).values())]


def test_a_hundred_tasks_are_whole_and_run_the_points(tmp_path, monkeypatch):
    sweep = hundred()
    files = skypilot.files(sweep, tmp_path, **OPTIONS)
    assert len(files) == 100
    for text, point in zip(files.values(), sweep.points, strict=True):
        content = yaml.safe_load(text)
        Task.model_validate(content)
        program, *command = shlex.split(content["run"])
        assert program.endswith("bin/python")
        config, workdir = parsed(command, monkeypatch)
        assert point.overrides.items() <= sweeps.dotted(config).items()
        assert workdir == f"/posenc_runs/mine/{point.name}"
    assert content["resources"] == {
        "infra": "gcp", "accelerators": "tpu-v6e-8", "use_spot": True,
        "job_recovery": {"strategy": "FAILOVER", "max_restarts_on_errors": 0,
                         "recover_on_exit_codes": [75]},
    }  # fmt: skip
    assert content["file_mounts"] == {
        "/posenc_runs": {"source": "gs://mine/runs", "mode": "MOUNT_CACHED"}
    }
    assert "requirements.txt" in content["setup"]
    assert "jax[tpu]" in content["setup"]
    assert content["workdir"] == "."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tpu": "v6e-9"}, ["--tpu", "v6e-9", "v6e-8", "v6e-16"]),
        ({"tpu": "v7-8"}, ["--tpu", "v7-8", "v5p", "v6e"]),
        ({"tpu": ""}, ["--tpu", "v6e"]),
        ({"recovery": "EAGER"}, ["--recovery", "EAGER", "EAGER_NEXT_REGION", "FAILOVER"]),
        ({"bucket": "mine"}, ["--bucket", "mine", "gs://"]),
        ({"bucket": ""}, ["--bucket", "gs://"]),
    ],
)
def test_wrong_launch_options_are_refused_in_one_line(change, words, tmp_path, capsys):
    flags = [f"--{name}={value}" for name, value in (OPTIONS | change).items() if name != "spot"]
    arguments = [
        "--config=configs/extrap.py:rope,quick",
        "--launch=skypilot",
        "--dry-run",
        "--spot",
    ]
    assert script.main([*arguments, f"--folder={tmp_path}", *flags]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error
    assert list(tmp_path.iterdir()) == []


def test_every_tpu_has_skypilots_name():
    assert skypilot.accelerator("v6e-8") == skypilot.accelerator("tpu-v6e-8") == "tpu-v6e-8"
    assert skypilot.accelerator("v5e-4") == skypilot.accelerator("v5litepod-4") == "tpu-v5litepod-4"


@pytest.mark.parametrize(
    "path",
    ["name", "resources.use_spot", "resources.accelerators", "resources.job_recovery.strategy",
     "resources.job_recovery.recover_on_exit_codes", "workdir", "setup", "run"],
)  # fmt: skip
@pytest.mark.parametrize("wrong", ["of-no such kind!", 7.5, None, "an extra field"])
def test_a_task_with_a_wrong_field_is_no_task(path, wrong, tmp_path):
    """The control of the hundred: each field, and one too many beside it, is looked at."""
    (content, *_) = tasks(hundred(), tmp_path)
    *above, last = path.split(".")
    here = content
    for name in above:
        here = here[name]
    Task.model_validate(content)
    if wrong == "an extra field":
        here[f"{last}s"] = 1
    elif last in ("workdir", "setup", "run") and isinstance(wrong, str):
        here[last] = [wrong]
    else:
        here[last] = wrong
    with pytest.raises(pydantic.ValidationError):
        Task.model_validate(content)


def test_jobs_have_names_of_their_own(tmp_path):
    sweep = Sweep("s", "c", [Point("a+b", {}), Point("a-b", {}), Point("c", {})])
    names = [task["name"] for task in tasks(sweep, tmp_path)]
    assert len(set(names)) == 3
    assert names[2] == "s-c"


@pytest.mark.parametrize("name", ["a-..-b", "_a", "a_.", "rope-lr0.001", "a b"])
def test_skypilot_takes_the_name_of_every_job(name, tmp_path):
    (task,) = tasks(Sweep("s", "c", [Point(name, {})]), tmp_path)
    Task.model_validate(task)
    assert task["name"] == {"a-..-b": "s-a-b", "_a": "s-a", "a_.": "s-a"}.get(
        name, f"s-{name.replace(' ', '-')}"
    )


@pytest.mark.parametrize(
    ("tpu", "rows", "said"),
    [("v6e-8", 32, "8 chips for each point"), ("v4-8", 32, "4 chips for each point"),
     ("v6e-256", 32, "warning: a step has 32 rows, so that 224 chips stay idle")],
)  # fmt: skip
def test_a_slice_is_told_in_chips_and_warned_of_if_too_large(tpu, rows, said):
    note = skypilot.slice_note(tpu, rows)
    assert note.endswith(said)
    assert ("warning" in note) == ("warning" in said)


@pytest.mark.parametrize(
    ("task", "word"), [("file:/etc/hostname", "lies outside"), ("tfds:lm1b", "is prepared on"),
                       ("stdlib", ""), ("file:README.md", "")],
)  # fmt: skip
def test_data_that_does_not_travel_is_refused(task, word):
    if not word:
        skypilot.refuse_data([task], ROOT)
        return
    with pytest.raises(ValueError, match=word) as refused:
        skypilot.refuse_data(["stdlib", task], ROOT)
    assert "\n" not in str(refused.value)


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


SKY = """#!{python}
import json, pathlib, sys
log = pathlib.Path({log!r})
log.write_text((log.read_text() if log.exists() else "") + json.dumps(sys.argv[1:]) + chr(10))
"""


@pytest.fixture
def fake_sky(tmp_path, monkeypatch):
    """A `sky` that keeps what it was called with, and a loader beside it that says what it is
    told to.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"

    def make(refusal=""):
        ending = f"echo '{refusal}' >&2; exit 1" if refusal else "exit 0"
        for name, text in {
            "sky": SKY.format(python=sys.executable, log=str(calls)),
            "python": f"#!/bin/sh\n{ending}\n",
        }.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        monkeypatch.setenv("PATH", str(folder))
        return lambda: [json.loads(line) for line in calls.read_text().splitlines()]

    return make


def launch(folder, *flags):
    base = ["--config=configs/extrap.py:rope,quick", "--launch=skypilot", f"--folder={folder}"]
    return script.main([*base, "--tpu=v6e-8", "--spot", "--bucket=gs://mine/runs", *flags])


def test_every_task_is_submitted_as_a_managed_job(tmp_path, fake_sky, capsys):
    calls = fake_sky()
    assert launch(tmp_path / "s", "--config.wandb.mode=online") == 0
    assert len(calls()) == 2
    for call in calls():
        assert call[:4] == ["jobs", "launch", "--yes", "--async"]
        assert call[4:6] == ["--secret", "WANDB_API_KEY"]  # its name: the value is in no file
        assert Path(call[-1]).is_file()


def test_a_dry_run_submits_nothing_and_what_the_loader_refuses_is_one_line(
    tmp_path, fake_sky, capsys
):
    fake_sky()
    assert launch(tmp_path / "s", "--dry-run") == 0
    assert not (tmp_path / "calls").exists()
    assert "2 tasks, each taken" in capsys.readouterr().out
    fake_sky("no such field")
    assert launch(tmp_path / "s") == 2
    assert not (tmp_path / "calls").exists()
    assert capsys.readouterr().err == "error: SkyPilot refuses a task: no such field\n"


def test_without_skypilot_one_line_says_how_to_install_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    assert launch(tmp_path, "--dry-run") == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "uv tool install" in said.err
    assert "tpu-v6e-8" in said.out


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
        config, workdir = parsed(command, monkeypatch)
        point = sweep.points[index]
        assert point.overrides.items() <= sweeps.dotted(config).items()
        assert workdir == str(tmp_path / "the folder" / point.name)
    assert (tmp_path / "asked").exists() == (status == 75)
