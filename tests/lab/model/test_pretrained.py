"""Released models read from folders against transformers' logits, frozen by make_goldens.py."""

import json
import os
import re
import shlex
import subprocess
import sys
import tracemalloc
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from posenc_jax import from_huggingface
from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.types import ROWS as TYPES
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.pretrained.architectures import MISSING
from posenc_jax.lab.model.transformer import build
from posenc_jax.lab.tasks.task import Pair
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError
from scripts.accelerators.released_models import LLAMA, PYTHIA
from scripts.goldens.drawn import digest, drawn
from tests.support import ROOT
from tests.support.catalogue import gap
from tests.test_huggingface import WRONG, with_each_field

FOLDER = ROOT / "tests" / "goldens" / "checkpoints"
ROWS = json.loads((FOLDER / "models.json").read_text())
BY_CASE = {row["case"]: row for row in ROWS}
IDS, LENGTHS = 29, (9, 6)
KINDS = {name.split()[0] for name in pretrained.ARCHITECTURES}
TOWERS = {name for name, of in pretrained.ARCHITECTURES.items() if of.pictures}  # test_towers.py
# Two documents: the first alone and padded on the right, on the left, and before the second one.
SEGMENTS = np.array([[1] * 9 + [0] * 6, [0] * 6 + [1] * 9, [1] * 9 + [2] * 6])


def folder_of(path, case, **changes):
    """A folder of the case, as transformers saves it, with other fields in its config."""
    row = BY_CASE[case]
    path.mkdir(parents=True, exist_ok=True)
    save_file(drawn(case, row["tensors"]), path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps({**row["config"], **changes}))
    return path


def documents():
    return [(np.arange(n) * (5 + 2 * n) + n) % (IDS - 3) + 3 for n in LENGTHS]


def frozen(case):
    with np.load(FOLDER / "logits.npz") as file:
        return [file[f"{case}/{n}"] for n in range(2)]


def rows():
    """Tokens [3, 15] of `SEGMENTS`; padding has a token too."""
    first, second = documents()
    other = np.full(6, 7)
    lines = [[*first, *other], [*other, *first], [*first, *second]]
    return jnp.asarray(np.array(lines, np.int32))


def by_rows(logits, case):
    """The largest gap to the frozen logits of the documents in the rows."""
    first, second = frozen(case)
    actual = logits[0, :9], logits[1, 6:], logits[2, :9], logits[2, 9:]
    return max(gap(a, b) for a, b in zip(actual, (first, first, first, second), strict=True))


def alone(config):
    """The tokens and layout of the first document; of an encoder-decoder after the second."""
    first, second = (jnp.asarray(x, jnp.int32)[None] for x in documents())
    if config.kind != "encoder_decoder":
        return first, full(1, 9)
    return Pair(second, first), Pair(full(1, 6), full(1, 9))


def in_rows(config):
    """The tokens and layout of `SEGMENTS`; sources are padded on the other side."""
    if config.kind != "encoder_decoder":
        return rows(), layout(SEGMENTS)
    first, second = documents()
    other = np.full(9, 7)
    sources = np.array([[*second, *other], [*other, *second], [*second, *first]], np.int32)
    segments = np.array([[1] * 6 + [0] * 9, [0] * 9 + [1] * 6, [1] * 6 + [2] * 9])
    return Pair(jnp.asarray(sources), rows()), Pair(layout(segments), layout(SEGMENTS))


def token_by_token(model, params, tokens, at):
    """Logits of the document's tokens one after another, with a cache."""
    if isinstance(tokens, Pair):
        cache = model.start(params, tokens.source, at.source, 9)
        tokens, at = tokens.target, at.target
    else:
        cache = model.start(params, 1, 9)

    def step(cache, n):
        newest = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, n, 1, 1)
        logits, cache = model.decode(params, newest(tokens), jax.tree.map(newest, at), cache)
        return cache, logits[0, 0]

    return jax.lax.scan(step, cache, jnp.arange(9))[1]


