"""Language models on tokens: probes against NumPy, predictions, and the page of several runs."""

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from configs import lm
from configs import text as config_file
from experiments.compare.text import context_tests, outcomes, page, predictions, probes, rows
from experiments.compare.text.context_tests import TESTS
from experiments.compare.text.predictions import Prediction
from experiments.compare.text.run import condition_label
from posenc_jax import Dims, make
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config import sweeps
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.report.sections import Cell
from posenc_jax.lab.runs import StoredRun
from posenc_jax.lab.training.evaluation import CannotEvaluate
from posenc_jax.layout import full
from posenc_jax.options import FieldError
from tests.support.refusing import config_of, refused
from tests.support.report_runs import record

WIDTH, VOCAB = 8, 12
SMALL = {"width": WIDTH, "heads": 4, "kv_heads": 2, "layers": 2, "mlp_width": 6}


def small_model(name="nope", seed=0, **fields):
    """A config, a model of it and its initial weights."""
    config = ModelConfig(norm="rmsnorm", biases=(), tied=True, **{**SMALL, **fields})
    model = transformer.build(config, make(name), VOCAB)
    return config, model, jax.jit(model.init)(jax.random.key(seed))


def tokens_of(batch, time):
    return jax.random.randint(jax.random.key(3), (batch, time), 0, VOCAB)


