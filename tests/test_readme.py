"""The README is short, the new encoding of docs/ passes the battery, and pages name files that
exist.
"""

import re

import pytest

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