def every_pass(actual, params):
    """Logits of the document alone, of the rows, and token by token if attention is causal."""
    model, one = actual.model, alone(actual.config)
    stepwise = None if actual.config.kind == "encoder" else token_by_token(model, params, *one)
    return model.apply(params, *one)[0], model.apply(params, *in_rows(actual.config)), stepwise


@pytest.mark.thorough
@pytest.mark.parametrize("row", ROWS, ids=[row["case"].replace(" ", "_") for row in ROWS])
def test_a_released_model_has_its_logits(row, tmp_path):
    """Of a document alone, padded, packed and token by token; and it is saved as it was read."""
    case, wrong = row["case"], row["wrong"]
    actual = pretrained.load(folder_of(tmp_path / "theirs", case))
    whole, padded, stepwise = jax.jit(partial(every_pass, actual))(actual.params)
    assert gap(whole, frozen(case)[0]) < 1e-4
    assert by_rows(padded, case) < 1e-4
    assert stepwise is None or gap(stepwise, frozen(case)[0]) < 1e-4

    pretrained.save(tmp_path / "ours", row["saves"], actual.params)
    assert digest(tmp_path / "ours") == row["saved"], "see CONTRIBUTING.md, Goldens"

    if wrong:
        other, params = pretrained.released({**row["config"], **wrong}).encoding, actual.params
    else:
        other, params = Encoding(), {**actual.params, "encoding": {}}
    other = build(actual.config, other, actual.vocab)
    whole = jax.jit(other.apply)(params, *alone(actual.config))[0]
    assert gap(whole, frozen(case)[0]) > 1e-3, "control: other positions"


@pytest.mark.thorough
def test_t5_1_1_saved_by_transformers_5_does_not_scale_its_logits(tmp_path):
    """It always says that weights are tied, and in another field that logits are not scaled."""
    case, first = "t5 gated saved", lambda actual: actual.model.apply(actual.params, *at)[0]
    right = pretrained.load(folder_of(tmp_path / "theirs", case))
    at = alone(right.config)
    assert gap(first(right), frozen(case)[0]) < 1e-4
    wrong = pretrained.load(folder_of(tmp_path / "wrong", case, scale_decoder_outputs=True))
    assert gap(first(wrong) * 32**0.5, frozen(case)[0]) < 1e-4
    assert gap(first(wrong), frozen(case)[0]) > 1e-2, "control"


def test_models_are_those_of_the_version_that_the_script_asks_for():
    script = (FOLDER.parents[2] / "scripts" / "make_goldens.py").read_text()
    assert len({row["config"]["model_type"] for row in ROWS}) == len(KINDS - TOWERS) >= 26
    assert all(f'"transformers=={row["version"]}"' in script for row in ROWS)


def test_types_that_cannot_be_loaded_are_those_of_the_library():
    """A type is either loaded or refused, and none is a misspelling."""
    refused = [kind for kinds in MISSING.values() for kind in kinds]
    assert len(refused) == len({*refused}) > 20
    assert not {*refused} & KINDS
    assert {*refused} | KINDS <= {*TYPES}


@pytest.mark.parametrize(
    ("case", "fused"),
    [("phi3", "self_attn.qkv_proj"), ("phi3", "mlp.gate_up_proj"),
     ("gpt_neox", "attention.query_key_value")],
)  # fmt: skip
def test_a_fused_tensor_of_another_shape_is_named(case, fused, tmp_path):
    folder = folder_of(tmp_path, case)
    name = next(name for name in BY_CASE[case]["tensors"] if f"1.{fused}.weight" in name)
    changed(folder, add={name: np.ones((31, 32), np.float32)})
    with pytest.raises(Refused, match=f"tensor {re.escape(name)} gives .*; the model of its") as e:
        pretrained.load(folder)
    assert "\n" not in str(e.value)


