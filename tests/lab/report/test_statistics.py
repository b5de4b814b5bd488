"""Intervals against values worked out by hand, and against SciPy's paired test."""

import math

import numpy as np
import pytest

from posenc_jax.lab.report.statistics import (
    holm,
    interval,
    p_value,
    paired,
    share_interval,
    welch,
)


def test_interval_equals_one_worked_out_by_hand():
    # Mean 2, s 1, and with 2 degrees of freedom t = a sqrt(2 / (1 - a^2)) for a = 0.95: 4.302653.
    mean, low, high, size = interval([1.0, 2.0, 3.0])
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) / math.sqrt(3)
    assert half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert (mean, size) == (2.0, 3)
    assert low == pytest.approx(2 - half, rel=1e-12)
    assert high == pytest.approx(2 + half, rel=1e-12)
    # The control: a normal interval, which ignores that s is itself estimated, is told apart.
    assert high != pytest.approx(2 + 1.959963984540054 / math.sqrt(3), rel=0.1)


def test_interval_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(2000, 3))
    t = [interval(row) for row in draws]
    hit = np.mean([i.low < 0 < i.high for i in t])
    assert 0.935 < hit < 0.965
    # The control: one standard error either side covers far less.
    assert np.mean(abs(draws.mean(1)) < draws.std(1, ddof=1) / math.sqrt(3)) < 0.7


def test_one_value_has_a_mean_and_no_interval():
    assert interval([1.5]) == (1.5, None, None, 1)
    assert interval([1.5]).half is None


def test_the_interval_of_shares_is_wilsons():
    from scipy import stats

    shares = np.repeat([0.0, 1.0], [9_600, 400])  # so many that the t quantile is the normal one
    actual, wanted = (
        share_interval(shares),
        stats.binomtest(400, 10_000).proportion_ci(0.95, "wilson"),
    )
    assert (actual.low, actual.high) == pytest.approx((wanted.low, wanted.high), rel=1e-3)
    assert interval(shares).low != pytest.approx(wanted.low, rel=3e-3), (
        "control: not the t interval"
    )


def test_the_interval_of_shares_lies_within_0_and_1_and_is_the_t_interval_far_from_them():
    high, middle = [0.97, 1.0, 1.0], [0.5001, 0.5, 0.4999]
    assert 0 < share_interval(high).low < 0.97 <= share_interval(high).high <= 1
    assert interval(high).high > 1, "control"
    assert share_interval(middle)[:3] == pytest.approx(interval(middle)[:3], rel=1e-6)
    assert share_interval([1.0, 1.0 + 1e-7])[:3] == (1, 1, 1), "rounding is no share above 1"
    assert share_interval([0.5]) == (0.5, None, None, 1)
    with pytest.raises(ValueError, match=r"^values: 1.5 is no share"):
        share_interval([1.5, 0.2])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_seed_that_diverged_is_never_averaged_away(bad):
    mean, low, high, size = interval([1.0, bad, 2.0])
    assert math.isnan(mean)
    assert (low, high, size) == (None, None, 3)
    assert math.isfinite(interval([1.0, 2.0]).mean)


def test_paired_rejects_where_a_paired_t_test_does():
    from scipy import stats  # half a second, which one worker alone should spend

    a, b = [1.0, 2.0, 3.1, 4.0], [0.9, 1.8, 2.9, 3.7]
    difference = paired(a, b)
    assert stats.ttest_rel(a, b).pvalue < 0.05
    assert difference.low > 0
    # Unpaired, the same numbers show nothing; and a correction for many comparisons widens.
    assert stats.ttest_ind(a, b).pvalue > 0.05
    assert paired(a, b, comparisons=20).low < difference.low


def test_p_value_is_that_of_scipys_t_test():
    from scipy import stats

    for values in ([0.1, 0.3, 0.2], [-1.0, 2.0, 0.5, 0.1, 0.7]):
        assert p_value(values) == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-9)
    assert (p_value([0.5]), p_value([math.nan, 1.0]), p_value([0.0, 0.0])) == (1.0, 1.0, 1.0)
    assert p_value([0.5, 0.5]) == 0.0


def test_welch_is_scipys_test_of_sides_with_their_own_variance():
    from scipy import stats

    for a, b in (([0.1, 0.3, 0.2], [0.9, 0.5, 0.7, 0.1, 0.8]), ([1.0, 0.99], [0.2, 0.3, 0.9])):
        actual, p = welch(a, b)
        theirs = stats.ttest_ind(a, b, equal_var=False)
        low, high = theirs.confidence_interval()
        assert (actual.low, actual.high) == (pytest.approx(low), pytest.approx(high))
        assert (p, actual.size) == (pytest.approx(theirs.pvalue, rel=1e-9), min(len(a), len(b)))
    assert p != pytest.approx(stats.ttest_ind(a, b).pvalue), "control: one variance for both sides"
    assert welch([0.5], [0.1, 0.2]) == ((pytest.approx(0.35), None, None, 1), 1.0)
    assert welch([0.5, math.nan], [0.1, 0.2])[1] == 1.0
    assert welch([0.5, 0.5], [0.5, 0.5]) == ((0.0, 0.0, 0.0, 2), 1.0)
    assert welch([0.75, 0.75], [0.5, 0.5]) == ((0.25, 0.25, 0.25, 2), 0.0)


def test_holm_rejects_in_order_and_stops_at_the_first_that_does_not():
    actual = {"a": 0.01, "b": 0.04, "c": 0.024, "d": 0.001}
    assert holm(actual) == {"a", "c", "d", "b"}
    assert holm({**actual, "c": 0.026}) == {"a", "d"}, "0.026 > 0.05 / 2, and 0.04 comes after it"
    assert holm({"a": 0.049}) == {"a"}
    assert holm({"a": 0.049, "b": 0.049}) == set(), "control: a correction for two tests"


def test_holm_keeps_the_family_wise_error():
    """Of ten tests of nothing, one or more rejects in 5% of the families."""
    draw = np.random.default_rng(0)
    families = [{n: p_value(row) for n, row in enumerate(draw.normal(size=(10, 4)))}
                for _ in range(1000)]  # fmt: skip
    assert 0.03 < np.mean([bool(holm(family)) for family in families]) < 0.07
    assert np.mean([min(family.values()) < 0.05 for family in families]) > 0.3, "control"


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: interval([]), "values"),
        (lambda: interval([1.0], level=1.0), "level"),
        (lambda: paired([1.0], [1.0, 2.0]), "pairs"),
        (lambda: paired([1.0], [1.0], comparisons=0), "comparisons"),
    ],
)
def test_bad_input_is_refused_by_name(call, field):
    with pytest.raises(ValueError, match=rf"^{field}: [^\n]+$"):
        call()
