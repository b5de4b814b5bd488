"""The encodings of released models against the models themselves, frozen by make_goldens.py."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import Dims, frame, from_huggingface, weights
from posenc_jax.encoding import place
from posenc_jax.encodings.rotary import convert_pairing
from posenc_jax.options import FieldError
from tests.catalogue import gap
from tests.test_goldens import filled, standing, wide

FOLDER = Path(__file__).parent / "goldens" / "huggingface"
ROWS = json.loads((FOLDER / "models.json").read_text())
WIDTH = 32


def arrays(row):
    """The frozen arrays of one model by name."""
    with np.load(FOLDER / "models.npz") as file:
        start = f"{row['case']}/"
        return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def ours(config, row, found):
    """What our encoding of the config makes of the frozen queries and keys, by name."""
    encoding = from_huggingface(config)
    time = found["code"].shape[1] if "code" in found else found["0/q"].shape[1]
    at = standing(found["pos"] if "pos" in found else np.arange(time)[None])
    own = {name: array for name, array in found.items() if name.startswith("params/")}
    if "code" in found:
        assert encoding.embed is not None
        params = filled(encoding.init(jax.random.key(0), Dims(WIDTH, 1, WIDTH)), own)
        zeros = jnp.zeros((1, time, WIDTH), float)
        return {"code": encoding.embed(params, zeros, place(encoding, None, at))}
    heads, head = found["0/q"].shape[2:]
    layers = sum(name.endswith("/weights") for name in found)
    dims = Dims(WIDTH, heads, head, layers)
    params = filled(encoding.init(jax.random.key(0), dims), own)
    view = frame(encoding, params, at, dims, causal=row["causal"], form="dense")
    made = {}
    for n in range(layers):
        made[f"{n}/weights"] = weights(wide(found[f"{n}/q"]), wide(found[f"{n}/k"]), view.layer(n))
    return made


@pytest.mark.parametrize("row", ROWS, ids=[row["case"].replace(" ", "_") for row in ROWS])
def test_encoding_of_a_config_is_the_models(row):
    """Every layer attends as the model does, for old files and those of transformers 5."""
    found = arrays(row)
    wrong = {**row["config"], **row["wrong"]}
    with jax.enable_x64(True):
        saved = jax.jit(lambda: ours(row["saved"], row, found))()
        read = ours(row["config"], row, found)
        for name, made in read.items():
            assert gap(made, found[name]) < 1e-5, name
            assert gap(saved[name], made) < 1e-6, name
        try:
            other = ours(wrong, row, found)
        except (AssertionError, FieldError):  # a table of another size
            return
    far = max(gap(other[name], found[name]) for name in read)
    assert far > 1e-3, "control: a wrong config must be seen"


def row_of(case):
    return next(row for row in ROWS if row["case"] == case)


@pytest.mark.parametrize(
    ("case", "other", "to", "channels"),
    [
        ("llama grouped", {"model_type": "cohere"}, "interleaved", None),
        ("gptj", {"model_type": "gpt_neox", "rotary_dim": None, "rotary_pct": 0.5}, "half", 8),
    ],
)
def test_converted_weights_attend_alike_with_the_other_pairing(case, other, to, channels):
    """Queries of all heads and keys of fewer, as a model of the other pairing makes them."""
    row = row_of(case)
    found = arrays(row)
    config = {**row["config"], **other}
    converted = dict(found)
    for name in [f"{n}/{side}" for n in range(2) for side in "qk"]:
        heads = found[name].shape[2]
        flat = found[name].reshape(*found[name].shape[:2], -1)
        made = convert_pairing(jnp.asarray(flat), heads, to, channels)
        converted[name] = np.asarray(made).reshape(found[name].shape)
    right, wrong = ours(config, row, converted), ours(config, row, found)
    assert all(gap(made, found[name]) < 1e-5 for name, made in right.items())
    assert max(gap(made, found[name]) for name, made in wrong.items()) > 1e-2, "control"


def test_models_are_those_of_the_version_that_the_script_asks_for():
    script = (FOLDER.parents[2] / "scripts" / "make_goldens.py").read_text()
    assert len(ROWS) >= 20
    assert all(f'"transformers=={row["version"]}"' in script for row in ROWS)


LLAMA = {"model_type": "llama", "rope_theta": 1e4, "max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ({"model_type": "lama"}, "model_type: 'lama' is not known; did you mean llama"),
        ({}, "model_type: 'None' is not known"),
        ({**LLAMA, "rope_scaling": {"type": "yarnn"}}, "rope_scaling.rope_type: 'yarnn'"),
        (
            {**LLAMA, "rope_scaling": {"type": "linear", "factor": 2, "scale": 3}},
            "rope_scaling.scale: 3 is not known for this model",
        ),
        ({**LLAMA, "rope_scaling": {"type": "linear"}}, "rope_scaling.factor: is missing"),
        ({**LLAMA, "rope_scaling": {"type": "linear", "factor": "2"}}, "encoding.factor: '2'"),
        ({**LLAMA, "rope_scaling": {"type": "yarn", "factor": "2"}}, "factor: '2' is not a number"),
        ({**LLAMA, "alibi": True}, "alibi: True is not known for this model"),
        ({**LLAMA, "relative_attention": True}, "relative_attention: True is not known"),
        ({**LLAMA, "partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not one of: 1"),
        ({**LLAMA, "model_type": "falcon", "alibi": True}, "alibi: True is not known"),
        ({"model_type": "gpt_oss"}, "rope_parameters: is missing"),
        ({"model_type": "gptj"}, "rotary_dim: is missing"),
        ({**LLAMA, "rotary_dim": 4}, "rotary_dim: 4 is not known for this model"),
        ({**LLAMA, "global_rope_theta": 4.0}, "global_rope_theta: 4.0 is not known"),
        (
            {**LLAMA, "layer_types": ["linear_attention"]},
            r"layer_types\[0\]: 'linear_attention'; did you mean full_attention",
        ),
        (
            {"model_type": "gemma4_text", "rope_parameters": {"full_attention": {"rope_theta": 1}}},
            "rope_parameters.sliding_attention: is missing",
        ),
        (
            {"model_type": "bert", "position_embedding_type": "relative_key"},
            "'relative_key' is not",
        ),
        ({"model_type": "mpt", "attn_config": {"alibi": False}}, "attn_config.alibi: False is not"),
        (
            {"model_type": "deberta-v2", "relative_attention": True, "pos_att_type": ["c2p"]},
            "pos_att_type:.* only c2p and p2c together",
        ),
    ],
)
def test_what_is_not_known_is_named_in_one_line(config, line):
    with pytest.raises(FieldError, match=line) as error:
        from_huggingface(config)
    assert "\n" not in str(error.value)


def test_what_says_nothing_of_positions_is_not_refused():
    """Other fields, those that are null, and those that are switched off."""
    more = {
        "position_embedding_type": "absolute",
        "hidden_act": "silu",
        "sliding_window": None,
        "alibi": False,
        "rope_scaling": None,
    }
    assert from_huggingface({**LLAMA, **more}).rotate is not None
    nested = {"model_type": "llava", "text_config": {**LLAMA, "use_cache": True}}
    assert from_huggingface(nested).rotate is not None
