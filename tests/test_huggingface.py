"""The encodings of released models against the models themselves, frozen by make_goldens.py."""

import functools
import json
import math
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from posenc_jax import (
    Dims,
    Encoding,
    frame,
    from_huggingface,
    make,
    parts_from_huggingface,
    weights,
)
from posenc_jax.encoding import place
from posenc_jax.encodings.rotary import convert_pairing
from posenc_jax.huggingface.fields import TYPES
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError
from tests.encodings.test_goldens import filled, standing, wide
from tests.support import ROOT
from tests.support.catalogue import gap

FOLDER = ROOT / "tests" / "goldens" / "huggingface"
ROWS = json.loads((FOLDER / "models.json").read_text())
WIDTH = 32


def arrays(row):
    """The frozen arrays of one model by name."""
    with np.load(FOLDER / "models.npz") as file:
        start = f"{row['case']}/"
        return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def ours(config, row, actual):
    """What our encoding of the config makes of the frozen queries and keys, by name."""
    parts = parts_from_huggingface(config)
    encoding = parts[""] if "" in parts else parts["encoder"]
    assert isinstance(encoding, Encoding)
    time = actual["code"].shape[1] if "code" in actual else actual["0/q"].shape[1]
    at = standing(actual["pos"] if "pos" in actual else np.arange(time)[None])
    own_arrays = {name: array for name, array in actual.items() if name.startswith("params/")}
    if "code" in actual:
        assert encoding.embed is not None
        params = filled(encoding.init(jax.random.key(0), Dims(WIDTH, 1, WIDTH)), own_arrays)
        zeros = jnp.zeros((1, time, WIDTH), float)
        return {"code": encoding.embed(params, zeros, place(encoding, None, at))}
    heads, head = actual["0/q"].shape[2:]
    layers = sum(name.endswith("/weights") for name in actual)
    dims = Dims(WIDTH, heads, head, layers)
    params = filled(encoding.init(jax.random.key(0), dims), own_arrays)
    view = frame(encoding, params, at, dims, causal=row["causal"], form="dense")
    made = {}
    for n in range(layers):
        made[f"{n}/weights"] = weights(
            wide(actual[f"{n}/q"]), wide(actual[f"{n}/k"]), view.layer(n)
        )
    return made


@pytest.mark.thorough
@pytest.mark.parametrize("row", ROWS, ids=[row["case"].replace(" ", "_") for row in ROWS])
def test_encoding_of_a_config_is_the_models(row):
    """Every layer attends as the model does, for old files and those of transformers 5."""
    actual = arrays(row)
    wrong = {**row["config"], **row["wrong"]}
    with jax.enable_x64(True):
        saved = jax.jit(lambda: ours(row["saved"], row, actual))()
        read = ours(row["config"], row, actual)
        for name, encoding in read.items():
            assert gap(encoding, actual[name]) < 1e-5, name
            assert gap(saved[name], encoding) < 1e-6, name
        try:
            other = ours(wrong, row, actual)
        except (AssertionError, FieldError):  # a table of another size
            return
    far = max(gap(other[name], actual[name]) for name in read)
    assert far > 1e-3, "control: a wrong config must be seen"


def row_of(case):
    return next(row for row in ROWS if row["case"] == case)


@pytest.mark.thorough
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
    actual = arrays(row)
    config = {**row["config"], **other}
    converted = dict(actual)
    for name in [f"{n}/{side}" for n in range(2) for side in "qk"]:
        heads = actual[name].shape[2]
        flat = actual[name].reshape(*actual[name].shape[:2], -1)
        made = convert_pairing(jnp.asarray(flat), heads, to, channels)
        converted[name] = np.asarray(made).reshape(actual[name].shape)
    right, wrong = ours(config, row, converted), ours(config, row, actual)
    assert all(gap(made, actual[name]) < 1e-5 for name, made in right.items())
    assert max(gap(made, actual[name]) for name, made in wrong.items()) > 1e-2, "control"


def test_models_are_those_of_the_version_that_the_script_asks_for():
    script = (FOLDER.parents[2] / "scripts" / "make_goldens.py").read_text()
    assert len(ROWS) >= 20
    assert all(f'"transformers=={row["version"]}"' in script for row in ROWS)


