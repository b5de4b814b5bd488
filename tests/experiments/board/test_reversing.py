"""How path reverses: the answers that cancelling reflections predict, the rule that decides, and
the page.
"""

import importlib

import numpy as np
import pytest

from experiments.board.leaderboard import cancelling, page, reversing_page
from experiments.board.leaderboard import examples as windows
from experiments.board.leaderboard.overwritten import LABEL
from experiments.board.leaderboard.reversing_page import decided
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.tasks.task import BOS, EOS, PAD, SEP, SYMBOL
from tests.experiments.board.test_position import checked, position_run

configs = importlib.import_module("configs.leaderboard")
PROBLEM = reversing_page.PROBLEM


def reflected_guesses(tokens_T):
    """What the rule predicts, by the products of real reflections; PAD before SEP.

    A place of the question is met alike if the product of all reflections between it and the query
    is the identity.
    """
    random = np.random.default_rng(0)
    vectors = {token: random.normal(size=12) for token in np.unique(tokens_T)}
    turns = []
    for token in tokens_T:
        w = vectors[token] / np.linalg.norm(vectors[token])
        turns.append(np.eye(12) if token in (BOS, SEP) else np.eye(12) - 2 * np.outer(w, w))
    separator = list(tokens_T).index(SEP)
    guess_T = np.full(len(tokens_T), PAD)
    for query in range(separator, len(tokens_T)):
        product, alike = np.eye(12), []
        for key in reversed(range(query + 1)):
            if key < separator and np.allclose(product, np.eye(12), atol=1e-6):
                alike.append(EOS if tokens_T[key] == BOS else int(tokens_T[key]))
            product = turns[key] @ product
        guess_T[query] = max(alike, key=alike.count) if alike else PAD
    return guess_T


@pytest.mark.parametrize("symbols", ["random", "doubled", "changing"])
def test_the_rule_is_the_product_of_reflections(symbols):
    task = tasks.make("reverse", symbols=symbols, alphabet=3)
    batch = task.test(task.data, np.arange(6, dtype=np.int32), 11, int(task.width(11)))
    tokens_BT, targets_BT = np.asarray(batch.tokens_BT), np.asarray(batch.targets_BT)
    guess_BT = cancelling.guesses(tokens_BT)
    counts_BT = np.asarray(batch.weights_BT) > 0
    assert (np.array([*map(reflected_guesses, tokens_BT)]) == guess_BT)[counts_BT].all()
    right = (guess_BT == targets_BT)[counts_BT].mean()
    assert cancelling.accuracy(batch) == right
    assert right == 1.0 if symbols == "changing" else right < 0.9


def test_a_reader_of_the_string_and_one_that_cancels_are_told_apart():
    config = checked("position", **{"task.name": PROBLEM, "task.alphabet": 4, "examples": 64})
    examples = windows.examples_of(windows.task_of(config), config)
    assert set(examples.followed) == {"string", "cancellation"}
    for window, string, cancels in zip((64, 128), *examples.followed.values(), strict=True):
        assert string.tokens_BT.shape == (16, window)
        in_dispute_BT = np.asarray(string.weights_BT) > 0
        assert (in_dispute_BT == (np.asarray(cancels.weights_BT) > 0)).all()
        assert 0.1 < in_dispute_BT.sum() / (np.asarray(string.targets_BT) >= SYMBOL).sum() < 0.3
        assert not (string.targets_BT == cancels.targets_BT)[in_dispute_BT].any()
        rule_BT = cancelling.guesses(np.asarray(string.tokens_BT))
        assert (rule_BT == cancels.targets_BT)[in_dispute_BT].all()
    distinct = {"task.symbols": "distinct", "task.alphabet": 256}
    config = checked("position", **{"task.name": PROBLEM, "examples": 64, **distinct})
    assert windows.examples_of(windows.task_of(config), config).followed == {}


def test_where_a_window_has_no_dispute_nothing_is_scored(monkeypatch):
    """Few examples of many letters may differ in one window alone."""
    config = checked("position", **{"task.name": PROBLEM, "task.alphabet": 4, "examples": 64})
    in_dispute = cancelling.in_dispute
    only = lambda width: (
        lambda batch: in_dispute(batch) if batch.tokens_BT.shape[1] == width else {}
    )
    for width in (64, 128):
        monkeypatch.setattr(cancelling, "in_dispute", only(width))
        assert windows.examples_of(windows.task_of(config), config).followed == {}


