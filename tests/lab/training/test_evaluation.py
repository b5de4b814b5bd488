"""Evaluation: the same scores however examples are grouped and padded."""

import itertools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import make
from posenc_jax.lab import metrics, tasks
from posenc_jax.lab.config.schema import EvalConfig, ModelConfig
from posenc_jax.lab.hosts.exit_status import Unmeasured
from posenc_jax.lab.metrics import Scores, Sums
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Model
from posenc_jax.lab.tasks.task import EOS
from posenc_jax.lab.training import evaluation
from posenc_jax.lab.training.evaluation import (
    Evaluator,
    batch_scorer,
    bucket,
    position_bins,
    records,
)
from posenc_jax.options import FieldError

SEEDS = 2


def oracle(right: float) -> Model:
    """Says each target of a periodic line with certainty, or spreads its bets evenly."""

    def apply(params, tokens_BT, layout, placed=None, **form):
        back = jnp.roll(tokens_BT, params.astype(jnp.int32) - 1, axis=1)
        return 50.0 * right * jax.nn.one_hot(back, 64)

    return Model(lambda key: jnp.zeros(()), apply)


def score(model, params, size, **config):
    task = tasks.make("periodic", period=4)
    evaluator = Evaluator(model, task, EvalConfig(lengths=(size,), **config))
    return evaluator(params, size), task, evaluator


def test_a_perfect_model_scores_1_and_a_wrong_one_0():
    params = jnp.full(SEEDS, 4.0)
    for right, wanted in ((True, 1.0), (False, 0.0)):
        scores, task, _ = score(oracle(right), params, 24, examples=10)
        rows = list(records(scores, task, 1, [0, 1], {"encoding": "x", "split": "test"}))
        exact = [r["value"] for r in rows if r["metric"] == "exact_match"]
        assert exact == [wanted] * SEEDS


def test_grouping_and_padding_change_nothing():
    config = ModelConfig(width=32, heads=4, layers=1)
    model = transformer.build(config, make("rope"), tasks.make("periodic", period=4).vocab)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), SEEDS))
    at_once, *_ = score(model, params, 21, examples=10, tokens=10_000)
    grouped, *_ = score(model, params, 21, examples=10, tokens=70)
    close = partial(np.testing.assert_allclose, rtol=1e-5)
    jax.tree.map(close, at_once.by_example, grouped.by_example)
    assert at_once.by_example["loss"].count.shape == (SEEDS, 10)
    assert float(at_once.by_example["loss"].total.std()) > 0


@pytest.mark.thorough
def test_one_program_serves_the_sizes_of_a_bucket():
    _, _, evaluator = score(oracle(True), jnp.full(SEEDS, 4.0), 33, examples=4)
    for size in range(34, 48):
        evaluator(jnp.full(SEEDS, 4.0), size)
    assert len({evaluator.shape(size) for size in range(33, 48)}) == len(evaluator._compiled) == 1
    evaluator(jnp.full(SEEDS, 4.0), 60)
    assert len(evaluator._compiled) == 2


@pytest.mark.parametrize("width", [1, 2, 3, 5, 24, 40, 63, 64, 100, 500])
def test_bucket_is_not_half_again_as_wide(width):
    assert width <= bucket(width) <= max(1.5 * width, width + 1)


def test_position_bins_cover_the_window():
    edges = position_bins(100)
    assert edges[0] == 0
    assert edges[-1] == 100
    assert all(b > a for a, b in itertools.pairwise(edges))


@pytest.mark.thorough
def test_curve_by_position_averages_to_the_scalar(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 4000)
    task = tasks.make(f"file:{tmp_path}/text.txt", stretch=512)
    config = ModelConfig(width=32, heads=4, layers=1)
    model = transformer.build(config, make("rope"), task.vocab)
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), SEEDS))
    scores = Evaluator(model, task, EvalConfig(lengths=(32,)))(params, 32)
    rows = list(records(scores, task, 1, [0, 1], {"encoding": "x", "split": "test"}))
    bits = [r for r in rows if r["metric"] == "bits_per_byte"]
    whole = [r["value"] for r in bits if "position" not in r["labels"]]
    edges = position_bins(32)
    for seed in (0, 1):
        seed_bits = [r for r in bits if "position" in r["labels"] and r["seed"] == seed]
        curve = {r["labels"]["position"]: r["value"] for r in seed_bits}
        sizes = dict(zip(edges, np.diff(edges), strict=False))
        mean = sum(curve[p] * sizes[p] for p in curve) / 32
        assert math.isclose(mean, whole[seed], rel_tol=1e-5)
    assert evaluation.position_bins(1) == [0, 1]