DEEP = functools.reduce(lambda inner, _: [inner], range(200_000), [])
CHUNKS = {"chunk_size": 10, "local_size": 3, "original_max_position_embeddings": 12}
LLAMA3 = {
    "rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
LONG = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
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
        (
            {**LLAMA, "rope_scaling": {"type": "linear", "factor": "2"}},
            "rope_scaling.factor: '2' is not of type float",
        ),
        ({**LLAMA, "rope_scaling": {"type": "dynamic"}}, "rope_scaling.factor: is missing"),
        ({**LLAMA, "rope_scaling": {"type": "yarn"}}, "rope_scaling.factor: is missing"),
        ({**LLAMA, "rope_scaling": {"type": "llama3", "factor": 2}}, "low_freq_factor: is missing"),
        ({**LLAMA, "rope_scaling": {"type": "longrope"}}, "rope_scaling.short_factor: is missing"),
        (
            {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 0.5}},
            "rope_scaling.factor: 0.5 must be 1 or more",
        ),
        (
            {**LLAMA, "rope_scaling": {**LLAMA3, "low_freq_factor": 5.0}},
            "rope_scaling.high_freq_factor: 4.0 is below low_freq_factor 5.0",
        ),
        (
            {**LLAMA, "rope_scaling": {**LONG, "long_factor": [1.0]}, "head_dim": 8},
            "rope_scaling.long_factor: .1.0,. has 1 numbers; a head of 8 has 4 pairs",
        ),
        ({**LLAMA, "head_dim": 7}, "head_dim: 7 channels do not pair"),
        ({**LLAMA, "layer_types": 7}, "layer_types: 7 is not of type tuple of str"),
        ({**LLAMA, "rope_scaling": 0}, "rope_scaling: 0 is not of type dict"),
        ({**LLAMA, "rope_theta": 2**5000}, "rope_theta: <int> is not of type float"),
        ({**LLAMA, "rope_theta": float("nan")}, "rope_theta: nan is not finite"),
        ({**LLAMA, "rope\ntheta": 1}, r"'rope\\ntheta': 1 is not known for this model"),
        ({**LLAMA, "layer_types": DEEP}, "layer_types: <list> is nested too deeply"),
        ({**LLAMA, "alibi": DEEP}, "alibi: <list> is not known for this model"),
        (
            {"model_type": "fuyu", "text_config": {**LLAMA, "rope_theta": "x"}},
            "text_config.rope_theta: 'x' is not of",
        ),
        (
            {**LLAMA, "rope_parameters": {"rope_theta": 1e6}, "rope_scaling": LLAMA3},
            "rope_scaling: is given beside rope_parameters",
        ),
        ({**LLAMA, "dual_chunk_attention_config": {}}, "dual_chunk_attention_config: .. is not kn"),
        (
            {**LLAMA, "model_type": "qwen2", "dual_chunk_attention_config": {"chunk_size": 8}},
            "dual_chunk_attention_config.local_size: is missing",
        ),
        (
            {**LLAMA, "model_type": "qwen2", "dual_chunk_attention_config": CHUNKS | {"size": 1}},
            "dual_chunk_attention_config.size: 1 is not known",
        ),
        (
            {**LLAMA, "model_type": "gptj", "rotary_dim": 4, "rotary": False},
            "rotary: False is not one of: True",
        ),
        ({**LLAMA, "position_embedding_type": "rope_gptj"}, "'rope_gptj' is not one of: 'absol"),
        ({**LLAMA, "alibi": True}, "alibi: True is not known for this model"),
        ({**LLAMA, "relative_attention": True}, "relative_attention: True is not known"),
        ({**LLAMA, "partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not one of: 1"),
        ({"model_type": "gemma4_text", "rope_parameters": None}, "rope_parameters: is missing"),
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
        ({**LLAMA, 0: 1}, "config: has a field whose name is not text"),
        (
            {"model_type": "pixtral", "rope_scaling": {"type": "linear", "factor": 4.0}},
            "rope_scaling.type: 'linear' is not one of: 'axial', 'default'",
        ),
        (
            {"model_type": "dinov3_vit", "rope_parameters": {"rope_theta": 100.0, "factor": 2.0}},
            "rope_parameters.factor: 2.0 is not known for this model",
        ),
        (
            {"model_type": "efficientloftr", "rope_scaling": {"type": "yarn", "factor": 2.0}},
            "rope_scaling.type: 'yarn' is not one of: 'default'",
        ),
        ({**LLAMA, "rope_theta": [1e4]}, r"rope_theta: \(10000.0,\) is not of type float"),
        (
            {"model_type": "step3p5", "rope_theta": [1e4], "layer_types": ["full_attention"] * 2},
            "rope_theta: has 1 numbers; layer_types has 2 layers",
        ),
        (
            {
                "model_type": "step3p5",
                "rope_theta": [1.0, 2.0],
                "layer_types": ["full_attention"] * 2,
            },
            "rope_theta: layers of type 'full_attention' have 1.0 and 2.0",
        ),
        (
            {**LLAMA, "rope_scaling": {**LONG, "long_factor": [1.0] * 5000}, "head_dim": 8},
            "rope_scaling.long_factor: <tuple> has 5000 numbers; a head of 8 has 4 pairs",
        ),
        ({"model_type": "vit", "patch_size": []}, r"patch_size: \(\) is not 2 numbers from 1"),
        ({"model_type": "vit", "image_size": [0, 224]}, r"image_size: \(0, 224\) is not 2 numbers"),
        ({"model_type": "radio", "patch_size": [1, 2]}, "patch_size: 1 x 2 is no square"),
        ({"model_type": "vivit", "tubelet_size": [2, 16]}, r"tubelet_size: \(2, 16\) is not 3 num"),
        (
            {"model_type": "sam2_hiera_det_model", "window_size_per_stage": []},
            r"window_size_per_stage: \(\) is not 4 numbers",
        ),
        ({"model_type": "levit", "depths": [4, 10**9]}, r"depths: \(4, 1000000000\) is not layers"),
        (
            {"model_type": "swinv2", "pretrained_window_sizes": [0]},
            r"pretrained_window_sizes: \(0,\) has not a number for each of 4 stages",
        ),
        (
            {"model_type": "ernie4_5_vl_moe_text", "rope_parameters": {"mrope_section": [9, 9]}},
            r"rope_parameters.mrope_section: \(9, 9\) is not 3 numbers",
        ),
        (
            {
                "model_type": "granitemoehybrid",
                "position_embedding_type": "rope",
                "layer_types": [],
            },
            r"layer_types: \(\) names no layer",
        ),
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
    nested = {"model_type": "fuyu", "text_config": {**LLAMA, "use_cache": True}}
    assert from_huggingface(nested).rotate is not None


WRONG = (
    True, 0, -1, 7, 2**70, 256.5, -1e308, float("nan"), "", "x\ny", [], ["a"], [[1.5]], {},
    {"a": 1},
)  # fmt: skip
SOME = 7, {"a": 1}
FUZZED = (
    "llama llama3", "qwen2 window", "gemma3", "gemma4", "phi3 longrope", "llama4", "deepseek_v3",
    "qwen2_vl", "modernbert", "gptj", "t5", "deberta-v2",
)  # fmt: skip


def with_each_field(config, value):
    """The configs that have this value in place of one of their fields, at any depth."""
    for name, own in config.items():
        yield {**config, name: value}
        if isinstance(own, dict):
            yield from ({**config, name: inner} for inner in with_each_field(own, value))


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize("case", FUZZED, ids=lambda case: case.replace(" ", "_"))
def test_a_wrong_value_of_any_field_is_an_encoding_or_one_line(case):
    config = row_of(case)["config"]
    unsaid = dict.fromkeys(TYPES.keys() - config)
    lines = []
    for value in WRONG:
        more = [config | other for other in with_each_field(unsaid, value)] if value in SOME else []
        for changed in (*with_each_field(config, value), *more):
            try:
                parts_from_huggingface(changed)
            except FieldError as error:
                lines.append(str(error))
    assert not [line for line in lines if "\n" in line or len(line) > 1000]
    assert not [line for line in lines if line.startswith("encoding.")], "names a field of theirs"
    assert len(lines) > len(WRONG), "control: some are seen"


DEFAULTS = json.loads((FOLDER / "types.json").read_text())
LISTS = [], [0], [3, 0], [1, 2, 3], [10**9] * 4, [None], ["full_attention"], "full_attention", None
ROPES = (
    LLAMA3, LONG, {"rope_type": "yarn", "factor": 4.0}, {"full_attention": {"rope_theta": 1e6}},
    {"full_attention": None, "sliding_attention": {}}, {"rope_type": ["yarn"]},
    {"mrope_section": [16, 24, 24], "type": "mrope"}, {"rope_type": "dynamic", "factor": 1e300},
)  # fmt: skip


def damaged(config, rng):
    """The config with one to three fields, at any depth, replaced, removed or added."""
    for _ in range(rng.randint(1, 3)):
        if (inner := rng.choice([*config.values(), None])) and isinstance(inner, dict):
            name = next(name for name, value in config.items() if value is inner)
            config = {**config, name: damaged(inner, rng)}
            continue
        name = rng.choice([*config, *config, *TYPES, "rope_parameters", "layer_types", "sliding_x"])
        config = {**config, name: rng.choice([*WRONG, *LISTS, *ROPES])}
        if rng.random() < 0.1:
            del config[name]
    return config


@pytest.mark.filterwarnings("ignore:overflow encountered")  # of frequencies of a tiny base
@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("seed", range(4))
def test_damaged_configs_of_any_type_are_encodings_or_one_line(seed):
    rng, lines, encodings = random.Random(seed), [], 0
    for kind in rng.sample([*DEFAULTS], len(DEFAULTS)) * 2:
        config = damaged({**DEFAULTS[kind], "model_type": kind}, rng)
        try:
            answers = parts_from_huggingface(config).values()
            encodings += any(isinstance(answer, Encoding) for answer in answers)
            lines += [answer for answer in answers if isinstance(answer, str)]
        except FieldError as error:
            lines.append(str(error))
    assert not [line for line in lines if "\n" in line or len(line) > 1000]
    assert not [line for line in lines if line.startswith("encoding.")], "names a field of theirs"
    assert min(encodings, len(lines)) > 300, "control: some are read, some are not"


HEADED = {**LLAMA, "head_dim": 8}


def attends(encoding, time=24, heads=4, seed=0):
    """Attention weights of random queries and keys under an encoding without parameters."""
    q, k = (jax.random.normal(jax.random.key(seed + n), (1, time, heads, 8)) for n in (0, 1))
    dims = Dims(32, heads, 8)
    params = encoding.init(jax.random.key(0), dims)
    view = frame(encoding, params, full(1, time), dims, form="dense")
    return weights(q, k, view.layer(0))


@pytest.mark.thorough
def test_dual_chunk_attention_is_read_with_its_temperature():
    """Of Qwen2.5-1M; past the trained length logits grow by YaRN's square."""
    config = {**HEADED, "model_type": "qwen2", "use_sliding_window": False}
    actual = from_huggingface({**config, "dual_chunk_attention_config": CHUNKS})
    plain = make("dual_chunk", chunk=7, most=10)
    assert gap(attends(actual, 12), attends(plain, 12)) < 1e-6
    assert gap(attends(actual, 12), attends(make("rope"), 12)) > 1e-2, "control"
    sharper = (1 + 0.1 * np.log(2)) ** 2
    tempered = plain._replace(temper=lambda *_: jnp.full((1, 1, 1), sharper))
    assert gap(attends(actual), attends(tempered)) < 1e-5
    assert gap(attends(actual), attends(plain)) > 1e-3, "control"


def test_slopes_of_mpt_follow_its_largest_bias():
    """As vLLM computes them; transformers does not read the field."""
    config = {"model_type": "mpt", "attn_config": {"alibi": True, "alibi_bias_max": 16}}
    slope_H = 2.0 ** (-16 * np.arange(1, 5) / 4)
    offsets = np.arange(24)[:, None] - np.arange(24)
    bias = Encoding(bias=lambda *_: jnp.asarray(-slope_H[:, None, None] * offsets)[None])
    assert gap(attends(from_huggingface(config)), attends(bias)) < 1e-5
    assert gap(attends(from_huggingface(config)), attends(make("alibi"))) > 1e-3, "control"


def test_llama3_without_a_ramp_is_a_step():
    """Of Llama 4 Scout, by the formula of transformers."""
    scaling = {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
    actual = from_huggingface({**HEADED, "rope_theta": 100.0, "rope_scaling": scaling})
    freq_F = 100.0 ** (-np.arange(4) / 4)
    slow_F = 2 * np.pi / freq_F > 16
    assert 0 < slow_F.sum() < 4
    assert actual.table is not None
    table = actual.table({}, jnp.arange(24)[None], Dims(8, 1, 8))
    angle_TF = np.arange(24)[:, None] * np.where(slow_F, freq_F / 2, freq_F)
    assert gap(table.cos[0, :, 0], np.cos(angle_TF)) < 1e-5


@pytest.mark.parametrize(
    ("released", "plain"),
    [
        # GPT-J-6B
        (
            {"model_type": "gptj", "rotary": True, "rotary_dim": 4},
            {"model_type": "gptj", "rotary_dim": 4},
        ),
        # Command R7B
        (
            {**HEADED, "model_type": "cohere2", "position_embedding_type": "rope_gptj",
             "rotary_pct": 1.0, "sliding_window": 4, "sliding_window_pattern": 4},
            {**HEADED, "model_type": "cohere2", "sliding_window": 4},
        ),
        # Yarn-Llama-2
        (
            {**HEADED, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 16,
                                        "type": "yarn", "finetuned": True}},
            {**HEADED, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 16,
                                        "type": "yarn"}},
        ),
        # a null of transformers, which takes the quotient of the lengths
        (
            {**HEADED, "rope_scaling": {"factor": None, "original_max_position_embeddings": 16,
                                        "type": "yarn"}},
            {**HEADED, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 16,
                                        "type": "yarn"}},
        ),
    ],
)  # fmt: skip
def test_fields_of_released_files_that_repeat_what_is_known(released, plain):
    actual = attends(from_huggingface(released))
    assert gap(actual, attends(from_huggingface(plain))) == 0.0
    assert gap(actual, attends(make("nope"))) > 1e-2, "control"