def test_deberta_is_read_with_projections_of_its_own(tmp_path):
    """As our code saves it, after it was read with those of content."""
    read = pretrained.load(folder_of(tmp_path / "theirs", "deberta-v2")).params
    pretrained.save(tmp_path / "ours", BY_CASE["deberta-v2"]["saves"], read)
    again = pretrained.load(tmp_path / "ours").params
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), read, again))
    with pytest.raises(FieldError, match="share_att_key: True can be read, but not written"):
        pretrained.save(tmp_path / "shared", BY_CASE["deberta-v2"]["config"], read)


def changed(folder, rename=None, drop=None, add=None):
    """Writes the folder's tensors again with one of them renamed, left out or added."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors = {**tensors, **(add or {}), **({rename[1]: tensors[rename[0]]} if rename else {})}
    save_file({k: v for k, v in tensors.items() if k not in (drop, *(rename or ())[:1])}, file)


def cut(folder, size):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])


def as_index(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)


def as_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    "case",
    ["llama 3", "gemma3", "bert", "deberta-v2", "t5 gated", "bloom", "granite", "modernbert"],
)
def test_a_wrong_value_of_any_field_is_a_model_or_one_line(case):
    config, lines = BY_CASE[case]["config"], []
    for value in WRONG:
        for changed in with_each_field(config, value):
            try:
                pretrained.released(changed)
            except FieldError as error:
                lines.append(str(error))
    assert not [line for line in lines if "\n" in line or len(line) > 1000]
    ours = ("encoding.", "width:", "heads:", "layers:", "eps:", "activation:", "tied:", "head:")
    assert not [line for line in lines if line.startswith(ours)], "names a field of theirs"
    assert len(lines) > len(WRONG), "control: some are seen"


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def one_of(value):
    """A tensor of the shape of `DOWN` with one such number."""
    return np.where(np.arange(1280).reshape(32, 40) == 77, value, 0.0)


DOWN = "model.layers.1.mlp.down_proj.weight"
LOST = json.dumps({"weight_map": {DOWN: "model-00001-of-00002.safetensors"}})


@pytest.mark.parametrize(
    ("fields", "damage", "line"),
    [
        ({}, lambda f: cut(f, 20_000), "model.safetensors: .*not fully covered"),
        ({}, lambda f: cut(f, 5), "model.safetensors: .*header too small"),
        ({}, lambda f: (f / "model.safetensors").unlink(), "neither model.safetensors nor model"),
        ({}, as_pickle, "model.safetensors.index.json; a pickle is never opened"),
        ({}, lambda f: as_index(f, LOST), "model-00001-of-00002.safetensors: .*No such file"),
        ({}, lambda f: as_index(f, "{"), "index.json: Expecting property name"),
        ({}, lambda f: (f / "config.json").unlink(), "config.json: No such file"),
        ({}, lambda f: changed(f, drop=DOWN), f"no tensor {DOWN}"),
        ({}, lambda f: changed(f, add={"x.bias": np.ones(3)}), "tensor x.bias: the model of its"),
        ({}, lambda f: changed(f, rename=(DOWN, "x.weight")), f"no tensor {DOWN}"),
        ({}, lambda f: changed(f, add={DOWN: np.ones((4, 4))}), f"{DOWN} gives .4, 4.; the mod"),
        (
            {"tie_word_embeddings": True},
            None,
            "lm_head.weight differs from model.embed_tokens.weight, which the config says it is",
        ),
        ({"model_type": "lama"}, None, "model_type: 'lama' is not known; did you mean llama"),
        (
            {"model_type": "qwen3_next"},
            None,
            "model_type: 'qwen3_next' has layers of linear attention, which our model does not "
            "have; from_huggingface reads its positions",
        ),
        (
            {"model_type": "gemma4_text"},
            None,
            "model_type: 'gemma4_text' has heads of two widths, and vectors of tokens for each",
        ),
        (
            {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}},
            None,
            "model_type: 'gemma4' has several parts, text_config, vision_config, audio_config, and "
            "is not loaded; its text part has heads of two widths, and vectors of tokens for each "
            "layer or experts, which our model does not have; parts_from_huggingface reads their",
        ),
        (
            {"model_type": "qwen3_5"},
            None,
            "'qwen3_5' has several parts, .* its text part has layers of linear attention, which",
        ),
        ({"model_type": "opt"}, None, "model_type: 'opt' is not loaded, but from_huggingface rea"),
        ({"model_type": "gpt_oss"}, None, "model_type: 'gpt_oss' has mixtures of experts, which"),
        (
            {"model_type": "cohere", "logit_scale": "inv_sqrt_d_model"},
            None,
            "logit_scale: 'inv_sqrt_d_model' is not of type float",
        ),
        (
            {"model_type": "modernbert", "hidden_activation": "silu"},
            None,
            "classifier_activation: 'gelu' is not the activation of the MLPs; our model has one",
        ),
        ({"model_type": "modernbert", "norm_bias": True}, None, "norm_bias: True is not one of: F"),
        ({"rope_scaling": {"rope_type": "yarnn"}}, None, "rope_scaling.rope_type: 'yarnn'"),
        ({"hidden_act": "tanh"}, None, "hidden_act: 'tanh' is not known; choices: gelu"),
        ({"mlp_bias": True}, None, "mlp_bias: True is not one of: False"),
        (
            {"num_attention_heads": 3, "head_dim": 8},
            None,
            "num_key_value_heads: 2 does not divide num_attention_heads 3",
        ),
        ({"num_attention_heads": 5}, None, "num_attention_heads: 5 heads do not divide hidden_siz"),
        ({"vocab_size": 256.5}, None, "vocab_size: 256.5 is not of type int"),
        ({"rms_norm_eps": -1.0}, None, "rms_norm_eps: -1.0 must be positive"),
        ({"hidden_size": 2**24}, None, "hidden_size: 16777216 is wrong: input should be less than"),
        ({}, lambda f: as_index(f, '{"weight_map": ["a"]}'), r"weight_map: \['a'\] is not a dict"),
        ({}, lambda f: as_index(f, '{"weight_map": {"a": 1}}'), "weight_map.a: 1 is not the name"),
        ({}, lambda f: as_index(f, '{"weight_map": {"a": "../a"}}'), "'../a' is not the name of a"),
        ({}, lambda f: as_index(f, "[" * 200_000), "index.json: is nested too deeply"),
        ({}, lambda f: as_index(f, '{"a": 1, "a": 2}'), "index.json: 'a' stands there twice"),
        ({}, lambda f: as_index(f, "\ufeff{}"), "index.json: Unexpected UTF-8 BOM"),
        ({}, lambda f: as_pipe(f / "config.json"), "config.json: is not a file"),
        ({}, lambda f: as_pipe(f / "model.safetensors"), "neither model.safetensors nor model"),
        (
            {},
            lambda f: changed(f, add={"x\ny": np.ones(3, np.float32)}),
            r"tensor 'x\\ny': the model of its config has no such",
        ),
        ({}, lambda f: changed(f, add={DOWN: np.ones((32, 40), int)}), f"{DOWN} has the dtype I64"),
        (
            {},
            lambda f: changed(f, add={DOWN: one_of(np.nan)}),
            f"tensor {DOWN} has 1 values of 1280 that are NaN or infinite",
        ),
        ({}, lambda f: changed(f, add={DOWN: one_of(-np.inf)}), f"tensor {DOWN} has 1 values of"),
        (
            {},
            lambda f: changed(f, add={DOWN: one_of(1e300)}),
            f"tensor {DOWN}: values are too large for the model's dtype",
        ),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(fields, damage, line, tmp_path):
    folder = folder_of(tmp_path, "llama", **fields)
    if damage:
        damage(folder)
    with pytest.raises((Refused, FieldError), match=line) as error:
        pretrained.load(folder)
    assert "\n" not in str(error.value)
    assert Refused.status == 2


@pytest.mark.thorough
def test_the_page_runs(tmp_path, monkeypatch):
    """docs/pretrained.md, with small models in place of Pythia, MiniLM and SigLIP."""
    from tests.lab.model.test_base_models import MEAN, base_of, pooled_folder
    from tests.lab.model.test_towers import tower

    page = (ROOT / "docs" / "pretrained.md").read_text("utf-8")
    folder = folder_of(tmp_path / "pythia-70m", "gpt_neox")
    words = Tokenizer(WordLevel({"the": 3, "order": 4, "of": 5, "words": 6}))
    words.pre_tokenizer = Whitespace()
    words.save(str(folder / "tokenizer.json"))
    pooled_folder(base_of(tmp_path / "all-MiniLM-L6-v2", "bert"), MEAN)
    tower(tmp_path / "siglip-base-patch16-224")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").symlink_to(ROOT / "experiments")
    (command,) = re.findall(
        r"(?m)^python train.py --config=configs/extrap.py:yarn(?:.*\\\n)*.*$", page
    )
    command = command.replace("\\\n", "").replace("steps=40", "steps=2")
    command = command.replace("train.py", f"{ROOT}/train.py").replace(
        "=configs", f"={ROOT}/configs"
    )
    flags = shlex.split(command)[1:]
    subprocess.run([sys.executable, *flags, "--config.eval.tokens=1024"], check=True)
    scope = {"pixels_BCHW": jnp.ones((1, 3, 12 * 4, 20 * 4))}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, scope)
    assert scope["tokens_BT"].tolist() == [[3, 4, 5, 6]]
    assert np.isfinite(scope["logits"]).all()
    assert scope["vectors"].shape == (1, 32)
    assert scope["states_BTD"].shape == (1, 240, 32)
    again = pretrained.load(tmp_path / "pythia-70m-yarn")
    inputs = scope["tokens_BT"], full(1, 4)
    assert gap(jax.jit(again.model.apply)(again.params, *inputs), scope["logits"]) < 1e-6
    assert again.params["embed"].dtype == jnp.float32 != scope["loaded"].params["embed"].dtype
    longer, tuned, tokens_BT = (
        pretrained.load("longer"),
        scope["tuned"],
        jnp.arange(400)[None] % 256,
    )
    logits_BTV = tuned.model.apply(tuned.params, tokens_BT, full(1, 400))
    assert gap(longer.model.apply(longer.params, tokens_BT, full(1, 400)), logits_BTV) < 1e-6
    plain = pretrained.load("experiments/pretrained/model").model  # the control: without YaRN
    assert gap(plain.apply(longer.params, tokens_BT, full(1, 400)), logits_BTV) > 1e-3


def test_the_recipe_of_the_page_keeps_what_a_file_of_either_version_says():
    """The base of rope, in a field of its own or in the dictionary that the recipe changes."""
    page = (ROOT / "docs" / "pretrained.md").read_text("utf-8")
    recipe = re.search(r"(?m)^name = .*\nyarn = .*\nconfig.*$", page)
    assert recipe
    older = {"model_type": "llama", "rope_theta": 1e6, "max_position_embeddings": 2048}
    newer = {**older, "rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}

    def turned(config):
        exec(recipe[0], {"config": config})
        return from_huggingface(config)

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert turned(dict(older)) == turned(dict(newer))
    assert turned(dict(older)) != from_huggingface(
        {**older, "rope_theta": 1e4} | {"rope_scaling": yarn}
    )


def test_a_tokenizer_is_read_from_its_file(tmp_path):
    with pytest.raises(Refused, match=r"tokenizer.json: no such file; a released model needs its"):
        pretrained.tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    with pytest.raises(Refused, match=r"tokenizer.json: "):
        pretrained.tokenizer(tmp_path)
    whole = {"a": 0, "b": 1, "[UNK]": 2}
    words = Tokenizer(WordLevel(whole, "[UNK]"))
    words.pre_tokenizer = Whitespace()
    words.enable_truncation(1)
    words.enable_padding(length=5)
    words.save(str(tmp_path / "tokenizer.json"))
    assert pretrained.tokenizer(tmp_path).encode("b a b").ids == [1, 0, 1], "neither cut nor padded"

    def refused(line):
        with pytest.raises(Refused, match=line) as error:
            pretrained.tokenizer(tmp_path)
        assert "\n" not in str(error.value)

    (tmp_path / "config.json").write_text('{"vocab_size": 2}')
    refused(r"tokenizer.json: token '\[UNK\]' has the id 2; the model's vocab_size is 2")
    (tmp_path / "config.json").write_text('{"vocab_size": 3}')
    words.post_processor = TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", 9)])
    words.save(str(tmp_path / "tokenizer.json"))
    refused("token 'number 0 before a text' has the id 9; the model's vocab_size is 3")
    for text in ("[" * 200_000, "\ufeff{}", '{"model": 7}', json.dumps({"version": "1.0"})):
        (tmp_path / "tokenizer.json").write_text(text)
        refused("tokenizer.json: ")


BIG = {
    "model_type": "llama", "vocab_size": 300, "hidden_size": 256, "intermediate_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 4, "rope_theta": 1e4,
}  # fmt: skip


def most_bytes(read):
    """The most bytes that Python and NumPy hold at once; a device's own are not counted."""
    tracemalloc.start()
    read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.thorough