def test_a_stretch_of_the_window_without_targets_is_left_out():
    """It has no mean, and where there is no target at all there is nothing to measure."""
    task = tasks.make("periodic", period=4)._replace(metric="bits_per_byte")
    count_ST = np.array([[1.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0]])
    names = "loss", "token_accuracy", "bits_per_byte"

    def curve(count_ST, counted=2.0):
        by_example = dict.fromkeys(names, Sums(np.ones((1, 2)), np.full((1, 2), counted)))
        by_place = dict.fromkeys(names, Sums(3 * count_ST, count_ST))
        rows = records(Scores(by_example, by_place), task, 1, [0], {})
        return {r["labels"]["position"]: r["value"] for r in rows if "position" in r["labels"]}

    edges, bits = position_bins(6), pytest.approx(3 / math.log(2))
    assert edges == [0, 1, 2, 3, 4, 6]
    assert curve(count_ST) == {0: bits, 2: bits, 4: bits}
    assert list(curve(np.ones_like(count_ST))) == position_bins(7)[:-1], "control: all of them"
    with pytest.raises(Unmeasured, match=r"^periodic: no target of the test examples counts"):
        curve(np.zeros_like(count_ST), counted=0.0)


@pytest.mark.thorough
def test_what_does_not_fit_is_taken_in_parts_or_refused(monkeypatch):
    """The same scores from fewer rows at a time; where not one row fits, both numbers are said."""
    whole, _, evaluator = score(oracle(True), jnp.full(SEEDS, 4.0), 33, examples=8)
    (needs,) = [evaluation._needs(program) for program in evaluator._compiled.values()]
    assert needs > 0
    monkeypatch.setattr(evaluation, "free_bytes", lambda: needs // 2)
    parts, _, chunked = score(oracle(True), jnp.full(SEEDS, 4.0), 33, examples=8)
    assert list(chunked._compiled)[-1][1] > 1, "control: more groups than before"
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), whole, parts)
    monkeypatch.setattr(evaluation, "free_bytes", lambda: 100)
    with pytest.raises(
        evaluation.DoesNotFit, match=r"^\d+ examples of 48 tokens need [\d.e-]+ GiB"
    ):
        score(oracle(True), jnp.full(SEEDS, 4.0), 33, examples=8)


@pytest.mark.thorough
def test_an_example_without_targets_is_not_counted_in_either_scorer():
    """It asks nothing, so that it is neither right nor wrong: one meaning of exact match."""
    task = tasks.make("periodic", period=4)
    half = task._replace(numbered=lambda *args: _without_targets(task.numbered(*args)))
    wrong = jnp.full(
        SEEDS, 3.0
    )  # the period of the oracle, so that no target of an example is right
    scores = Evaluator(oracle(True), half, EvalConfig(lengths=(24,), examples=8))(wrong, 24)
    batch = half.test(half.data, jnp.arange(8, dtype=jnp.int32), 24, task.width(24))
    by_batch = batch_scorer(oracle(True), ("exact_match",))(wrong, batch)
    assert scores.mean("exact_match").tolist() == by_batch["exact_match"].tolist() == [0.0] * SEEDS
    assert scores.by_example["exact_match"].count.sum() == 4 * SEEDS
    whole = Evaluator(oracle(True), task, EvalConfig(lengths=(24,), examples=8))(wrong, 24)
    assert whole.by_example["exact_match"].count.sum() == 8 * SEEDS, "control: all have targets"


def _without_targets(batch):
    """The batch where every second example has no target that counts."""
    even_B = (jnp.arange(len(batch.weights_BT)) % 2 == 0).astype(jnp.float32)
    return batch._replace(weights_BT=batch.weights_BT * even_B[:, None])


def test_an_unknown_metric_is_refused_by_name():
    for name, better in (("bits_per_byte", "lower"), ("exact_match", "higher"), ("loss", "lower")):
        assert metrics.metric(name).better == better
    with pytest.raises(
        FieldError, match=r"metric: no metric 'calibration_error'; .*choices: bits_"
    ):
        metrics.metric("calibration_error")
    with pytest.raises(FieldError, match="metric: bleu is not made of the logits of targets"):
        metrics.scores(("bleu",), *jnp.ones((3, 1, 1, 1)))


def test_the_end_of_an_answer_is_scored_apart():
    """Four answers of the ids 5 6 7 END: right, ended one early, never ended, a wrong symbol; and
    one that has no end. A guess outside the answer does not count.
    """
    end = metrics.END
    assert end == EOS
    targets = np.array([[9, 5, 6, 7, end]] * 4 + [[9, 5, 6, 7, 8]], np.int32)
    guesses = np.tile([9, 5, 6, 7, end], (5, 1))
    guesses[0, 0], guesses[1, 3], guesses[2, 4], guesses[3, 2], guesses[4, 4] = end, end, 7, 8, 8
    weights = np.array([[0.0, 1, 1, 1, 1]] * 5, np.float32)
    logits = jnp.asarray(np.eye(12, dtype=np.float32)[guesses])
    names = ("end_accuracy", "symbol_accuracy", "token_accuracy")
    actual = metrics.scores(names, logits, jnp.asarray(targets), jnp.asarray(weights)).by_example
    assert actual["end_accuracy"].total.tolist() == [1, 0, 0, 1, 0]
    assert actual["end_accuracy"].count.tolist() == [1, 1, 1, 1, 0]
    assert actual["symbol_accuracy"].total.tolist() == [3, 2, 3, 2, 4]
    assert actual["symbol_accuracy"].count.tolist() == [3, 3, 3, 3, 4]
    assert actual["token_accuracy"].total.tolist() == [4, 3, 3, 3, 4], "control: ends count here"
