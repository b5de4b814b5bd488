"""The experiment on padding: leaks in small, each with a mask off as control, and its verdicts."""

import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.invariance.padding_leakage import config as padding_config
from experiments.invariance.padding_leakage import leaks as measured_leaks
from experiments.invariance.padding_leakage import page as padding_page
from experiments.invariance.padding_leakage import summary as padding_summary
from experiments.invariance.padding_leakage.config import names
from experiments.invariance.padding_leakage.fields import Config, Data, Learning
from experiments.invariance.padding_leakage.leaks import Computed
from experiments.invariance.padding_leakage.sequences import sequences
from experiments.invariance.small_models import small_encoding
from posenc_jax import CATALOG, encodings, make
from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.compiling import jit_quick
from posenc_jax.lab.model import transformer
from posenc_jax.lab.summary import parse
from posenc_jax.layout import layout
from scripts.experiment_page import main
from tests.support.catalogue import gap

MODEL = schema.ModelConfig(kind="encoder", width=16, heads=2, layers=1, mlp=1)
DATA = Data(symbols=4, min_length=3, length=8, measured=6, amounts=(2,), sides=("left", "right"),
            examples=4)  # fmt: skip
CONFIG = Config.model_construct(
    model=MODEL, data=DATA, learning=Learning(steps=3, batch=4, lr=1e-2), seeds=1, first_seed=0
)
ALL = "attention+output+loss"
CHAIN = make("rope+t5")
SIZES = jnp.array([3, 5, 8])


@pytest.fixture(scope="module")
def leaks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_leaks, "jit_quick", lambda function, effort=0: jit_quick(function))
        return measured_leaks.measure(CONFIG, *small_encoding("rope", {}))


@pytest.mark.thorough
def test_with_all_masks_the_content_of_padding_moves_nothing_to_the_bit(leaks):
    for quantity in Computed._fields:
        assert (leaks[("content", quantity), ALL] == 0).all()
        assert (leaks[("amount", quantity), ALL] < 1e-5).all()


@pytest.mark.parametrize(
    ("off", "quantity"),
    [("output+loss", name) for name in Computed._fields] + [("attention+loss", "pooled")],
)
def test_the_control_with_a_mask_off_something_moves(leaks, off, quantity):
    assert (leaks[("content", quantity), off] > 1e-4).all()
    assert (leaks[("amount", quantity), off] > 1e-4).all()


def test_without_the_loss_mask_the_loss_depends_on_the_amount_of_padding(leaks):
    assert (leaks[("content", "loss"), "attention+output"] == 0).all()
    assert (leaks[("amount", "loss"), "attention+output"] > 1e-3).all()


def test_attention_is_paid_to_padding_unless_it_is_masked(leaks):
    assert (leaks[("mass",), ALL] == 0).all()
    assert (leaks[("mass",), "output+loss"] > 0.02).all()


@pytest.mark.thorough
def test_attention_weights_are_those_that_attention_uses():
    model = transformer.build(MODEL.model_copy(update={"kind": "decoder"}), make("alibi"), 5)
    params = model.init(jax.random.key(0))
    at = layout(jnp.array([[1] * 4 + [2] * 3 + [0] * 2]))
    weights = jax.jit(model.attention)(params, jnp.arange(9)[None] % 5, at)
    assert [w.shape for w in weights] == [(1, 2, 9, 9)]
    for w_BHQK in weights:
        assert gap(w_BHQK.sum(axis=-1)[0, :, :7], jnp.ones((2, 7))) < 1e-6
        seen = np.asarray(w_BHQK[0].max(axis=0)) > 0
        segment = np.asarray(at.segment_BT[0])
        expected = (segment[:, None] == segment) & np.tri(9, dtype=bool) & (segment > 0)
        np.testing.assert_array_equal(seen, expected)
    assert "intermediates" not in params
    mixed = transformer.build(MODEL.model_copy(update={"kind": "decoder"}), make("nope"), 5)
    other = jax.jit(mixed.attention)({**params, "encoding": {}}, jnp.arange(9)[None] % 5, at)
    assert gap(weights[0], other[0]) > 1e-3, "control: the bias is among the weights"


