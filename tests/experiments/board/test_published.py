"""Published orderings: the rule of the verdict, the rows, the budgets, the page, refusals."""

import importlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

import experiments
from experiments.board import training
from experiments.board.published import chance, measure_method
from experiments.board.published import config as published
from experiments.board.published import examples as settings_examples
from experiments.board.published import page as published_page
from experiments.board.published.orderings import ORDERINGS
from experiments.board.published.settings import SETTINGS, HeldOut, Setting
from experiments.board.published.verdicts import (
    PARTLY,
    REVERSED,
    SAME,
    UNDECIDED,
    correlations,
    rule_hash,
    settled,
    turned,
    verdict,
)
from experiments.board.training import Programs
from posenc_jax import encodings
from posenc_jax.lab import runs
from posenc_jax.lab.report import document as page
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.summary import Summary
from tests.support import ROOT
from tests.support.catalogue import gap

PAPER = {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0}


def ours(**means):
    return {name: [mean - 0.01, mean, mean + 0.01] for name, mean in means.items()}


# The rule.


def test_tau_is_kendalls_with_ties():
    draw = np.random.default_rng(0)
    a, b = draw.integers(0, 4, 6).astype(float), draw.integers(0, 4, (20, 6)).astype(float)
    wanted = np.array([np.asarray(kendalltau(a, row))[0] for row in b])
    np.testing.assert_allclose(correlations(a, b), wanted, atol=1e-12)
    assert correlations(np.arange(3.0), np.ones((1, 3))) == 0, "nothing is ordered"
    wrong = [np.sign(np.subtract.outer(a, a) * np.subtract.outer(r, r)).mean() for r in b]
    assert np.abs(np.subtract(wrong, wanted)).max() > 0.1, "control: not corrected for ties"


def test_the_verdicts_of_worked_numbers():
    same = verdict(PAPER, ours(a=0.9, b=0.7, c=0.4, d=0.1))
    assert (same.name, same.tau) == (SAME, (1, 1, 1))
    turned_round = verdict(PAPER, ours(a=0.1, b=0.4, c=0.7, d=0.9))
    assert (turned_round.name, turned_round.tau) == (REVERSED, (-1, -1, -1))
    one_pair = verdict(PAPER, ours(a=0.9, b=0.7, c=0.1, d=0.4))
    assert (one_pair.name, one_pair.tau) == (SAME, pytest.approx((4 / 6,) * 3))
    of_three = verdict(PAPER, ours(a=0.7, b=0.9, c=0.1))
    assert (of_three.name, of_three.tau) == (PARTLY, pytest.approx((1 / 3,) * 3))
    turned_but_one = verdict(PAPER, ours(a=0.4, b=0.1, c=0.9))
    assert (turned_but_one.name, turned_but_one.tau) == (UNDECIDED, pytest.approx((-1 / 3,) * 3))
    mixed = verdict(PAPER, ours(a=0.4, b=0.9, c=0.1, d=0.7))
    assert (mixed.name, mixed.tau) == (UNDECIDED, pytest.approx((0, 0, 0)))


def test_an_interval_that_holds_0_decides_nothing():
    apart = {"a": [0.9, 0.9, 0.9], "b": [0.5, 0.5, 0.5], "c": [0.1, 0.1, 0.1]}
    assert verdict(PAPER, apart).name == SAME, "control"
    noisy = {**apart, "a": [0.9, 0.0, 0.0], "c": [0.0, 0.0, 0.95]}
    actual = verdict(PAPER, noisy)
    assert actual.name == UNDECIDED
    assert actual.tau is not None
    assert actual.tau[1] < 0 < actual.tau[2]


def test_two_methods_or_two_seeds_decide_nothing():
    whole = ours(a=0.9, b=0.7, c=0.4)
    assert verdict(PAPER, whole).name == SAME, "control"
    assert verdict(PAPER, ours(a=0.9, b=0.7)) == (UNDECIDED, None)
    assert verdict(PAPER, {**whole, "c": [0.4, 0.4]}) == (UNDECIDED, None)


