"""Translation: the floor of the task, its pairs, training on them, and the experiment."""

import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import experiments
from experiments.compare.page import RULE
from experiments.compare.translation import bleu
from experiments.compare.translation.run import encodings_of
from posenc_jax import make
from posenc_jax.encodings import CATALOG, axes, cards
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.config.schema import ModelConfig
from posenc_jax.lab.model import transformer
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.lab.report import Section
from posenc_jax.lab.tasks import task_floors as floors
from posenc_jax.lab.tasks.question_answer import text
from posenc_jax.lab.tasks.source_target import paired
from posenc_jax.lab.tasks.task import SEP
from posenc_jax.lab.training import optimizers
from posenc_jax.lab.training.step import State, update
from posenc_jax.options import FieldError


@pytest.mark.thorough
def test_the_grammar_without_order_knows_the_forms_and_not_the_order():
    """With one word of a kind left the rule is right; it is the best that tables and bags know."""
    task = tasks.make("translation")
    scores = floors.predictors(task, (1, 3), 2, examples=256, fitted=512)
    best = max(scores, key=lambda name: scores[name].token_accuracy)
    assert best == "grammar without order"
    assert 0.6 < scores[best].token_accuracy < 0.9
    assert scores[best].exact_match < 0.2
    test = next(floors._tested(task, (2,), 256))
    guess_BT = floors._guesses(task.bag[best], task.vocab, test)
    wrong_BT = test.answer_BT & (guess_BT != test.targets_BT)
    last_BT = test.answer_BT & (np.cumsum(test.answer_BT[:, ::-1], 1)[:, ::-1] == 1)
    assert not wrong_BT[last_BT].any(), "the end is known"
    assert wrong_BT.any(axis=1).mean() > 0.8, "control"


@pytest.mark.thorough
@pytest.mark.parametrize("padding", ["right", "left"])
def test_a_pair_has_the_tokens_of_the_line(padding):
    plain = tasks.make("translation", padding=padding)
    index_B = jnp.arange(8)
    line = plain.test((), index_B, 3, plain.width(3))
    pair = paired(plain).test((), index_B, 3, plain.width(3))
    for row in range(8):
        token_T, at = line.tokens_BT[row], (pair.layout.source, pair.layout.target)
        source, target = (np.asarray(side.segment_BT[row]) > 0 for side in at)
        whole = np.asarray(line.layout.segment_BT[row]) > 0
        assert (source ^ target).tolist() == whole.tolist()
        assert token_T[source][0] == tasks.task.BOS
        assert token_T[target][0] == tasks.task.SEP
        for side, inside in zip(at, (source, target), strict=True):
            assert side.pos_BT[row][inside].tolist() == list(range(inside.sum()))
    assert (pair.weights_BT == line.weights_BT).all()
    assert (pair.targets_BT == line.targets_BT).all()


@pytest.mark.thorough
def test_a_training_step_on_pairs():
    task = paired(tasks.make("translation"))
    config = ModelConfig(kind="encoder_decoder", width=16, heads=2, layers=1, mlp=2)
    model = transformer.build(config, Encodings(make("rope"), make("t5")), task.vocab)
    tx = optimizers.make(optax.constant_schedule(1e-2), 1e9, 0.0)
    params = model.init(jax.random.key(0))
    state = State(params, tx.init(params), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    batch = task.sample((), jax.random.key(1), jnp.full(8, 2, jnp.int32), task.width(2))
    step, losses = jax.jit(update(model, tx)), []
    for _ in range(5):
        state, metrics = step(state, batch, jnp.float32(1e-2))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 0.5


def config_of(argument="quick", **changes):
    config = importlib.import_module("configs.translation").get_config(argument)
    config.update_from_flattened_dict({f.replace("__", "."): v for f, v in changes.items()})
    return config.to_dict()


@pytest.mark.thorough
def test_the_experiment_runs_to_its_report(tmp_path):
    config = config_of(seeds=1, encoding__name="rope", train__steps=20, sides__cross="t5")
    experiments.prepare(config, str(tmp_path))()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert {"2", "4"} == set(summary["results"]["rope"])
    assert {"2"} == set(summary["results"]["rope, shuffled"])
    stored = runs.read(tmp_path)
    decoded = {r["labels"]["length"] for r in stored.records if r["metric"] == "bleu"}
    assert decoded == {2, 4}
    assert "tok:none" in summary["facts"]["bleu"]
    name, said, (section, limits) = experiments.document([stored])
    assert (name, section.title) == ("translation", "translation")
    assert limits.title == "What it does not show"
    assert said[-1] == RULE
    assert "At the longest length, 4 clauses, " in said[-2]
    assert "BLEU" in [part.title for part in section.parts if isinstance(part, Section)]
    assert 0.0 < summary["baselines"]["grammar without order, size 2"] < 1.0
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model__kind": "decoder"}, ["model.kind", "decoder", "encoder_decoder"]),
        ({"model__masks__loss": False}, ["model.masks.loss", "False"]),
        ({"sides__cross": "alibi"}, ["sides.cross", "alibi", "nope", "t5", "rope"]),
        ({"sides__encoder": "axial"}, ["sides.encoder", "axial", "2 axes"]),
        ({"sides__encoder": "ropes"}, ["sides.encoder", "ropes", "rope"]),
        ({"encoding__name": "rope+axial"}, ["encoding.name", "axial"]),
        ({"encoding__bse": 1.0}, ["encoding.bse", "base"]),
        ({"sides__encoder": "rope", "sides__decoder": "t5"}, ["sides", "encoding.name"]),
        ({"task__name": "stdlib"}, ["task.name", "stdlib"]),
        ({"eval__variants": ("yarn",)}, ["eval.variants"]),
        ({"encoding__name": "learned", "encoding__length": 20}, ["eval.lengths", "learned", "20"]),
    ],
)
def test_wrong_fields_are_refused_in_one_line(changes, words):
    config = config_of()
    for field, value in changes.items():
        part, name = field.split("__", 1)
        inside = config[part]["masks"] if name == "masks__loss" else config[part]
        inside[name.removeprefix("masks__")] = value
    with pytest.raises(FieldError) as error:
        experiments.check(config)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_either_side_has_an_encoding_of_its_own():
    checked = experiments.check({**config_of(), "sides": {"decoder": "nope", "cross": "rope"}})
    actual = encodings_of(checked, "t5")
    assert (actual.encoder.bias, actual.decoder.bias) != (None, None)
    assert actual.decoder.bias is None
    assert actual.cross.rotate is not None
    both = encodings_of(experiments.check(config_of()), "t5")
    assert both.encoder.bias is not None, "control"
    assert both.decoder.bias is not None, "control"


