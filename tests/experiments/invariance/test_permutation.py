"""The experiment on order: the counterexample in small, its controls, what is said of numbers."""

import importlib
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments import parallel_rows
from experiments.invariance.permutation import order_tasks, page
from experiments.invariance.permutation import run as permutation
from experiments.invariance.permutation.config import (
    CAUSAL,
    Config,
    EquivarianceConfig,
    OrderConfig,
)
from experiments.invariance.permutation.order_tasks import Setting, Subject
from experiments.invariance.small_models import largest, small_encoding, small_layout
from posenc_jax import CATALOG
from posenc_jax.lab.config import schema
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import Estimate

MODEL = schema.ModelConfig(kind="encoder", width=16, heads=2, layers=1, mlp=1)
ORDER = OrderConfig(symbols=4, steps=60, lr=2e-2)
EQUIVARIANCE = EquivarianceConfig(lengths=(2, 5, 9), permutations=2, float64=("nope", "rope"))
ROUNDING = 1e-6  # of float32, of logits of about 1
SETTING = Setting(MODEL, ORDER, EQUIVARIANCE, (0, 1))


@pytest.fixture(scope="module")
def measured():
    """nope and rope in an encoder, nope under a causal mask."""
    actual = {n: order_tasks.measure(SETTING, row(n)) for n in ("nope", "rope", "alibi")}
    return {**actual, CAUSAL: order_tasks.measure(SETTING, row("nope", CAUSAL, "decoder"))}


def test_the_largest_does_not_pass_over_a_nan():
    gap = jnp.zeros((64, 512)).at[3, 5:200].set(jnp.nan)
    assert np.isnan(largest(gap))
    assert largest(gap.at[3].set(2.0)) == 2.0


def test_packed_rows_of_small_models_are_those_of_released_encoders():
    """`_gaps`, whose source is hashed, and `permuted` with `moved`, to the bit."""
    rows = {}

    class Seen:
        """Logits that depend on tokens, positions and columns: no row is equivariant."""

        def apply(self, params, tokens_RT, at):
            rows.update(tokens_RT=tokens_RT, at=at)
            column_1T = jnp.arange(tokens_RT.shape[1])[None]
            x_RT = jnp.sin((tokens_RT % 1000 + 2 * at.pos_BT + params * column_1T).astype(float))
            return jnp.stack([x_RT, x_RT**2], axis=-1)

    many = ORDER.model_copy(update={"symbols": 2**30})  # so that no token is drawn twice
    setting, lengths = SETTING._replace(order=many), [5, 2, 9]
    actual_L2 = order_tasks._gaps(setting, row("nope"), Seen(), lengths, 3)
    tokens_RT, at = np.asarray(rows["tokens_RT"]), rows["at"]
    places = {token: n for n, token in enumerate(tokens_RT[0].tolist())}
    assert len(places) == sum(lengths)
    order_PT = np.array([[places[t] for t in r] for r in tokens_RT[1:].tolist()], np.int32)
    order_RT, other = order_tasks.permuted(jnp.asarray(order_PT[:2]), lengths, axes=1)
    np.testing.assert_array_equal(tokens_RT, tokens_RT[0][order_RT])
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), at, other))
    moved_L2 = order_tasks.moved(Seen().apply(3, tokens_RT, at), order_RT, lengths)
    np.testing.assert_array_equal(actual_L2, moved_L2)
    assert (np.asarray(actual_L2) > 0.1).all(), "control: something moves"


def row(name, label=None, kind="encoder"):
    shown, encoding = small_encoding(name, {})
    return Subject(label or shown, encoding, kind, 1)


@pytest.mark.thorough
def test_without_positions_pairs_stand_at_one_half_exactly(measured):
    """Whatever the weights: both orders of a pair give the same output, but for a rounding where
    XLA multiplies and adds at once (JAX 0.12).
    """
    assert (measured["nope"].swap_gap_2S < ROUNDING).all()
    assert (measured["nope"].right_NS[0] == 0.5).all()
    assert (measured["nope"].right_NS[1] <= 0.25).all()  # 1/6, but for ties that rounding breaks
    for name in ("rope", CAUSAL):
        assert (measured[name].right_NS[0] == 1.0).all(), name
        assert (measured[name].swap_gap_2S[1] > 1).all(), name