def test_a_verdict_that_changes_with_the_budget_is_not_decided():
    same, other = verdict(PAPER, ours(a=3, b=2, c=1)), verdict(PAPER, ours(a=1, b=2, c=3))
    assert settled(same, same) == SAME
    assert settled(other, other) == REVERSED
    assert settled(other, same) == settled(same, other) == UNDECIDED


def test_pairs_in_the_other_order_are_those_beyond_the_noise_of_seeds():
    actual = ours(a=0.9, b=0.3, c=0.7)
    assert turned(PAPER, actual) == [("b", "c")]
    assert turned(PAPER, {**actual, "c": [0.1, 0.9, 0.2]}) == []
    assert turned({**PAPER, "b": 2.0}, actual) == [], "equal in the paper"


def test_the_hash_of_the_rule_is_that_of_what_is_measured():
    row = ORDERINGS["reverse"]
    assert rule_hash([row]) == rule_hash([row])
    changed = row._replace(published={**row.published, "nope": 0.9})
    assert rule_hash([changed]) != rule_hash([row])


# The rows.


def test_every_row_can_be_posed():
    for name, row in ORDERINGS.items():
        setting = SETTINGS[row.setting]
        assert len(row.published) >= 3, name
        assert row.better in ("higher", "lower")
        tests = {row.test, *row.tests.values()}
        assert tests | {"trained"} <= setting.tests.keys()
        assert row.tests.keys() <= row.published.keys()
        made = settings_examples.task_of(setting) if setting.task != "stdlib" else None
        metrics = {"bits_per_byte"} if made is None else measure_method.names_of(made)
        assert {row.ours, *(setting.learned or ())[:1]} <= metrics, name
        for method in row.published:
            options = settings_examples.options_of(setting, method)
            assert encodings.make(method, **options) is not None
            most = encodings.reach(method, **options)
            if made is not None and most is not None:
                assert most >= made.width(setting.tests[row.test].sizes[1]), name
    assert len(ORDERINGS) >= 12
    assert {row.setting for row in ORDERINGS.values()} == SETTINGS.keys(), "no setting is idle"


TINY = Setting(
    "parity", {}, (4, 8), {"trained": HeldOut((4, 8)), "longer": HeldOut((9, 10))}, None, 8,
    layers=1, heads=2, width=8, batch=4,
)  # fmt: skip


@pytest.mark.thorough
def test_examples_have_the_sizes_and_the_options_of_their_test():
    plan = training.Plan(4, 1, 1, 1, (1, 2), 0.0, 1.0)
    _, examples = settings_examples.examples_of(TINY, plan, 40)
    sizes = lambda batch: np.unique(batch.layout.segment_BT.sum(axis=1) - 2).tolist()
    assert [sizes(test) for test in examples.test] == [[4, 5, 6, 7, 8], [9, 10]]
    assert examples.train([0], range(1)).tokens_BT.shape == (1, 1, 4, 10)
    _, examples = settings_examples.examples_of(SETTINGS["flip_flop"], plan, 64)
    ignored = [np.mean(test.tokens_BT[:, 1::2] == 8) for test in examples.test]
    assert ignored == pytest.approx([0.8 * 30 / 32, 0.98 * 30 / 32], abs=0.03)
    _, examples = settings_examples.examples_of(SETTINGS["digits"], plan, 8)
    counted, wide, squeezed = (test.layout.pos_BT for test in examples.test)
    assert len(counted) == len(wide) > 400, "every image of the split"
    assert (float(counted.max()), float(wide.max())) == (3, 6)
    assert float(squeezed.max()) < 3.5


# The budgets.


