"""Imports go down only, as docs/design.md says; read from the syntax of every module."""

import ast
import graphlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

TABLE = (ROOT / "docs" / "design.md").read_text("utf-8").split("## Floors\n")[1].split("\n## ")[0]
# Module or package -> the number of its floor, 0 for the ground.
FLOORS = {
    row: floor
    for floor, line in enumerate(reversed(re.findall(r"^\| (`.*?) \|", TABLE, re.MULTILINE)))
    for row in re.findall(r"`(.+?)`", line)
}
OURS = {row.split(".")[0] for row in FLOORS}
LIBRARY = {"jax", "numpy", "posenc_jax"}
CONFIGS = {
    "experiments",
    "ml_collections",
    "posenc_jax.encodings",
    "posenc_jax.lab.config",
    "posenc_jax.options",
}
FLAX = "posenc_jax.lab.model.layers"
DEFINITIONS = "posenc_jax.lab.definitions"
EQUINOX = "posenc_jax.equinox", "equinox"


def row_of(module: str) -> str | None:
    """The row of the table that holds a module; None if there is none."""
    holds = lambda row: f"{module}.".startswith(f"{row}.") or row == f"{module}.__init__"
    return next(filter(holds, FLOORS), None)


def imports(module: str, source: str) -> Iterator[str]:
    """Dotted names of the modules that a module imports, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            # `from posenc_jax.lab import runs` imports a module, `from posenc_jax import make` not.
            yield from (name if row_of(name) else base for name in names)


def broken(module: str, source: str) -> list[str]:
    """The rules that a module breaks, one line each."""
    row = row_of(module)
    if row is None:
        return [f"{module} has no floor; give it a row in docs/design.md"]
    checked = (complaint(module, row, name) for name in sorted(set(imports(module, source))))
    return [f"{module} {line}" for line in checked if line]


def complaint(module: str, own: str, name: str) -> str:
    """What is wrong when `module`, of the row `own`, imports `name`; "" if nothing is."""
    row, root = row_of(name) or name, name.split(".")[0]
    if row == own or root in sys.stdlib_module_names:
        return ""
    part = name.startswith("experiments.")  # a config names an experiment, and loads none
    if own == "configs" and (part or (row if row in FLOORS else root) not in CONFIGS):
        return f"imports {row}; configs hold data only"
    library = own.startswith("posenc_jax.") and not own.startswith("posenc_jax.lab.")
    if library and root not in LIBRARY and (module, root) != EQUINOX:
        return f"imports {root}; the library needs jax and numpy only"
    if own == DEFINITIONS and root in OURS:
        return f"imports {row}; a definition is independent of the code that it checks"
    if root == "flax" and not f"{module}.".startswith(f"{FLAX}."):
        return f"imports flax; only {FLAX} may"
    if root in OURS and FLOORS.get(row, len(FLOORS)) >= FLOORS[own]:
        return f"imports {row}, which is not on a floor below it"
    return ""


def modules() -> dict[str, Path]:
    """Every module outside of tests/ by its dotted name; a package is `name.__init__`."""
    files = [ROOT / "train.py"]
    for folder in ("posenc_jax", "experiments", "configs", "scripts"):
        files += sorted((ROOT / folder).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file for file in files}


@pytest.mark.parametrize(("module", "file"), modules().items(), ids=modules())
def test_imports_go_down_only(module, file):
    assert broken(module, file.read_text("utf-8")) == []


def circle(sources: dict[str, str]) -> list[str]:
    """Modules that import each other in a circle, inside functions too; [] if none do."""
    short = {name.removesuffix(".__init__"): name for name in sources}
    graph = {
        name: {short[actual] for actual in _of(sources, short, name)} - {name} for name in sources
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def _of(sources, short, name) -> Iterator[str]:
    """The modules among `sources` that one of them imports."""
    for actual in imports(name, sources[name]):
        if actual not in short:
            actual = actual.rpartition(".")[0]  # a name in a module
        if actual in short:
            yield actual


@pytest.mark.thorough
def test_no_modules_import_each_other():
    sources = {name: file.read_text("utf-8") for name, file in modules().items()}
    assert circle(sources) == []
    lazy = "def check(config):\n    from experiments.pretrained import checks\n"
    sources["experiments.pretrained.config"] += lazy
    assert set(circle(sources)) == {
        "experiments.pretrained.config",
        "experiments.pretrained.checks",
    }


def test_every_row_of_the_table_has_modules():
    assert {row_of(module) for module in modules()} == set(FLOORS)


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("posenc_jax.layout", "from posenc_jax.encoding import Dims", "posenc_jax.encoding, which"),
        ("posenc_jax.encoding", "import posenc_jax.encodings.bias", "not on a floor below"),
        ("posenc_jax.encodings.new", "from posenc_jax.lab import tasks", "lab.tasks, which"),
        ("posenc_jax.attention.new", "from posenc_jax.encodings import card", "encodings, which"),
        ("posenc_jax.attention.new", "from ..encodings.card import Card", "encodings, which"),
        ("posenc_jax.encodings.new", "import optax", "imports optax; the library needs jax"),
        ("posenc_jax.__init__", "import flax", "imports flax; the library needs jax"),
        ("posenc_jax.flax", "import equinox", "imports equinox; the library needs jax"),
        ("posenc_jax.equinox", "import flax", "imports flax; the library needs jax"),
        ("posenc_jax.lab.tasks.new", "def f():\n    import posenc_jax.lab.runs", "runs, which"),
        ("posenc_jax.lab.runs", "from posenc_jax.lab import training", "lab.training, which"),
        ("posenc_jax.lab.runs", "from posenc_jax.lab.model import layers", "lab.model, which"),
        ("posenc_jax.lab.model.new", "import experiments", "experiments, which"),
        ("posenc_jax.lab.model.new", "import flax.linen as nn", "imports flax; only"),
        ("experiments.new", "from configs import extrap", "imports configs, which"),
        ("experiments.new", "from scripts.bench import main", "imports scripts, which"),
        ("train", "from flax import linen", "imports flax; only"),
        ("configs.new", "from posenc_jax.lab.training import loop", "configs hold data only"),
        ("configs.new", "import jax", "configs hold data only"),
        ("configs.new", "from experiments.compare.images import run", "configs hold data only"),
        ("configs.new", "from experiments import job", "configs hold data only"),
        ("posenc_jax.novelty", "", "posenc_jax.novelty has no floor; give it a row in docs"),
        ("posenc_jax.lab.definitions.new", "from posenc_jax import make", "is independent"),
        ("posenc_jax.lab.novelty.new", "", "has no floor; give it a row in docs"),
    ],
)
def test_a_module_that_breaks_a_rule_is_found(module, source, expected):
    assert any(expected in line for line in broken(module, source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "posenc_jax.encodings.new",
            "from posenc_jax.encodings.card import Card\nimport jax",
        ),
        ("posenc_jax.encodings.new", "from . import card\nfrom .card import method"),
        ("posenc_jax.lab.model.layers.new", "import flax.linen as nn\nfrom posenc_jax import make"),
        ("posenc_jax.lab.training.new", "from posenc_jax.lab.training.step import State"),
        ("posenc_jax.__init__", "from posenc_jax.attention import attend"),
        ("experiments.new", "from posenc_jax import attend\nfrom posenc_jax.lab import runs"),
        ("train", "import experiments"),
        ("configs.new", "import math\nfrom configs import common\nimport ml_collections as m"),
        ("configs.new", "from posenc_jax.encodings import options"),
        ("configs.new", "import experiments"),
    ],
)
def test_a_module_that_keeps_the_rules_is_not(module, source):
    assert broken(module, source) == []
