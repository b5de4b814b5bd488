"""Options in terms of a setting: each row of the table, and what a small model then uses."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.board.leaderboard import config as board
from experiments.board.published import examples as published
from experiments.board.published.settings import SETTINGS
from experiments.compare import fields
from experiments.compare.length_extrapolation import config as by_length
from experiments.compare.translation import run as translation
from experiments.method_options import Setting, alternatives, bases, least_base, options
from posenc_jax import CATALOG, Dims, frame, full, make
from posenc_jax.encodings import card, rotation

DIMS = Dims(32, 2, 16, 2)
HERE = Setting(window=64, longest=512, head=16, causal=True)
# Each row of the table at W 64, T 512, C 16, in a causal model.
TABLE = {
    "t5": {"bidirectional": False, "distance": 64, "buckets": 32},
    "deberta": {"buckets": 64, "distance": 64},
    "partial": {"share": 0.5},
    "p_rope": {"share": 0.4375},
    "shaw": {"distance": 32},
    "clipped": {"distance": 32},
    "fire": {"threshold": 32.0},
    "cope": {"length": 64},
    "content_bias": {"distance": 64},
    "hope": {"length": 64},
    "fope": {"length": 64},
    "clex": {"length": 64},
    "logn": {"length": 64},
    "drope": {"length": 64},
    "yarn": {"beta_fast": 4.0, "beta_slow": 1.0},
    "ntk_by_parts": {"beta_fast": 4.0, "beta_slow": 1.0},
    "resonance": {"beta_fast": 4.0, "beta_slow": 1.0},
    "window": {"distance": 32},
    "gpt_oss": {"window": 32, "length": 64},
    "olmo3": {"window": 32, "length": 64},
    "local_global": {"window": 32},
    "irope": {"floor": 64},
    "randomized": {"limit": 512},
    "pose": {"limit": 512},
    "path": {"rank": 16},
}


def test_every_row_of_the_table():
    actual = {name: options(name, HERE, {}) for name in CATALOG}
    assert {name: row for name, row in actual.items() if row} == TABLE
    other = {name: options(name, Setting(256, 1024, 64, False), {}) for name in TABLE}
    assert [name for name in TABLE if other[name] == TABLE[name]] == [], "control: all depend on it"
    assert options("t5", HERE._replace(causal=False), {})["bidirectional"] is True


def test_a_stated_option_wins():
    assert options("t5", HERE, {"bidirectional": True})["bidirectional"] is True
    assert options("fire", HERE, {"threshold": 7.0, "base": 3.0}) == {"threshold": 7.0}
    assert options("rope", HERE, {"base": 3.0}, {"length": 9}) == {"base": 3.0}
    assert options("learned", HERE, {}, {"length": 9}) == {"length": 9}
    assert options("hope", HERE, {}, {"length": 9}) == {"length": 64}, "the table before others"
    assert options("randomized+t5", HERE, {}) == {**TABLE["randomized"], **TABLE["t5"]}


def test_a_stated_length_is_the_window_that_weights_were_trained_on():
    """YaRN's ramp is in turns of the trained window, not of the longer one of the fine-tuning."""
    longer = HERE._replace(window=256)
    assert options("yarn", longer, {"length": 64}) == {"length": 64, **TABLE["yarn"]}
    assert options("yarn", longer, {})["beta_fast"] == 16.0, "control: the window's"
    for window in (512, 8192, 131_072):
        defaults = card("yarn").defaults
        assert options("yarn", HERE._replace(window=window), {}) == {
            name: defaults[name] for name in ("beta_fast", "beta_slow")
        }, "those of the paper from its windows on"


@pytest.mark.parametrize("window", [1, 2, 3, 5, 16, 17, 33, 512])
@pytest.mark.parametrize("causal", [True, False])
def test_every_window_has_options_that_the_methods_take(window, causal):
    for name in TABLE:
        setting = Setting(window, max(window, 8), 16, causal)
        encoding = make(name, **options(name, setting, {}))
        jax.eval_shape(lambda encoding=encoding: encoding.init(jax.random.key(0), DIMS))


def test_alternatives_have_three_bases_and_what_the_table_names():
    turn, bound = bases(HERE)
    assert [{"base": b} for b in (turn, bound)] == alternatives("rope", HERE)[1:]
    slowest = rotation.ladder(16, turn)[-1]
    assert 2 * np.pi / slowest == pytest.approx(64, rel=0.01), "one turn in the window"
    assert bound == pytest.approx(least_base(512, 16), abs=0.1)
    assert alternatives("p_rope", HERE) == [{}, {"base": bound}, {"share": 0.75}]
    assert options("p_rope", HERE, {"base": turn})["share"] == 1.0, "it would be rope"
    assert options("p_rope", HERE, {"base": bound})["share"] < TABLE["p_rope"]["share"]
    assert alternatives("alibi", HERE) == [{}, {"learned": True}]
    assert alternatives("fox", HERE) == [{}, {"gate_bias": 4.16}], "ln 64"
    assert alternatives("shaw", HERE) == [{}, {"distance": 16}, {"distance": 48}]
    assert alternatives("t5", HERE) == [{}, {"distance": 32}]
    assert alternatives("deberta", HERE) == [{}, {"buckets": 0, "distance": 32}]
    assert alternatives("nope", HERE) == [{}]
    assert alternatives("local_global", HERE) == [{}], "its bases are two"


