"""How large the base of rope must be: the rule that decides, and its page."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments import method_options
from experiments.board.leaderboard import bases_page, page
from experiments.board.leaderboard.bases_page import bounds, compared

BASES = 4.0, 14.2, 64.0, 10_000.0, 56_533.6
HEAD = 16


def scores(g_of_base, seeds=(0, 1, 2)):
    """base -> seed -> g, with seeds that differ a little."""
    return {base: {n: g_of_base(base) + 0.01 * n for n in seeds} for base in BASES}


def test_the_bounds_are_of_the_trained_window_and_of_the_tested_one():
    turns, bound = bounds(64, 8, HEAD)
    slowest = turns ** (-(HEAD - 2) / HEAD)
    assert 64 * slowest == pytest.approx(2 * np.pi)
    assert bound == method_options.least_base(512, HEAD)
    assert bounds(64, 2**10, HEAD)[1] == np.inf


@pytest.mark.parametrize(
    ("g_of_base", "word"),
    [
        (lambda base: 0.9 if base > 20_000 else 0.1, "the bound"),
        (lambda base: 0.9 if base < 15 else 0.1, "the turns"),
        (lambda base: 0.5, "neither"),
        (lambda base: 0.9 if base == 64.0 else 0.1, "neither"),  # which stands between the two
    ],
)
def test_a_window_decides_for_one_of_the_two(g_of_base, word):
    result = compared(scores(g_of_base), 64, 8, HEAD, rows=1)
    assert result.word == word
    assert (result.window, result.multiple, result.difference.size) == (64, 8, 3)


def test_what_seeds_do_not_agree_on_is_not_decided():
    noisy = {base: {n: (0.1, 0.9)[(n + (base < 15)) % 2] for n in range(3)} for base in BASES}
    assert compared(noisy, 64, 8, HEAD, rows=1).word == "neither"
    near = scores(lambda base: 0.5 if base > 20_000 else 0.49)
    near[4.0][0] += 0.025
    assert compared(near, 64, 8, HEAD, rows=1).difference.half > 0
    assert compared(near, 64, 8, HEAD, rows=6).difference.half > (
        compared(near, 64, 8, HEAD, rows=1).difference.half
    ), "several windows are corrected for"


def test_a_window_beyond_all_bases_decides_nothing():
    result = compared(scores(lambda base: base), 64, 64, HEAD, rows=1)
    assert result.bound > max(BASES)
    assert (result.word, result.difference) == ("neither", None)


def run(base=None, name="rope"):
    encoding = {"name": name, **({} if base is None else {"base": base})}
    return SimpleNamespace(config={"encoding": encoding, "task": {"name": "recall_distinct"}})


def test_runs_of_several_bases_have_a_page_of_their_own(monkeypatch):
    runs = [run(), *map(run, (4.0, 64.0, 1e6))]
    assert page.page_name(runs) == "rope_bases"
    for others in (runs[:3], [*runs, run(name="alibi")]):
        assert page.page_name(others) == "leaderboard"
    by_multiple = {1: scores(lambda base: 0.9), 8: scores(lambda base: float(base < 15))}
    by_window = {64: by_multiple, 256: by_multiple}
    monkeypatch.setattr(bases_page, "scores_of", lambda runs: by_window)
    config = SimpleNamespace()
    monkeypatch.setattr(bases_page, "config_of", lambda run: config)
    monkeypatch.setattr(bases_page.board, "setting", lambda config: SimpleNamespace(head=HEAD))
    (sentence,), (figures, table) = page.document(runs)
    assert "in 2 windows longer than the trained one: 0 for the bound, 1 for the turns, 1 for" in (
        sentence
    ), "of 256 tokens no base stands on the bound's side of 2,048"
    (grid,) = table.parts
    assert [row[-1] for row in grid.rows] == ["the turns", "neither"]
    (picture,) = figures.parts
    assert len(picture.draw().axes) == 2