@pytest.mark.thorough
def test_a_symmetric_bias_tells_how_far_but_not_which_way(measured):
    assert (measured["alibi"].swap_gap_2S < ROUNDING).all()
    assert (measured["alibi"].right_NS[0] == 0.5).all()
    error_2L, _ = measured["alibi"].errors["float32"]
    assert (error_2L[:, 0] < ROUNDING).all()
    assert (error_2L[:, 1:] > 1e-3).all(), "control: among more tokens it does break the symmetry"


@pytest.mark.thorough
def test_without_positions_a_permuted_input_permutes_the_output(measured):
    for dtype, most in (("float32", 1e-5), ("float64", 1e-13)):
        error_2L, carried_2L = measured["nope"].errors[dtype]
        assert error_2L.shape == (2, 3)
        assert (error_2L < most).all(), dtype
        assert (carried_2L < most).all(), dtype
        # The controls: a positional model is not, until positions are carried along.
        error_2L, carried_2L = measured["rope"].errors[dtype]
        assert (error_2L > 1e-2).all(), dtype
        assert (carried_2L < most).all(), dtype
    error_2L, carried_2L = measured[CAUSAL].errors["float32"]
    assert (carried_2L > 1e-2).all(), "a causal mask reads the order of storage"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "options"),
    [("learned", {"length": 6, "beyond": "error"}), ("abacus", {"limit": 6, "offset": 0})],
)
def test_past_its_range_a_method_is_not_measured(name, options):
    """Whether it states the range for plain positions, or shows NaN from there on."""
    subject = row(name)._replace(encoding=small_encoding(name, options)[1])
    model = transformer.build(MODEL, subject.encoding, order_tasks.KINDS)
    params = jax.jit(model.init)(jax.random.key(0))
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params)
    error_2L, _ = order_tasks._errors(SETTING, subject, model, twice)
    assert np.isfinite(error_2L[:, :2]).all()
    assert np.isnan(error_2L[:, 2]).all()


def test_orders_are_all_of_them_and_labels_say_which():
    pairs, triples = order_tasks.orders(4)
    for task, n in ((pairs, 2), (triples, 3)):
        real = task.weight_B > 0
        tokens_BN = task.tokens_BT[real, :n]
        assert {tuple(t) for t in tokens_BN} == set(itertools.permutations(range(4), n))
        assert task.segment_1T.tolist() == [[1] * n + [0] * (3 - n)]
        kinds = list(itertools.permutations(range(n)))
        for tokens_N, label in zip(tokens_BN, task.label_B[real], strict=True):
            assert sorted(tokens_N) == [tokens_N[i] for i in kinds[label]]
    assert pairs.tokens_BT.shape == triples.tokens_BT.shape


def test_positions_of_two_axes_lie_on_a_grid():
    at = small_layout(jnp.array([[1] * 7 + [0] * 2]), axes=2)
    np.testing.assert_array_equal(at.pos_BT[0, :7, 0], [0, 0, 0, 1, 1, 1, 2])
    np.testing.assert_array_equal(at.pos_BT[0, :7, 1], [0, 1, 2, 0, 1, 2, 0])
    np.testing.assert_array_equal(at.group_BT[0], [1, 2, 3, 4, 5, 6, 7, 0, 0])


def config(argument="quick"):
    return importlib.import_module("configs.permutation").get_config(argument)


