"""The experiment on released models: extensions, text, prompts, fine-tuning, refusals."""

import hashlib
import importlib.util
import json
import pickle
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

import experiments
from configs.pretrained import get_config
from experiments import job
from experiments.pretrained import page, prompts
from experiments.pretrained.config import OWN, Config
from experiments.pretrained.extensions import extended
from experiments.pretrained.measuring import scorer
from experiments.pretrained.text import rows, text
from experiments.pretrained.tuning import schedule
from posenc_jax import frame, make
from posenc_jax.encoding import Dims
from posenc_jax.lab import runs, tasks
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.summary import Estimate
from posenc_jax.layout import full
from scripts.pretrained_model import Budget, byte_tokenizer, shares

LLAMA = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 500.0,
    "max_position_embeddings": 32,
}  # fmt: skip
HF = {"ramp": "pairs_truncated"}
MADE = {
    "plain": ("rope", {}),
    "pi": ("pi", {"factor": 4.0}),
    "ntk": ("ntk", {"factor": 4.0}),
    "dynamic_ntk": ("dynamic_ntk", {"length": 32}),
    "ntk_by_parts": ("ntk_by_parts", {"factor": 4.0, "length": 32, **HF}),
    "yarn": ("yarn", {"factor": 4.0, "length": 32, **HF}),
    "llama3": ("llama3", {"factor": 4.0, "length": 32}),
    "resonance": ("resonance", {"factor": 4.0, "length": 32, **HF}),
    "self_extend": ("self_extend", {"window": 8, "group": 5}),
    "rerope": ("rerope", {"window": 16}),
    "leaky_rerope": ("leaky_rerope", {"window": 16, "factor": 7.0}),
    "dual_chunk": ("dual_chunk", {"chunk": 22, "most": 24}),
}
WHOLE_HEADS = {"resonance", "self_extend", "rerope", "leaky_rerope", "dual_chunk"}
BY_DISTANCE = WHOLE_HEADS - {"resonance"}


def scores(encoding, time=48):
    """Attention weights of random queries and keys."""
    dims = Dims(16, 2, 8, 1)
    q, k = jax.random.normal(jax.random.key(0), (2, 1, time, 2, 8))
    layer = frame(encoding, encoding.init(jax.random.key(1), dims), full(1, time), dims).layer(0)
    q, k = layer.rotate(q, k)
    return np.asarray(jnp.einsum("bqhc,bkhc->bhqk", q, k))


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted({*MADE} - BY_DISTANCE))
@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters"])
def test_an_extension_is_that_of_the_catalogue(name, field):
    config = dict(LLAMA)
    if field == "rope_parameters":
        config[field] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    method, options = MADE[name]
    wanted = scores(make(method, base=500.0, **options))
    np.testing.assert_allclose(scores(extended(config, 4.0).encodings[name]), wanted, atol=2e-5)
    other = scores(make("ntk" if name == "pi" else "pi", base=500.0, factor=3.0))
    assert np.abs(wanted - other).max() > 0.1


def test_extensions_by_distance_reach_the_factor():
    actual = extended(LLAMA, 4.0).encodings
    assert list(actual) == list(MADE)
    reach = lambda window, slower: (32 - window) * slower + window
    window, group = MADE["self_extend"][1].values()
    assert reach(window, group) >= 4 * 32 > reach(window, group - 1)
    assert reach(*MADE["leaky_rerope"][1].values()) == 4 * 32


NEOX = LLAMA | {"model_type": "gpt_neox", "rotary_pct": 0.25, "hidden_size": 64}
LONGROPE = {
    "rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 16,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (NEOX, [name for name in MADE if name not in WHOLE_HEADS]),
        (LLAMA | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 8},
         [name for name in MADE if name not in WHOLE_HEADS]),
        ({**LLAMA, "model_type": "bloom", "rope_theta": None}, ["plain"]),
        (LLAMA | {"rope_scaling": LONGROPE}, ["longrope", "plain"]),
    ],
)  # fmt: skip
def test_only_what_fits_is_read(config, names):
    assert list(extended(config, 4.0).encodings) == names


def test_plain_takes_the_released_extension_away():
    actual = extended(LLAMA | {"rope_scaling": LONGROPE}, 4.0)
    assert actual.length == 16
    rope = scores(make("rope", base=500.0))
    np.testing.assert_allclose(scores(actual.encodings["plain"]), rope, atol=2e-5)
    assert np.abs(scores(actual.encodings["longrope"]) - rope).max() > 0.1


