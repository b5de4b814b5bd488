"""The examples run; a notebook has the cells of its source."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SOURCES = [source for source in EXAMPLES if "\n# %%" in f"\n{source.read_text('utf-8')}"]
NAMES = [source.stem for source in SOURCES]
NEEDS = {"train_equinox": "equinox"}
pytestmark = pytest.mark.usefixtures("kept_programs")


def cells(source: str) -> list[tuple[str, str]]:
    """The cells of a script in jupytext's percent format: (type, text)."""
    actual = []
    for cell in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        kind, _, text = cell.partition("\n")
        text = text.strip("\n")
        if "[markdown]" in kind:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        actual.append(("markdown" if "[markdown]" in kind else "code", text))
    return actual


def notebook(path: Path) -> dict:
    return json.loads(path.with_suffix(".ipynb").read_text("utf-8"))


def shown(path: Path) -> list[tuple[str, str]]:
    cells = notebook(path)["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


def run(script: Path) -> subprocess.CompletedProcess:
    paths = {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    return subprocess.run([sys.executable, script], env={**os.environ, **paths}, cwd=script.parent,
                          capture_output=True, text=True)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("source", EXAMPLES, ids=[source.stem for source in EXAMPLES])
def test_an_example_runs(source):
    if source.stem in NEEDS:
        pytest.importorskip(NEEDS[source.stem])
    done = run(source)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("folder", [ROOT, ROOT / "examples"], ids=["root", "examples"])
def test_a_source_that_needs_the_repository_finds_it(folder, tmp_path):
    """`python examples/trained_run.py` ended in a traceback without PYTHONPATH."""
    (tmp_path / "posenc_jax").symlink_to(ROOT / "posenc_jax")  # as if it were installed
    source = (ROOT / "examples" / "trained_run.py").read_text("utf-8")
    imports = next(text for kind, text in cells(source) if kind == "code")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = tmp_path / "imports.py"

    def status(text):
        script.write_text(text)
        done = subprocess.run([sys.executable, script], cwd=folder, env=env, capture_output=True)
        return done.returncode

    assert status(imports) == 0
    assert status(imports.replace("sys.path +=", "_ =")) == 1, "control"


@pytest.mark.thorough
def test_a_notebook_whose_measurement_comes_out_otherwise_fails(tmp_path):
    source = (ROOT / "examples" / "from_nothing_to_rope.py").read_text("utf-8")
    changed = tmp_path / "changed.py"
    changed.write_text(source.replace("[shuffle]", "").split("# ## 1.")[0])
    assert run(changed).returncode == 0, "the control of this test"
    changed.write_text(source.replace("x_TD)[shuffle]", "x_TD)").split("# ## 1.")[0])
    done = run(changed)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_a_notebook_has_the_cells_of_its_source_and_was_run(source):
    assert shown(source) == cells(source.read_text("utf-8"))
    code = [cell for cell in notebook(source)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in code)
    outputs = [output for cell in code for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert [output for output in outputs if "text" in output]
    other = source.read_text("utf-8").replace("# %%", "# %%\n1\n# %%", 1)
    assert shown(source) != cells(other), "control: another source has other cells"
