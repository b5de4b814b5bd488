"""The table of methods says what the registry says, of every method; `describe` its docstring."""

import math

import pytest

from posenc_jax import CATALOG, describe, make
from posenc_jax.encodings import card
from posenc_jax.lab.gallery import costs, encodings_table
from posenc_jax.lab.gallery.costs import Cost
from posenc_jax.lab.gallery.encodings_table import MEASURED

COUNTED = {name: Cost(1e6 * n, 2e6, n % 2 == 0) for n, name in enumerate(CATALOG)}


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each method in the page's tables."""
    lines = (line for line in page.splitlines() if line.startswith("| [`"))
    return {line.split("`")[1]: line[2:-2].split(" | ") for line in lines}


@pytest.mark.thorough
def test_the_table_has_every_method_and_every_cell(monkeypatch):
    page = encodings_table.markdown(COUNTED, ["2026-01-02 with JAX 0"])
    assert set(rows(page)) == set(CATALOG)
    assert "2026-01-02 with JAX 0" in page
    for name, cells in rows(page).items():
        assert cells[: -len(MEASURED)] == list(encodings_table.row(name).values())
        assert all(cells), name
    monkeypatch.setitem(CATALOG, "new", CATALOG["alibi"])
    with pytest.raises(KeyError):
        encodings_table.markdown(COUNTED, [])  # the control: a method that was not counted


def test_a_cost_is_what_a_method_adds():
    counted = {"nope": Cost(3e6, 1e6, False), "t5": Cost(5e6, 1.5e6, True)}
    assert encodings_table.cost("t5", counted) == {"operations": "≥ 2 M", "bytes": "≥ 0.500 MB"}
    counted["sinusoidal"] = counted["t5"]
    assert encodings_table.cost("sinusoidal", counted)["operations"] == "≥ 5 M", "alone"


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
    actual = costs.cost("alibi")
    assert pairs <= actual.operations <= 6 * pairs
    assert not actual.loops


def test_description_has_a_line_for_each_option():
    lines = describe("t5").splitlines()
    assert "    distance = 128: offsets from here on share the last bucket" in lines
    assert len(lines[lines.index("  options") + 1 :]) == len(card("t5").options)
    assert "    pairing = 'half' (of 'half', 'interleaved')" in describe("rope")
    assert "    base = 10000.0 (positive)" in describe("rope")
    assert "    width = None (1 or more)" in describe("sinusoidal")
    assert describe("nope").endswith("  options   none")
