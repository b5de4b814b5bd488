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
    {"posenc_jax.dtypes", "posenc_jax.layout", "posenc_jax.options", "posenc_jax.tuning"},
    {"posenc_jax.encoding"},
    {"posenc_jax.attention", "posenc_jax.encodings"},
    {"posenc_jax"},  # the library as users import it: its __init__ alone
    {"posenc_jax.lab.hosts"},
    {"posenc_jax.lab.config"},
    {"posenc_jax.lab.tasks"},
    {"posenc_jax.lab.wandb"},
    {"posenc_jax.lab.model", "posenc_jax.lab.runs"},
    {"posenc_jax.lab.launch", "posenc_jax.lab.training"},
    {"posenc_jax.lab.report"},
    {"posenc_jax.lab.gallery"},
    {"posenc_jax.lab"},
    {"experiments"},
    {"configs"},
    {"train"},
    {"scripts"},
]
FLAX = {"posenc_jax.lab.model.layers"}
LIBRARY = {"jax", "numpy", "posenc_jax"} | sys.stdlib_module_names
CONFIGS = {
    "configs",
    "experiments",
    "ml_collections",
    "posenc_jax.encodings",
    "posenc_jax.lab.config",
    "posenc_jax.options",
} | sys.stdlib_module_names
LEVEL = {row: level for level, rows in enumerate(FLOORS) for row in rows}


def row_of(module: str) -> str | None:
    """The row that a module stands in; None: the table has none."""
    parts = module.split(".")
    if parts[0] != "posenc_jax":
        return parts[0] if parts[0] in LEVEL else None
    row = ".".join(parts[: 3 if parts[1:2] == ["lab"] else 2])
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
    if module.split(".")[0] == "posenc_jax" and not module.startswith("posenc_jax.lab"):
        lines += [
            f"{module} imports {root}; the library needs jax and numpy alone"
            for root in sorted(roots - LIBRARY)
        ]
    if module.split(".")[0] == "configs":
        strange = {row for row in rows if not {row, row.split(".")[0]} & CONFIGS}
        strange |= {name for name in names if name.startswith("experiments.")}
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
        ("posenc_jax.layout", "from posenc_jax.encoding import Dims", "posenc_jax.encoding, which"),
        ("posenc_jax.encoding", "import posenc_jax.encodings.bias", "not on a floor below"),
        ("posenc_jax.encodings.new", "from posenc_jax.lab import tasks", "lab.tasks, which"),
        ("posenc_jax.attention.new", "from posenc_jax.encodings import card", "encodings, which"),
        ("posenc_jax.attention.new", "from ..encodings.card import Card", "encodings, which"),
        ("posenc_jax.encodings.new", "import optax", "imports optax; the library needs jax"),
        ("posenc_jax", "import flax", "imports flax; the library needs jax"),
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
        ("configs.new", "from experiments.images import run", "configs hold data only"),
        ("configs.new", "from experiments import job", "configs hold data only"),
        ("posenc_jax.novelty", "", "posenc_jax.novelty has no floor; give it a row in FLOORS"),
        ("posenc_jax.lab.novelty.new", "", "has no floor; give it a row in FLOORS"),
    ],
)
def test_a_module_that_breaks_a_rule_is_found(module, source, complaint):
    found = broken(module, source, module.rpartition(".")[0])
    assert any(complaint in line for line in found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("posenc_jax.encodings.new", "from posenc_jax.encodings.card import method\nimport jax"),
        ("posenc_jax.encodings.new", "from . import card\nfrom .card import method"),
        ("posenc_jax.lab.model.layers", "import flax.linen as nn\nfrom posenc_jax import layout"),
        ("posenc_jax.lab.training.new", "from posenc_jax.lab.training.loop import State"),
        ("posenc_jax", "from posenc_jax.attention import attend"),
        ("experiments.new", "from posenc_jax import attend\nfrom posenc_jax.lab import runs"),
        ("train", "import experiments"),
        ("configs.new", "import math\nfrom configs import common\nimport ml_collections as m"),
        ("configs.new", "from posenc_jax.encodings import options"),
        ("configs.new", "import experiments"),
    ],
)
def test_a_module_that_keeps_the_rules_is_not(module, source):
    assert broken(module, source, module.rpartition(".")[0]) == []