def words(*pieces):
    """A tokenizer of bytes and of these pieces, which puts nothing before a text."""
    tokenizer = Tokenizer.from_file(str(OWN / "tokenizer.json"))
    state = json.loads(tokenizer.to_str())
    vocab, merges = state["model"]["vocab"], []
    for piece in pieces:
        merges.append(list(piece))
        vocab[piece] = len(vocab)
    state["model"]["merges"] = merges
    return Tokenizer.from_str(json.dumps(state))


def as_task(content):
    data = {split: np.frombuffer(content, np.uint8) for split in ("train", "test")}
    return tasks.make("stdlib")._replace(data=data, most=len(content))


def test_every_byte_of_the_stretches_is_counted_once():
    content = ("the order of wörds € " * 20).encode()
    for tokenizer in (words(), words("th", "or")):
        actual = text(as_task(content), tokenizer, 16)
        ids = np.concatenate([actual.id_WL[0], *(row[1:] for row in actual.id_WL[1:])])
        assert actual.id_WL.shape[0] > 2
        assert (actual.id_WL[1:, 0] == actual.id_WL[:-1, -1]).all()
        read = tokenizer.encode(content.decode(), add_special_tokens=False).ids
        assert ids.tolist() == read[: len(ids)]
        ends = [end for _, end in tokenizer.encode(content.decode()).offsets]
        counted = content.decode()[ends[0] : ends[len(ids) - 1]]
        assert actual.bytes_WL.sum() == len(counted.encode()) > len(counted)


def test_training_windows_are_text_and_differ_by_step():
    content = bytes(range(32, 127)) * 20
    task, tokenizer = as_task(content), words()
    first, again, other = (rows(task.data, tokenizer, [], 0, step, (3, 24)) for step in (0, 0, 1))
    assert first.shape == (3, 25)
    assert (first == again).all()
    assert (first != other).any()
    assert all(bytes(row.tolist()) in content for row in first)


@pytest.mark.parametrize("name", ["passkey", "needle"])
def test_a_prompt_hides_its_key_at_its_depth(name):
    prompt, tokenizer, haystack = prompts.read(name), words(), list(b"some other text; " * 40)
    starts = []
    for depth in (0.0, 0.5, 1.0):
        actual = prompts.hide(prompt, tokenizer, haystack, 256, depth, 3)
        assert len(actual.id_T) == 257
        key = bytes(actual.id_T[-actual.answers :].tolist())
        assert re.fullmatch(rb"\d{5}", key)
        before = bytes(actual.id_T[: -actual.answers].tolist())
        assert before.count(key) == 1
        starts.append(before.index(prompt.needle.replace("{key}", key.decode()).encode()))
    assert starts[0] == 0
    assert starts[0] < starts[1] < starts[2]
    other = prompts.hide(prompt, tokenizer, haystack, 256, 0.5, 4)
    assert bytes(other.id_T[-5:].tolist()) != key


def test_the_published_prompt_is_shipped():
    assert prompts.read("passkey_english").needle.count("{key}") == 2


def test_the_learning_rate_is_that_of_the_recipe():
    at = lambda step, **train: float(
        schedule(Config(experiment="pretrained", train={"lr": 2e-5, "steps": 100, **train}))(step)
    )
    assert at(0) == pytest.approx(2e-6)
    assert at(20) == at(99) == pytest.approx(2e-5)
    assert at(60, falls=True) == pytest.approx(1e-5)
    assert at(100, falls=True) == pytest.approx(0, abs=1e-12)


def summary(**bits):
    """A summary of rows: for each length, bits per byte of three stretches."""
    cells = {
        row: {str(n): Estimate(float(np.mean(v)), 0.0, None, v) for n, v in encoding_bits.items()}
        for row, encoding_bits in bits.items()
    }
    actual = {"8": {"0": 1.0, "100": 0.5}, "16": {"0": 0.0, "100": 0.5}}
    keys = {"passkey": dict.fromkeys(bits, actual)}
    return {"text": cells, "train_length": 8, "factor": 2.0, "prompts": {"exact_match": keys}}