def test_the_host_holds_one_tensor_at_a_time(tmp_path):
    """Counted while a folder of several files is read."""
    named = pretrained.shapes(pretrained.released(BIG))
    tensors = {
        path: np.full(leaf.shape, n, np.float32) for n, (path, leaf) in enumerate(named.items())
    }
    total, largest = (f(array.nbytes for array in tensors.values()) for f in (sum, max))
    pretrained.save(tmp_path, BIG, tensors, file_bytes=total // 6)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) >= 6
    loaded = []
    peak = most_bytes(lambda: loaded.append(pretrained.load(tmp_path, "bfloat16").params))
    assert peak < 4 * largest < total / 3
    at_once = most_bytes(lambda: [load_file(file) for file in files])
    assert at_once > 0.9 * total, "control"
    for path, leaf in jax.tree_util.tree_leaves_with_path(loaded[0]):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert (leaf == [*named].index(name)).all()
        assert leaf.dtype == (jnp.bfloat16 if leaf.ndim > 1 else jnp.float32)


def test_each_array_goes_where_it_is_told(tmp_path):
    one, told = jax.sharding.SingleDeviceSharding(jax.devices()[0]), []
    place = lambda leaf: (told.append(leaf), one)[1]
    params = pretrained.load(folder_of(tmp_path, "llama"), sharding=place).params
    wanted = [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(params)]
    by_size = lambda rows: sorted(map(str, rows))
    assert by_size((leaf.shape, leaf.dtype) for leaf in told) == by_size(wanted)


def test_files_of_bfloat16_are_read(tmp_path):
    folder = folder_of(tmp_path, "llama")
    before = pretrained.load(folder).params
    file = folder / "model.safetensors"
    save_file({name: x.astype(jnp.bfloat16) for name, x in load_file(file).items()}, file)
    after = pretrained.load(folder).params
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16).astype(x.dtype), before)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), after, rounded))


