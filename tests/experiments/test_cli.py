"""The command line: every wrong input gets one line that names it, before anything is read."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

import experiments
import train
from configs import rope_extrap
from experiments import job, parallel_rows, train_help
from experiments.compare.length_extrapolation import run as length_extrapolation
from experiments.invariance.permutation import run as permutation
from posenc_jax.lab.hosts import exit_status
from tests.support import command_lines

MAIN = "configs/rope_extrap.py"
STEMS = sorted(p.stem for p in pathlib.Path("configs").glob("*.py") if p.stem != "common")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("encoding.name.x=1", "config.encoding.name.x: no such field; config.encoding.name has"),
        ("multiples[9]=3", "config.multiples[9]: no such entry; config.multiples has 2"),
        ("multiples[1]=3", "config.multiples[1]: cannot be set by itself; set config.multiples"),
        ("multiples[:]=3", "config.multiples["),
        ("train.stepss=3", "config.train.stepss: no such field; did you mean steps"),
        ("train[0]=1", "config.train[0]: no such field; choices: average, batch"),
        ("a-b=1", "config.a-b: no such field"),
        ("task.alphabet=8", ""),  # the control
    ],
)
def test_a_field_that_is_not_there_is_named_in_full(argument, said):
    line = command_lines.refusal("configs/leaderboard.py:quick", f"--config.{argument}")
    assert line.startswith(said)
    assert bool(line) == bool(said), line
    assert "\n" not in line


def test_a_config_file_runs_once(tmp_path):
    lines = 'with open("{0}/{1}", "a") as file: file.write("x\\n")'
    (tmp_path / "own.py").write_text(
        f"from configs import rope_extrap\n{lines.format(tmp_path, 'file')}\n\n\n"
        f"def get_config(argument=''):\n    {lines.format(tmp_path, 'function')}\n"
        "    return rope_extrap.get_config(argument)\n"
    )
    flags = [f"--config={tmp_path}/own.py:quick", "--config.train.steps=7", "--workdir=w"]
    config, workdir = train.parse(["train.py", *flags])
    assert (config["train"]["steps"], workdir) == (7, "w")
    assert [(tmp_path / name).read_text() for name in ("file", "function")] == ["x\n", "x\n"]
    apart = ["train.py", "--workdir", "w", *flags[1:2], "--config", f"{tmp_path}/own.py:quick"]
    assert train.parse(apart) == (config, "w")


def test_a_folder_is_found_in_the_home_folder(tmp_path, monkeypatch):
    """A shell leaves `~` in --workdir=~/run as it is."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = lambda workdir: train.parse(["train.py", f"--config={MAIN}:quick", *workdir])[1]
    assert folder(["--workdir=~/run"]) == str(tmp_path / "run")
    assert folder([]).startswith("runs/rope_extrap/"), "control"
    with pytest.raises(ValueError, match=r"^--workdir: there is no home folder of ~nobody_of_this"):
        folder(["--workdir=~nobody_of_this_name/run"])


FILE = "from ml_collections import ConfigDict\ndef get_config():\n    return "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def get_config(\n", "'(' was never closed"),
        ("import nosuchthing\n", "No module named 'nosuchthing'"),
        ("x = 1\n", "module has no get_config"),
        (FILE + "{'experiment': 'claims'}\n", "get_config gives a dict, not a ConfigDict"),
        (FILE + "None\n", "get_config gives a NoneType"),
        (FILE + "1 / 0\n", "division by zero"),
    ],
)
def test_a_file_that_gives_no_config_is_one_line(text, said, tmp_path):
    path = tmp_path / "config.py"
    path.write_text(text)
    told = command_lines.refusal(str(path))
    assert told.startswith(f"--config: {path}: {said}")
    assert "\n" not in told
    path.write_text(FILE + "ConfigDict({'experiment': 'none', 'train': 3})\n")
    assert command_lines.refusal(str(path)).startswith("config.experiment: no experiment 'none'")


@pytest.mark.parametrize(
    ("train", "rows", "lightly"),
    [(3, 1, False), ({"batch": "x", "steps": None}, 1, False), ({"batch": 6, "steps": 5}, 6, True)],
)
def test_wrong_train_fields_do_not_stop_the_choice_of_devices(train, rows, lightly):
    """Rows and steps are read before the schema checks them; what is no number counts as 1 row."""
    config = {"train": train}
    assert (job._rows(config), job._mostly_compiles(config)) == (rows, lightly)


@pytest.fixture
def copies(tmp_path):
    """A folder with files enough for a text, all copies of one file, which are read once."""
    for i in range(120):
        (tmp_path / f"{i}.txt").write_bytes(b"the same" * 400)
    return f"file:{tmp_path}"


def test_data_found_too_small_in_the_run_is_refused_as_wrong_input(copies, tmp_path, monkeypatch):
    config = rope_extrap.get_config("quick").to_dict()
    config["task"] = {"name": copies}
    start = experiments.prepare(config, str(tmp_path / "run"))
    with pytest.raises(
        exit_status.Refused, match=r"^config.task.name: file:\S+ is too small: [^\n]+$"
    ):
        start()

    def broken(config, run):
        raise ValueError("shapes do not fit")

    monkeypatch.setattr(length_extrapolation, "measure", broken)
    with pytest.raises(ValueError, match="shapes") as caught:
        start()
    assert not isinstance(caught.value, exit_status.Refused), "control: a bug stays one"


