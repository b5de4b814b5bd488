"""docs/encodings.md says what the registry says, of every method; `describe` its docstring."""

import dataclasses
import math
from pathlib import Path

import pytest

from posenc_jax import CATALOG, describe, make
from posenc_jax.encodings import card
from posenc_jax.lab.gallery import costs, encodings_table
from posenc_jax.lab.gallery.encodings_table import MEASURED

DOCS = Path(__file__).parents[1] / "docs"
AGAIN = "out of date: run python scripts/catalogue.py (and scripts/gallery.py for cards)"


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each method in the page's tables."""
    lines = (line for line in page.splitlines() if line.startswith("| [`"))
    return {line.split("`")[1]: line[2:-2].split(" | ") for line in lines}


def stale(page: str) -> dict[str, str]:
    """What a page has that the registry does not say, or the other way round, by method."""
    found = rows(page)
    wrong = {name: "only on one side" for name in set(found) ^ set(CATALOG)}
    for name in set(found) & set(CATALOG):
        said, row = found[name][: -len(MEASURED)], list(encodings_table.row(name).values())
        if said != row:
            wrong[name] = f"{said} is not {row}"
    return wrong


@pytest.fixture(scope="module")
def page():
    return (DOCS / "encodings.md").read_text()


def test_the_table_in_docs_equals_the_registry(page):
    assert stale(page) == {}, AGAIN


def test_a_wrong_table_in_docs_is_found(page, monkeypatch):
    """The control: a method that changes, comes or goes."""
    changed = dataclasses.replace(CATALOG["rope"].card, paper="nobody 1900")
    monkeypatch.setattr(CATALOG["rope"], "card", changed)
    monkeypatch.setitem(CATALOG, "new", CATALOG["alibi"])
    monkeypatch.delitem(CATALOG, "t5")
    assert set(stale(page)) >= {"rope", "new", "t5"}


def test_every_measured_cell_is_filled(page):
    for name, cells in rows(page).items():
        assert len(cells) == len(encodings_table.row(name)) + len(MEASURED)
        assert all(cells[-len(MEASURED) :]), name


def test_every_method_has_its_card_and_no_other():
    assert {path.stem for path in (DOCS / "gallery").glob("*.png")} == set(CATALOG), AGAIN


def value(formula: str, dims) -> int:
    widths = {"D": dims.model, "H": dims.heads, "C": dims.head, "N": dims.layers}

    def number(factor):
        width, _, part = factor.partition("/")
        return widths[width] // int(part or 1) if width in widths else int(width.replace(",", ""))

    return sum(math.prod(map(number, term.split())) for term in formula.split(" + "))


@pytest.mark.parametrize("name", CATALOG)
def test_parameters_follow_their_formula(name):
    encoding = make(name)
    formula = costs.formula(encoding)
    assert value(formula, costs.STATED) == costs.count(encoding, costs.STATED)


def test_a_formula_that_is_wrong_is_found():
    encoding = make("clipped")
    assert costs.formula(encoding) == "33 N H"
    assert value("33 N D", costs.STATED) != costs.count(encoding, costs.STATED)


def test_cost_of_alibi_is_that_of_a_bias():
    """A product and a sum for each pair of tokens and head, at the least."""
    pairs = costs.STATED.heads * costs.TIME**2
    found = costs.cost("alibi")
    assert pairs <= found.operations <= 6 * pairs
    assert not found.loops


def test_description_has_a_line_for_each_option():
    lines = describe("t5").splitlines()
    assert "    distance = 128: offsets from here on share the last bucket" in lines
    assert len(lines[lines.index("  options") + 1 :]) == len(card("t5").options)
    assert "    pairing = 'half' (of 'half', 'interleaved')" in describe("rope")
    assert "    base = 10000.0 (positive)" in describe("rope")
    assert "    width = None (1 or more)" in describe("sinusoidal")
    assert describe("nope").endswith("  options   none")