@pytest.mark.parametrize(
    ("case", "ours", "theirs"),
    [
        ("bert", r"LayerNorm\.weight$", "LayerNorm.gamma"),
        ("bloom", r"^transformer\.", ""),
        ("deberta-v2", r"^cls\.predictions(\.transform)?", "lm_predictions.lm_head"),
    ],
)
def test_names_of_other_files_for_the_same_tensors_are_read(case, ours, theirs, tmp_path):
    """As google's BERT, bigscience's BLOOM and Microsoft's DeBERTa-v3 are stored."""
    folder = folder_of(tmp_path, case)
    before, file = pretrained.load(folder).params, folder / "model.safetensors"
    actual = load_file(file)
    renamed = {re.sub(ours, theirs, name): tensor for name, tensor in actual.items()}
    assert set(renamed) != set(actual)
    embedding = next(x for name, x in actual.items() if "word_embeddings.weight" in name)
    others = {
        "h.0.attn.bias": np.ones(3),
        "mask_predictions.dense.weight": np.ones((3, 3)),
        "cls.predictions.decoder.weight": embedding.copy(),
    }
    save_file(renamed | others, file)
    after = pretrained.load(folder).params
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), after, before))


# Files as they were released, without what is not read, and the parameters of the model.
RELEASED = {
    "Llama-2-7b": (LLAMA, 6_738_415_616),
    "gpt2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_ctx": 1024, "n_embd": 768, "n_head": 12,
         "n_layer": 12, "n_positions": 1024, "activation_function": "gelu_new",
         "layer_norm_epsilon": 1e-5},
        124_439_808,
    ),
    "pythia-70m": (PYTHIA, 70_426_624),
    "bloom-560m": (
        {"model_type": "bloom", "vocab_size": 250880, "n_embed": 1024, "n_layer": 24,
         "num_attention_heads": 16, "n_inner": None, "offset_alibi": 100, "pretraining_tp": 1,
         "layer_norm_epsilon": 1e-5, "apply_residual_connection_post_layernorm": False},
        559_214_592,
    ),
}  # fmt: skip