def shares(string, cancels, noise=0.01):
    """Of two windows, in three seeds."""
    spread = lambda value: {n: value + noise * (n - 1) for n in range(3)}
    by_what = {"string": spread(string), "cancellation": spread(cancels)}
    return {64: by_what, 128: by_what}


def test_a_model_decides_for_one_of_the_two():
    assert decided(shares(0.1, 0.8)).word == "cancelling"
    assert decided(shares(0.8, 0.1)).word == "the string"
    assert decided(shares(0.4, 0.4)).word == "neither"
    noisy = shares(0.3, 0.5)
    noisy[64]["string"] = noisy[128]["string"] = {0: 0.0, 1: 0.3, 2: 0.8}
    assert decided(noisy).word == "neither", "the seeds do not agree"
    one, many = (decided(shares(0.1, 0.8), rows) for rows in (1, 8))
    assert many.difference.low <= one.difference.low, "several rows are corrected for"
    assert decided({}) is None


def test_the_stage_has_every_alphabet_with_one_and_two_layers():
    points = configs.get_sweep("position-path")
    drawn = [(p.get("task.symbols"), p["task.alphabet"], p["model.layers"], p.get("encoding.beta"))
             for p in points]  # fmt: skip
    assert len(drawn) == len(set(drawn)) == 4 * 2 + 2 * 2
    assert {p["seeds"] for p in points} == {5}


def reversing_run(alphabet, layers, values, follow, **fields):
    """A stored run of path: token accuracy, and what answers follow."""
    by_test = {("path", test): value for test, value in values.items()}
    run = position_run(PROBLEM, by_test, {}, **{"task.alphabet": alphabet, "model.layers": layers,
                       "multiples": (1, 2, 4), "examples": 16, **fields})  # fmt: skip
    run.config["encoding"]["name"] = "path"
    for window, by_what in shares(*follow).items():
        for what, by_seed in by_what.items():
            labels = {"encoding": "path", "split": "test", "length": window, LABEL: what}
            scores = {"token_accuracy": [*by_seed.values()]}
            run.records.extend(runs.seed_records(0, range(3), labels, scores))
    return run


@pytest.mark.thorough
def test_the_page_says_how_path_reverses():
    values = {"": 0.95, "doubled": 0.5, "changing": 0.97}
    cancels = reversing_run(26, 1, values, (0.1, 0.8))
    string = reversing_run(4, 2, values, (0.9, 0.05))
    gated = reversing_run(26, 1, {**values, "": 0.2}, (0.35, 0.35))
    gated.config["encoding"]["beta"] = 1.0
    stored = [string, cancels, gated]
    assert page.page_name(stored) == "path_reversing"
    other = position_run("reverse_bits", {("path", ""): 0.9}, {})
    assert page.page_name([*stored, other]) == "leaderboard"
    (said, gates), (figure, table) = page.document(stored)
    assert said == (
        "Of 3 models that reverse within the trained window, 1 follow cancelling, 1 follow the "
        "string, 1 follow neither."
    ), "all have 1.0 within the window"
    assert gates.startswith("26 letters, 1 layer, twice the trained window: .960 of the tokens")
    assert ".210 with beta 1 of all" in gates
    (grid,) = table.parts
    rows = {row[0]: row[1:] for row in grid.rows}
    assert {len(row) for row in grid.rows} == {len(grid.columns)}
    assert rows["26 letters, 1 layer, path"][:5] == ("1.000", ".960", ".950", ".510", ".980")
    assert rows["26 letters, 1 layer, path"][-1] == "cancelling"
    assert rows["4 letters, 2 layers, path"][-1] == "the string"
    config = reversing_page.config_of(string)
    batch = windows.tests_of(windows.task_of(config, "doubled"), config)[1]
    assert rows["4 letters, if reflections cancel"][3] == f"{cancelling.accuracy(batch):.3f}"[1:]
    (picture,) = figure.parts
    assert len(picture.draw().axes) == 6
