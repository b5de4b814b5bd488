"""The floors of the house: imports go down only, read from the syntax of every module."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the ground up. A row is a module, or a package with all it holds; it may import the floors
# below and itself, never its neighbours. A new module or package gets a row here.
FLOORS = [
    {
        "posenc_jax.choices",
        "posenc_jax.compiling",
        "posenc_jax.exhibits",
        "posenc_jax.faces",
        "posenc_jax.failpoints",
        "posenc_jax.fusion",
        "posenc_jax.layout",
        "posenc_jax.packing",
        "posenc_jax.processes",
        "posenc_jax.stops",
    },
    {
        "posenc_jax.checkpoints",
        "posenc_jax.devices",
        "posenc_jax.encoding",
        "posenc_jax.interrupts",
        "posenc_jax.linear",
        "posenc_jax.files",
        "posenc_jax.mirror",
        "posenc_jax.prepared",
        "posenc_jax.progress",
        "posenc_jax.schema",
        "posenc_jax.statistics",
        "posenc_jax.sweeps",
    },
    {
        "posenc_jax.attention",
        "posenc_jax.encodings",
        "posenc_jax.gradients",
        "posenc_jax.runs",
        "posenc_jax.tasks",
    },
    {"posenc_jax.modules", "posenc_jax.report", "posenc_jax.launch"},
    {"posenc_jax.transformer"},
    {"posenc_jax.dashboard", "posenc_jax.gallery", "posenc_jax.training"},
    {"posenc_jax.evaluation"},
    {"posenc_jax"},  # the face that users import: its __init__ alone
    {"experiments", "configs"},
    {"train"},
    {"scripts"},
]
FLAX = {"posenc_jax.modules"}
CONFIGS = {
    "configs",
    "ml_collections",
    "posenc_jax.encodings",
    "posenc_jax.sweeps",
} | sys.stdlib_module_names
LEVEL = {row: level for level, rows in enumerate(FLOORS) for row in rows}


def row_of(module: str) -> str | None:
    """The row that a module stands in; None: the table has none."""
    if not module.startswith("posenc_jax."):
        return module.split(".")[0] if module.split(".")[0] in LEVEL else None
    row = ".".join(module.split(".")[:2])
    return row if row in LEVEL else None


def imports(source: str, package: str) -> Iterator[str]:
    """Dotted names of what a module imports, inside functions too; `package` is its folder."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
            # `from posenc_jax import runs` is the module; `from posenc_jax import attend` the face.
            yield from (name if row_of(name) else base for name in names)


def broken(module: str, source: str, package: str) -> list[str]:
    """The rules that a module breaks, one line each."""
    names = set(imports(source, package))
    roots = {name.split(".")[0] for name in names}
    rows = {row_of(name) or name for name in names}
    lines = []
    if "flax" in roots and module not in FLAX:
        lines.append(f"{module} imports flax; only {', '.join(FLAX)} may")
    if module.split(".")[0] == "configs":
        strange = {row for row in rows if not {row, row.split(".")[0]} & CONFIGS}
        return lines + [f"{module} imports {row}; configs hold data only" for row in strange]
    own = row_of(module)
    if own is None:
        return [*lines, f"{module} has no floor; give it a row in FLOORS, {Path(__file__).name}"]
    for row in rows - {own}:
        ours = row.split(".")[0] in {"posenc_jax", "configs", "experiments", "scripts", "train"}
        if ours and (row not in LEVEL or LEVEL[row] >= LEVEL[own]):
            lines.append(f"{module} imports {row}, which is not on a floor below it")
    return lines


def house() -> list[tuple[str, Path]]:
    files = [ROOT / "train.py"]
    for folder in ("posenc_jax", "experiments", "configs", "scripts"):
        files += sorted((ROOT / folder).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [(name.removesuffix(".__init__"), f) for name, f in zip(names, files, strict=True)]


@pytest.mark.parametrize(("module", "file"), house(), ids=[name for name, _ in house()])
def test_imports_go_down_only(module, file):
    package = ".".join(file.parent.relative_to(ROOT).parts)
    assert broken(module, file.read_text(), package) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "posenc_jax.layout",
            "from posenc_jax.encoding import Dims",
            "imports posenc_jax.encoding, which",
        ),
        ("posenc_jax.encoding", "import posenc_jax.encodings.bias", "not on a floor below"),
        ("posenc_jax.encodings.new", "from posenc_jax import tasks", "posenc_jax.tasks, which"),
        (
            "posenc_jax.attention.new",
            "from posenc_jax.encodings import card",
            "posenc_jax.encodings, which",
        ),
        (
            "posenc_jax.attention.new",
            "from ..encodings.card import Card",
            "posenc_jax.encodings, which",
        ),
        ("posenc_jax.tasks.new", "def f():\n    import posenc_jax.training", "training, which"),
        ("posenc_jax.runs", "from posenc_jax import attend", "imports posenc_jax, which"),
        ("posenc_jax.report.new", "from posenc_jax import transformer", "transformer, which"),
        ("posenc_jax.training", "from posenc_jax.evaluation import x", "evaluation, which"),
        ("posenc_jax.transformer", "import experiments", "experiments, which"),
        ("experiments.new", "from configs import extrap", "imports configs, which"),
        ("experiments.new", "from scripts.bench import main", "imports scripts, which"),
        ("posenc_jax.encodings.new", "import flax.linen as nn", "imports flax; only"),
        ("posenc_jax.transformer", "import flax.linen as nn", "imports flax; only"),
        ("train", "from flax import linen", "imports flax; only"),
        ("configs.new", "from posenc_jax.training import train", "configs hold data only"),
        ("configs.new", "import jax", "configs hold data only"),
        ("posenc_jax.novelty", "", "posenc_jax.novelty has no floor; give it a row in FLOORS"),
    ],
)
def test_a_module_that_breaks_a_rule_is_found(module, source, complaint):
    found = broken(module, source, module.rpartition(".")[0])
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("posenc_jax.encodings.new", "from posenc_jax.encodings.card import method\nimport jax"),
        ("posenc_jax.encodings.new", "from . import card\nfrom .card import method"),
        ("posenc_jax.modules", "import flax.linen as nn\nfrom posenc_jax import layout"),
        ("posenc_jax.evaluation", "from posenc_jax.training import State"),
        ("posenc_jax", "from posenc_jax.attention import attend"),
        ("experiments.new", "from posenc_jax import attend, runs"),
        ("train", "import experiments"),
        ("configs.new", "import math\nfrom configs import common\nimport ml_collections as m"),
        ("configs.new", "from posenc_jax.encodings import options"),
    ],
)
def test_a_module_that_keeps_the_rules_is_not(module, source):
    assert broken(module, source, module.rpartition(".")[0]) == []
