"""The wheel, in an environment that holds nothing but it, JAX and NumPy, runs the pages' code."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import textwrap
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import posenc_jax
from setup import index_page
from tests.support import ROOT
from tests.test_readme import code

NO_LAB = "import sys; assert not [m for m in sys.modules if m.startswith('posenc_jax.lab')]"


class Environment(NamedTuple):
    """The built wheel, and the Python of the environment that it is installed in."""

    wheel: Path
    python: Path

    def run(self, code: str) -> subprocess.CompletedProcess:
        """Runs `code` in a new process that does not see this folder."""
        return subprocess.run(
            [self.python, "-I", "-c", code], capture_output=True, text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Environment:
    """The wheel, built from a copy of the tree, and its requirements, linked from this environment.

    Nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("wheel")
    source, home = folder / "source", folder / "venv"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "posenc_jax", source / "posenc_jax", ignore=ignored)
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    pip(sys.executable, "wheel", "--no-build-isolation", f"--wheel-dir={folder}", source)
    (wheel,) = folder.glob("*.whl")
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip(python, "install", wheel)
    (site,) = home.glob("lib/python*/site-packages")
    (info,) = site.glob("posenc_jax-*.dist-info")
    for name in required(importlib.metadata.Distribution.at(info).requires):
        link(importlib.metadata.distribution(name), site)
    return Environment(wheel, python)


def pip(python: str | Path, *arguments: str | Path) -> None:
    """Runs a pip command for the environment of `python`, without dependencies or an index."""
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "--python", python, *arguments, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def required(lines: list[str] | None) -> set[str]:
    """Names of the packages that requirements name, without extras, and of all that they need."""
    actual = set()
    for line in lines or []:
        need = Requirement(line)
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            actual.add(canonicalize_name(need.name))
            actual |= required(importlib.metadata.distribution(need.name).requires)
    return actual


def link(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Links the files and folders that a distribution has put into site-packages."""
    for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
        (site / name).symlink_to(distribution.locate_file(name))


def test_the_wheel_needs_jax_and_numpy_alone(installed):
    listed = "from importlib.metadata import distributions as d; print(*(x.name for x in d()))"
    actual = {canonicalize_name(name) for name in installed.run(listed).stdout.split()}
    assert actual == required(["jax", "numpy"]) | {"posenc-jax"}


def test_the_wheel_holds_every_file_of_the_package_and_no_other(installed):
    files = {path for path in (ROOT / "posenc_jax").rglob("*") if path.is_file()}
    ours = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    names = zipfile.ZipFile(installed.wheel).namelist()
    assert {name for name in names if ".dist-info/" not in name} == ours
    assert "posenc_jax/py.typed" in names


def test_the_wheel_has_the_version_and_every_public_name(installed):
    code = """
        import importlib.metadata, posenc_jax
        assert all(hasattr(posenc_jax, name) for name in posenc_jax.__all__)
        print(importlib.metadata.version("posenc_jax"), posenc_jax.__version__)
    """
    done = installed.run(f"{textwrap.dedent(code)}\n{NO_LAB}")
    assert done.stdout.split() == [posenc_jax.__version__] * 2, done.stderr


def test_the_page_of_the_package_index_is_made_of_the_readme(installed):
    code = "import importlib.metadata as m; print(m.metadata('posenc_jax').get_payload())"
    page = installed.run(code).stdout.strip()
    readme = (ROOT / "README.md").read_text("utf-8")
    assert page == index_page(readme).strip()
    assert page != readme.strip(), "control"


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert posenc_jax.__version__ == citation["version"] == newest[1]


@pytest.mark.thorough
@pytest.mark.parametrize("page", ["README.md", "docs/in_your_model.md", "docs/new_encoding.md"])
def test_the_code_of_a_page_runs(installed, page):
    done = installed.run("\n".join([*code(page), NO_LAB]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("snippet", "error"),
    [
        ("import flax", "No module named 'flax'"),
        ("import posenc_jax.lab.hosts.files", "AssertionError"),
        ("from posenc_jax.lab import load", "needs the folder experiments/ of the posenc_jax"),
    ],
)
def test_code_that_needs_more_is_found(installed, snippet, error):
    done = installed.run(f"{snippet}\n{NO_LAB}")
    assert done.returncode == 1
    assert error in done.stderr
