"""The README is short, the new encoding of docs/ passes the battery, and pages name files that
exist.
"""

import re

import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx

import posenc_jax
from posenc_jax import CATALOG
from posenc_jax.lab.definitions import SCORES
from tests.encodings import test_catalogue as battery
from tests.encodings import test_catalogue_numbers as numbers
from tests.support import ROOT

README = (ROOT / "README.md").read_text("utf-8")


def code(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)


NEW, DEFINITION = code("docs/new_encoding.md")
PAGES = [
    f"docs/{name}.md"
    for name in (
        "design",
        "going_on",
        "in_your_model",
        "new_encoding",
        "running",
        "speed",
        "your_experiment",
    )
]
FOLDERS = r"posenc_jax|experiments|configs|scripts|tests|docs|\.github|\.ci"


@pytest.fixture
def root(monkeypatch, registering):
    scope = {}
    exec(NEW, scope)
    exec(DEFINITION, scope)
    monkeypatch.setitem(SCORES, "root", scope["SCORES"]["root"])
    return "root"


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def test_new_encoding_is_short():
    assert len([line for line in NEW.splitlines() if line.strip()]) <= 20


@pytest.mark.thorough
def test_new_encoding_passes_the_battery(root):
    for holds in battery.PROPERTIES:
        holds(battery.trial_of(root))
    numbers.test_catalogue_parity(root, 24)
    numbers.test_catalogue_precision(root)
    numbers.test_catalogue_range(root)
    numbers.test_catalogue_option(root, "slope", 1.0)


@pytest.mark.thorough
def test_new_encoding_with_a_wrong_formula_is_caught(root, monkeypatch):
    monkeypatch.setitem(SCORES, root, SCORES["nope"])
    with pytest.raises(AssertionError):
        numbers.test_catalogue_parity(root, 24)


def test_the_nnx_model_of_a_page_is_trained():
    """Two steps of the class in docs/in_your_model.md, with parameters of T5."""
    page = (ROOT / "docs" / "in_your_model.md").read_text("utf-8")
    (block,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    dims = posenc_jax.Dims(model=8, heads=2, head=4)
    scope = {"jax": jax, "nnx": nnx, "posenc_jax": posenc_jax, "dims": dims}
    exec(block, scope)
    model = scope["Model"](posenc_jax.make("t5", bidirectional=False), nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(1.0), wrt=nnx.Param)
    q = jax.random.normal(jax.random.key(0), (1, 5, 2, 4))

    def loss(model):
        layer = model(posenc_jax.full(1, 5)).layer(0)
        return (posenc_jax.attend(q, q, q, layer) ** 2).mean()

    losses = []
    for _ in range(2):
        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        losses.append(float(value))
    assert float(loss(model)) < losses[1] < losses[0]
    assert jnp.shape(nnx.as_pure(model.positions)["table"]) == (32, 2)


def test_catalogue_is_listed():
    table = README.split("## The catalogue\n")[1]
    assert set(re.findall(r"`(\w+)`", table.split("##")[0])) == set(CATALOG)


def missing(page: str) -> list[str]:
    """The paths in our folders that a page names and that do not exist; NAME is a placeholder."""
    paths = re.findall(rf"(?<![\w./])((?:{FOLDERS})/[\w./-]*\w)", page)
    return [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *PAGES])
def test_a_page_names_files_that_exist(page):
    assert missing((ROOT / page).read_text("utf-8")) == []


def test_a_file_that_does_not_exist_is_found():
    page = "Copy `configs/NAME.py`, run tests/test_readme.py; see [this](docs/nothing.md)."
    assert missing(page) == ["docs/nothing.md"]
