"""Documents of many windows: the task, the three ways of reading, the experiment."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import experiments
from experiments.compare.long_memory import page
from experiments.compare.long_memory.reading import WAYS, reader
from posenc_jax import make
from posenc_jax.lab import report, runs, tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.tasks.recall import lookup_distance
from posenc_jax.lab.tasks.task import BOS, SYMBOL
from posenc_jax.layout import full
from tests.support.refusing import config_of, refused
from tests.support.report_runs import record

KEYS, VALUES = 6, 4
QUERY = SYMBOL + KEYS * VALUES


def drawn(padding="right", more=0):
    """16 documents of 40 tokens, in columns of `more` tokens besides."""
    task = tasks.make("lookup", keys=KEYS, values=VALUES, padding=padding)
    size_B = jnp.full(16, 40, jnp.int32)
    options = {"xla_backend_optimization_level": 0}
    sample = jax.jit(lambda key: task.sample((), key, size_B, 40 + more), compiler_options=options)
    return task, jax.device_get(sample(jax.random.key(1)))


@pytest.mark.thorough
def test_lookup_is_solved_by_a_dictionary():
    task, batch = drawn()
    distances = np.asarray(lookup_distance(batch.tokens_BT, KEYS, VALUES))
    backs = []
    for row in range(16):
        tokens, targets, weights = (x[row] for x in batch[:3])
        assert tokens[0] == BOS
        assert (targets[:-1] == tokens[1:]).all()
        assert weights.sum() > 5
        bindings = {}
        for place in range(1, 40):
            token, is_query = tokens[place], bool(weights[place])
            assert SYMBOL <= token < task.vocab
            assert is_query == (QUERY <= token < QUERY + KEYS)
            if token < QUERY:
                key, value = divmod(token - SYMBOL, VALUES)
                assert key not in bindings, "asked for before it is assigned again"
                bindings[key] = value, place
            if is_query:
                value, since = bindings.pop(token - QUERY)
                assert targets[place] == QUERY + KEYS + value
                assert distances[row, place] == place - since
                backs.append(place - since)
            else:
                assert distances[row, place] == 0
            assert len(bindings) <= 4
    assert np.min(backs) == 1
    assert np.max(backs) > 15
    assert len(set(backs)) > 6
    _, wider = drawn(more=6)
    _, left = drawn("left", more=6)
    assert (wider.tokens_BT[:, :40] == batch.tokens_BT).all()
    assert (left.tokens_BT[:, 6:] == batch.tokens_BT).all()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["rope", "transformer_xl"])
def test_a_long_memory_and_a_cache_read_as_one_pass(name):
    """With a memory of the whole document; a shorter one forgets, and alone all is forgotten."""
    config = ModelConfig(width=16, heads=2, layers=2, mlp=1)
    model = transformer.build(config, make(name), 9)
    params = jax.jit(model.init)(jax.random.key(0))
    tokens_BT = jax.random.randint(jax.random.key(1), (2, 14), 0, 9)
    at = full(2, 14)

    def read():
        ways = {(way, 16): reader(model, config, way, 4, 16) for way in WAYS}
        ways["memory", 4] = reader(model, config, "memory", 4, 4)
        actual = {key: one.apply(params, tokens_BT, at) for key, one in ways.items()}
        return model.apply(params, tokens_BT, at), actual

    whole, actual = jax.jit(read)()
    gap_T = {key: np.abs(whole - one).max(axis=(0, 2)) for key, one in actual.items()}
    assert gap_T["memory", 16].max() < 1e-5
    assert gap_T["cache", 16].max() < 1e-5
    assert gap_T["alone", 16][:4].max() < 1e-5
    assert gap_T["alone", 16][4:].min() > 1e-4, "control"
    assert gap_T["memory", 4][:8].max() < 1e-5
    assert gap_T["memory", 4][8:].max() > 1e-5, "control"


@pytest.mark.thorough
def test_the_experiment_runs_to_its_report_and_page(tmp_path):
    config = config_of(
        "long_memory", seeds=1, train__steps=4, train__chunk=2, eval__lengths=(32, 64)
    )
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert set(summary["results"]) == {f"rope, {way}" for way in WAYS}
    assert set(summary["results"]["rope, cache"]) == {"32", "64"}
    stored = runs.read(tmp_path)
    labels = [r["labels"] for r in stored.records if r["labels"]["split"] == "test"]
    assert {label["position"] for label in labels if "position" in label} == {0, 16, 32, 48}
    assert {label["distance"] for label in labels if "distance" in label} >= {0}
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"by_window", "by_distance"}
    name, said, sections = experiments.document([stored])
    assert name == "long_memory"
    assert said[0].startswith("Documents of 4 windows, with a memory: rope has the best token acc")
    titles = ["Figures", "Results", "Other ways of reading", "What it does not show"]
    assert [section.title for section in sections] == titles
    assert len(sections[2].parts) == 5 + bool(stored.by_length.baselines)


def test_what_follows_is_said_of_bits_as_of_shares():
    def said(metric, value):
        actual = [record(seed, f"rope, {way}", length, value + seed / 10, metric=metric)
                 for way in WAYS for length in (32, 64) for seed in range(3)]  # fmt: skip
        summary = report.summarise(actual, metric=metric, train_length=32)
        return page.findings(SimpleNamespace(config={"window": 16}, by_length=summary))[0]

    with_memory = "Documents of 2 windows, as in training, with a memory: rope has the best"
    assert said("bits_per_byte", 7.7) == f"{with_memory} bits per byte, 7.800 ±0.248."
    assert said("token_accuracy", 0.7).startswith(f"{with_memory} token accuracy, 0.800 (")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model.kind": "encoder"}, ["model.kind", "encoder", "decoder"]),
        ({"train.remat": True}, ["train.remat"]),
        ({"window": 24}, ["train.length", "32", "24"]),
        ({"eval.lengths": (32, 70)}, ["eval.lengths", "70", "16"]),
        ({"eval.lengths": (64,)}, ["eval.lengths", "must hold", "32"]),
        ({"encoding.name": "randomized+rope"}, ["encoding.name", "randomized", "window"]),
        ({"encoding.name": "axial"}, ["encoding.name", "axial", "2 axes"]),
        ({"task.keys": 1}, ["task.keys", "1", "2 or more"]),
        ({"window": 0}, ["window", "0"]),
        ({"task.name": "negation"}, ["task.name", "negation", "lookup"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(changes, words):
    refused(config_of("long_memory"), changes, words)