def softmax(logits_BHQK):
    exp = np.exp(logits_BHQK - logits_BHQK.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def read():
    """method -> the attention and the projections of its layers, in NumPy."""

    def of(name):
        _, model, params = small_model(name)
        makers = model.attention, model.projections
        both = lambda params, x: [m(params, x, full(*x.shape)) for m in makers if m]
        return jax.device_get(jax.jit(both)(params, tokens_of(3, 7)))

    return {name: of(name) for name in ("nope", "rope")}


def test_projections_make_the_attention_by_numpy(read):
    """Of queries and keys of fewer heads, before rotation: the control is a rotated model."""
    gaps = {}
    for name, (weights, projections) in read.items():
        for a_BHQK, (q_BTHC, k_BTGC, v_BTGC) in zip(weights, projections, strict=True):
            assert v_BTGC.shape == k_BTGC.shape == (3, 7, 2, 2)
            k_BTHC = np.repeat(k_BTGC, 2, axis=2)
            logits = np.einsum("bqhc,bkhc->bhqk", q_BTHC, k_BTHC) / math.sqrt(2)
            logits = np.where(np.tri(7, dtype=bool), logits, -np.inf)
            gaps.setdefault(name, []).append(np.abs(softmax(logits) - a_BHQK).max())
    assert max(gaps["nope"]) < 1e-5
    assert min(gaps["rope"]) > 1e-3, "control"


def test_importance_is_the_mean_attention_to_a_token_by_it_and_those_after_it(read):
    for a_BHQK in read["rope"][0]:
        for token in (0, 2):
            wanted = np.zeros((3, 4))
            for b in range(3):
                for h in range(4):
                    column = [float(a_BHQK[b, h, i, token]) for i in range(token, 7)]
                    wanted[b, h] = sum(column) / len(column)
            np.testing.assert_allclose(probes.importance(a_BHQK, token), wanted, rtol=1e-5)


def test_a_sink_made_by_hand_is_seen_and_uniform_attention_is_none():
    uniform = np.tri(64) / np.tri(64).sum(axis=1, keepdims=True)
    sink = 0.5 * uniform + 0.5 * np.eye(64)[:1]
    heads_BHQK = jnp.asarray(np.stack([sink, uniform, uniform, sink, uniform])[None])
    mean_BH = np.asarray(probes.importance(heads_BHQK, 0))
    harmonic = sum(1 / n for n in range(1, 65)) / 64
    np.testing.assert_allclose(mean_BH[0, :2], [0.5 + harmonic / 2, harmonic], rtol=1e-5)
    readings = probes._sink_readings(7, [mean_BH[None, :, None], 0 * mean_BH[None, :, None]])
    text, random = readings
    assert text.labels == {"tokens": "text"}
    assert text.values["sinks"] == pytest.approx(0.4)
    assert random.values["sinks"] == 0
    late = probes.importance(jnp.asarray(sink)[None, None], 9)
    assert float(late[0, 0]) < predictions.SINK, "control: another token is none"


def test_massive_channels_are_those_of_loops():
    random = np.random.default_rng(0)
    norm_SNHC = random.uniform(1, 2, (2, 3, 4, 16))
    norm_SNHC[1, 2, 3, 5] = 40.0
    norm_SNHC[0, 0, 1] *= 100  # a large head has no massive channel
    wanted = np.zeros(norm_SNHC.shape, bool)
    for where in np.ndindex(norm_SNHC.shape[:-1]):
        mean = sum(norm_SNHC[where]) / 16
        for channel in range(16):
            wanted[*where, channel] = norm_SNHC[*where, channel] > 5 * mean
    assert (probes.massive(norm_SNHC) == wanted).all()
    assert np.argwhere(wanted).tolist() == [[1, 2, 3, 5]]
    least = np.full((1, 16), 1.0)
    least[0, 0] = 6.0  # less than 5 times the mean, which it raises
    assert not probes.massive(least).any(), "control"


def test_norms_are_over_all_tokens_of_each_channel(read):
    _, model, params = small_model("rope")
    norms = jax.jit(lambda p, x: probes._norms(model, x, p))(params, tokens_of(3, 7))
    for n, layer in enumerate(read["rope"][1]):
        for norm_NHC, x_BTHC in zip(norms, layer, strict=True):
            wanted = np.sqrt((np.asarray(x_BTHC, np.float64) ** 2).sum(axis=(0, 1)))
            np.testing.assert_allclose(norm_NHC[n], wanted, rtol=1e-5)


def test_massive_readings_count_for_each_head_and_say_which_are_slow():
    slow_C = np.arange(16) >= 8
    q, k, v = (np.ones((2, 1, heads, 16)) for heads in (6, 3, 3))
    q[0, :, :, 9] = k[0, :, :, 10] = 50.0  # of the first seed, slow in every head
    q[0, :, :3, 2] = 50.0  # and fast in three
    (reading,) = probes._massive_readings(slow_C, 3, [q, k, v])
    values = {name: by_seed.tolist() for name, by_seed in reading.values.items()}
    assert values["massive_q"] == [1.5, 0]
    assert values["massive_k"] == [1, 0]
    assert values["massive_v"] == [0, 0], "control"
    assert values["massive_qk"] == [pytest.approx(12 / 9), 0]
    assert values["massive_slow"][0] == pytest.approx(9 / 12)
    assert math.isnan(values["massive_slow"][1]), "none, so no share"
    (without,) = probes._massive_readings(None, 3, [q, k, v])
    assert "massive_slow" not in without.values


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_slow_channels_are_the_last_half_of_the_pairs(pairing):
    dims = Dims(32, 2, 16, 1)
    slow_C = probes.slow_channels(make("rope", base=1e5, pairing=pairing), dims)
    pair_C = np.arange(16) % 8 if pairing == "half" else np.arange(16) // 2
    assert slow_C is not None
    assert (slow_C == (pair_C >= 4)).all()
    other_C = np.arange(16) // 2 if pairing == "half" else np.arange(16) % 8
    assert (slow_C != (other_C >= 4)).any(), "control"


@pytest.mark.parametrize("name", ["nope", "alibi", "fox"])
def test_methods_that_do_not_rotate_have_no_slow_pairs(name):
    assert probes.slow_channels(make(name), Dims(32, 2, 16, 1)) is None


def test_a_method_that_leaves_channels_alone_has_no_slow_half():
    assert probes.slow_channels(make("partial", share=0.25), Dims(32, 2, 16, 1)) is None


def influence_of(config, name, params, tokens_BT, direction_FD):
    states = transformer.build(config, make(name), tokens_BT.shape[1], states=True)
    measure = lambda params, x, d: probes.influence(states, params, x, d)
    return np.asarray(jax.jit(measure)(params, tokens_BT, direction_FD))


def units(width):
    """The directions with which the estimate is exact."""
    return jnp.eye(width) * math.sqrt(width)


def test_influence_is_the_jacobian_by_differences():
    """A token that stands once in a text has a row of the embedding of its own."""
    config, _, params = small_model("rope")
    model = transformer.build(config, make("rope"), VOCAB, states=True)
    tokens_BT = jnp.asarray([[3, 7, 1, 9, 4]])
    last = jax.jit(lambda params: model.apply(params, tokens_BT, full(1, 5))[0, -1])
    step = 1e-2
    wanted = np.zeros(5)
    for place, token in enumerate([3, 7, 1, 9, 4]):
        for channel in range(WIDTH):
            ends = [
                last({**params, "embed": params["embed"].at[token, channel].add(sign * step)})
                for sign in (1, -1)
            ]
            wanted[place] += np.square((ends[0] - ends[1]) / (2 * step)).sum()
    exact_BT = influence_of(config, "rope", params, tokens_BT, units(WIDTH))
    np.testing.assert_allclose(exact_BT[0], wanted, rtol=0.02)
    shuffled = influence_of(config, "rope", params, tokens_BT[:, ::-1], units(WIDTH))
    assert np.abs(shuffled[0] / wanted - 1).max() > 0.05, "control: another text"
    random = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), (400, WIDTH))
    drawn_BT = influence_of(config, "rope", params, tokens_BT, jnp.asarray(random))
    np.testing.assert_allclose(drawn_BT, exact_BT, rtol=0.2)