def test_every_method_of_sequences_fits_either_side():
    """But those that read groups of tokens, such as digits, which sentences do not have."""
    names = [name for name in CATALOG if axes(name) < 2]
    grouped = [name for name in names if any(card.groups for card in cards(name))]
    assert 0 < len(grouped) < 8 < len(names)
    for name in names:
        for side in ("encoder", "decoder"):
            config = config_of(**{f"sides__{side}": name})
            if name in grouped:
                with pytest.raises(FieldError, match=rf"sides\.{side}: {name} reads the groups"):
                    experiments.check(config)
            else:
                experiments.check(config)


def pairs_file(path, count=60):
    numbers = ["one", "two", "three", "four"]
    rows = (f"{numbers[i % 4]} {i}\t{i} {numbers[i % 4]} a b c\n" for i in range(count))
    path.write_text("".join(rows), "utf-8")
    return f"pairs:{path}"


@pytest.mark.thorough
def test_own_pairs_are_read_from_a_file(tmp_path):
    task = tasks.make(pairs_file(tmp_path / "own.tsv"))
    assert sum(task.facts["examples"].values()) == 60
    count = task.examples(24)
    batch = task.test(task.data, jnp.arange(count), 24, 24)
    for row in range(count):
        tokens, answer = np.asarray(batch.tokens_BT[row]), np.asarray(batch.weights_BT[row]) > 0
        question = text(tokens[1 : list(tokens).index(SEP)].tolist())
        actual = text(np.asarray(batch.targets_BT[row])[answer].tolist()).split()
        assert actual == [*question.split()[::-1], "a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read: No such file"),
        ("a\tb\nc\td\te\n", "line 2 is not a question, a tab and an answer"),
        ("a\tb\n", "too few lines; none is for train"),
    ],
)
def test_wrong_files_of_pairs_are_refused(tmp_path, content, words):
    path = tmp_path / "own.tsv"
    if content is not None:
        path.write_text(content)
    config = config_of()
    config["task"] = {"name": f"pairs:{path}"}
    with pytest.raises(FieldError) as error:
        experiments.check(config)
    assert "\n" not in str(error.value)
    assert words.split(" for ")[0] in str(error.value)


@pytest.mark.thorough
def test_bleu_of_translations_is_that_of_their_texts(tmp_path, monkeypatch):
    """A decoder that gives the references has 100, one that gives other words has less."""
    config = experiments.check(
        {**config_of(seeds=2), "task": {"name": pairs_file(tmp_path / "own.tsv")}}
        | {"eval": {"lengths": (24,), "examples": 8}, "train": {"length": 24}}
    )
    task = paired(tasks.make(config.task.name))
    translator = bleu.Translator(config, task, model=None)
    batch = task.test(task.data, jnp.arange(task.examples(24)), 24, 24)
    right_BN = jnp.where(batch.weights_BT > 0, batch.targets_BT, 0)
    start_B = jnp.argmax(batch.weights_BT, axis=1)
    right_BN = jax.vmap(jnp.roll)(right_BN, -start_B)
    actual = jnp.stack([right_BN, right_BN.at[:, 0].add(1)]), batch.targets_BT, batch.weights_BT > 0
    monkeypatch.setattr(translator, "_decode", lambda *arguments: actual)
    right, wrong = translator(None, 24)
    assert right == pytest.approx(100)
    assert wrong < 90, "control"
    assert "nrefs:1|" in bleu.signature(config)
    assert "tok:13a" in bleu.signature(config)