VL = {
    "model_type": "qwen2_vl_text", "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]},
    "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "num_hidden_layers": 2,
}  # fmt: skip


def test_a_window_among_positions_of_three_axes_counts_tokens():
    """An image of 3 x 3 patches has one time; its tokens are 9 apart all the same."""
    encoding, dims = from_huggingface(VL), Dims(16, 2, 8, 2)
    grid = np.array([(2, 2 + n // 3, 2 + n % 3) for n in range(9)])
    pos_T3 = np.concatenate([np.arange(2)[:, None].repeat(3, 1), grid, [[5, 5, 5], [6, 6, 6]]])
    at = layout(jnp.ones((1, 13), int), jnp.asarray(pos_T3[None]))
    view = frame(encoding, encoding.init(jax.random.key(0), dims), at, dims)
    assert view.layer(0).encoding.bias is None
    hidden_QK = np.asarray(view.layer(1).bias())[0, 0] < 0
    order = np.arange(13)
    np.testing.assert_array_equal(hidden_QK, abs(order[:, None] - order[None]) >= 4)
    by_time = abs(pos_T3[:, None, 0] - pos_T3[None, :, 0]) >= 4
    assert (hidden_QK != by_time).any(), "control: by the axis of time"


def test_yarn_of_a_config_is_that_of_the_catalogue():
    """Also where the temperature is stated; another temperature is another encoding."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    read = lambda **more: from_huggingface({
        "model_type": "llama", "rope_parameters": {**yarn, "rope_theta": 5e5, **more}
    })  # fmt: skip
    wanted = make("yarn", base=5e5, factor=4.0, length=8192, ramp="pairs_truncated")
    assert read() == wanted == read(attention_factor=0.1 * math.log(4) + 1)
    assert read(attention_factor=1.0) != wanted != read(mscale=2.0, mscale_all_dim=1.0)