def cesaro_model(layers):
    """A config whose attention is uniform and whose norms are the identity, with its weights.

    A large eps makes a norm linear: x / sqrt(eps), times a scale of sqrt(eps).
    """
    fields = {"heads": 1, "kv_heads": 1, "layers": layers, "eps": 1e8}
    config, _, params = small_model("nope", **fields)
    identity = jnp.eye(WIDTH)
    params = jax.tree.map(jnp.zeros_like, params) | {"embed": params["embed"]}
    params["norm"] = {"scale": jnp.full(WIDTH, 1e4)}
    for n in range(layers):
        block = params[f"block_{n}"]
        block["value"]["kernel"] = block["out"]["kernel"] = identity
        for name in ("attention_norm", "mlp_norm"):
            block[name] = {"scale": jnp.full(WIDTH, 1e4)}
    return config, params


def test_the_influence_of_uniform_attention_is_that_of_the_cesaro_matrix():
    """The Jacobian is the last row of (1 + C)^L, C the mean over the tokens so far (2603.10123)."""
    layers, time = 3, 12
    config, params = cesaro_model(layers)
    actual_BT = influence_of(config, "nope", params, tokens_of(2, time), units(WIDTH))
    cesaro = np.tri(time) / np.arange(1, time + 1)[:, None]
    row_T = np.linalg.matrix_power(np.eye(time) + cesaro, layers)[-1]
    np.testing.assert_allclose(actual_BT, np.tile(WIDTH * row_T**2, (2, 1)), rtol=1e-3)
    influence_T = np.sqrt(actual_BT[0])
    assert predictions.ends_over_middle(influence_T) > 1.1, "it has the shape of a U"
    without = np.linalg.matrix_power(cesaro, layers)[-1]
    assert np.abs(influence_T / influence_T.sum() - without / without.sum()).max() > 0.1, "control"
    assert predictions.ends_over_middle(without) < 1, "control: without residuals no end"


def test_ranges_of_positions_are_root_mean_squares():
    squares_SBT = np.random.default_rng(0).uniform(size=(2, 3, 70))
    readings = [*probes._influence_readings(5, squares_SBT)]
    at = [math.floor(70 * n / 32) for n in range(33)]
    assert [r.labels["position"] for r in readings] == at[:-1]
    for n, reading in enumerate(readings):
        wanted = [np.sqrt(np.mean(s_BT[:, at[n] : at[n + 1]])) for s_BT in squares_SBT]
        np.testing.assert_allclose(reading.values["influence"], wanted)
    assert probes.range_edges(8) == [*range(9)]


def test_texts_are_windows_of_one_document():
    segment_BT = jnp.asarray([[1, 1, 2], [1, 1, 1], [1, 1, 0], [1, 1, 1]])
    tokens_BT = jnp.arange(12).reshape(4, 3)
    batch = SimpleNamespace(tokens_BT=tokens_BT, layout=SimpleNamespace(segment_BT=segment_BT))
    chosen: Any = SimpleNamespace(
        data=None, examples=lambda size: 4,
        test=lambda data, index_E, size, width: tuple_of(batch, index_E),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "device_get", lambda value: value)
        np.testing.assert_array_equal(probes.texts(chosen, 3, 9), tokens_BT[np.array([1, 3])])
        assert len(probes.texts(chosen, 3, 1)) == 1
        batch.layout.segment_BT = segment_BT[:1]
        with pytest.raises(CannotEvaluate, match="no test window of 3 tokens lies in one"):
            probes.texts(chosen, 3, 9)


