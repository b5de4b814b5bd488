"""Figures of claims, drawn from made-up numbers: axes, floors, intervals, and titles."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.claims import page
from experiments.claims.figures import dots, lines
from experiments.claims.ledger import NO_CHANGE, Curve, Measured
from posenc_jax.lab.report.drawing import ROUNDING, styled


def drawn(draw, measured):
    with styled("test"):
        return draw(measured).axes[0]


@pytest.mark.parametrize(("x", "whole"), [([1, 2, 3, 4], True), ([0.5, 1, 1.5, 2], False)])
def test_layers_and_segments_have_whole_numbers_on_their_axis(x, whole):
    axes = drawn(lines("t", "layer", "y"), Measured({}, {"a": Curve(x, [[1, 2, 3, 4]])}))
    assert all(float(tick).is_integer() for tick in axes.get_xticks()) == whole


def test_an_axis_of_errors_ends_at_rounding_and_says_so():
    curves = {"float64": Curve([1, 2], [[0.0, 1e-18]]), "float32": Curve([1, 2], [[1e-7, 1.0]])}
    axes = drawn(lines("t", "x", "error", log_y=True), Measured({}, curves))
    assert axes.get_ylim()[0] > 1e-17
    assert np.min(axes.lines[0].get_ydata()) == ROUNDING["float64"]
    said = "dotted: rounding of float32 6e-08 and float64 1e-16"
    assert any(said in text.get_text() for text in axes.texts)
    linear = drawn(lines("t", "x", "error"), Measured({}, curves))
    assert np.min(linear.lines[0].get_ydata()) == 0, "control: other axes keep their values"
    assert not any("rounding" in text.get_text() for text in linear.texts)


def test_no_change_at_all_is_said_in_words():
    numbers = {"on": [NO_CHANGE, NO_CHANGE], "off": [0.0, 0.5]}
    labels = lambda given: [t.get_text() for t in drawn(dots("t", "x"), given).get_xticklabels()]
    assert labels(Measured(numbers, {}))[0] == "none"
    assert "none" not in labels(Measured({"off": [0.0, 0.5]}, {})), "control"


@pytest.mark.parametrize("levels", [{"chance": 1 / 8}, {}])
def test_chance_is_a_dashed_line_within_the_axes(levels):
    rows = Measured({"a": [0.9, 1.0, 1.0]}, {"a": Curve([1, 2], [[0.9, 1.0]])})
    for draw, ends, values in (
        (lines("t", "x", "accuracy", levels=levels), "get_ylim", "get_ydata"),
        (dots("t", "accuracy", levels=levels), "get_xlim", "get_xdata"),
    ):
        axes = drawn(draw, rows)
        dashed = [set(getattr(l, values)()) for l in axes.lines if l.get_linestyle() == "--"]
        assert dashed == [{level} for level in levels.values()]
        low, high = getattr(axes, ends)()
        assert (low <= 1 / 8 <= high) == bool(levels), "control: no level"
        assert any("chance 0.125" in text.get_text() for text in axes.texts) == bool(levels)


@pytest.mark.parametrize(("label", "most"), [("accuracy", 1.0), ("bits", 1.01)])
def test_the_interval_of_a_share_stays_within_0_and_1(label, most):
    axes = drawn(dots("t", label), Measured({"a": [0.97, 1.0, 1.0]}, {}))
    ends = np.concatenate([line.get_xdata() for line in axes.lines])
    assert (ends.max() <= 1.0) == (most == 1.0)


def test_the_title_says_the_claim_and_its_verdict():
    claim = SimpleNamespace(id="sin-1", text="vectors are unique", figure=dots("t", "x"))
    entry = SimpleNamespace(measured=Measured({"a": [1.0]}, {}))
    finding = SimpleNamespace(claim=claim, last=entry, verdict="holds when d is 8")
    with styled("test"):
        figure = page._titled(finding, claim.figure)
    assert figure.get_suptitle() == "sin-1: vectors are unique: holds when d is 8"