def test_what_reads_furthest_is_clearly_no_worse_than_plain_at_its_length():
    plain = {8: [2.0, 2.1, 1.9], 16: [3.0, 3.1, 2.9]}
    better = {8: [2.01, 2.09, 1.9], 16: [1.8, 1.9, 1.7]}
    actual = summary(plain=plain, yarn=better)
    assert page.reads_to(actual, "plain") == 8
    assert page.reads_to(actual, "yarn") == 16
    said, among_all, rule, keys = page.findings(actual)
    assert "yarn reads furthest: to 16 tokens (-0.200" in said
    assert among_all.startswith("Of all rows, yarn reads furthest")
    assert "than plain has at 8 tokens" in rule
    assert "plain finds 0.75 at 8 tokens; at 16 0.25" in keys
    reach, *_, order = page.details(actual)
    assert "plain 8 (no difference), yarn 16 (-0.200 ±0.000)" in reach
    assert "16 tokens (at the factor)" in order
    assert "yarn 1.800 < plain (+1.200 ±0.000)" in order
    actual["prompts"]["exact_match"]["passkey"]["plain"] = {"8": {"0": 0.1}, "16": {"0": 0.9}}
    assert "tells nothing" in page.findings(actual)[-1]
    assert page.ordered(actual, {"plain": "plain", "yarn": "yarn"}, 16).startswith("yarn 1.800 <")
    assert "≈" in page.ordered(actual, {"plain": "plain", "yarn": "yarn"}, 8)
    actual["text"]["yarn"] = actual["text"]["plain"]
    assert "yarn reads furthest" not in page.findings(actual)[0], "control"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint with random weights."""
    model_folder = tmp_path / "model"
    model = pretrained.links.model(pretrained.released(LLAMA))
    pretrained.save(model_folder, LLAMA, model.init(jax.random.key(0)))
    words().save(str(model_folder / "tokenizer.json"))
    return model_folder


def small(folder, **changes):
    config = get_config("quick")
    config.model.checkpoint = str(folder)
    config.update_from_flattened_dict(changes)
    return config.to_dict()


@pytest.mark.thorough
def test_a_run_on_a_folder_ends_in_its_report(folder, tmp_path, capsys):
    changes = {"eval.multiples": (1, 2), "rows": ("pi",), "train.steps": 2, "prompts": ("needle",)}
    config = small(folder, **changes, **{"factor": 2.0, "model.length": 64})
    experiments.prepare(config, str(tmp_path / "run"))()
    actual = json.loads((tmp_path / "run/summary.json").read_text())
    assert [*actual["text"]] == ["plain", "pi", "pi, tuned"]
    for cells in actual["text"].values():
        assert all(7 < cell["mean"] < 9 for cell in cells.values())  # 8 bits: it knows nothing
    assert actual["text"]["pi, tuned"] != actual["text"]["pi"]
    said = capsys.readouterr().out
    assert all(row in said for row in actual["text"])
    page, sentences, sections = experiments.document([runs.read(tmp_path / "run")])
    assert page == "pretrained_results"
    assert [line.split()[0] for line in sentences] == ["Before", "After", "Of", "A", "Keys"]
    assert [part.title for part in sections][-1] == "Every stretch"
    assert {"by_length", "by_position", "prompts"} <= {
        path.stem for path in (tmp_path / "run/figures").iterdir()
    }


def no_tokenizer(folder):
    (folder / "tokenizer.json").unlink()


def with_weights(write):
    """Damage that changes the bytes of the safetensors file."""

    def change(folder):
        path = folder / "model.safetensors"
        path.write_bytes(write(path.read_bytes()))

    return change


def with_config(**fields):
    """Damage that puts other fields into config.json."""

    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def with_nan(whole):
    """The bytes of a file whose last float32 is NaN."""
    return whole[:-4] + np.float32(np.nan).tobytes()


class Opened:
    """A pickle of it makes the file `opened` when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path / "opened",)


def only_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Opened(folder)))


def rope_of(kind):
    def change(folder):
        config = {**LLAMA, "rope_scaling": {"rope_type": kind}}
        (folder / "config.json").write_text(json.dumps(config))

    return change


def of_type(kind):
    def change(folder):
        path = folder / "config.json"
        path.write_text(json.dumps({**LLAMA, "model_type": kind, "rope_theta": None}))

    return change


KEEP = lambda folder: None


@pytest.fixture
def command(monkeypatch):
    """What train.py does with a config, but for what acts on the whole process."""
    for name in ("compile_lightly", "_cache_compilations"):
        monkeypatch.setattr(job, name, lambda: None)
    monkeypatch.setattr(job.signals, "install", lambda: None)
    monkeypatch.setattr(job, "_leave", lambda status: status)
    return partial(job.run, named=True)


