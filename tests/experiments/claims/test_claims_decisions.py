"""A verdict from three budgets, its p-value, and the false discovery rate over all claims."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from configs import claims as config_file
from experiments.claims import decisions, fingerprint, heads, order, padding, page, relative
from experiments.claims.config import Config
from experiments.claims.decisions import corrected, findings, p_value
from experiments.claims.entries import Entry, load, save
from experiments.claims.fingerprint import fingerprint as hashed
from experiments.claims.ledger import Measured, Number, Verdict
from experiments.claims.models import Lab
from experiments.claims.register import LEDGER
from posenc_jax.lab.config import schema
from posenc_jax.lab.report.statistics import interval
from tests.experiments.claims.claims_absolute import RULES

NAMES = ("started", "commit", "python", "jax", "device", "model", "training", "text")
RUN = {**dict.fromkeys(NAMES, ""), "seeds": 3, "first_seed": 0}
HOLDS, FAILS = RULES["abs-1"][0][0], RULES["abs-1"][2][0]


def entry(numbers, budget=1, id="abs-1", scale="full", trains=True, first_seed=0):
    claim = LEDGER[id]
    measured = Measured({name: np.ravel(values) for name, values in numbers.items()})
    run = {**RUN, "scale": scale, "first_seed": first_seed}
    return Entry(claim, budget, measured, "", trains, 1.0, run, hashed(claim))


def decided(*entries):
    (actual,) = findings(entries)
    return actual


def test_three_equal_verdicts_are_one():
    actual = decided(*(entry(HOLDS, budget) for budget in (1, 2, 4)))
    assert actual.verdict.word == "holds"
    assert actual.last.budget == 4


@pytest.mark.parametrize(
    "entries",
    [
        [entry(HOLDS, 1), entry(HOLDS, 2), entry(FAILS, 4)],
        [entry(HOLDS, 1), entry(HOLDS, 2)],
        [entry(HOLDS, b, scale="quick") for b in (1, 2, 4)],
        [entry(HOLDS, 1), entry(RULES["abs-1"][1][0], 2), entry(HOLDS, 4)],
    ],
    ids=["one differs", "one is missing", "quick models", "one has a condition"],
)
def test_what_is_not_decided(entries):
    actual = decided(*entries)
    assert str(actual.verdict) == "not decided at this budget"
    assert "holds" in actual.verdict.reason
    assert "claim" in page.banner([actual])


def test_a_verdict_that_differs_with_other_seeds_is_not_decided():
    entries = [entry(HOLDS, budget) for budget in (4, 2, 1)]
    same = decided(*entries, *(entry(HOLDS, first_seed=first) for first in (6, 3)))
    assert same.verdict.word == "holds", "control"
    assert [e.run["first_seed"] for e in same.again] == [3, 6]
    assert page.banner([same]).endswith("other seeds: no decided verdict changed.")
    other = decided(entry(FAILS, first_seed=3), *entries)
    assert str(other.verdict) == "not decided with other seeds"
    assert "does not hold with the seeds from 3 on" in other.verdict.reason
    assert other.p == 1.0
    assert page.banner([other]).endswith("other seeds: abs-1 changed.")
    rows = [page.of_claims([actual])[0].parts[1].rows[0][4] for actual in (same, other)]
    assert rows == ["holds, holds", "does not hold"]
    without = page.of_claims([decided(*entries)])[0].parts[1]
    assert "with other seeds" not in without.columns, "control"
    mixed = page.of_claims([decided(*entries), same])[0].parts[1]
    assert [row[4] for row in mixed.rows] == ["not measured", "holds, holds"]


def test_a_number_that_moves_by_more_than_its_interval_is_named():
    """And neither a control, nor a number that the rule does not read, nor one that moves less."""
    name, control = "clamped: bits lost at 4x", "alibi: bits lost at 4x (control)"
    numbers = dict(HOLDS)
    half = Number(*interval(HOLDS[name])).half
    assert half is not None

    def finding(**moved):
        last = numbers | {n: np.asarray(numbers[n]) + by for n, by in moved.items()}
        return decided(*(entry(numbers, b) for b in (1, 2)), entry(last, 4))

    assert finding().moving == {}, "control"
    assert finding(**{name: 0.9 * half}).moving == {}
    moving = finding(**{name: 1.1 * half, control: 0.02})
    assert [*moving.moving] == [name]
    before, last = moving.moving[name]
    assert last.mean - before.mean == pytest.approx(1.1 * half)
    assert moving.verdict.word == "holds", "the verdict stays"
    assert page.of_claims([moving])[0].parts[1].rows[0][2] == "holds (moving)"
    text = page.page([moving], "claims", Path("results/claims.tar.xz"))
    assert f"Moving, at 2x and 4x: {name} {before} and {last}." in text
    assert "In 1 claim a number still moves between the last two budgets." in text
    assert "More training than 4 times " in text
    assert "Whether these claims hold" not in text
    unsure = moving._replace(verdict=Verdict("not decided", "", "at this budget"))
    text = page.page([unsure], "claims", Path("results/claims.tar.xz"))
    assert "Whether these claims hold, which are not decided: [abs-1](#abs-1)." in text, "control"
    first = [entry({**numbers, name: np.asarray(numbers[name]) + 1}, 1), entry(numbers, 2)]
    assert decided(*first, entry(numbers, 4)).moving == {}, "of the last two budgets"


@pytest.mark.parametrize(("first_seed", "overlap"), [(2, True), (3, False)])
def test_seeds_that_overlap_are_no_other_seeds(first_seed, overlap, tmp_path):
    for name, first in (("a", 0), ("b", first_seed)):
        (tmp_path / name).mkdir()
        save(tmp_path / name / "claims.json", {"abs-1": ""}, [entry(HOLDS, first_seed=first)])
    if overlap:
        with pytest.raises(ValueError, match=r"3 seeds from 0 on and those from 2 on overlap$"):
            load(tmp_path / "a", tmp_path / "b")
    else:
        assert len(load(tmp_path / "a", tmp_path / "b")) == 2


def test_a_claim_that_trains_nothing_needs_one_budget():
    actual = decided(entry(RULES["sin-2"][0][0], 1, "sin-2", "quick", trains=False))
    assert actual.verdict.word == "holds"


def test_the_p_value_of_one_bound_is_that_of_a_t_test():
    """sin-2 has one number with seeds, its control, which must be over 0.01."""
    values = np.array([0.02, 0.05, 0.04, 0.06, 0.03])
    numbers = RULES["sin-2"][0][0] | {
        "change under shifts, random matrix between (control)": values
    }
    p = p_value(LEDGER["sin-2"], entry(numbers, id="sin-2").measured)
    assert p is not None
    np.testing.assert_allclose(p, stats.ttest_1samp(values, 0.01).pvalue, rtol=0.01)


def test_the_p_value_of_a_claim_that_does_not_hold():
    name = "change under shifts, random matrix between (control)"
    for values in ([0.001, 0.002, 0.003], [0.0, 0.012, 0.004]):
        numbers = RULES["sin-2"][0][0] | {name: values}
        p = p_value(LEDGER["sin-2"], entry(numbers, id="sin-2").measured)
        assert p is not None
        np.testing.assert_allclose(p, stats.ttest_1samp(values, 0.01).pvalue, rtol=0.01)


def test_nothing_random_has_no_p_value():
    numbers = {name: [np.mean(values)] for name, values in RULES["sin-2"][0][0].items()}
    assert p_value(LEDGER["sin-2"], entry(numbers, id="sin-2").measured) is None


def test_an_interval_of_another_level_is_that_of_scipy():
    values = [0.3, 0.5, 0.9, 0.4]
    number = Measured({"x": values}).intervals["x"]
    for alpha in (0.5, 0.05, 0.001):
        low, high = stats.t.interval(1 - alpha, 3, np.mean(values), stats.sem(values))
        np.testing.assert_allclose(number.at(alpha)[1:3], (low, high), rtol=1e-6)
        np.testing.assert_allclose(number.at(alpha, lenient=True)[1:3], (high, low), rtol=1e-6)
    assert Number(1.0, None, None, 1).at(0.01) == (1.0, None, None, 1)


def test_the_correction_is_that_of_scipy():
    p = {str(i): value for i, value in enumerate((0.01, 0.04, 0.03, 0.9, 0.002, 0.04))}
    p_values = corrected(p)
    for id, value in zip(p, stats.false_discovery_control([*p.values()]), strict=True):
        np.testing.assert_allclose(p_values[id], value)


def test_a_difference_that_is_not_significant_decides_nothing():
    """A p-value of .04 is enough for one claim, and not beside four claims without a verdict."""
    values = np.array([0.02, 0.05, 0.04, 0.06, 0.03])
    t, scale = stats.t.isf(0.02, 4), stats.sem(values)
    values = values - values.mean() + 0.01 + t * scale  # two-sided p = 0.04
    name = "change under shifts, random matrix between (control)"
    border = entry(RULES["sin-2"][0][0] | {name: values}, id="sin-2", trains=False)
    assert decided(border).verdict.word == "holds", "control"
    others = [entry(RULES[id][0][0], 1, id) for id in ("order-4", "abs-1", "abs-3", "add-2")]
    actual = {f.claim.id: f for f in findings([border, *others])}
    assert str(actual["sin-2"].verdict) == "not decided after the correction for all claims"
    assert actual["sin-2"].q == pytest.approx(0.04 * 5, rel=0.05)


@pytest.mark.parametrize("id", list(LEDGER))
def test_the_hash_of_a_rule_is_of_its_words_bounds_and_measurement(id, monkeypatch):
    claim, before = LEDGER[id], hashed(LEDGER[id])
    assert hashed(claim) == before
    assert hashed(claim._replace(text=claim.text + " ")) != before
    source = inspect.getsource

    def changed(thing):
        return source(thing) + ("#" if thing is claim.rule else "")

    monkeypatch.setattr(fingerprint.inspect, "getsource", changed)
    assert hashed(claim) != before


@pytest.mark.parametrize(
    ("words", "same"), [("Sounds that name the frame", True), ("nine of ten sounds", False)]
)
def test_the_hash_is_the_same_if_the_figure_alone_changes(words, same, monkeypatch):
    before, source = hashed(LEDGER["mm-1"]), inspect.getsource
    monkeypatch.setattr(
        fingerprint.inspect, "getsource", lambda thing: source(thing).replace(words, "x")
    )
    assert (hashed(LEDGER["mm-1"]) == before) == same


@pytest.mark.parametrize(
    ("id", "module", "name", "value"),
    [
        ("pad-3", padding, "ROUNDING", -3),
        ("rope-3", heads, "PERIOD", 9),
        ("rel-3", relative, "SEGMENTS", 6),
    ],
)  # fmt: skip
def test_the_hash_covers_constants(id, module, name, value, monkeypatch):
    before, other = hashed(LEDGER[id]), hashed(LEDGER["sin-2"])
    monkeypatch.setattr(module, name, value)
    assert hashed(LEDGER[id]) != before
    assert hashed(LEDGER["sin-2"]) == other, "control: it does not read it"


def test_a_rule_that_changed_is_named_on_the_page(tmp_path):
    ledger = entry(RULES["sin-2"][0][0], 1, "sin-2", trains=False)
    for rule, said in ((ledger.rule, False), ("another", True)):
        save(tmp_path / "claims.json", {"sin-2": rule}, [ledger])
        actual = findings(load(tmp_path))
        assert (page.CHANGED in page.markdown(actual, "figures", "claims.json")) == said


def test_a_file_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "claims.json").write_text(json.dumps([{"id": "sin-2"}]))
    with pytest.raises(ValueError, match="earlier version, without hashes of rules"):
        load(tmp_path)


LEAKAGE = "experiments.invariance.padding_leakage.leaks"


class Asked(Exception):
    """A training was asked for with so many steps."""


@pytest.mark.parametrize(
    ("id", "module", "name", "steps"),
    [
        ("abs-1", "experiments.claims.models", "train", lambda args: args[2].steps),
        ("rel-3", "experiments.claims.models", "train", lambda args: args[2].steps),
        ("order-2", "experiments.claims.order", "measure", lambda args: args[0].order.steps),
        ("pad-3", LEAKAGE, "measure", lambda args: args[0].learning.steps),
    ],
)  # fmt: skip
def test_a_budget_multiplies_the_steps_of_every_training(id, module, name, steps, monkeypatch):
    asked = []

    def record(*args, **named):
        asked.append(steps(args))
        raise Asked

    monkeypatch.setattr(f"{module}.{name}", record)
    config = schema.check(Config, config_file.get_config("all,quick").to_dict())
    for budget in (1, 2, 4):
        lab = Lab(config, budget)
        with pytest.raises(Asked):
            LEDGER[id].measure(lab)
        assert lab.trains
    assert asked == [asked[0], 2 * asked[0], 4 * asked[0]]


def test_all_trainings_are_asked_of_the_lab():
    """No module of claims trains by itself, or writes steps that the budget does not multiply."""
    for claim in LEDGER.values():
        module = inspect.getmodule(claim.measure)
        assert module is not None
        for name in ("train_small", "Trainer", "fit"):
            assert not hasattr(module, name), f"{module.__name__} trains by itself"
    assert order.row.__code__.co_names.count("steps") == 1
    assert set(decisions.BUDGETS) == set(config_file.get_config("all").budgets)