@pytest.mark.parametrize(
    ("stem", "field"),
    [("permutation", "text.task"), ("claims", "text.task")],
)
def test_data_found_too_small_is_named_by_the_field_of_its_task(
    stem, field, copies, tmp_path, monkeypatch
):
    config = importlib.import_module(f"configs.{stem}").get_config("quick").to_dict()
    config["text"]["task"]["name"] = copies
    monkeypatch.setattr(permutation, "subjects", lambda config: [])  # they come before the text
    monkeypatch.setattr(parallel_rows, "cores", lambda: [0])
    start = experiments.prepare(config, str(tmp_path / "run"))
    with pytest.raises(exit_status.Refused) as caught:
        start()
    assert str(caught.value).startswith(f"config.{field}.name: {copies} is too small: ")


@pytest.mark.parametrize(
    ("config", "arguments", "words"),
    [
        (MAIN, ["--config.trian.steps=3"], ["config.trian"]),
        (MAIN, ["--config.train.steps=3.5"], ["config.train.steps", "3.5"]),
        (MAIN, ["leftover"], ["leftover"]),
        (MAIN, ["--workdri=x"], ["workdri"]),
        ("configs/none.py", [], ["configs/none.py"]),
        (f"{MAIN}:quik", [], ["quik", "quick"]),
        (
            "configs/extrap.py:randomized+learned,quick",
            ["--config.options=library"],
            ["config.encoding.name", "randomized", "encoding.length to 2048", "clamp"],
        ),
        (
            "configs/extrap.py:shifted+learned,quick",
            ["--config.train.length=64"],
            ["config.encoding.name", "shifted", "encoding.length to 564", "clamp"],
        ),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_one_line(config, arguments, words):
    line = command_lines.refusal(config, *arguments)
    assert "\n" not in line
    for word in words:
        assert word in line, line


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["error: --config: must be given"]),
        ([f"--config={MAIN}", "--config.train.stepz=3"], ["error: config.train.stepz", "steps"]),
    ],
)
def test_a_refused_command_ends_with_status_2(arguments, words):
    """Whether `train.py` refuses its arguments, or the experiment its config."""
    done = subprocess.run(
        [sys.executable, "train.py", *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr


def helped(*arguments):
    done = subprocess.run([sys.executable, "train.py", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.thorough
def test_help_lists_configs_fields_and_examples():
    status, text = helped("--help")
    assert status == 0
    for stem in STEMS:
        assert f"configs/{stem}.py" in text
    assert "--config.train.steps=200" in text
    assert helped() == (2, text), "without arguments too, and the line that refuses them"
    status, text = helped(f"--config={MAIN}:quick", "--help")
    assert status == 0
    assert text.startswith("RoPE trained on windows of 128 bytes")
    assert "  --config.train.steps=60\n" in text, "the fields of the variant that is named"
    assert "  --config.train.steps=1000\n" not in text


@pytest.mark.parametrize(
    ("config", "wanted"),
    [("rope_extrap", r" if no field is changed: 3 to 6 minutes on 2 cores"),
     ("rope_extrap:quick", r" if no field is changed: \d+ s on 2 free cores$"),
     ("published", ": not measured"), ("extrap:rope", ": not measured"),
     ("lm", r" if no field is changed: \d+ s on 2 free cores$"),
     ("dna", r" if no field is changed: each task takes \d"),
     ("not_measured:quick", ": not measured"),
     ("extrap:rope,quick", r" if no field is changed: \d+ s on 2 free cores$")],
)  # fmt: skip
def test_the_time_that_a_run_takes_is_that_of_its_config(config, wanted, tmp_path):
    stem, *argument = config.split(":")
    path = pathlib.Path(f"configs/{stem}.py")
    if stem == "not_measured":
        path = tmp_path / path.name
        path.write_text('"""A config.\n\nIt takes 4 hours."""\n')
        assert "it takes 4 hours" in train_help.duration(path)
    said = train_help.duration(path, *argument)
    assert re.match(rf"time expected{wanted}", said)
    assert "python train.py" not in said


GET_CONFIGS = """
import importlib, sys
for stem in sys.argv[1:]:
    importlib.import_module(f"configs.{stem}").get_config()
sys.exit("all loaded")
"""


@pytest.mark.thorough
def test_configs_and_refusals_load_nothing_that_runs_experiments(tmp_path):
    """Here each of these libraries is an error to load; the control is a run, which loads one."""
    for name in ("flax", "matplotlib", "optax", "orbax", "scipy", "wandb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('{name} loads')")
    paths = {"PYTHONPATH": f".{os.pathsep}{tmp_path}", "TFDS_DATA_DIR": str(tmp_path)}

    def last_line(*arguments):
        done = subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, **paths}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.returncode, *done.stderr.splitlines()[-1:]

    run = ("train.py", "--config=configs/extrap.py")
    assert last_line(*run, "--config.task.name=tfds:lm1b") == (
        2,
        f"error: config.task.name: tfds:lm1b is not prepared in {tmp_path}; once, type: "
        "python scripts/prepare_data.py lm1b",
    )
    assert last_line(*run) == (1, "ImportError: orbax loads")
    assert last_line("-c", GET_CONFIGS, *STEMS) == (1, "all loaded")


def test_writes_that_end_after_a_failed_one_print_nothing():
    printed = []
    hook = job._without_late_writes(lambda kind, error, traceback: printed.append(str(error)))
    for error in (RuntimeError("Event loop is closed"), RuntimeError("x"), ValueError("y")):
        hook(type(error), error, None)
    assert printed == ["x", "y"]


@pytest.mark.parametrize(("cpus", "said"), [(1, "1 x cpu, 1 core;"), (2, "1 x cpu, 2 cores;")])
def test_the_header_counts_the_cores(cpus, said, monkeypatch):
    machine = {"devices": 1, "device": "cpu", "cpus": cpus}
    module = importlib.import_module("posenc_jax.lab.runs.environment")
    monkeypatch.setattr(module, "environment", lambda: machine)
    config = experiments.check(rope_extrap.get_config("quick").to_dict())
    assert said in experiments._header(config, "runs/a")