def tuple_of(batch, index_E):
    assert index_E.tolist() == [0, 1, 2, 3]
    return batch


# Predictions.


def test_an_outcome_has_two_sides_and_what_lies_between():
    more = Prediction("sinks in text", True, "all", holds=0.05, refuted=0.01)
    less = Prediction("sinks in text", False, "all", holds=0.01, refuted=0.05)
    said = [[predictions.outcome(p, x) for x in (0.0, 0.03, 0.9)] for p in (more, less)]
    assert said[0] == ["refuted", "not decided", "as claimed"]
    assert said[1] == ["as claimed", "not decided", "refuted"]
    for prediction in predictions.PREDICTIONS:
        assert prediction.holds != prediction.refuted
        assert prediction.number in predictions.WORDS


def test_a_prediction_is_of_methods_that_rotate_or_not():
    names = ("rope", "partial", "nope", "alibi", "kerple_log", "t5", "fox")
    assert [n for n in names if predictions.is_of("rotary", n)] == ["rope", "partial"]
    assert [n for n in names if predictions.is_of("others", n)] == [*names[2:]]
    assert all(predictions.is_of("all", n) for n in names)


def test_numbers_of_curves():
    curve = [4.0, 1, 1, 1, 3, 1, 1, 6]
    assert predictions.ends_over_middle(curve) == pytest.approx(4 / 1.5)
    assert predictions.ends_over_middle(curve[::-1]) == pytest.approx(4 / 1.5)
    assert predictions.ends_over_middle([0.5, *curve[1:]]) < 1, "control"
    assert predictions.largest_factor(curve, [7 * x for x in curve]) == pytest.approx(1)
    other = [2 * curve[0], *curve[1:]]
    wanted = max(2 * 18 / 22, 22 / 18)
    assert predictions.largest_factor(curve, other) == pytest.approx(wanted)
    assert predictions.largest_factor(other, curve) == pytest.approx(wanted)