@pytest.mark.thorough(after=3)
@pytest.mark.parametrize(
    ("damage", "changes", "line"),
    [
        (KEEP, {"model.checkpoint": "/no/such"}, r"/no/such/config.json: No such file"),
        (with_config(layer_types=7), {}, r"model.checkpoint.layer_types: 7 is not of type tuple"),
        (with_config(vocab_size=-1), {}, r"model.checkpoint.vocab_size: -1 must be 1 to"),
        (with_config(vocab_size=200), {}, r"tokenizer.json: token .* has the id 255; .* is 200"),
        (with_config(num_hidden_layers=4096), {}, r"no tensor model.layers.4095.self_attn.o_proj"),
        (with_config(max_position_embeddings=2**30), {}, r"max_position_embeddings: 1073741824 is"),
        (with_weights(with_nan), {"prompts": ()}, r"tensor .* has 1 values of .* that are NaN"),
        (
            of_type("mamba"),
            {},
            r"config.model.checkpoint.model_type: 'mamba' is not loaded; did",
        ),
        (no_tokenizer, {}, r"tokenizer.json: no such file"),
        (rope_of("yarnn"), {}, r"checkpoint.rope_scaling.rope_type: 'yarnn'; did you mean yarn"),
        (with_weights(lambda whole: whole[:9000]), {}, r"model.safetensors: .*not fully covered"),
        (with_weights(lambda whole: b"PK" + whole), {}, r"model.safetensors: .*header"),
        (only_a_pickle, {}, r"neither model.safetensors nor .*; a pickle is never opened"),
        (of_type("bert"), {}, r"checkpoint.model_type: bert is an encoder; use a decoder"),
        (of_type("bloom"), {}, r"config.rows: 'pi' does not fit; choices: plain"),
        (KEEP, {"train.rows": ("yarn", "xpos")}, r"config.train.rows: 'xpos' does not fit"),
        (KEEP, {"eval.multiples": (2, 4)}, r"config.eval.multiples: 1 must be among them"),
        (KEEP, {"prompts": ("pass",)}, r"config.prompts: 'pass' is no .json; .*passkey"),
        (KEEP, {"task.name": "copy", "task.stretch": 64}, r"config.task.name: copy is no text"),
        (KEEP, {"train.accumulate": 3}, r"config.train.batch: 2 is not divisible by accumulate 3"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(
    damage, changes, line, folder, tmp_path, command, capsys
):
    damage(folder)
    assert command(small(folder, **changes), str(tmp_path / "run")) == 2
    said = capsys.readouterr().err
    assert re.match(f"error: .*{line}", said)
    assert said.count("\n") == 1
    assert not (folder / "opened").exists()


def test_a_pickle_that_is_opened_is_seen(tmp_path):
    """The control of the folder with only a pickle."""
    pickle.loads(pickle.dumps(Opened(tmp_path)))
    assert (tmp_path / "opened").exists()


def test_a_text_of_one_window_is_refused_by_the_run(folder, tmp_path):
    config = small(folder, **{"task.stretch": 100})
    with pytest.raises(
        ValueError, match=r"config.task.stretch: 100 bytes or the text is too small"
    ):
        experiments.prepare(config, str(tmp_path / "run"))()


def test_the_model_of_the_repository_is_what_its_card_says():
    said = (OWN / "README.md").read_text()
    hashes = dict(re.findall(r"`([\w.]+)` \| `([0-9a-f]{64})`", said))
    assert set(hashes) == {"config.json", "model.safetensors", "tokenizer.json"}
    for name, value in hashes.items():
        assert hashlib.sha256((OWN / name).read_bytes()).hexdigest() == value
    assert (OWN / "model.safetensors").stat().st_size < 4e6
    assert pretrained.tokenizer(OWN).encode("é\0\n").ids == list("é\0\n".encode())


@pytest.mark.thorough
def test_the_model_of_the_repository_reads_python():
    actual = pretrained.load(OWN)
    score = scorer(actual.model, 128)
    source = Path(importlib.util.find_spec("textwrap").origin).read_bytes()[2000:2257]
    id_NT = np.frombuffer(source, np.uint8)[:256].astype(np.int32).reshape(2, 128)
    trained, _ = score(actual.params, id_NT)
    random, _ = score(actual.model.init(jax.random.key(0)), id_NT)
    assert trained.mean() / np.log(2) < 3 < 7 < random.mean() / np.log(2)


def test_the_rate_of_the_model_falls_to_0_at_the_end():
    share = shares(Budget(steps=1000, fall=200, warmup=100))
    assert float(share(50)) == 0.5
    assert float(share(100)) == float(share(800)) == 1
    assert float(share(900)) == pytest.approx(0.5)
    assert float(share(1000)) == 0


def test_tokens_of_the_byte_tokenizer_are_bytes():
    text = bytes(range(128)).decode() + "é€"
    tokenizer = byte_tokenizer()
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
