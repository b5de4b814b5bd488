"""Every claim is in the ledger, and its rule gives more than one verdict: none is hard-coded."""

import re
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments.claims.decisions import findings
from experiments.claims.entries import load
from experiments.claims.ledger import Claim, Measured
from experiments.claims.page import page
from experiments.claims.register import LEDGER
from tests.experiments.claims import claims_absolute, claims_rotary

IDS = [
    *("order-1", "order-2", "order-3", "order-4"),
    *("sin-1", "sin-2", "sin-3", "sin-4", "sin-5", "sin-6"),
    *("abs-1", "abs-2", "abs-3", "abs-4", "add-1", "add-2", "add-3"),
    *("rel-1", "rel-2", "rel-3", "rope-1", "rope-2", "rope-3", "rope-4", "rope-5"),
    *("alibi-1", "xpos-1", "local-1", "local-2", "pad-1", "pad-2", "pad-3"),
    *("img-1", "mm-1", "num-1"),
]
RULES = {**claims_absolute.RULES, **claims_rotary.RULES}
CASES = [(id, numbers, word) for id, rows in RULES.items() for numbers, word in rows]


def verdict(id, numbers):
    return LEDGER[id].rule(Measured({n: np.ravel(v) for n, v in numbers.items()}).intervals)


def test_every_claim_is_in_the_ledger_in_its_order():
    assert list(LEDGER) == IDS


def test_every_claim_is_in_the_table_of_rules():
    assert sorted(RULES) == sorted(IDS)


@pytest.mark.parametrize(
    ("id", "numbers", "word"), CASES, ids=[f"{id}, {word}" for id, _, word in CASES]
)
def test_a_rule_reads_the_numbers(id, numbers, word):
    actual = verdict(id, numbers)
    assert actual.word == word, actual.reason
    means = re.sub(r" ± \S+", "", actual.reason)
    assert 1 <= len(re.findall(r"(?<![\w.])\d[\d.,]*(?:e[+-]?\d+)?", means)) <= 3, actual.reason
    assert bool(actual.when) == (word == "holds when")


@pytest.mark.parametrize("id", list(RULES))
def test_a_rule_has_both_verdicts(id):
    words = {word for _, word in RULES[id]}
    assert {"holds", "does not hold"} <= words


@pytest.mark.parametrize("id", list(RULES))
def test_what_is_not_finite_does_not_hold(id):
    numbers, _ = RULES[id][0]
    nothing = {name: np.nan for name in numbers}
    assert verdict(id, nothing).word == "does not hold"


@pytest.mark.parametrize("claim", LEDGER.values(), ids=list(LEDGER))
def test_a_claim_says_what_it_measures_and_asks_for(claim: Claim):
    assert claim.measure.__doc__
    assert claim.rule.__doc__
    assert claim.text[0] != " "
    assert claim.text[-1] != "."


def test_bounds_ask_for_the_whole_interval():
    wide = Measured({"x": [1.0, 2.0, 3.0]}).intervals["x"]
    assert wide.over(-1)
    assert not wide.over(1.5)
    assert wide.under(5)
    assert not wide.under(2.5)
    assert Measured({"x": [2.0]}).intervals["x"].over(1.9)
    assert str(wide) == "2.00 ± 2.5"


@pytest.mark.thorough
def test_the_committed_ledger_follows_from_the_committed_records(tmp_path):
    """docs/claims.md has every claim, or says that it is not measured, and the verdicts that the
    rules of today make.
    """
    archive = Path("results/claims.tar.xz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    records = sorted(tmp_path.glob("*/claims.json"))
    made = lambda: page(findings(load(*(path.parent for path in records))), "claims", archive)
    text = Path("docs/claims.md").read_text("utf-8")
    assert made() == text
    (told,) = re.findall(r"not measured yet: (.*)", text) or [""]
    missing = [id for id in IDS if f"{id}, {LEDGER[id].text}" in told]
    assert re.findall(r"^## (\S+)$", text, re.MULTILINE) == [i for i in IDS if i not in missing]
    records[0].write_text(re.sub(r"\b0\.9(?=\d)", "0.1", records[0].read_text("utf-8")))
    assert made() != text, "control"
