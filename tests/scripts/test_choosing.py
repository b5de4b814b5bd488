"""Which encoding should I use? Its numbers, and how sure they are, follow from the records."""

import re

import pytest

from posenc_jax.lab.summary import Estimate, LengthSummary
from scripts import choosing
from tests.support import ROOT

PAGE = (ROOT / "docs" / "choosing.md").read_text("utf-8")


def estimate(*seeds):
    mean = sum(seeds) / len(seeds)
    return Estimate(mean, mean - 0.01, mean + 0.01, [*seeds])


def summary_of(**results):
    rows = {name: {16: estimate(*seeds)} for name, seeds in results.items()}
    return LengthSummary(metric="bits_per_byte", train_length=8, results=rows)


def test_how_sure_an_answer_is_follows_from_the_intervals():
    far = summary_of(rope=(1.50, 1.51, 1.49), alibi=(1.20, 1.21, 1.19))
    near = summary_of(rope=(1.50, 1.51, 1.49), alibi=(1.50, 1.51, 1.48))
    assert choosing._sure(far, 16) == "small models, 3 seeds: the first is shown to be better"
    assert choosing._sure(near, 16) == "small models, 3 seeds: the first are not told apart"


def test_seeds_without_spread_are_no_proof():
    """Their interval has no width, though a single example may be all that differs."""
    rows = {"shaw": (1.0, 1.0, 1.0), "cope": (0.9995, 0.9995, 0.9995)}
    accuracy = summary_of(**rows)
    accuracy = LengthSummary(metric="token_accuracy", train_length=8, results=accuracy.results)
    assert choosing._sure(accuracy, 16).endswith("not told apart")
    lower = {"shaw": (1.0, 1.0, 1.0), "cope": (0.9, 0.9, 0.9)}
    results = summary_of(**lower).results
    control = LengthSummary(metric="token_accuracy", train_length=8, results=results)
    assert choosing._sure(control, 16).endswith("shown to be better")


def test_cost_is_parameters_and_times_over_those_without_positions():
    times = {
        "posenc_jax, nope": {"forward/4096": [1.0, 9.0, 2.0], "backward/4096": [4.0]},
        "posenc_jax, alibi": {"forward/4096": [3.0, 3.0, 8.0], "backward/4096": [10.0]},
    }
    assert choosing.cost(("alibi",), times) == "`alibi`: 0 parameters, 1.5 and 2.5 times the time"
    assert choosing.cost(("learned",), {}) == f"`learned`: {512 * 768:,} parameters"


def test_every_row_says_how_sure_it_is_and_one_without_evidence_says_so():
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")][1:11]
    assert len(rows) == len(choosing.USE_CASES)
    for case, cells in zip(choosing.USE_CASES, rows, strict=True):
        assert (cells[0], cells[1]) == (f"| {case.case}", case.start)
        assert cells[5].removesuffix(" |")
        assert (cells[2] == choosing.NONE) == (case.ours is None)
        assert f"]({case.page})" in cells[2] or case.ours is None
        assert "arXiv" in cells[3] or "](" in cells[3]


def test_no_claim_on_the_page_has_another_verdict_than_the_ledger():
    ledger = (ROOT / "docs" / "claims.md").read_text("utf-8")
    rows = re.findall(r"^\| \[.+?\]\(claims.md#([\w-]+)\) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    assert tuple(name for name, _ in rows) == choosing.CLAIMS
    for name, verdict in rows:
        assert re.search(rf"^\| \[{name}\].* \| {re.escape(verdict)} \|$", ledger, re.MULTILINE)


@pytest.mark.thorough
def test_the_committed_page_follows_from_the_committed_records(monkeypatch):
    assert choosing.page() == PAGE
    monkeypatch.setattr(choosing, "TOKENS", 16_384)
    assert choosing.page() != PAGE, "control"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case", [case for case in choosing.USE_CASES if case.ours], ids=lambda case: case.case[:20]
)
def test_what_a_row_starts_with_is_among_the_first(case):
    """Where methods are compared at a length, the one to start with is not shown to be worse."""
    evidence = case.ours()
    if " the best " not in evidence.text:
        return
    start = re.findall(r"`(\w+)`", case.start)[0]
    assert re.search(rf"\b{start}\b", evidence.text), evidence.text