def test_the_fingerprint_covers_predictions_settings_and_rules(monkeypatch):
    before = predictions.fingerprint()
    assert before == predictions.fingerprint()
    first, *others = predictions.PREDICTIONS
    for name, value in {
        "PREDICTIONS": (first._replace(refuted=0.06), *others),
        "SINK": 0.2,
        "outcome": lambda prediction, number: "as claimed",
        "WORDS": {},
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(predictions, name, value)
            assert predictions.fingerprint() != before, name


# Tests of context, the config and its sweep.


def test_lengths_without_documents_have_a_reason(monkeypatch):
    """Both tests of recall are of the same documents; a wrong field is still refused."""
    asked_for = []

    def make_task(name, test, context, stretch):
        asked_for.append((test, context))
        if context > 4096 or (test == "recall_absent" and context > 1024):
            field = ("task", "context" if context > 4096 else "test")
            raise FieldError(field, f"no document of {context}")
        return SimpleNamespace(least=256 if test == "same_end" else 48, facts={})

    monkeypatch.setattr(tasks, "make", make_task)
    config: Any = SimpleNamespace(
        eval=SimpleNamespace(lengths=(32, 128, 1024, 4096, 8192)),
        task=SimpleNamespace(name="stdlib_tokens", options={}), documents=4,
    )  # fmt: skip
    tests = context_tests.context_tests(config)
    reasons = {name: test.reasons for name, test in tests.items()}
    too_few = {32: "32 tokens are too few; 256 or more", 128: "128 tokens are too few; 256 or more"}
    assert reasons["same_end"] == too_few | {8192: "no document of 8192"}
    both = {n: f"no document of {n}" for n in (4096, 8192)}
    assert reasons["recall"] == both | {32: "32 tokens are too few; 48 or more"}
    assert reasons["recall"] == reasons["recall_absent"]
    assert asked_for[-2:] == [("recall", 1024), ("recall_absent", 1024)]

    def without_folder(name, **options):
        raise FieldError("task.name", "no such folder")

    monkeypatch.setattr(tasks, "make", without_folder)
    with pytest.raises(FieldError, match="no such folder"):
        context_tests.context_tests(config)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.kind": "encoder"}, ["model.kind", "encoder", "decoder"]),
        ({"task.name": "copy"}, ["task.name", "copy", "stdlib_tokens", "tokens:PATH"]),
        ({"task.test": "recall"}, ["task.test", "leave it out"]),
        ({"task.context": 512}, ["task.context", "leave it out"]),
        ({"eval.lengths": (256,)}, ["eval.lengths", "must hold", "64"]),
        ({"eval.variants": ("rope", "yarn")}, ["eval.variants", "leave it empty"]),
        ({"documents": 0}, ["documents", "0"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(changes, words):
    refused(config_of("text"), changes, words)


def test_the_setting_is_that_of_the_language_model():
    ours, theirs = (
        module.get_config(argument).to_dict()
        for module, argument in ((config_file, ""), (lm, "6m"))
    )
    assert ours["model"] == theirs["model"]
    differs = {k for k in ours["train"] if ours["train"][k] != theirs["train"][k]}
    assert differs == {"steps", "warmup"}
    tokens = ours["train"]["steps"] * ours["train"]["batch"] * ours["train"]["length"]
    assert 30e6 <= tokens < 31e6
    assert ours["eval"]["lengths"] == (512, 1024, 2048, 4096, 8192)


def test_the_sweep_begins_with_one_seed_of_six_encodings():
    points = sweeps.expand(config_file.get_sweep())
    each = [(p.overrides["encoding.name"], p.overrides["first_seed"], p.overrides["seeds"])
            for p in points]  # fmt: skip
    first = ["rope", "rope", "partial", "nope", "alibi", "kerple_log"]
    assert each[:6] == [(name, 0, 1) for name in first]
    assert each[6:] == [("rope", 1, 2), ("nope", 1, 2), ("t5", 0, 1), ("fox", 0, 1)]
    assert [p.overrides.get("encoding.base") for p in points[:2]] == [None, 1e5]
    config = config_file.get_config().to_dict()
    for point in points:
        experiments.check(sweeps.resolve(config, point.overrides))


# The page.

LENGTHS = (512, 8192)


def condition_values(bits, gain, recalled):
    """condition -> metric -> length -> value of one seed."""
    nats = {"recall": 3.0 - recalled, "recall_absent": 3.0}
    return {
        "": {"bits_per_byte": {512: bits, 8192: bits + 0.5}},
        "same_end": {"bits_per_byte": {512: 2.0, 8192: 2.0 - gain}},
        **{
            test: {
                metric: dict.fromkeys(LENGTHS, value)
                for metric, value in (
                    ("loss", loss),
                    ("bits_per_byte", 1),
                    ("token_accuracy", 0.25),
                )
            }
            for test, loss in nats.items()
        },
    }


def stored(name, by_seed, first_seed=0, facts=None, missing=(), **fields):
    """A run of one encoding.

    by_seed: for each seed, in any order, (seed, bits, gain, recalled nats).
    """
    records = []
    for seed, *values in by_seed:
        for condition, by_metric in condition_values(*values).items():
            label = condition_label(name, condition) if condition else name
            records += [
                record(seed, label, length, value, metric=metric)
                for metric, by_length in by_metric.items()
                for length, value in by_length.items()
                if (condition, length) not in missing
            ]
        records += [record(seed, name, 8192, values[0], position=p) for p in (0, 1024)]
        for trained in (False, True):
            at: Any = {"step": 60 if trained else 0}
            sinks = condition_label(name, "sinks")
            for tokens, share in (("text", 0.2), ("random", 0.03)):
                value = share * trained
                records.append(record(seed, sinks, 64, value, metric="sinks", tokens=tokens, **at))
            massive = condition_label(name, "massive values")
            for metric, value in (("massive_qk", 0.6), ("massive_v", 0.0), ("massive_slow", 0.4)):
                records.append(record(seed, massive, 512, value * trained, metric=metric, **at))
            shape = [3.0, 1.0, 1.0, 2.0] if name == "rope" else [0.5, 1.0, 1.0, 2.0]
            for n, value in enumerate(shape):
                label = condition_label(name, "influence")
                records.append(record(seed, label, 512, value, metric="influence",
                                      position=128 * n, **at))  # fmt: skip
    config = config_file.get_config(name).to_dict()
    config["encoding"] |= fields.pop("encoding", {})
    config |= {"seeds": len(by_seed), "first_seed": first_seed, **fields}
    summary = report.summarise(
        records, metric="bits_per_byte", train_length=512, baselines={"gzip": 3.0},
        not_measured=[{"encoding": condition_label(name, condition), "length": length,
                       "reason": "too short"} for condition, length in missing],
    )  # fmt: skip
    task = {"task": "stdlib_tokens"}
    fixed = {"predictions": predictions.fingerprint(), "documents": {"recall": 8}, "task": task}
    summary = replace(summary, facts=fixed if facts is None else facts)
    return StoredRun(Path(f"{name}-{first_seed}"), config, {}, records, summary)


def several_runs():
    """rope and nope with seeds of two runs each, the others with one seed."""
    rope = {0: (2.0, 0.1, 1.0), 1: (2.1, 0.2, 1.2), 2: (2.2, 0.1, 1.1)}
    more = {seed: (bits + 0.3 + 0.01 * seed, gain / 2, recalled - 0.9)
            for seed, (bits, gain, recalled) in rope.items()}  # fmt: skip
    of = lambda values, *seeds: [(seed, *values[seed]) for seed in seeds]
    return [
        stored("nope", of(more, 2, 1), 1),
        stored("alibi", [(0, 1.5, 0.4, 0.1)]),
        stored("nope", of(more, 0)),
        stored("rope", of(rope, 0)),
        stored("rope", [(0, 2.05, 0.1, 1.0)], encoding={"base": 1e5}),
        stored("rope", of(rope, 1, 2), 1),
    ]


def test_the_page_says_first_what_several_seeds_decide():
    said, _ = page.document(several_runs())
    gaps = np.array([0.3, 0.31, 0.32])
    assert said[0].startswith(f"Decided, bits per byte against rope: nope has {gaps.mean():.3f} ±")
    assert " more at the trained length; nope has 0.310 ±" in said[0]
    half = 4.302653 * gaps.std(ddof=1) / math.sqrt(3)  # of one comparison; here there are two
    shown = float(said[0].partition("±")[2].split()[0])
    assert half < shown < 2 * half
    assert said[0].endswith("(paired by 3 seeds, intervals of 95% for 2 comparisons together).")
    recall, gain = said[1:3]
    assert recall.startswith("Decided, recall gain (bits per token) against rope: nope has ")
    assert f"nope has {0.9 / math.log(2):.3f} ±0.000 less at 8,192 tokens (paired by" in recall
    assert gain.startswith("Not decided, context gain (bits per byte) against rope: nope has ")
    mean = np.mean([0.05, 0.1, 0.05])
    assert f"nope has {mean:.3f} ±0.072 less at 8,192 tokens (paired by 3 seeds, " in gain
    alone = said[3]
    assert alone.startswith(
        "One seed, so not decided: bits per byte at 8,192 tokens: alibi 2.000, "
    )
    assert "rope, base 100000 2.550" in alone
    assert "the 3 seeds of rope lie between 2.500 and 2.700" in alone


def questions(sections):
    """prediction, methods -> row -> the cell of its table, in the order of names."""
    (section,) = [section for section in sections if section.title.startswith("Sinks")]
    (grid,) = [part for part in section.parts if isinstance(part, report.Grid)]
    rows_of_grid = [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]
    return {(row["number"], row["methods"]): dict(sorted(row.items())) for row in rows_of_grid}


def test_seeds_are_paired_whatever_their_order():
    in_order, _ = page.document(several_runs())
    reversed_runs = several_runs()[::-1]
    for run in reversed_runs:
        run.records.reverse()
    said, sections = page.document(reversed_runs)
    assert said == in_order
    assert questions(sections) == questions(page.document(several_runs())[1])
    other = several_runs()
    swapped = [{**r, "seed": {1: 2, 2: 1}[r["seed"]]} for r in other[0].records]
    other[0] = other[0]._replace(records=swapped)
    assert page.document(other)[0] != in_order, "control: seeds of nope that are swapped"


def test_rope_is_the_reference_wherever_it_stands():
    rope, nope = (stored(name, [(0, 2.0, 0.1, 1.0)]) for name in ("rope", "nope"))
    both = rope._replace(config={**rope.config, "encoding": {"name": "nope,rope"}},
                         records=nope.records + rope.records)  # fmt: skip
    assert list(rows.of_runs([both]).windows.results) == ["rope", "nope"]
    assert list(rows.of_runs([nope, rope]).windows.results) == ["rope", "nope"]
    alone = rows.of_runs([nope]).windows.results
    assert list(alone) == ["nope"], "control: without it the first one"


def test_one_seed_decides_nothing():
    said, _ = page.document([run for run in several_runs() if run.config["first_seed"] == 0])
    assert said[0].startswith("Nothing is decided: no other encoding has two seeds in common with ")
    assert said[1].startswith(
        "One seed, so not decided: bits per byte at 8,192 tokens: alibi 2.000"
    )
    assert len(said) == 2


def test_the_sections_have_gains_and_what_was_not_measured():
    short = several_runs()
    short[1] = stored("alibi", [(0, 1.5, 0.4, 0.1)], missing=[("recall", 8192)])
    _, sections = page.document(short)
    titles = [section.title for section in sections]
    assert titles[:3] == [
        "Bits per byte by length", "What more context is worth", "Recall of its own context",
    ]  # fmt: skip
    grids = {s.title: [p for p in s.parts if isinstance(p, report.Grid)] for s in sections}
    of = lambda title, n, name: next(r for r in grids[title][n].rows if r[0] == name)
    bits, gain, recall = titles[:3]
    assert [row[0] for row in grids[bits][0].below] == ["gzip"], "floors stand beside"
    assert of(gain, 0, "alibi")[2].text == "0.400"
    wanted = np.mean([1.0, 1.2, 1.1]) / math.log(2)
    assert of(recall, 0, "rope")[1].text == f"{wanted:.3f}"
    assert of(recall, 0, "alibi")[2].note == "too short"
    assert of(recall, 1, "rope")[1].text == "0.250"
    assert page.not_shown(short)[0].endswith("these: 8 (recall).")


def test_figures_draw_intervals_of_several_seeds_and_tokens_by_position():
    rows_of_page = several_runs()
    _, sections = page.document(rows_of_page)
    pictures = {p.name: p for s in sections for p in s.parts if isinstance(p, report.Picture)}
    assert list(pictures) == [
        "bits_by_length", "bits_difference", "bits_by_position", "context_gain", "recall_gain",
        "influence",
    ]  # fmt: skip
    figure = pictures["bits_by_position"].draw()
    assert "position in the window (tokens, log scale)" in figure.get_supxlabel()
    assert [axes.get_title() for axes in figure.axes] == ["length 8192 · 16×"]
    for run in rows_of_page:
        run.summary.facts["task"] = {"task": "stdlib"}
    figure = page.document(rows_of_page)[1][0].parts[-1].draw()
    assert "position in the window (bytes, log scale)" in figure.get_supxlabel(), "control"


def test_no_figure_or_table_ranks_a_row_of_one_seed():
    """alibi, of one seed, has the fewest bits."""

    def ranked(runs_of_page):
        picture, table, *_ = page.document(runs_of_page)[1][0].parts
        assert isinstance(picture, report.Picture)
        assert isinstance(table, report.Grid)
        cells = [(row[0], row[1]) for row in table.rows]
        bold = [name for name, cell in cells if isinstance(cell, Cell) and cell.bold]
        return " ".join(picture.draw().axes[0].get_title().split()), bold

    assert ranked(several_runs()) == ("Bits per byte by test length", ["rope"])
    one_seed = [run for run in several_runs() if run.config["first_seed"] == 0]
    assert ranked(one_seed)[1] == ["alibi"], "control: where all have one, the table has a best"


def test_what_the_page_does_not_show_names_the_options_of_the_setting():
    _, _, sections = experiments.document(several_runs())
    (limits,) = [section.parts for section in sections if section.title == "What it does not show"]
    options = "each has what suits the setting, but for base 100000.0."
    assert f"- Other options of the methods: {options}" in limits
    library = [run._replace(config={**run.config, "options": "library"}) for run in several_runs()]
    _, _, sections = experiments.document(library)
    (limits,) = [section.parts for section in sections if section.title == "What it does not show"]
    assert f"- Other options of the methods: {options}" not in limits, "control"


def test_predictions_stand_beside_numbers_of_runs_that_recorded_them():
    _, sections = page.document(several_runs())
    section = next(s for s in sections if s.title.startswith("Sinks"))
    table = questions(sections)
    cells = {number: row for (number, methods), row in table.items() if methods != "that do not"}
    sinks = cells["sinks in text, after training"]
    assert (sinks["claimed"], sinks["refuted if"]) == ("> 0.05", "< 0.01")
    assert sinks["rope"] == sinks["alibi"] == "0.20"
    assert cells["sinks in random tokens, after training"]["nope"] == "0.03?"
    assert cells["massive in q and k, after training"]["rope, base 100000"] == "0.60"
    assert cells["massive in v, after training"]["nope"] == "—"
    assert cells["slow pairs' share, after training"]["rope"] == "0.40*"
    ends = cells["ends over middle, before training"]
    assert (ends["rope"], ends["nope"]) == ("2.00", "0.50*")
    factor = (3 / 7) / (0.5 / 4.5)
    assert cells["factor from nope, before training"]["rope"] == f"{factor:.2f}*"
    assert table["massive in q and k, after training", "that do not"]["alibi"] == "0.60*"
    refuted_by = next(p for p in section.parts if isinstance(p, str) and p.startswith("Refuted"))
    assert "slow pairs' share, after training (" in refuted_by
    for facts in ({"predictions": "another"}, {}):
        late = [*several_runs()[:-1], stored("fox", [(0, 2.0, 0.1, 1.0)], facts=facts)]
        _, sections = page.document(late)
        assert not any(s.title.startswith("Sinks") for s in sections), "control"


def test_runs_of_one_page_are_alike_and_have_each_seed_once():
    longer: Any = {"train": {**several_runs()[0].config["train"], "steps": 9}}
    with pytest.raises(ValueError, match=r"^workdir: the runs differ in config.train.steps$"):
        page.document([*several_runs(), stored("t5", [(0, 2.0, 0.1, 1.0)], **longer)])
    with pytest.raises(ValueError, match=r"^workdir: nope with seed 0 is in nope-0 and nope-0$"):
        page.document([*several_runs(), stored("nope", [(0, 2.0, 0.1, 1.0)])])


@pytest.mark.thorough
def test_the_experiment_runs_to_its_report_and_page(tmp_path, monkeypatch):
    config = config_of(
        "text", "rope,nope,quick", seeds=1, train__steps=4, train__chunk=2, train__warmup=1,
        eval__lengths=(64, 256, 320), documents=4, model__width=8, model__heads=2,
        model__mlp_width=8, task__stretch=1024,
    )  # fmt: skip
    experiments.prepare(config, str(tmp_path))()
    run = runs.read(tmp_path)
    measured = rows.of_runs([run])
    assert all(measured.measured(condition) for condition in measured.records)
    assert {r["step"] for r in measured.records["sinks"]} == {0, 4}
    assert run.summary.facts["predictions"] == predictions.fingerprint()
    gaps = {(entry.encoding, entry.length) for entry in run.by_length.not_measured}
    assert gaps == {(condition_label(name, "same_end"), 64) for name in ("rope", "nope")}
    short = {entry.reason for entry in run.by_length.not_measured}
    assert short == {"64 tokens are too few; 256 or more"}
    for test in TESTS:
        assert not any("position" in r["labels"] for r in measured.records[test])
    assert any("position" in r["labels"] for r in measured.records["windows"])
    factor = outcomes.numbers(measured, "factor from nope", trained=False)
    assert factor["rope"][0] > 1
    name, said, sections = experiments.document([run])
    assert name == "text"
    assert said[0].startswith("Nothing is decided")
    assert [section.title for section in sections] == [
        "Bits per byte by length", "What more context is worth", "Recall of its own context",
        "Sinks, massive values, and the middle at birth", "What it does not show", "Every seed",
    ]  # fmt: skip
    figures = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert {"context_gain", "recall_gain", "influence"} <= figures
