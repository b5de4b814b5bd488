"""Models without a read-out: their hidden states, and how a text's vector is made of them."""

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.layers.dense_norm import ACTIVATIONS
from posenc_jax.lab.model.pretrained.pooling import SWITCHES, Pooling, read
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError
from tests.lab.model.test_pretrained import BY_CASE, alone, folder_of, frozen
from tests.support.catalogue import gap

HEADS = "cls.", "lm_head.", "head.", "decoder."
PREFIX = {
    "bert": "bert.", "roberta": "roberta.", "llama": "model.", "deberta-v2": "deberta.",
    "modernbert": "model.", "granite untied": "model.",
}  # fmt: skip


def base_of(path, case, classes=("AnyModel",)):
    """A folder of the case without its read-out, and with the names that base models have."""
    folder = folder_of(path, case, architectures=list(classes))
    tensors = load_file(folder / "model.safetensors")
    bare = {
        name.removeprefix(PREFIX[case]): array
        for name, array in tensors.items()
        if not name.startswith(HEADS)
    }
    assert len(bare) < len(tensors)
    save_file(bare, folder / "model.safetensors", {"format": "pt"})
    return folder


def norm(x, tensors, name, eps):
    centred = x - x.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return unit * tensors[f"{name}.weight"] + tensors.get(f"{name}.bias", 0)


def read_out(states, tensors, case, eps):
    """The logits that the read-out of these tensors makes of hidden states."""
    linear = lambda x, name: x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0)
    if case in ("llama", "granite untied"):
        return linear(states, "lm_head") / BY_CASE[case]["config"].get("logits_scaling", 1)
    dense, after, bias = {
        "roberta": ("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "modernbert": ("head.dense", "head.norm", "decoder.bias"),
    }.get(case, ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
                 "cls.predictions.bias"))  # fmt: skip
    hidden = np.asarray(ACTIVATIONS["gelu"](jnp.asarray(linear(states, dense))))
    words = next(x for name, x in tensors.items() if re.search("(word|tok)_embeddings", name))
    return norm(hidden, tensors, after, eps) @ words.T + tensors[bias]


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("case", PREFIX)
def test_a_base_model_gives_the_states_that_logits_are_made_of(case, tmp_path):
    whole = folder_of(tmp_path / "whole", case)
    tensors = load_file(whole / "model.safetensors")
    actual = pretrained.load(base_of(tmp_path / "base", case))
    assert actual.states
    tokens_BT, at = alone(actual.config)
    states = jax.jit(actual.model.apply)(actual.params, tokens_BT, at)
    assert states.shape == (1, 9, actual.config.width)
    logits = read_out(np.asarray(states[0]), tensors, case, actual.config.eps)
    assert gap(jnp.asarray(logits), frozen(case)[0]) < 1e-4
    other = read_out(np.roll(states[0], 1, axis=0), tensors, case, actual.config.eps)
    assert gap(jnp.asarray(other), frozen(case)[0]) > 1e-2, "control: the states of other tokens"

    asked = pretrained.load(whole, states=True)
    jax.tree.map(np.testing.assert_array_equal, asked.params, actual.params)
    config = BY_CASE[case]["saves"]
    pretrained.save(tmp_path / "again", config | {"architectures": ["AnyModel"]}, actual.params)
    again = pretrained.load(tmp_path / "again")
    assert again.states
    jax.tree.map(np.testing.assert_array_equal, again.params, actual.params)


@pytest.mark.parametrize(
    ("classes", "line"),
    [(("BertForMaskedLM",), "no tensor cls.predictions.bias"), ((3,), ""), ((), "")],
)
def test_a_read_out_that_the_config_names_is_not_left_out(classes, line, tmp_path):
    folder = base_of(tmp_path, "bert", classes)
    if not line:
        assert pretrained.load(folder).states
        return
    with pytest.raises(Refused, match=line):
        pretrained.load(folder)


def test_vectors_of_texts():
    """Of two texts padded on either side, by each mode, against sums in NumPy."""
    rng = np.random.default_rng(0)
    x_BTD = rng.normal(size=(2, 9, 4)).astype(np.float32)
    segment_BT = np.array([[1] * 5 + [0] * 4, [0] * 2 + [1] * 7])
    other_BTD = np.where(segment_BT[..., None] > 0, x_BTD, np.nan)  # padding may hold anything
    texts = x_BTD[0, :5], x_BTD[1, 2:]
    expected: dict[Any, list] = {
        "mean": [x.mean(0) for x in texts],
        "mean_sqrt_len": [x.sum(0) / np.sqrt(len(x)) for x in texts],
        "max": [x.max(0) for x in texts],
        "first": [x[0] for x in texts],
        "last": [x[-1] for x in texts],
        "weighted_mean": [np.average(x, 0, np.arange(1, len(x) + 1)) for x in texts],
    }
    assert {*expected} == {*SWITCHES.values()}
    at = layout(segment_BT)
    for mode, vectors in expected.items():
        vectors_BD = jnp.asarray(np.stack(vectors), jnp.float32)
        units_BD = vectors_BD / jnp.linalg.norm(vectors_BD, axis=-1, keepdims=True)
        assert gap(Pooling(mode)(jnp.asarray(other_BTD), at), vectors_BD) < 1e-6, mode
        assert gap(Pooling(mode, True)(jnp.asarray(other_BTD), at), units_BD) < 1e-6, mode
        wrong = Pooling(mode)(jnp.asarray(x_BTD), full(2, 9))
        assert gap(wrong, vectors_BD) > 1e-2, "control: padding counts"


MEAN = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
MODULES = [{"type": f"sentence_transformers.models.{name}", "path": path}
           for name, path in (("Transformer", ""), ("Pooling", "1_Pooling"))]  # fmt: skip


def pooled_folder(path, config, modules=None):
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(config))
    if modules is not None:
        (path / "modules.json").write_text(json.dumps(modules))
    return path


def test_a_folder_says_its_pooling(tmp_path):
    assert read(tmp_path) is None
    assert read(pooled_folder(tmp_path, MEAN)) == Pooling("mean")
    steps = [*MODULES, {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}]
    (tmp_path / "modules.json").write_text(json.dumps(steps))
    assert read(tmp_path) == Pooling("mean", True)
    (tmp_path / "modules.json").write_text(json.dumps(MODULES[:1]))
    assert read(tmp_path) is None


@pytest.mark.parametrize(
    ("config", "modules", "line"),
    [
        ({}, None, "pooling_mode: 0 modes are on"),
        (MEAN | {"pooling_mode_cls_token": True}, None, "pooling_mode: 2 modes are on"),
        (MEAN, [{"type": "a.Dense"}], "modules.0..type: 'Dense'"),
        (MEAN, [{"type": "Pooling", "path": "../x"}], "'../x' is not the name of a folder"),
        (MEAN, {"type": "Pooling"}, "not a list of dictionaries"),
    ],
)
def test_other_poolings_are_one_line(config, modules, line, tmp_path):
    with pytest.raises((FieldError, Refused), match=line) as error:
        read(pooled_folder(tmp_path, config, modules))
    assert "\n" not in str(error.value)