@pytest.mark.thorough
def test_weights_at_a_budget_are_those_of_a_training_with_this_budget_alone():
    plan = training.Plan(4, 1, 1, 2, (2, 4), 0.01, 1.0)
    task, examples = settings_examples.examples_of(TINY, plan, 8)
    programs = Programs(settings_examples.model_of(TINY, "rope", task), plan)
    both = list(training.at_budgets(programs, examples, plan, 0.01, 0))
    for at, actual in zip(plan.budgets, both, strict=True):
        (alone,) = training.at_budgets(programs, examples, plan._replace(budgets=(at,)), 0.01, 0)
        assert gap(actual, alone) == 0
    assert gap(*both) > 1e-4, "control"
    rate, actual = training.trainings(programs, examples, plan, (1e-9, 0.01), [0, 1])
    assert (rate, len(actual), len(actual[0])) == (0.01, 2, 2)
    assert gap(actual[0][1], both[1]) == 0, "the first seed goes on from the rates it tried"
    assert gap(actual[0][1], actual[1][1]) > 1e-3


def test_the_budget_of_a_config_scales_the_steps():
    whole = measure_method.plan(published.Config(experiment="published"), SETTINGS["reverse"])
    assert whole.budgets == (SETTINGS["reverse"].steps // 2, SETTINGS["reverse"].steps)
    assert (whole.chunk, whole.average) == (100, 100)
    tenth = measure_method.plan(
        published.Config(experiment="published", budget=0.1), SETTINGS["reverse"]
    )
    assert tenth.budgets[1] == whole.budgets[1] // 10


# The page.


def records(name, values, steps=(10, 20)):
    """Scores of methods at both budgets: method -> (beyond, within) at all of it."""
    row = ORDERINGS[name]
    for method, (beyond, within) in values.items():
        labels = {"setting": row.setting, "encoding": method}
        for seed in range(3):
            rate = {"step": 0, "seed": seed, "metric": "rate", "value": 1e-3}
            yield {**rate, "labels": {**labels, "split": "train"}}
            for step in steps:
                for test, metric, value in (
                    (row.tests.get(method, row.test), row.ours, beyond + 0.001 * seed),
                    ("trained", "exact_match", within),
                ):
                    at = {**labels, "split": "test", "length": 40, "test": test}
                    yield {"step": step, "seed": seed, "labels": at, "metric": metric,
                           "value": value}  # fmt: skip


SOME = {"nope": (0.9, 1.0), "t5": (0.5, 1.0), "alibi": (0.3, 1.0), "rope": (0.99, 0.5),
        "sinusoidal": (0.01, 1.0)}  # fmt: skip


def stored(path=Path("run"), values=SOME, budget=1.0, row="copy_repeated"):
    config = {"experiment": "published", "budget": budget, "rows": row}
    environment = dict.fromkeys(("started", "command", "commit", "python", "jax", "device"), "x")
    kept = list(records(row, values))
    return StoredRun(path, config, environment | {"cpus": "2"}, kept, Summary(own={"rows": [row]}))


def test_the_page_shows_the_numbers_of_the_run(tmp_path):
    run = stored(tmp_path / "run")
    archive = tmp_path / "published.tar.xz"
    archive.write_bytes(b"")
    said, sections = published_page.document([run])
    page.write(tmp_path / "published.md", [run], said, sections, archive)
    text = (tmp_path / "published.md").read_text()
    whole = page.whole("published", [run], said, sections, str)
    assert "1 same order, 0 partly the same, 0 reversed, 0 not decided" in text
    assert "nope 0.901, t5 0.501, alibi 0.301, (rope 0.991), sinusoidal 0.011" in text
    assert "| 1.00; half: 1.00 |" in text
    for part in ("below 0.95: rope.", "0.900 0.901 0.902"):
        assert part in whole, "a row and every seed of it"
        assert part not in text
    assert {p.name for p in (tmp_path / "published").glob("*.svg")} == {"orderings.svg"}
    assert {picture.name for picture in page.pictures(sections)} == {"orderings", "copy_repeated"}
    assert "decides nothing" not in text
    assert "decides nothing" in str(published_page.sections(stored(budget=0.01))[1])


def test_a_reversal_is_told_with_its_pairs():
    values = {"nope": (0.1, 1.0), "t5": (0.5, 1.0), "alibi": (0.6, 1.0), "rope": (0.7, 1.0),
              "sinusoidal": (0.8, 1.0)}  # fmt: skip
    said, sections = published_page.document([stored(values=values)])
    assert said[2] == "Reversed: copy_repeated."
    assert any("alibi above t5" in str(part) for part in sections[3].parts)
    none, _ = published_page.document(
        [stored(values={m: (b, 0.5) for m, (b, _) in values.items()})]
    )
    assert "0 same order, 0 partly the same, 0 reversed, 1 not decided" in none[0]


def test_the_page_has_the_rows_of_several_runs():
    said, sections = published_page.document([stored(row="copy_random"), stored()])
    assert said[0].startswith("2 published orderings of 1 paper, ")
    assert [part.title for part in sections[3:]] == ["copy_repeated", "copy_random"]
    assert "Rows not measured yet: copy_twice, reverse," in said[-1]
    with pytest.raises(ValueError, match="two runs have the row copy_repeated"):
        published_page.document([stored(), stored()])
    with pytest.raises(ValueError, match="the runs differ in budget"):
        published_page.document([stored(row="copy_random"), stored(budget=0.5)])


# What it refuses.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": "revers"}, "config.rows: no row 'revers'"),
        ({"rows": "reverse,reverse"}, "config.rows: 'reverse' is given twice"),
        ({"rates": (0.1, 0.1)}, "config.rates: 0.1 is given twice"),
        ({"budget": 0.0}, "config.budget: 0.0 is wrong"),
    ],
)
def test_refused_in_one_line(changes, message):
    config = importlib.import_module("configs.published").get_config("quick")
    experiments.check(config.to_dict())  # control
    config.update(changes)
    with pytest.raises(ValueError, match=f"^{message}"):
        experiments.check(config.to_dict())


