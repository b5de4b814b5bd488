"""Managed jobs of SkyPilot: a task for each point, the machines asked for, what is refused."""

import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import pytest
import yaml
from pydantic import Field, NonNegativeInt

import train
from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.schema import Part
from posenc_jax.lab.config.sweeps import Point, Sweep, expand
from posenc_jax.lab.launch import skypilot, slices
from scripts import sweep as script
from tests.support import ROOT

OPTIONS = {"tpu": "v6e-8", "bucket": "gs://mine/runs", "spot": True, "recovery": "FAILOVER"}


class Recovery(Part):
    """What is done when a machine is taken away, or a run leaves with one of the codes."""

    strategy: Literal[skypilot.STRATEGIES]
    max_restarts_on_errors: NonNegativeInt
    recover_on_exit_codes: Annotated[list[Annotated[int, Field(ge=0, le=255)]], Field(min_length=1)]


class Resources(Part):
    """One slice of TPUs."""

    infra: Literal["gcp"]
    accelerators: Literal[tuple(f"tpu-{name}" for name in slices.CHIPS)]
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
    description = sweeps.grid({"encoding.name": ("rope", "randomized+rope"),
                               "train.lr": [10 ** -(i / 10) for i in range(1, 51)]})  # fmt: skip
    return Sweep("mine", "configs/extrap.py:rope,quick", expand(description))


def tasks(sweep, folder):
    return [*map(yaml.safe_load, skypilot.files(sweep, folder, **OPTIONS).values())]


@pytest.mark.thorough
def test_a_hundred_tasks_are_whole_and_run_the_points(tmp_path, monkeypatch):
    sweep = hundred()
    files = skypilot.files(sweep, tmp_path, **OPTIONS)
    assert len(files) == 100
    for text, point in zip(files.values(), sweep.points, strict=True):
        content = yaml.safe_load(text)
        Task.model_validate(content)
        program, *command = shlex.split(content["run"])
        assert program.endswith("bin/python")
        config, workdir = train.parse(command)
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
        ({"tpu": "v6e-9"}, ["--tpu", "v6e-9", "v6e-8", "v6e-4"]),
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
    name = lambda tpu: slices.on_one_host(tpu).accelerator
    assert name("v6e-8") == name("tpu-v6e-8") == "tpu-v6e-8"
    assert name("v5e-4") == name("v5litepod-4") == "tpu-v5litepod-4"


@pytest.mark.thorough(after=7)
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
    ("tpu", "rows", "chips"),
    [("v6e-8", 32, "1 host with 8 chips"), ("v5e-1", 32, "1 host with 1 chip"),
     ("v4-8", 2, "1 host with 4 chips; warning: a step has 2 rows, so 2 chips are idle")],
)  # fmt: skip
def test_jobs_and_chips_are_told_and_a_slice_of_more_chips_than_rows_is_warned_of(tpu, rows, chips):
    assert slices.summary(tpu, rows, points=3) == f"{tpu}: 3 jobs, each on {chips}"


@pytest.mark.parametrize(("tpu", "fits"), [("v6e-16", "v6e-8"), ("v5p-16", "v5p-8")])
def test_a_slice_of_several_hosts_is_refused(tpu, fits):
    with pytest.raises(ValueError, match=rf"^--tpu: {tpu} has several hosts[^\n]*{fits}$"):
        slices.on_one_host(tpu)
    slices.on_one_host(fits)  # the control


@pytest.mark.parametrize(
    ("task", "word"), [("file:/etc/hostname", "lies outside"), ("tfds:lm1b", "is prepared on"),
                       ("labels:tfds:imdb", "is prepared on"), ("stdlib", ""),
                       ("file:README.md", "")],
)  # fmt: skip
def test_data_that_does_not_travel_is_refused(task, word):
    configs = [{"task": {"name": name}, "wandb": {"group": "/etc"}} for name in ("stdlib", task)]
    if word:
        with pytest.raises(ValueError, match=rf"^config.task.name: [^\n]*{word}[^\n]*$"):
            skypilot.refuse_data(configs, ROOT)
    else:
        skypilot.refuse_data(configs, ROOT)


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_a_file_that_git_ignores_is_refused(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/data/\n")
    (tmp_path / "data").mkdir()
    for name in ("data/mine.txt", "mine.txt"):
        (tmp_path / name).write_text("text")
    with pytest.raises(ValueError, match=r"^config.checkpoint: data/mine.txt is ignored by git"):
        skypilot.refuse_data([{"checkpoint": "data/mine.txt"}], tmp_path)
    skypilot.refuse_data([{"task": {"name": "file:mine.txt"}}], tmp_path)  # the control


def test_a_job_with_another_text_of_the_standard_library_ends_before_it_trains(tmp_path):
    sweep = Sweep("s", "c", [Point("p", {})])
    (task,) = map(
        yaml.safe_load, skypilot.files(sweep, tmp_path, **OPTIONS, text_sha256="f" * 64).values()
    )
    (check,) = (part for part in task["setup"].split("found=")[1:])
    for digest, status in (("f" * 64, 0), ("e" * 64, 1)):
        stub = f"found={digest}\n" + check.partition("\n")[2]
        done = subprocess.run(["bash", "-ec", stub], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert done.stderr.count("another text") == status
    assert "found=" not in tasks(sweep, tmp_path)[0]["setup"]


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


def documented(text, launcher):
    """Returns the arguments of a page's commands of scripts/sweep.py with this launcher."""
    lines = text.replace("\\\n", " ").splitlines()
    commands = [line.partition("scripts/sweep.py")[2] for line in lines if f"={launcher}" in line]
    return [shlex.split(command, comments=True) for command in commands if "--config" in command]


@pytest.mark.thorough
@pytest.mark.parametrize("text", [(ROOT / "docs/sweeps.md").read_text("utf-8"), script.__doc__])
def test_the_documented_command_is_taken_as_it_stands(text, tmp_path, fake_sky, capsys):
    """A reader copies it: gs://NAME/FOLDER was in it, which the command refuses."""
    fake_sky()
    (arguments,) = documented(text, "skypilot")
    assert "--dry-run" in arguments
    assert script.main([*arguments, f"--folder={tmp_path / 'sweep'}"]) == 0
    assert "each taken by SkyPilot's loader" in capsys.readouterr().out
    wrong = [re.sub("gs://.*", "gs://NAME/FOLDER", argument) for argument in arguments]
    assert script.main(wrong) == 2
    refused = capsys.readouterr().err
    (example,) = re.findall(r"gs://[a-z]\S*?(?=:| )", refused)
    assert re.match(skypilot.BUCKET, example), "the error's own example is a bucket"


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