# Sizes of decoders of Llama's kind as they were released.
SIZES = "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size"


def sized(kind, *sizes, **more):
    return {"model_type": kind, **dict(zip(SIZES, sizes, strict=True)), **more}


RELEASED |= {
    "ModernBERT-base": (
        sized("modernbert", 768, 1152, 12, 22, 50368, tie_word_embeddings=True), 149_655_232,
    ),
    "Phi-3-mini-4k": (sized("phi3", 3072, 8192, 32, 32, 32064), 3_821_079_552),
    "SmolLM3-3B": (sized("smollm3", 2048, 11008, 16, 36, 128256), 3_075_098_624),
    "GLM-4-9B-0414": (sized("glm4", 4096, 13696, 32, 40, 151552, attention_bias=False),
                      9_400_094_720),
    "Olmo-3-7B": (sized("olmo3", 4096, 11008, 32, 32, 100278), 7_298_011_136),
    # a layer's norm, which attention and MLP share, is two of ours
    "Command-R7B": (sized("cohere2", 4096, 14336, 32, 32, 256000, num_key_value_heads=8),
                    8_028_033_024 + 32 * 4096),
    "granite-3.3-2b": (
        sized("granite", 2048, 8192, 32, 40, 49159, num_key_value_heads=8,
              tie_word_embeddings=True),
        2_533_539_840,
    ),
    "gemma-2b": (sized("gemma", 2048, 16384, 8, 18, 256000, num_key_value_heads=1), 2_506_172_416),
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "activation"),
    [
        # its first files say gelu and mean the approximation by tanh, as transformers reads them
        ({"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": None}, "gelu_tanh"),
        ({"model_type": "gemma", "hidden_act": "relu", "hidden_activation": None}, "relu"),
        # these read the other field alone
        ({"model_type": "gemma2", "hidden_act": "gelu"}, "gelu_tanh"),
        ({"model_type": "gemma2", "hidden_act": "relu", "hidden_activation": "gelu"}, "gelu"),
        ({"model_type": "modernbert", "hidden_activation": "gelu"}, "gelu"),
        ({"model_type": "llama", "hidden_act": "gelu"}, "gelu"),
    ],
    ids=str,
)
def test_the_field_of_the_activation_is_that_which_the_model_reads(config, activation):
    sizes = BY_CASE["llama"]["config"] | {"hidden_act": None}
    assert pretrained.released({**sizes, **config}).config.activation == activation


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize(("config", "count"), RELEASED.values(), ids=RELEASED)
def test_a_released_config_has_the_models_parameters(config, count):
    """By shapes alone. Of Llama-2-7b the host holds 2% at a time, as the test above counts."""
    sizes = [leaf.size for leaf in pretrained.shapes(pretrained.released(config)).values()]
    assert sum(sizes) == count
    if config is LLAMA:
        assert max(sizes) < sum(sizes) / 50