def test_rows_of_one_setting_share_their_trainings():
    config = importlib.import_module("configs.published").get_config("press_2x,press_7x,reverse")
    checked = published.Config.model_validate(config.to_dict())
    actual = list(published.trainings(checked))
    assert len(actual) == len(set(actual)) == 4 + 5


def test_chance_counts_the_orders_that_agree():
    assert chance.of_order([3, 2, 1]) == pytest.approx(1 / 6)  # the next order has tau 1/3
    taus = [kendalltau([4, 3, 2, 1], order)[0] for order in itertools.permutations(range(4))]
    assert chance.of_order([4, 3, 2, 1]) == pytest.approx(np.mean(np.array(taus) > 0.5))
    assert chance.of_order([1, 0, 0]) == pytest.approx(1 / 3), "ties are in either order"


def test_successes_by_chance_by_a_second_way():
    chances = [0.5, 0.25, 0.1, 0.3]
    for count in range(5):
        wanted = sum(
            np.prod([p if hit else 1 - p for p, hit in zip(chances, hits, strict=True)])
            for hits in itertools.product((0, 1), repeat=4)
            if sum(hits) >= count
        )
        assert chance.at_least(count, chances) == pytest.approx(wanted)


def test_rows_of_one_paper_on_the_same_methods_are_one_contrast():
    stored = runs.read_archive(ROOT / "results" / "published.tar.xz")
    rows = [row for run in stored for row in published_page.results(run)]
    decided = chance.contrasts(rows)
    names = [name for contrast in decided for name in contrast.rows]
    assert sorted(names) == sorted(row.name for row in rows if row.verdict != UNDECIDED)
    assert len(decided) < len(names), "control: some rows share a contrast"
    keys = [
        (row.ordering.paper, *sorted(row.ordering.published)) for row in rows if row.name in names
    ]
    assert len(decided) == len(set(keys))
