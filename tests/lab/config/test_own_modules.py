"""What a user's own folder registers is found by training, reports, sweeps and resumed runs."""

import json
import os
import subprocess
import sys

import pytest

from posenc_jax.lab.config import imports
from posenc_jax.lab.launch import skypilot
from posenc_jax.options import FieldError
from tests.support import ROOT

pytestmark = pytest.mark.usefixtures("kept_programs")

CONFIG = '''"""A method and a task of my own."""

from configs import common
from posenc_jax.lab.config import sweeps


def get_config(argument=""):
    return common.config(
        "length_extrapolation", imports=("my_methods",), encoding={"name": "root"},
        task={"name": "ones", "length": 2}, seeds=1,
        model={"width": 8, "heads": 1, "layers": 1},
        train={"length": 8, "min_length": 8, "steps": 2, "batch": 2, "warmup": 1,
               "optimizer": {"name": "signed", "momentum": 0.5}, "schedule": {"name": "linear"}},
        eval={"lengths": (8,), "examples": 4},
    )


def get_sweep(argument=""):
    return sweeps.grid({"encoding.name": ("root", "rope+root")})
'''
METHODS = '''"""My methods and tasks."""

import jax.numpy as jnp
import optax

import my_formulas
import posenc_jax
from posenc_jax.lab import tasks
from posenc_jax.lab.tasks.task import BOS, SYMBOL, Task, generated
from posenc_jax.lab.training import optimizers


@posenc_jax.register(kind="bias", formula="-slope sqrt|i - j|", paper="an example")
def root(slope: float = 0.5) -> posenc_jax.Encoding:
    """A penalty that grows with the square root of the distance."""
    bias = lambda params, q_pos_BQ, k_pos_BK, dims: my_formulas.root(slope, q_pos_BQ, k_pos_BK)
    return posenc_jax.Encoding(bias=bias, relative=True)


@tasks.register()
def ones(length: int = 4) -> Task:
    """Predict ones."""

    def line(key, n, place_L):
        return jnp.where(place_L == 0, BOS, SYMBOL), place_L > 0

    return generated("ones", line, lambda n: n + length, symbols=1, padding="right")


@optimizers.register(elementwise=True)
def signed(rate, decay, momentum: float = 0.9):
    """The sign of the momentum."""
    return optax.signum(rate, momentum)
'''
FORMULAS = """import jax.numpy as jnp


def root(slope, q_pos_BQ, k_pos_BK):
    distance_BQK = jnp.abs(q_pos_BQ[:, :, None] - k_pos_BK[:, None, :]).astype(float)
    return -slope * jnp.sqrt(distance_BQK)[:, None]
"""


@pytest.fixture
def project(tmp_path):
    """A user's folder, and another one in which commands run."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name, text in (("conf", CONFIG), ("my_methods", METHODS), ("my_formulas", FORMULAS)):
        (folder / f"{name}.py").write_text(text)
    return folder


def command(project, script, *arguments, cwd="elsewhere"):
    """(exit status, output, error) of one of our scripts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, ROOT / script, *arguments], cwd=project.parent / cwd, env=environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.strip()


@pytest.mark.thorough
def test_a_config_names_the_modules_of_its_methods_and_tasks(project):
    train = "train.py", "--config=../project/conf.py", "--workdir=run"
    status, _, error = command(project, *train)
    assert (status, error) == (0, "")
    run = project.parent / "elsewhere" / "run"
    stored = json.loads((run / "config.json").read_text())
    assert stored["imports"] == ["my_methods"]
    assert stored["train"]["optimizer"] == {"name": "signed", "momentum": 0.5}
    recorded = stored["environment"]["imports"]
    assert recorded["folders"] == [str(project)]
    assert set(recorded["sha256"]) == {"my_methods.py", "my_formulas.py"}, "and what it imports"

    # From another working directory, where no flag says where the modules are.
    (project.parent / "third").mkdir()
    status, output, error = command(project, "scripts/report.py", run, "--attention", cwd="third")
    assert (status, error) == (0, "")
    assert "changed" not in output
    assert (run / "attention" / "root.npy").is_file()

    (project / "my_formulas.py").write_text(f"{FORMULAS}\n# another\n")
    status, output, error = command(project, "scripts/report.py", run, cwd="third")
    assert (status, error) == (0, "")
    assert f"{run}: my_formulas.py changed since the run" in output
    (run / "summary.json").unlink()
    status, output, error = command(project, *train)
    assert (status, error) == (0, "")
    assert "run: goes on with another my_formulas.py: bits may differ" in output

    (project / "my_formulas.py").unlink()
    status, _, error = command(project, "scripts/report.py", run, "--attention", cwd="third")
    assert (status, error) == (
        2,
        "config.imports: my_methods: No module named 'my_formulas' (ModuleNotFoundError)",
    )


@pytest.mark.thorough
def test_the_points_of_a_sweep_find_them(project):
    sweep = "scripts/sweep.py", "--config=../project/conf.py", "--folder=points"
    status, output, error = command(project, *sweep)
    assert (status, error) == (0, "")
    assert "2/2 rope+root: finished" in output


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("nowhere", None, "no module 'nowhere' beside the config, nor on the path of Python"),
        ("taken", METHODS.replace("def root", "def rope"), "taken: register: 'rope' of taken.rope "
         "has the name of posenc_jax.encodings.rotary.rope; choose another (ValueError)"),
        ("failing", "1 / 0", "failing: division by zero (ZeroDivisionError)"),
        ("json", "", "'json' is "),
        ("unwritten", "def", "unwritten: invalid syntax (unwritten.py, line 1) (SyntaxError)"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_imported_is_one_line(
    name, text, error, project, monkeypatch, registering
):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(imports, "_FOLDERS", [])
    if text is not None:
        (project / f"{name}.py").write_text(text)
    imports.add_folder(project)
    with pytest.raises(FieldError) as refusal:
        imports.load((name,))
    sys.modules.pop("my_formulas", None)
    assert refusal.value.path == ("imports",)
    assert refusal.value.reason.startswith(error)
    assert "\n" not in str(refusal.value)


@pytest.mark.thorough
def test_a_missing_module_ends_a_run_with_status_2(project):
    flags = "--config=../project/conf.py", "--config.imports=('nowhere',)"
    status, _, error = command(project, "train.py", *flags)
    assert status == 2
    assert error.startswith("error: config.imports: no module 'nowhere' beside the config")


@pytest.mark.parametrize("recorded", [7, [], {"folders": "/"}, {"folders": [7]}, {"sha256": [1]}])
def test_a_damaged_record_of_the_modules_is_one_line(recorded):
    with pytest.raises(
        ValueError, match=r"^environment.imports: .* is not what a run keeps of its"
    ):
        imports.load_recorded({"imports": recorded}, ())
    with pytest.raises(FieldError, match=r"^imports: 7 is not a list of the names of modules"):
        imports.load_recorded({}, 7)


def test_modules_outside_the_repository_do_not_travel(project, monkeypatch, registering):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(imports, "_FOLDERS", [])
    (project / "travelling.py").write_text("")
    imports.add_folder(project)
    imports.load(("travelling",))
    with pytest.raises(ValueError, match=r"^config.imports: .*travelling.py lies outside "):
        skypilot.refuse_data([{"imports": ("travelling",)}], ROOT)
    skypilot.refuse_data([{"imports": ("travelling",)}], project)