@pytest.mark.parametrize(
    ("longest", "head", "published"),
    [(1024, 128, 4.3e3), (2048, 128, 1.2e4), (4096, 128, 2.8e4), (8192, 128, 8.4e4)],
)
def test_the_least_base_of_a_window_is_the_published_one(longest, head, published):
    """Figure 1 of arXiv 2405.14591. Narrow heads need more: its fit would be 50 times too small."""
    assert least_base(longest, head) == pytest.approx(published, rel=0.05)
    assert least_base(longest, 16) > 10 * published


def test_below_the_least_base_far_keys_are_not_preferred():
    base = least_base(512, 16)
    worst = lambda base: min(np.cos(m * rotation.ladder(16, base)).sum() for m in range(513))
    assert worst(base) >= 0
    assert all(worst(base * factor) < 0 for factor in (0.99, 0.9, 0.5, 0.1))
    assert least_base(2**15, 16) is None


# What a model uses.


def used_rows(encoding, tokens):
    """How many rows of a T5 table the keys up to a query read; each row holds its number."""
    rows = encoding.init(jax.random.key(0), DIMS)["table"].shape[0]
    params = {"table": jnp.tile(jnp.arange(rows, dtype=jnp.float32)[:, None], (1, DIMS.heads))}
    bias = frame(encoding, params, full(1, tokens), DIMS).layer(0).bias()
    row_QK = np.asarray(bias).reshape(-1, tokens, tokens)[0]
    return len(np.unique(row_QK[np.tril_indices(tokens)]))


def test_all_buckets_of_t5_are_reached_in_a_causal_window():
    assert used_rows(make("t5", **options("t5", HERE, {})), 64) == 32
    assert used_rows(make("t5"), 64) <= 16, "control: the default is that of the encoder"


def test_thresholds_and_ramps_engage_within_the_window():
    """FIRE reads distances below its threshold otherwise than beyond; p_rope is not rope; yarn is
    not pi; no row of deberta's table is out of reach.
    """
    assert options("fire", HERE, {})["threshold"] < HERE.window
    turns = HERE.window * rotation.ladder(16, 10_000.0) / (2 * np.pi)
    assert int(8 * options("p_rope", HERE, {})["share"]) == (turns >= 1).sum() < 8
    assert int(8 * 0.75) > (turns >= 0.1).sum(), "control: the default drops what hardly turns"
    assert options("yarn", HERE, {})["beta_fast"] < turns[0]
    assert card("yarn").defaults["beta_fast"] > turns[0], "control"
    rows = make("deberta", **options("deberta", HERE, {})).init(jax.random.key(0), DIMS)["table"]
    assert len(rows) == 2 * HERE.window


# Where it is used.


def board_config(name, **changes):
    config = importlib.import_module("configs.leaderboard").get_config(name)
    config.update(changes)
    return board.Config.model_validate(config.to_dict())


def test_the_board_and_the_published_settings_ask_for_it():
    config = board_config("t5,fire", window=64, multiples=(1, 8))
    assert board.options_of(config, "t5") == TABLE["t5"]
    assert board.options_of(config, "fire") == TABLE["fire"]
    setting = SETTINGS["copy_random"]
    assert published.options_of(setting, "t5")["bidirectional"] is False
    masked = SETTINGS["masked_text"]
    assert published.options_of(masked, "t5")["bidirectional"] is True
    assert published.options_of(setting, "learned")["length"] == setting.reach


def compared(argument="t5", module="extrap", **changes):
    config = importlib.import_module(f"configs.{module}").get_config(argument)
    config.update(changes)
    return config.to_dict()


def test_comparisons_ask_for_it_and_stored_runs_have_the_options_they_had():
    config = by_length.Config.model_validate(compared())
    assert fields.options_of(config, "t5") == {**TABLE["t5"], "distance": 128}
    stored = compared()
    del stored["options"]
    assert fields.options_of(by_length.Config.model_validate(stored), "t5") == {}, "as it was"
    texts = translation.Config.model_validate(compared(module="translation"))
    sides = translation.encodings_of(texts, "t5")
    rows = [used_rows(side, 24) for side in (sides.encoder, sides.decoder)]
    assert rows[0] < rows[1], "the encoder's buckets look both ways"


@pytest.mark.parametrize("argument", ["", "quick"])
@pytest.mark.parametrize(
    "stem",
    ["classification", "completion", "dna", "images", "lm", "long_memory", "multimodal",
     "rope_extrap", "tasks_extrap", "text", "translation", "vision"],
)  # fmt: skip
def test_every_comparison_can_ask_for_it_whatever_its_model_reads(stem, argument):
    config = importlib.import_module(f"configs.{stem}").get_config(argument)
    config.options = "setting"
    checked = experiments.check(config.to_dict())
    assert checked.options == "setting"