def test_the_catalogue_is_the_table():
    """Every method is a row under its name, those that only place before rope."""
    checked = schema.check(Config, config("").to_dict())
    labels = [subject.label for subject in permutation.subjects(checked)]
    assert len(labels) == len(CATALOG) + 2
    assert {label.removesuffix("+rope") for label in labels} >= set(CATALOG)
    assert "randomized+rope" in labels


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model.kind", "decoder", ["config.model.kind", "decoder", "encoder"]),
        ("text.model.kind", "decoder", ["config.text.model.kind", "decoder", "encoder"]),
        ("text.task.masked", 0.0, ["config.text.task.masked"]),
        ("text.encoding.name", "rop", ["config.text.encoding.name", "rop", "rope"]),
        ("text.eval.lengths", (2**20,), ["config.text.eval.lengths", str(2**20)]),
        ("equivariance.float64", ("rop",), ["config.equivariance.float64", "rop", "rope"]),
        ("order.symbols", 2, ["config.order.symbols", "2"]),
        ("encoding.name", "rop", ["config.encoding.name", "rope"]),
        ("encoding.name", "clamped,rope,clamped+rope", ["config.encoding.name", "'clamped+rope'"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(field, value, words, tmp_path):
    wrong = config()
    with wrong.unlocked(), wrong.ignore_type():
        wrong.update_from_flattened_dict({field: value})
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        experiments.prepare(wrong.to_dict(), str(tmp_path))
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_a_method_and_the_chain_it_is_shown_in_are_two_names_of_one_row():
    """The control of the last refusal above: alone, either is a row."""
    for name in ("clamped,rope,quick", "clamped+rope,rope,quick"):
        experiments.check(config(name).to_dict())


@pytest.mark.thorough
def test_the_run_ends_in_its_tables_and_page(measured, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parallel_rows, "cores", lambda: [0])  # stand-ins are of this process
    stored = lambda setting, subject: measured.get(subject.label, measured["rope"])
    monkeypatch.setattr(order_tasks, "measure", stored)
    small = config("nope,clamped,quick")
    small.equivariance.update(lengths=EQUIVARIANCE.lengths)
    small.text.encoding.name = "nope"
    small.text.train.steps = 2
    experiments.prepare(small.to_dict(), str(tmp_path))()
    printed = capsys.readouterr().out
    for text in ("clamped+rope", CAUSAL, "lstm", "bits per hidden byte", "147.18", "report:"):
        assert text in printed
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary["order"]) == ["nope", "clamped+rope", CAUSAL, "lstm"]
    assert summary["order"]["nope"]["pairs"]["seeds"] == [0.5, 0.5]
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    assert "<svg" in (tmp_path / "report.html").read_text()


@pytest.mark.thorough
def test_an_lstm_is_a_row_like_any_other():
    """It needs no positions: an untrained one tells pairs apart, and no permutation leaves it."""
    setting = SETTING._replace(seeds=(0,), order=ORDER.model_copy(update={"steps": 2}))
    actual = order_tasks.measure(setting, row("nope", "lstm", "lstm"))
    assert (actual.swap_gap_2S > 1e-2).all()
    assert (actual.errors["float32"][0] > 1e-2).all()


def numbers(pairs, error, carried=1e-7):
    """A row of the summary with these numbers."""
    by_state = lambda value: {"untrained": {"2": value}, "trained": {"2": value}}
    cell = Estimate(pairs, None, None, [pairs])
    return {
        "pairs": cell, "triples": cell, "twins": {"untrained": 0.0, "trained": 0.0},
        "error": {"float32": by_state(error)}, "carried": {"float32": by_state(carried)},
    }  # fmt: skip


def test_what_is_said_follows_from_the_numbers():
    """Nothing is said of a method by its name: with other numbers the other is said."""
    said = page.findings({"nope": numbers(0.5, 1e-7), "rope": numbers(1.0, 0.3)})
    assert said[0].startswith("Exactly one half of the pairs in every seed: nope.")
    assert said[1] == "Every pair right in every seed: 1 of 2 encoders."
    assert said[2].endswith("length: nope.")
    assert "1 of the other 1 encoders are equivariant again" in said[3]
    said = page.findings({"nope": numbers(1.0, 0.3), "rope": numbers(0.5, 1e-7)})
    assert said[0].startswith("Exactly one half of the pairs in every seed: rope.")
    assert said[2].endswith("length: rope.")
    said = page.findings({"nope": numbers(0.6, 0.3, carried=0.2)})
    assert said[0].startswith("Exactly one half of the pairs in every seed: none.")
    assert said[1].endswith("neither: nope.")
    assert said[3].endswith("read more than positions: nope.")