@pytest.fixture(scope="module")
def traced():
    """Outputs and pooled outputs of the experiment, where masks and width are arguments."""

    def read(params, masks, width):
        batch = sequences(jax.random.key(1), DATA, SIZES, width, True, columns=10)
        run = measured_leaks.Run(*masks, jnp.int32(0), jnp.int32(0))
        model = measured_leaks.masked_model(CONFIG, CHAIN)
        out = measured_leaks.apply(model, params, batch.tokens_BT, batch.layout, run)
        return out, measured_leaks.pool(out, batch.layout, run.output_mask)

    return jax.jit(read)


@pytest.mark.thorough
@pytest.mark.parametrize("masks", measured_leaks.SUBSETS[::2], ids=measured_leaks.subset)
def test_masks_as_arguments_give_what_a_model_with_these_masks_gives(traced, masks):
    config = MODEL.model_copy(
        update={"masks": schema.MaskConfig(attention=masks[0], output=masks[1])}
    )
    build = lambda pooled: transformer.build(config, CHAIN, 5, pooled=pooled)
    params = build(False).init(jax.random.key(0))
    params["read_out"]["bias"] += 1.0
    batch = sequences(jax.random.key(1), DATA, SIZES, 8, True)
    read = lambda pooled: jax.jit(build(pooled).apply)(params, batch.tokens_BT, batch.layout)
    out, pooled = traced(params, masks, 8)
    assert gap(out[:, :8], read(False)) < 1e-5
    assert gap(pooled, read(True)) < 1e-5
    wide, _ = traced(params, masks, 10)  # the control: two more tokens of padding
    assert (gap(wide[:, 2:], out[:, :8]) > 1e-3) == (not masks[0])
    other, _ = traced(params, (not masks[0], *masks[1:]), 8)
    assert gap(other, out) > 1e-3


