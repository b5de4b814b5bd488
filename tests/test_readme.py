"""The README's code runs, and its new encoding passes the battery."""

import pathlib
import re

import pytest

from posenc_jax import CATALOG
from tests import test_catalogue as battery
from tests import test_catalogue_numbers as numbers

BLOCKS = re.findall(r"```python\n(.*?)```", pathlib.Path("README.md").read_text(), re.DOTALL)


def test_own_code():
    scope = {}
    exec(BLOCKS[0], scope)
    assert scope["out"].shape == (2, 10, 4, 16)


@pytest.fixture
def root(monkeypatch):
    scope = {}
    exec(BLOCKS[1], scope)
    monkeypatch.setitem(CATALOG, "root", scope["root"])
    return "root"


def test_new_encoding_is_short():
    assert len([line for line in BLOCKS[1].splitlines() if line.strip()]) < 20


def test_new_encoding_passes_the_battery(root):
    battery.test_catalogue_causal(root)
    battery.test_catalogue_padding(root)
    battery.test_catalogue_blockwise(root)
    battery.test_catalogue_decode(root)
    battery.test_catalogue_packed(root)
    battery.test_catalogue_shift(root)
    battery.test_catalogue_permutation(root)
    numbers.test_catalogue_parity(root, 24)
    numbers.test_catalogue_precision(root)
    numbers.test_catalogue_range(root)
    numbers.test_catalogue_option(root, "slope", 1.0)


def test_new_encoding_with_a_wrong_formula_is_caught(root):
    wrong = CATALOG[root].card.__class__(
        **{
            **vars(CATALOG[root].card),
            "scores": lambda o, p, q, k, t, n: CATALOG["nope"].card.scores(o, p, q, k, t, n),
        }
    )
    CATALOG[root].card = wrong
    with pytest.raises(AssertionError):
        numbers.test_catalogue_parity(root, 24)


def test_catalogue_is_listed():
    table = pathlib.Path("README.md").read_text().split("## The catalogue\n")[1]
    assert set(re.findall(r"`(\w+)`", table.split("##")[0])) == set(CATALOG)