@pytest.mark.thorough
def test_a_sequence_is_the_same_however_it_is_padded():
    size_B = jnp.array([3, 4, 5, 6, 8])
    draw = lambda *padded: jax.jit(lambda key: sequences(key, DATA, size_B, *padded))(
        jax.random.key(1)
    )
    right, left, wide = draw(8, False), draw(8, True), draw(12, False)
    for n, a, b, c in zip([3, 4, 5, 6, 8], right.tokens_BT, left.tokens_BT, wide.tokens_BT,
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(a[:n], b[8 - n :])
        np.testing.assert_array_equal(a[:n], c[:n])
        assert (np.asarray(a[:n]) > 0).all()
        assert not np.asarray(a[n:]).any()
    np.testing.assert_array_equal(right.before_BT[4, 1:], right.tokens_BT[4, :-1])
    assert (right.favourite_B == wide.favourite_B).all()


def table(clean):
    """Leaks under which these subsets are clean and no other is."""
    return {masks: {"rope": 0.0 if masks in clean else 0.5} for masks in padding_summary.NAMES}


@pytest.mark.parametrize(
    ("clean", "smallest", "roles"),
    [
        (padding_summary.NAMES, ["none"], ["only tidy"] * 3),
        (["attention", "attention+output", "attention+loss", ALL], ["attention"],
         ["necessary", "only tidy", "only tidy"]),
        (["attention+output", "attention+loss", ALL], ["attention+loss", "attention+output"],
         ["necessary", "one of several ways", "one of several ways"]),
        ([ALL], [ALL], ["necessary"] * 3),
        ([], [], ["no help"] * 3),
    ],
)  # fmt: skip
def test_verdicts_follow_from_the_numbers(clean, smallest, roles):
    actual = padding_summary.verdict("content", table(clean))
    assert actual["smallest"] == smallest
    assert list(actual["masks"].values()) == roles


def test_one_encoding_that_leaks_is_enough_and_rounding_is_no_leak():
    leaks = table(padding_summary.NAMES)
    leaks["none"]["alibi"] = 1e-6
    assert padding_summary.verdict("amount", leaks)["smallest"] == ["none"]
    assert "none" not in padding_summary.verdict("content", leaks)["smallest"]
    leaks["none"]["alibi"] = float("nan")
    assert "none" not in padding_summary.verdict("amount", leaks)["smallest"]


def test_all_is_the_catalogue_and_what_is_left_out_has_a_reason():
    checked = experiments.check(config("all").to_dict())
    chosen, left_out = names(checked), padding_config.left_out(checked)
    assert sorted([*chosen, *left_out]) == sorted(CATALOG)
    assert {"rope", "randomized", "coupled", "drope", "cope"} <= set(chosen)
    assert all(encodings.axes(name) > 1 for name in left_out)
    assert "axial" in left_out
    some = experiments.check(config("rope").to_dict())
    assert (names(some), padding_config.left_out(some)) == (["rope"], {}), "control"


def config(argument="quick"):
    return importlib.import_module("configs.padding_leakage").get_config(argument)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model.kind", "lstm", ["config.model.kind", "lstm", "encoder"]),
        ("model.kind", "encoder_decoder", ["config.model.kind", "two sequences", "encoder"]),
        ("model.masks.loss", False, ["config.model.masks"]),
        ("encoding.name", "axial", ["config.encoding.name", "axial"]),
        ("encoding.name", "rop", ["config.encoding.name", "rop", "rope"]),
        ("encoding.name", "clamped,clamped+rope", ["config.encoding.name", "'clamped+rope'"]),
        ("encoding.base", -1.0, ["config.encoding.base", "-1.0"]),
        ("data.sides", ("up",), ["config.data.sides", "left", "right"]),
        ("data.amounts", (), ["config.data.amounts"]),
        ("data.min_length", 99, ["config.data", "99"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(field, value, words, tmp_path):
    wrong = config("rope,quick")
    with wrong.unlocked(), wrong.ignore_type():
        wrong.update_from_flattened_dict({field: value})
        if field == "encoding.base":
            wrong.encoding.base = value
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        experiments.prepare(wrong.to_dict(), str(tmp_path))
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_positions_moved_for_rope_stand_beside_it():
    """The control of a name refused above: these two are rows of their own."""
    experiments.check(config("clamped,rope,quick").to_dict())


def test_padding_past_the_range_of_a_method_is_refused(tmp_path):
    wrong = config("learned,quick")
    with wrong.unlocked():
        wrong.encoding.update(length=20, beyond="error")
    with pytest.raises(
        ValueError, match=r"^config.data.amounts: 24 is past what learned reaches, 20; "
    ):
        experiments.prepare(wrong.to_dict(), str(tmp_path))


@pytest.mark.thorough
def test_the_run_ends_in_its_tables_and_page(leaks, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measured_leaks, "measure", lambda *args: leaks)
    small = config("rope,quick")
    small.seeds = 1
    small.data.update({**DATA.model_dump()})
    experiments.prepare(small.to_dict(), str(tmp_path))()
    printed = capsys.readouterr().out
    for text in ("necessary", "outputs, by content", "as trained", "report:"):
        assert text in printed
    summary = json.loads((tmp_path / "summary.json").read_text())
    fields = parse(summary).own
    assert fields["verdicts"]["content"]["outputs"]["smallest"] == ["attention"]
    assert {p.suffix for p in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    assert "<svg" in (tmp_path / "report.html").read_text()
    (tmp_path / "report.html").unlink()
    experiments.show(str(tmp_path))
    assert (tmp_path / "report.html").exists()
    assert main([str(tmp_path), f"--to={tmp_path}"]) == 0
    page = (tmp_path / "docs/padding_leakage.md").read_text("utf-8")
    for part in padding_page.conclusions(fields):
        assert part in page
    assert "a result of 1 method changes not at all with other content" in page
    assert "no method is above the bounds of the rule below." in page
    assert "attention: outputs, pooled, loss, gradient; output: pooled;" in page
    # The control: a method that leaks with all masks on is named.
    fields["leaks"]["content"]["loss"][ALL]["rope"] = 0.5
    assert "by at most 0.5 with" in padding_page.conclusions(fields)[0]
    assert "rope is above the bounds of the rule below." in padding_page.conclusions(fields)[0]
