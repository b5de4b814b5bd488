"""The answer for each type of config of transformers, and the fields of released files.

tests/goldens/huggingface/types.json has the fields of positions and sizes of each type's default
config, as transformers 5.24 makes it.
"""

import json
import pathlib
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posenc_jax
from posenc_jax import (
    Dims,
    Encoding,
    chain,
    convolved,
    frame,
    from_huggingface,
    make,
    parts_from_huggingface,
    per_layer,
    weights,
)
from posenc_jax.combinators import by_order
from posenc_jax.encodings.by_layer import chunked
from posenc_jax.encodings.rotary_scaling import louder
from posenc_jax.huggingface.box_readers import box_tables
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.offset_readers import class_offsets
from posenc_jax.huggingface.own_readers import from_row, inside_scale
from posenc_jax.huggingface.picture_readers import on_axes
from posenc_jax.huggingface.point_readers import by_directions, over_heads
from posenc_jax.huggingface.reading import read_all, row_of
from posenc_jax.huggingface.rotary_parts import (
    louder_by_count,
    on_channels,
    paired_across,
    values_and_back,
    values_too,
    with_factors,
    without_attention,
)
from posenc_jax.huggingface.rows import Parts
from posenc_jax.huggingface.series_readers import standardized_sines
from posenc_jax.huggingface.sound_readers import by_learned_factor, gated_buckets
from posenc_jax.huggingface.types import ROWS
from posenc_jax.layout import full, layout
from posenc_jax.options import FieldError
from scripts.goldens.compared import (
    answer_of,
    block_outputs_gap,
    code_gap,
    grid_gap,
    input_gap,
    layers_gap,
    scores_gap,
)
from scripts.goldens.config_changes import changes
from scripts.goldens.frozen import FOLDER, read
from tests.support.catalogue import gap

ROOT = pathlib.Path(__file__).parents[1]
TYPES = json.loads((FOLDER / "types.json").read_text())
PROOFS = json.loads((FOLDER / "proofs.json").read_text())
INPUTS = json.loads((FOLDER / "inputs.json").read_text())
PICTURES = json.loads((FOLDER / "pictures.json").read_text())
CODES = json.loads((FOLDER / "codes.json").read_text())
SCORES = json.loads((FOLDER / "scores.json").read_text())
OUTPUTS = json.loads((FOLDER / "outputs.json").read_text())
TABLES = json.loads((FOLDER / "tables.json").read_text())
MEMORIES = "edgetam_video", "sam2_video", "sam3_tracker_video"
# Types whose default config no model was released with: widths of heads that do not pair or fit.
UNRELEASED = {
    "glm4_moe", "glm4v_moe", "glm4v_moe_text", "glm_ocr", "glm_ocr_text", "qwen3_omni_moe",
    "qwen3_omni_moe_talker_text", "qwen3_omni_moe_text", "qwen3_omni_moe_thinker",
}  # fmt: skip


def layers(answer, count=48) -> Any:
    """The encodings of the first layers, of parts of `per_layer`; of others the encoding."""
    if not isinstance(answer, Encoding):
        return answer
    if answer.name == "chain":
        return [layers(part, count) for part in answer.options["parts"]]
    if answer.name != "per_layer":
        return answer
    parts = answer.options["parts"]
    return [parts[n % len(parts)] for n in range(count)]


def test_every_type_has_an_answer():
    assert len(TYPES) == 822
    answers = {kind: parts_from_huggingface({"model_type": kind}) for kind in TYPES}
    whole = [next(iter(parts.values())) for parts in answers.values() if len(parts) == 1]
    encodings = sum(isinstance(answer, Encoding) for answer in whole)
    reasons = {part for parts in answers.values() for part in parts.values() if type(part) is str}
    assert encodings >= 480
    assert all("\n" not in reason and len(reason) > 10 for reason in reasons)
    assert not [kind for kind, parts in answers.items() if not parts]


def test_types_that_transformers_does_not_have_are_refused():
    with pytest.raises(FieldError, match=r"model_type: 'llamma' is not known; did you mean llama"):
        parts_from_huggingface({"model_type": "llamma"})


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind) for kind in sorted(UNRELEASED)])
def test_defaults_that_fit_no_head_are_one_line(kind):
    with pytest.raises(FieldError, match=r"channels do not pair|a head of") as error:
        parts_from_huggingface(TYPES[kind])
    assert "\n" not in str(error.value)


def test_a_config_of_defaults_is_that_of_its_type_alone():
    """What a row says of a type is what transformers gives to fields that a file leaves out."""
    other = {}
    for kind, fields in TYPES.items():
        if kind in UNRELEASED or kind.startswith("lfm3_vl"):  # whose layers are in `layer_types`
            continue
        alone = parts_from_huggingface({"model_type": kind})
        said = parts_from_huggingface({**fields, "model_type": kind})
        depth = fields.get("num_hidden_layers")
        count = min(depth, 40) if isinstance(depth, int) else 12
        for name in {*alone, *said}:
            if layers(alone[name], count) != layers(said[name], count):
                other[kind, name] = alone[name], said[name]
    assert {*other} == OTHER_DEFAULTS


def test_changes_of_defaults_are_told():
    """What scripts/architectures.py prints against a newer transformers: of Llama 4 to 5 of it."""
    before = {"rope_theta": 1e4, "rope_scaling": None, "hidden_size": 64, "vision": {"depth": 3}}
    now = {"rope_base": 1e4, "rope_parameters": {}, "hidden_size": 32, "vision": {"depth": 4}}
    assert list(changes(before, now)) == [
        "rope_theta is now rope_base",
        "rope_scaling is gone, null",
        "rope_parameters is new, {}",
        "hidden_size is 32, was 64",
        "vision.depth is 4, was 3",
    ]
    assert list(changes(now, now)) == []
    apart = changes({"num_layers": 7}, {"num_heads": 7})
    assert list(apart) == ["num_layers is gone, 7", "num_heads is new, 7"], (
        "control: no common word"
    )


# Fields of models of parts whose names are of positions, and which are not of any part's.
NOT_OF_A_PART = {
    ("blt", "local_attention_window_len"),  # of the patcher, whose own config says it
    ("esmfold2", "num_relative_residx_bins"), ("esmfold2", "num_relative_chain_bins"),  # of pairs
    ("granite_speech", "window_size"), ("granite_speech_plus", "window_size"),  # of the projector
    ("pocket_tts_audio_tokenizer", "sliding_window"),  # of its two parts, which say it
    ("pp_doclayout_v2", "layer_types"), ("pp_doclayout_v3", "layer_types"),  # of convolutions
    ("qwen2_5_omni_thinker", "position_id_per_seconds"),  # of the tokens' numbers
    ("seamless_m4t", "t2u_max_position_embeddings"),  # of sines, which have no last row
    ("seamless_m4t_v2", "t2u_max_position_embeddings"),
    ("zoedepth", "num_relative_features"),  # of depths
    *((kind, "memory_attention_rope_dropout") for kind in MEMORIES),
}  # fmt: skip


def test_models_of_parts_have_no_field_of_positions_that_no_part_reads():
    """A part that attends by a field of the whole model is among its parts."""
    unread = set()
    for kind, fields in TYPES.items():
        if isinstance(row_of(kind, ROWS), Parts) and kind not in UNRELEASED:
            config = Fields({**fields, "model_type": kind})
            read_all(config, kind, ROWS)
            told = {name for name, value in config.fields.items() if value not in (None, False)}
            named = {name for name in told - config.read if POSITIONAL.search(name)}
            unread |= {(kind, name) for name in named if not isinstance(fields[name], dict)}
    assert unread == NOT_OF_A_PART


# BLT sets a window for its encoder.
OTHER_DEFAULTS = {("blt", "encoder_config")}


def model_of(case):
    """The frozen arrays of a small model, and the positions of its tokens."""
    arrays = read("proofs", case["case"])
    time = next(iter(arrays.values())).shape[1]
    pos_T = np.arange(time)
    several = np.stack([pos_T, pos_T // 3, pos_T % 3][-case["axes"] :], -1)
    return arrays, (pos_T if case["axes"] == 1 else several)[None]


@pytest.mark.thorough(after=6)
@pytest.mark.parametrize("case", PROOFS, ids=[case["case"].replace(" ", "_") for case in PROOFS])
def test_small_models_attend_as_their_config_says(case):
    """Layers of each kind of a small random model of transformers, frozen."""
    arrays, pos = model_of(case)
    (answer,) = parts_from_huggingface(case["config"]).values()
    assert layers_gap(answer, arrays, pos, case["causal"]) < 2e-5
    one_axis = pos[..., 0] if pos.ndim == 3 else pos
    other = make("rope" if answer == make("nope") else "nope")
    assert layers_gap(other, arrays, one_axis, case["causal"]) > 1e-3, "control"


def test_weights_that_are_nan_in_any_layer_are_no_proof():
    case = PROOFS[0]
    arrays, pos = model_of(case)
    (answer,) = parts_from_huggingface(case["config"]).values()
    layers = [name for name in arrays if name.endswith("/weights")]
    assert len(layers) > 1
    for name in layers:
        bad = {**arrays, name: arrays[name] * np.nan}
        assert not layers_gap(answer, bad, pos, case["causal"]) < 2e-5


def test_what_models_add_at_their_input():
    """The rows of its table that a small model of transformers reads, or its sines, frozen."""
    codes = {name.removesuffix("/code"): array for name, array in read("inputs").items()}
    seen = 0
    for case in INPUTS:
        answers = parts_from_huggingface(case["config"])
        answer = answers[case["part"] if case["part"] in answers else ""]
        ids, code = case.get("ids"), codes.get(case["case"])
        assert input_gap(answer, ids, case.get("rows"), code) < 2e-5, case["case"]
        moved = [n + 1 for n in ids] if ids else None
        other = None if code is None else np.roll(code, 1, axis=0)
        seen += input_gap(answer, moved, case.get("rows"), other) > 1e-3
    assert seen == len(INPUTS) > 70, "control: moved by one token"


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize(
    "case", PICTURES, ids=[case["case"].replace(" ", "_") for case in PICTURES]
)
def test_what_models_add_to_patches(case):
    """Tables of small models of transformers at their own size and resized, frozen."""
    arrays = read("pictures", case["case"])
    table, code = arrays["table"], arrays["code"]
    (answer,) = parts_from_huggingface(case["config"]).values()
    assert isinstance(answer, Encoding)
    image = tuple(case["image"]) if case["image"] else None
    assert grid_gap(answer, table, code, image) < 2e-5
    turned = np.concatenate([code[:-2], code[:-3:-1]])
    assert grid_gap(answer, table, turned, image) > 1e-2, "control: two patches in the other order"


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("dinov2", "bicubic", "bicubic_antialiased"),
        ("dinov2_with_registers", "bicubic_antialiased", "bicubic"),
    ],
)
def test_dinov2_resizes_its_table_by_its_own_kernel(name, right, wrong):
    case = next(case for case in PICTURES if case["case"] == f"{name} 5x6")
    arrays, answer = read("pictures", case["case"]), from_huggingface(case["config"])
    for resize in (right, wrong, "bilinear", "corners"):
        other = make("learned_grid", **{**answer.options, "resize": resize})
        apart = grid_gap(other, arrays["table"], arrays["code"], (5, 6))
        assert apart < 2e-5 if resize == right else apart > 1e-1, resize


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("case", SCORES, ids=[case["case"].replace(" ", "_") for case in SCORES])
def test_scores_with_parameters_and_of_patches(case):
    """Attention of small models of transformers with their parameters of positions, frozen."""
    answer = answer_of(case["config"], case.get("part"))
    arrays = read("scores", case["case"])
    assert scores_gap(answer, case["layer"], arrays) < 2e-5
    plain = {name: x for name, x in arrays.items() if "/" not in name}
    assert scores_gap(make("nope"), case["layer"], plain) > 1e-3, "control"


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize("case", CODES, ids=[case["case"].replace(" ", "_") for case in CODES])
def test_what_models_add_to_points_patches_and_frames(case):
    """Sines, tables and Fourier features of small modules of transformers, frozen."""
    answer = answer_of(case["config"], case.get("part"), case.get("image"))
    arrays = read("codes", case["case"])
    assert code_gap(answer, arrays) < 2e-5
    other = np.roll(arrays["pos"], 1, axis=0)
    if arrays["pos"].ndim == 2:  # columns for rows, or past a table of another shape NaN
        other = arrays["pos"][:, [*range(arrays["pos"].shape[1] - 2), -1, -2]]
        other = np.where(arrays["pos"][:, :1] < 0, arrays["pos"], other)
    moved = {"pos": other}
    if "x" in arrays:  # made of the tokens beside a token, not of positions
        moved = {"code": np.roll(arrays["code"], 1, axis=0)}
    assert not code_gap(answer, arrays | moved) <= 1e-2, "control"


# The rotation of Mistral Large 4's small model, but for the learned factors.
SLOW: dict[str, Any] = {
    "factor": 2048.0, "length": 512, "ramp": "pairs_truncated", "pairing": "interleaved",
}  # fmt: skip
HALVES = {"pairing": "half"}
# Axis and buckets of the small LayoutLMv2's biases, and of the top of boxes.
SIDES = {"buckets": 10, "distance": 20}
# The pairs of ESMFold2's small model, and its window.
ATOM_PAIRS = {"sections": (2, 2, 2, 4), "bases": (15.0, 15.0, 15.0, 1e4), "pairing": "half"}
near_atoms = lambda: by_order(make("window", distance=4))
BINS = [(0, {"buckets": 8, "distance": 6}), (1, SIDES), (4, SIDES)]
TOP = (2, SIDES)
latent = partial(on_channels, channels=8, last=True)
grows = louder_by_count


def score_case(name):
    """The config, layer and arrays of a frozen case."""
    case = next(case for case in SCORES if case["case"] == name)
    return case["config"], case["layer"], read("scores", case["case"])


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        # each layer has its own u and v; with one sign for both directions, keys ahead differ
        ("parakeet_encoder 0", lambda: make("clipped", distance=3)),
        # Shaw's ends are 3 behind and 1 ahead, not the other way round
        ("wav2vec2-bert 0", lambda: make("shaw", distance=1, ahead=3)),
        # blocks of 6 frames
        ("granite_speech_encoder 0", lambda: make("shaw", distance=8)),
        # chunks of 3 frames and one before, no window of 4
        (
            "nemotron_asr_streaming_encoder 0",
            lambda: chain(make("transformer_xl", shared=False), make("window", distance=3)),
        ),
        # columns first
        ("step3p5_vision 0", lambda: make("axial", base=100.0)),
        ("inkling2_vision 0", lambda: make("axial", base=100.0, pairing="interleaved")),
        ("llama4_vision_model 0", lambda: make("axial", base=100.0, pairing="interleaved")),
        ("sam3_vit_model 1", lambda: make("axial", base=100.0, pairing="interleaved")),
        # the class token turns by learned angles
        ("mlcd_vision_model 0", lambda: make("axial", base=100.0)),
        # weights of curves have a length at most, and grow with the query's position
        ("inkling2_text 1", lambda: make("content_bias", curves=3, distance=6)),
        ("inkling_text 0", lambda: make("window", distance=3)),
        # axes go to channels, not to pairs, as of positions by their first number
        ("hunyuan_vl_text 0", lambda: on_axes(make("rope"), 0)),
        # learned factors of the frequencies; neighbours; a growth with the logarithm of the keys
        ("mistral_large4_text 0", lambda: chain(latent(make("ntk_by_parts", **SLOW)), grows())),
        (
            "mistral_large4_text 0",
            lambda: chain(latent(with_factors(make("rope", pairing="interleaved"))), grows()),
        ),
        (
            "mistral_large4_text 0",
            lambda: chain(latent(with_factors(make("ntk_by_parts", **SLOW | HALVES))), grows()),
        ),
        ("mistral_large4_text 0", lambda: latent(with_factors(make("ntk_by_parts", **SLOW)))),
        # the bottom of boxes, not their top; in version 3 biases are divided as products are
        (
            "layoutlmv2 0",
            lambda: chain(*(on_axes(make("t5", **sizes), n) for n, sizes in [*BINS[:2], TOP])),
        ),
        ("layoutlmv3 0", lambda: chain(*(on_axes(make("t5", **sizes), n) for n, sizes in BINS))),
        # rows and columns by turns with the frequencies of rope, in layers with a window the short
        # ones; pairs are those of all heads together; the first pairs are channels k and k + C/2
        ("efficientloftr 0", lambda: make("nd_rope", bases=(1e2,), order="alternate")),
        ("efficientloftr 0", lambda: over_heads(make("axial", base=1e2, pairing="interleaved"))),
        ("esmfold2 0", lambda: chain(make("nd_rope", **ATOM_PAIRS), near_atoms())),
        ("esmfold2 0", lambda: paired_across(make("nd_rope", **ATOM_PAIRS))),
        # points are (row, column): with x and y exchanged
        # SAM 2's memory turns by the column first
        ("sam2_video 0", lambda: make("axial", base=100.0, pairing="interleaved")),
        ("lightglue 0", lambda: on_axes(by_directions(), (1, 0))),
        # buckets of all keys, without the window
        ("longt5 0", lambda: make("t5", buckets=8, distance=6, scaled=False)),
        # keys of other chunks are hidden; the mask is not a number that is added
        ("seamless_m4t_v2 0", lambda: make("shaw", distance=3, ahead=1)),
        ("seamless_m4t_v2 0", lambda: chain(make("shaw", distance=3, ahead=1), chunked(3, 2))),
        # other frequencies for the two channels of a pair: no rotation
        ("vjepa2 0", lambda: make("mrope", base=1e4, pairing="interleaved")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_scores_that_are_easily_mistaken(name, wrong):
    """The plausible wrong answer, with the model's parameters where it has them, is seen."""
    _, layer, arrays = score_case(name)
    encoding = wrong()
    heads, head = arrays["q"].shape[2:]
    dims = Dims(heads * head, heads, head, layer + 1)
    shapes = jax.eval_shape(lambda: encoding.init(jax.random.key(0), dims))
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    ours = {(jax.tree_util.keystr(path[-1:]), leaf.shape) for path, leaf in leaves}
    fits = lambda name, x: (f"[{name.partition('/')[2].split()[0]!r}]", x.shape) in ours
    fitting = {n: x for n, x in arrays.items() if "/" not in n or fits(n, x)}
    assert scores_gap(encoding, layer, fitting) > 1e-3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        # rows of the class token as a query and as a key exchanged
        ("beit 0", lambda table: table[[*range(49), 50, 49, 51]]),
        # offsets the other way: a key's less a query's
        ("beit 0", lambda table: table[[*range(48, -1, -1), 49, 50, 51]]),
        ("data2vec-vision 0", lambda table: table[[*range(48, -1, -1), 49, 50, 51]]),
        # LeViT's table column by column
        ("levit 0", lambda table: table.reshape(4, 4, -1).swapaxes(0, 1).reshape(16, -1)),
    ],
)
def test_tables_of_offsets_are_read_in_the_order_of_the_model(name, change):
    config, layer, arrays = score_case(name)
    assert scores_gap(from_huggingface(config), layer, arrays) < 2e-5
    other = {n: change(x) if n.startswith("params/") else x for n, x in arrays.items()}
    assert scores_gap(from_huggingface(config), layer, other) > 1e-3


def reversed_in_time(encoding):
    """The convolution with its steps the other way round."""

    def embed(params, x_BTD, placed):
        return encoding.embed(params | {"kernel": params["kernel"][:, ::-1]}, x_BTD, placed)

    return encoding._replace(embed=embed)


@pytest.mark.thorough(after=4)
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        # a picture that is not square reads a part of a square, and is not stretched
        ("radio 3x6", lambda: make(
            "learned_grid", rows=8, columns=8, image_rows=3, image_columns=6, resize="bilinear"
        )),
        # corners of the table are corners of the picture
        ("vilt picture 3x5", lambda: make(
            "learned_grid", rows=4, columns=4, prefix=1, image_rows=3, image_columns=5,
            resize="bilinear",
        )),
        # Deformable DETR's are of the middles of patches, RT-DETR's of their numbers
        ("deformable_detr", lambda: make(
            "sinusoidal_2d", pairing="interleaved", normalized=True
        )),
        ("detr", lambda: make("sinusoidal_2d", pairing="interleaved")),
        ("rt_detr", lambda: make("sinusoidal_2d", base=50.0, pairing="interleaved")),
        # a picture of another size is a tenth of a patch larger
        ("hy_v4_vl_vision 3x6", lambda: make(
            "learned_grid", rows=4, columns=4, prefix=1, image_rows=3, image_columns=6,
            resize="bilinear",
        )),
        # less the mean of all patches
        ("patchtst sincos", lambda: make("sinusoidal")),
        ("patchtst sincos", lambda: standardized_sines(10)),
        # an even kernel reads one token more before a token than behind it; norms between layers
        ("wav2vec2", lambda: reversed_in_time(convolved(6, 4))),
        ("wav2vec2 odd", lambda: convolved(5, 4, activation="relu")),
        ("data2vec-audio", lambda: convolved(5, 4, layers=3)),
        ("wav2vec2 padded", lambda: convolved(6, 4, norm=True)),
        # sines are those of tensor2tensor, counted from pad_token_id + 1
        ("speecht5 sound", lambda: chain(convolved(6, 4), make("sinusoidal"))),
        ("speecht5 text", lambda: make("sinusoidal")),
        # the slowest wave has the longest period itself
        ("timesfm", lambda: make("sinusoidal", base=100.0, pairing="half")),
    ],
)  # fmt: skip
def test_what_is_added_and_easily_mistaken(name, wrong):
    encoding, arrays = wrong(), read("codes", name)
    shapes = jax.eval_shape(lambda: encoding.init(jax.random.key(0), Dims(16, 1, 16)))
    known = {str(path[-1].key) for path, _ in jax.tree_util.tree_leaves_with_path(shapes)}
    read_by = lambda name: not name.startswith("params/") or name.split("/")[1] in known
    arrays = {name: array for name, array in arrays.items() if read_by(name)}
    assert code_gap(encoding, arrays) > 1e-3


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"temperature_width": 10.0}, r"temperature_width: 10.0 is not one of: 20.0"),
        ({"sine_position_embedding_scale": 3.0}, r"sine_position_embedding_scale: 3.0 is not"),
    ],
)
def test_other_sines_of_dab_detr_are_refused(fields, line):
    with pytest.raises(FieldError, match=line):
        parts_from_huggingface({"model_type": "dab-detr", **fields})


def test_windows_and_frequencies_of_neomme_are_those_of_the_type_of_layer():
    """Plausible wrong answers for its frozen layers, one with a window and one without."""
    case = next(case for case in PROOFS if case["case"] == "neomme")
    arrays, pos = model_of(case)
    answer = from_huggingface(case["config"])
    near, far = answer.options["parts"][0], answer.options["parts"][-1]
    typed = answer.options["parts"]
    each = lambda layer: per_layer([layer if part == near else part for part in typed])
    assert layers_gap(each(near), arrays, pos, False) < 2e-5
    hidden = by_order(make("window", distance=4))
    turned = {"order": "alternate", "pairing": "half"}
    for wrong in (
        chain(make("nd_rope", **turned), hidden),  # an axis has all frequencies of its own
        chain(on_axes(make("nd_rope", ladders="head", **turned), (1, 0)), hidden),
        make("nd_rope", ladders="head", **turned),  # no window
        chain(far, hidden),  # a part of the head, at the other base
    ):
        assert layers_gap(each(wrong), arrays, pos, False) > 1e-3
    config = {"model_type": "neomme", "num_hidden_layers": 4, "sliding_window": 8}
    windows = [
        re.search(r"distance=(\d+)", repr(part)) for part in layers(from_huggingface(config), 4)
    ]
    assert [match and int(match[1]) for match in windows] == [8, 1024, 8, None]
    listed = {**config, "per_layer_config": {"00": {"sliding_window": 3}}}
    assert "distance=3)" in repr(layers(from_huggingface(listed), 1)[0])


def test_learned_factors_are_refused_for_scalings_that_do_not_have_them():
    linear = {"rope_type": "linear", "factor": 2.0}
    with pytest.raises(FieldError, match=r"rope_parameters.rope_type: 'linear' beside learned"):
        from_huggingface({"model_type": "mistral_large4_text", "rope_parameters": linear})
    with pytest.raises(FieldError, match=r"encoding: .*has no learned factors; choices: rope, ntk"):
        with_factors(make("pi"))


@pytest.mark.thorough
def test_latent_layers_of_mistral_large_4_are_as_the_file_says():
    """Control of its frozen layer: with factors 1 and a growth of 0 it is YaRN alone."""
    case, layer, arrays = score_case("mistral_large4_text 0")
    answer, right = from_huggingface(case), latent(make("ntk_by_parts", **SLOW))
    bare = {name: x for name, x in arrays.items() if "/" not in name}
    plain = scores_gap(right, layer, bare)
    unlearned = {name: np.zeros_like(x) for name, x in arrays.items() if "/" in name}
    unlearned["params/b"] += 1
    assert abs(scores_gap(answer, layer, bare | unlearned) - plain) < 1e-6 < 1e-3 < plain


def test_boxes_of_layoutlm():
    """Right biases of LayoutLMv2, as a control of the wrong ones; what a box may not be."""
    for name, wrap in (("layoutlmv2 0", lambda bias: bias), ("layoutlmv3 0", inside_scale)):
        _, layer, arrays = score_case(name)
        right = chain(*(on_axes(wrap(make("t5", **sizes)), axis) for axis, sizes in BINS))
        assert scores_gap(right, layer, arrays) < 2e-5
    plain = from_huggingface(
        {"model_type": "layoutlmv3", "has_relative_attention_bias": False}
    )  # v3 has no biases of boxes without those of numbers
    assert "t5" not in repr(plain)
    second = from_huggingface({"model_type": "layoutlmv2", "has_relative_attention_bias": False})
    assert repr(second).count("t5") == 2
    with pytest.raises(FieldError, match=r"model: 16 channels are not the 4 \* 3 \+ 2 \* 3 of a"):
        box_tables(31, (3, 3)).init(jax.random.key(0), Dims(16, 1, 16))
    turned = jnp.asarray([[[9, 0, 2, 5], [0, 0, 31, 5], [0, 0, 30, 5]]])
    boxes, dims = box_tables(31), Dims(8, 1, 8)
    view = frame(
        boxes, boxes.init(jax.random.key(0), dims), layout(np.ones((1, 3), int), turned), dims
    )
    x_BTD = view.embed(jnp.zeros((1, 3, 8)))
    assert jnp.isnan(x_BTD).all(axis=-1).tolist() == [[True, True, False]]


def rows_of_tables(answer):
    """The numbers of rows of an encoding's learned tables."""
    if not isinstance(answer, Encoding):
        return set()
    shapes = jax.eval_shape(lambda: answer.init(jax.random.key(0), Dims(64, 4, 16, 2)))
    return {leaf.shape[0] for leaf in jax.tree.leaves(shapes) if leaf.ndim == 2}


def test_tables_have_the_rows_of_the_models():
    """Shapes of default models of transformers, made without memory."""
    other, known = [], 0
    for kind, shapes in TABLES.items():
        answers = parts_from_huggingface({"model_type": kind}).values()
        rows = set().union(*map(rows_of_tables, answers))
        theirs = {int(np.prod(shape[:-1])) for shape in shapes.values()}
        known += bool(rows & theirs)
        if rows and not rows & theirs:
            other.append((kind, rows, shapes))
    assert not other
    assert known > 100


def test_several_parts_are_named():
    llava = {"model_type": "llava", "text_config": {"model_type": "qwen2"}}
    with pytest.raises(FieldError, match=r"'llava' has several parts: .*text_config") as error:
        from_huggingface(llava)
    assert "parts_from_huggingface(config)['vision_config']" in str(error.value)
    assert parts_from_huggingface(llava)["text_config"] == make("rope")
    with pytest.raises(FieldError, match="'mamba' has no attention: a state-space model"):
        from_huggingface({"model_type": "mamba"})
    assert from_huggingface({"model_type": "jamba"}) == make("nope")


def test_an_encoder_and_its_decoder_are_apart():
    t5 = {"model_type": "t5", "relative_attention_num_buckets": 16}
    parts = parts_from_huggingface(t5)
    assert list(parts) == ["encoder", "decoder", "cross"]
    assert parts["encoder"] != parts["decoder"]
    assert from_huggingface({**t5, "is_decoder": True}) == parts["decoder"]
    assert from_huggingface({**t5, "is_encoder_decoder": False}) == parts["encoder"]
    led = parts_from_huggingface({"model_type": "led"})
    assert (led["encoder"], led["decoder"]) == (
        make("learned", length=16_384),
        make("learned", length=1024),
    )


def test_an_older_file_has_the_fields_of_its_text_part_among_its_own():
    """As Qwen2-VL was released; parts may have the whole model's name, as those of Qwen3-VL."""
    scaling = {"type": "mrope", "mrope_section": [2, 3, 3]}
    flat = {"model_type": "qwen2_vl", "hidden_size": 64, "num_attention_heads": 4,
            "rope_theta": 1e5, "rope_scaling": scaling, "vision_config": {}}  # fmt: skip
    parts = parts_from_huggingface(flat)
    assert parts["text_config"] == make("mrope", base=1e5, sections=(2, 3, 3))
    assert parts["vision_config"] == make("axial", base=10_000.0)
    named = {"model_type": "qwen2_vl", "vision_config": {"model_type": "qwen2_vl"}}
    assert parts_from_huggingface(named)["vision_config"] == parts["vision_config"]


HEAD, HEADS, TIME, AXES = 16, 4, 12, np.array([[n, 2 + n // 4, 2 + n % 4] for n in range(12)])


def attends(encoding, heads=HEADS, head=HEAD, count=1, axes=1, causal=True):
    """The weights of random queries and keys in each of the first layers, [N, B, H, T, T]."""
    q, k = (jax.random.normal(jax.random.key(n), (1, TIME, heads, head)) for n in (0, 1))
    dims = Dims(heads * head, heads, head, count)
    at = full(1, TIME) if axes == 1 else layout(np.ones((1, TIME), int), jnp.asarray(AXES[None]))
    params = encoding.init(jax.random.key(0), dims)
    view = frame(encoding, params, at, dims, causal=causal, form="dense")
    return jnp.stack([weights(q, k, view.layer(n)) for n in range(count)])


def turned(freq_F, pairing="half", sign=1, width=HEAD):
    """Queries and keys as `attends` draws them, their first or last channels turned, NumPy."""
    turned_values = []
    for n in (0, 1):
        x_THC = np.array(jax.random.normal(jax.random.key(n), (1, TIME, HEADS, HEAD))[0], float)
        angle_T1F = sign * np.arange(TIME)[:, None, None] * freq_F
        part = x_THC[..., -width:]
        pair = lambda x: x.reshape(*x.shape[:-1], *((2, -1) if pairing == "half" else (-1, 2)))
        a, b = np.moveaxis(pair(part), -2 if pairing == "half" else -1, 0)
        cos, sin = np.cos(angle_T1F), np.sin(angle_T1F)
        both = np.stack([a * cos - b * sin, b * cos + a * sin], -2 if pairing == "half" else -1)
        turned_values.append(np.concatenate([x_THC[..., :-width], both.reshape(part.shape)], -1))
    return turned_values


def softmax(q_THC, k_THC, factor=1.0):
    s_HTT = np.einsum("qhc,khc->hqk", q_THC, k_THC) * HEAD**-0.5 * factor
    s_HTT = np.where(np.tril(np.ones((TIME, TIME))), s_HTT, -np.inf)
    p_HTT = np.exp(s_HTT - s_HTT.max(-1, keepdims=True))
    return (p_HTT / p_HTT.sum(-1, keepdims=True))[None, None]


LADDER = lambda width, base=1e4: base ** (-np.arange(width // 2) / (width // 2))
WIDE = {"hidden_size": HEAD * HEADS, "num_attention_heads": HEADS, "head_dim": HEAD}
LATENT = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 8}


@pytest.mark.parametrize(
    ("config", "right", "wrong"),
    [
        # the last channels, in halves where DeepSeek V3 pairs neighbours
        ({"model_type": "minicpm3", **LATENT}, ("half", 1, 8), ("interleaved", 1, 8)),
        ({"model_type": "hy_v4", **LATENT}, ("half", 1, 8), ("interleaved", 1, 8)),
        ({"model_type": "deepseek_v32", **LATENT}, ("interleaved", 1, 8), ("half", 1, 8)),
        ({"model_type": "axk2", **LATENT}, ("interleaved", 1, 8), ("half", 1, 8)),
        ({"model_type": "nanochat", **WIDE}, ("half", -1, HEAD), ("half", 1, HEAD)),
        (
            {"model_type": "blt_global_transformer", **WIDE, "rope_theta": 1e4},
            ("interleaved", 1, HEAD), ("half", 1, HEAD),
        ),
        (
            {"model_type": "openai_privacy_filter", **WIDE,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
            ("interleaved", 1, HEAD), ("half", 1, HEAD),
        ),
        # `rotary_dim` is not read
        (
            {"model_type": "minimax_m3_vl_text", **WIDE, "rope_theta": 1e4, "rotary_dim": 8},
            ("half", 1, HEAD), ("half", 1, 8),
        ),
        (
            {"model_type": "zamba2", **WIDE, "use_mem_rope": True},
            ("half", 1, HEAD), ("half", -1, HEAD),
        ),
        (
            {"model_type": "esm", **WIDE, "position_embedding_type": "rotary"},
            ("half", 1, HEAD), ("interleaved", 1, HEAD),
        ),
    ],
    ids=lambda row: row["model_type"] if isinstance(row, dict) else None,
)  # fmt: skip
def test_rotations_that_are_easily_mistaken(config, right, wrong):
    """By a formula of our own; the plausible wrong answer must be seen."""
    actual = attends(from_huggingface(config))
    other = {}
    for name, (pairing, sign, width) in (("right", right), ("wrong", wrong)):
        other[name] = softmax(*turned(LADDER(width), pairing, sign, width))
    assert gap(actual, other["right"]) < 1e-5
    assert gap(actual, other["wrong"]) > 1e-2, "control"


def test_defaults_that_are_not_the_released_form():
    for kind in ("zamba2", "granitemoehybrid", "beit", "data2vec-vision"):
        assert from_huggingface({"model_type": kind}) == make("nope"), kind
    for kind in ("beit", "data2vec-vision"):  # as microsoft/beit-base-patch16-224
        released = {"model_type": kind, "use_relative_position_bias": True, "image_size": 224}
        assert from_huggingface(released) == class_offsets(14, 14)
        wide = {**released, "image_size": [224, 448]}
        with pytest.raises(FieldError, match=r"image_size: 14 x 28 patches are no square"):
            from_huggingface(wide)
    rope = {"model_type": "granitemoehybrid", "position_embedding_type": "rope",
            "layer_types": ["mamba", "attention"]}  # fmt: skip
    assert layers(from_huggingface(rope), 2)[1] == make("rope")
    table = from_huggingface({"model_type": "esm"})
    assert repr(table) == "from_row(learned(length=1026), 2)"

    assert from_huggingface({"model_type": "falcon"}) == make("rope")
    first = from_huggingface({"model_type": "falcon", "alibi": True})  # as Falcon-RW-1B
    assert first == inside_scale(make("alibi"))


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("case", OUTPUTS, ids=[case["case"].replace(" ", "_") for case in OUTPUTS])
def test_attention_to_tokens_and_to_keys_of_blocks(case):
    """What small models of transformers give after the output turned back, frozen."""
    arrays = read("outputs", case["case"])
    parts = parts_from_huggingface(case["config"])
    assert block_outputs_gap(parts, case["layer"], arrays) < 2e-5
    still = dict.fromkeys(parts, make("nope"))
    assert block_outputs_gap(still, case["layer"], arrays) > 1e-3, "control"


def deepseek_v4_parts(change=values_and_back, last=True, amplitude=None, distance=2, **options):
    """The parts of a layer with blocks of the small DeepSeek-V4, with something else in it."""
    scaled = {} if amplitude is None else {"factor": 4.0, "length": 16, "ramp": "pairs_truncated"}
    options = {"base": 160_000.0, "pairing": "interleaved", **scaled, **options}
    encoding = make("ntk_by_parts" if scaled else "rope", **options)
    encoding = encoding if amplitude is None else louder(encoding, amplitude)
    blocks = on_channels(change(encoding), 0.5, last=last)
    return {"tokens": chain(blocks, make("window", distance=distance)), "blocks": blocks}


@pytest.mark.parametrize(
    "wrong",
    [{"base": 10_000.0}, {"pairing": "half"}, {"last": False}, {"change": lambda rope: rope},
     {"change": values_too}, {"distance": 3}],
    ids=["base", "pairing", "channels", "values", "output", "window"],
)  # fmt: skip
def test_every_part_of_deepseek_v4_is_needed(wrong):
    case = next(case for case in OUTPUTS if case["case"] == "deepseek_v4 1")
    arrays, right = read("outputs", case["case"]), deepseek_v4_parts()
    read_parts = parts_from_huggingface(case["config"])
    assert {name: layers(answer)[1] for name, answer in read_parts.items()} == right
    assert block_outputs_gap(right, 0, arrays) < 2e-5
    assert block_outputs_gap(deepseek_v4_parts(**wrong), 0, arrays) > 1e-3


def test_yarn_of_deepseek_v4_leaves_lengths_as_they_are():
    case = next(case for case in OUTPUTS if case["case"] == "deepseek_v4 yarn 1")
    arrays = read("outputs", case["case"])
    gaps = [block_outputs_gap(deepseek_v4_parts(amplitude=amplitude), 0, arrays)
            for amplitude in (1.0, 1 + 0.1 * np.log(4))]  # fmt: skip
    assert gaps[0] < 2e-5 < 1e-3 < gaps[1]


@pytest.mark.thorough
def test_the_attention_to_blocks_of_the_page():
    """docs/architectures.md: a query reads the keys of whole blocks before it alone."""
    text = (ROOT / "docs" / "architectures.md").read_text("utf-8")
    (program,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "far" in code)
    scope: dict[str, Any] = {"posenc_jax": posenc_jax}
    exec(program, scope)
    draw = lambda seed, *shape: jax.random.normal(jax.random.key(seed), (1, *shape, 512))
    q, kv, blocks = draw(0, 512, 2), draw(1, 512, 1), draw(2, 4, 1)
    run = lambda blocks: np.asarray(scope["attention"](2, q, kv, blocks, jnp.zeros(2)))
    out, other = run(blocks), run(blocks.at[:, 1].add(1.0))  # of tokens 128 to 255
    assert out.shape == (1, 512, 2, 512)
    assert np.array_equal(out[:, :255], other[:, :255])
    assert (np.abs(out - other)[:, 255:].max(axis=(0, 2, 3)) > 1e-4).all(), "control"


def test_deepseek_v4_as_released():
    """Files name a block's tokens in each layer, and have one dictionary; newer ones have two."""
    yarn = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65_536,
            "beta_fast": 32, "beta_slow": 1}  # fmt: skip
    released = {
        "model_type": "deepseek_v4", "num_hidden_layers": 5, "head_dim": 512, "rope_theta": 10_000,
        "compress_ratios": [0, 0, 4, 128, 4, 0], "compress_rope_theta": 160_000,
        "qk_rope_head_dim": 64, "rope_scaling": yarn, "sliding_window": 128,
        "max_position_embeddings": 1_048_576,
    }  # fmt: skip
    parts = parts_from_huggingface(released)
    assert [*parts] == ["tokens", "blocks"]
    tokens, blocks = (layers(answer, 5) for answer in parts.values())
    scaled = make("ntk_by_parts", base=160_000.0, pairing="interleaved", factor=16.0,
                  length=65_536, ramp="pairs_truncated")  # fmt: skip
    turned = on_channels(values_and_back(louder(scaled, 1.0)), 0.125, last=True)
    plain = on_channels(values_and_back(make("rope", pairing="interleaved")), 0.125, last=True)
    near = make("window", distance=127)
    assert tokens == [chain(plain, near)] * 2 + [chain(turned, near)] * 3
    assert blocks == [without_attention()] * 2 + [turned] * 3
    newer = {name: value for name, value in released.items() if "rope" not in name}
    share = {"partial_rotary_factor": 0.125}
    newer |= {
        "layer_types": ["sliding_attention"] * 2 + ["heavily_compressed_attention"] * 3,
        "rope_parameters": {
            "main": {"rope_type": "default", "rope_theta": 10_000, **share},
            "compress": {**yarn, "rope_theta": 160_000, "attention_factor": 1.0, **share},
        },
    }
    assert parts_from_huggingface(newer) == parts
    newer["rope_parameters"]["main"] |= {"rope_theta": 500.0}
    assert parts_from_huggingface(newer) != parts, "control"


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"compress_ratios": [4, 4], "num_hidden_layers": 3}, "compress_ratios: has 2 layers; num"),
        ({"compress_ratios": [4, 5]}, r"compress_ratios\[1\]: 5; choices: 0, 4, 128"),
        ({"layer_types": ["full_attention"]}, r"layer_types\[0\]: 'full_attention'; did you "),
        ({"layer_types": []}, "layer_types: has 0 layers"),
        ({"qk_rope_head_dim": 7}, "channels do not pair"),
        ({"rope_parameters": {"main": {}, "compress": {}}}, "main.rope_theta: is missing"),
        ({"rope_parameters": {"rope_type": "su-yarn"}}, "rope_parameters.rope_type: 'su-yarn'"),
        ({"alibi": True}, "alibi: True is not known for this model"),
    ],
)
def test_wrong_fields_of_deepseek_v4_are_one_line(fields, line):
    with pytest.raises(FieldError, match=line) as error:
        parts_from_huggingface({"model_type": "deepseek_v4", **fields})
    assert "\n" not in str(error.value)


def test_deepseek_v4_is_not_taken_for_another_deepseek():
    latent = {**LATENT, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(FieldError, match="has several parts: tokens, blocks"):
        from_huggingface({"model_type": "deepseek_v4", **latent})
    assert isinstance(from_huggingface({"model_type": "deepseek_v3", **latent}), Encoding)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("musicflamingo", 3), ("grounding-dino", 3), ("mm-grounding-dino", 3), ("pe_audio", 2),
     ("vision-text-dual-encoder", 2)],
)  # fmt: skip
def test_the_encoding_of_one_part_is_not_that_of_the_model(kind, count):
    with pytest.raises(FieldError, match=f"'{kind}' has several parts: .*text_config"):
        from_huggingface({"model_type": kind})
    answers = parts_from_huggingface({"model_type": kind})
    assert len(answers) == count
    assert isinstance(answers["text_config"], Encoding), "control: which alone would answer"


def test_logits_of_llama_4_grow_by_positions_not_by_places_in_memory():
    """Under left padding transformers counts the padding; here a prompt is that without it."""
    config = {"model_type": "llama4_text", **WIDE, "no_rope_layers": [0], "floor_scale": 2,
              "attn_scale": 0.5}  # fmt: skip
    encoding, dims, padding = from_huggingface(config), Dims(64, HEADS, HEAD), 3
    q, k = (jax.random.normal(jax.random.key(n), (1, TIME, HEADS, HEAD)) for n in (0, 1))

    def attend(segment_T, pos_T, q, k):
        view = frame(encoding, {}, layout(segment_T[None], pos_T[None]), dims, form="dense")
        return np.asarray(weights(q, k, view.layer(0)))

    real = TIME - padding
    alone = attend(np.ones(real, int), np.arange(real), q[:, padding:], k[:, padding:])
    segment_T = np.repeat([0, 1], [padding, real])
    padded = attend(segment_T, np.maximum(np.arange(TIME) - padding, 0), q, k)
    by_place = attend(segment_T, np.arange(TIME), q, k)
    inside = np.s_[..., padding:, padding:]
    assert gap(padded[inside], alone) < 1e-6
    assert gap(by_place[inside], alone) > 1e-3, "control: as transformers"


def test_layers_without_attention_refuse_it():
    config = {"model_type": "qwen3_next", "layer_types": ["linear_attention", "full_attention"]}
    encoding, dims = from_huggingface(config), Dims(64, HEADS, HEAD, 2)
    view = frame(encoding, encoding.init(jax.random.key(0), dims), full(1, TIME), dims)
    q = jax.random.normal(jax.random.key(0), (1, TIME, HEADS, HEAD))
    assert weights(q, q, view.layer(1)).shape == (1, HEADS, TIME, TIME)
    with pytest.raises(ValueError, match="no attention in this layer"):
        weights(q, q, view.layer(0))


def test_one_head_turns_and_values_do():
    dit = from_huggingface({"model_type": "qwen2_5_omni_dit", **WIDE})
    actual = attends(dit)
    one, none = attends(make("rope", pairing="interleaved")), attends(make("nope"))
    assert gap(actual[:, :, 0], one[:, :, 0]) < 1e-6
    assert gap(actual[:, :, 1:], none[:, :, 1:]) < 1e-6
    assert gap(actual[:, :, 1:], one[:, :, 1:]) > 1e-2, "control"
    clvp = from_huggingface({"model_type": "clvp_encoder"})
    assert clvp.turns_values
    assert clvp.rotate is not None
    assert clvp.table is not None
    table = clvp.table({}, jnp.arange(TIME)[None], Dims(64, HEADS, HEAD))
    x = jnp.ones((1, TIME, HEADS, HEAD))
    assert gap(clvp.rotate(table, x, "v"), clvp.rotate(table, x, "k")) == 0
    assert gap(clvp.rotate(table, x, "o"), x) == 0
    assert gap(clvp.rotate(table, x, "v"), x) > 1e-2, "control"


def test_windows_by_kind_of_mask():
    """Causal: W tokens with the query's own; on both sides: W on either; Gemma 3's both: half."""
    sees = lambda encoding, n, causal: (
        np.asarray(attends(encoding, count=n + 1, causal=causal)[n]) > 0
    )
    offset = np.arange(TIME)[:, None] - np.arange(TIME)
    local = {**WIDE, "layer_types": ["sliding_attention"]}
    mistral = from_huggingface({"model_type": "mistral", **WIDE, "sliding_window": 4})
    assert (sees(mistral, 0, True)[0, 0] == ((offset >= 0) & (offset < 4))).all()
    ultra = {"model_type": "ultrabert", **local, "sliding_window": 4}
    assert (sees(from_huggingface(ultra), 0, False)[0, 0] == (abs(offset) <= 4)).all()
    both = {"model_type": "gemma3_text", **local, "sliding_window": 4,
            "use_bidirectional_attention": True}  # fmt: skip
    assert (sees(from_huggingface(both), 0, False)[0, 0] == (abs(offset) <= 2)).all()
    decoder = {"model_type": "modernbert-decoder", **local, "local_attention": 8}
    assert (sees(from_huggingface(decoder), 0, True)[0, 0] == ((offset >= 0) & (offset < 4))).all()


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8}


def test_scalings_act_under_sections():
    """Qwen2.5-VL with YaRN: text is YaRN's, pictures turn by their axes with its frequencies."""
    sections = {"mrope_section": [2, 3, 3]}
    config = {"model_type": "qwen2_5_vl_text", **WIDE, "rope_theta": 1e4}
    encoding = from_huggingface({**config, "rope_scaling": {**YARN, **sections}})
    yarn = from_huggingface(
        {"model_type": "llama", **WIDE, "rope_theta": 1e4, "rope_scaling": YARN}
    )
    at = layout(np.ones((1, TIME), int), jnp.repeat(jnp.arange(TIME)[None, :, None], 3, -1))
    dims = Dims(64, HEADS, HEAD)
    view = frame(encoding, {}, at, dims, form="dense")
    q, k = (jax.random.normal(jax.random.key(n), (1, TIME, HEADS, HEAD)) for n in (0, 1))
    assert gap(weights(q, k, view.layer(0))[None], attends(yarn)) < 1e-6
    plain = from_huggingface({**config, "rope_scaling": {"type": "mrope", **sections}})
    assert gap(attends(encoding, axes=3), attends(plain, axes=3)) > 1e-3, "control: without YaRN"
    scaled = from_huggingface({**config, "rope_scaling": {**YARN, **sections, "factor": 1.0}})
    assert gap(attends(scaled, axes=3), attends(plain, axes=3)) < 1e-6


def test_phimoe_has_a_scale_for_short_texts_and_one_for_long():
    lists = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    scales = {"short_mscale": 1.2, "long_mscale": 1.5}
    scaling = {"type": "longrope", **lists, **scales}
    config = {"model_type": "phimoe", **WIDE, "rope_theta": 1e4, "rope_scaling": scaling,
              "max_position_embeddings": 64}  # fmt: skip
    for length, scale, factor in ((TIME, 1.2, 1.0), (TIME - 1, 1.5, 2.0)):
        encoding = from_huggingface({**config, "original_max_position_embeddings": length})
        expected = softmax(*turned(LADDER(HEAD) / factor), factor=scale**2)
        assert gap(attends(encoding), expected) < 1e-5, length
    plain = softmax(*turned(LADDER(HEAD) / 2), factor=1.2**2)
    assert gap(attends(encoding), plain) > 1e-3, "control: the other scale"


def test_logits_grow_by_steps_of_the_trained_length():
    """Ministral 3: 1 + beta ln(1 + floor(t / length)), a step earlier than in Llama 4."""
    beta = {"llama_4_scaling_beta": 0.5, "original_max_position_embeddings": 4}
    scaling = {"rope_type": "yarn", "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, **beta}
    config = {"model_type": "ministral3", **WIDE, "rope_parameters": {"rope_theta": 1e4, **scaling}}
    q_THC, k_THC = turned(LADDER(HEAD))
    grown = lambda t: (1 + 0.5 * np.log1p(np.floor(t / 4)))[:, None, None]
    expected = softmax(q_THC * grown(np.arange(TIME)), k_THC)
    assert gap(attends(from_huggingface(config)), expected) < 1e-5
    later = softmax(q_THC * grown(np.arange(TIME) + 1), k_THC)
    assert gap(later, expected) > 1e-3, "control: as in Llama 4"


def test_falcons_alibi_is_inside_the_scale():
    """Falcon-RW: products and biases are divided by the root of the head's width together."""
    encoding = from_huggingface({"model_type": "falcon", **WIDE, "alibi": True})
    slope_H = 2.0 ** (-8 * np.arange(1, HEADS + 1) / HEADS)
    distance = np.arange(TIME)[:, None] - np.arange(TIME)
    biased = lambda scale: Encoding(
        bias=lambda *_: jnp.asarray(-slope_H[:, None, None] * distance * scale)[None]
    )
    assert gap(attends(encoding), attends(biased(HEAD**-0.5))) < 1e-6
    assert gap(attends(encoding), attends(biased(1.0))) > 1e-2, "control"


# Fields of positions and sizes of files as they were released, and what they say.
LLAMA4 = {
    "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
KIMI = {"type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
CHUNKS = {"chunk_size": 10, "local_size": 3, "original_max_position_embeddings": 12}
LLAMA3 = {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131_072,
          "low_freq_factor": 1.0, "high_freq_factor": 32.0}  # fmt: skip
PHI_MOE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
           "short_mscale": 1.2, "long_mscale": 1.5}  # fmt: skip
MINIMAX_M2 = {"model_type": "minimax_m2", "head_dim": 128, "rope_theta": 5_000_000,
              "hidden_size": 3072, "num_attention_heads": 48}  # fmt: skip


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        pytest.param(
            {"model_type": "kimi_k2", "qk_rope_head_dim": 64, "rope_theta": 50_000.0,
             "rope_scaling": KIMI, "max_position_embeddings": 131_072},
            {"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_interleave": True,
             "rope_parameters": {**KIMI, "rope_type": "yarn", "rope_theta": 50_000.0}},
            id="kimi_k2",
        ),
        pytest.param(
            {"model_type": "telechat3", **WIDE, "rope_theta": 1e6,
             "rope_scaling": {**YARN, "type": "telechat3-yarn"}},
            {"model_type": "llama", **WIDE,
             "rope_parameters": {**YARN, "rope_type": "yarn", "rope_theta": 1e6}},
            id="telechat3-yarn",
        ),
        pytest.param(
            {"model_type": "deepseek_v2", "qk_rope_head_dim": 64,
             "rope_scaling": {**KIMI, "type": "deepseek_yarn"}},
            {"model_type": "deepseek_v2", "qk_rope_head_dim": 64,
             "rope_parameters": {**KIMI, "rope_type": "yarn", "rope_theta": 1e4}},
            id="deepseek_yarn",
        ),
        pytest.param(
            {"model_type": "gptj", "rotary": True, "rotary_dim": 64, "n_embd": 4096, "n_head": 16,
             "n_positions": 2048},
            {"model_type": "gptj", "rotary_dim": 64, "n_embd": 4096, "n_head": 16},
            id="gpt-j-6b",
        ),
        pytest.param(
            {"model_type": "cohere2", "position_embedding_type": "rope_gptj", "rotary_pct": 1.0,
             "head_dim": 128, "rope_theta": 50_000, "sliding_window": 4096, "use_cache": True,
             "sliding_window_pattern": 4, "order_of_interleaved_layers": "local_attn_first"},
            {"model_type": "cohere2", "head_dim": 128, "sliding_window": 4096,
             "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8,
             "rope_parameters": {"rope_type": "default", "rope_theta": 50_000}},
            id="command-r7b",
        ),
        # as Command R7B, with the types of its layers and fields that say them again
        pytest.param(
            {"model_type": "cohere2", "position_embedding_type": "rope_gptj", "rotary_pct": 1.0,
             "head_dim": 128, "rope_theta": 50_000, "sliding_window": 4096, "layer_switch": 4,
             "sliding_window_pattern": 4, "order_of_interleaved_layers": "local_attn_first",
             "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 9},
            {"model_type": "cohere2", "head_dim": 128, "sliding_window": 4096,
             "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 9,
             "rope_parameters": {"rope_type": "default", "rope_theta": 50_000}},
            id="tiny-aya",
        ),
        pytest.param(
            {"model_type": "qwen2", **WIDE, "rope_theta": 1e7, "use_sliding_window": False,
             "sliding_window": 32_768, "max_window_layers": 28,
             "dual_chunk_attention_config": CHUNKS},
            {"model_type": "qwen2", **WIDE, "dual_chunk_attention_config": CHUNKS,
             "rope_parameters": {"rope_type": "default", "rope_theta": 1e7}},
            id="qwen2.5-1m",
        ),
        pytest.param(
            {"model_type": "qwen2_5_vl_text", **WIDE, "rope_theta": 1e6,
             "rope_scaling": {**YARN, "mrope_section": [2, 3, 3]}},
            {"model_type": "qwen2_5_vl_text", **WIDE, "rope_parameters": {
                **YARN, "rope_type": "yarn", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}},
            id="qwen2.5-vl-yarn",
        ),
        pytest.param(
            {"model_type": "phimoe", **WIDE, "rope_theta": 1e4, "max_position_embeddings": 64,
             "original_max_position_embeddings": 8, "sliding_window": 64, "rope_scaling": PHI_MOE},
            {"model_type": "phimoe", **WIDE, "max_position_embeddings": 64, "sliding_window": 64,
             "rope_parameters": {**PHI_MOE, "rope_type": "longrope", "rope_theta": 1e4,
                                 "original_max_position_embeddings": 8}},
            id="phi-3.5-moe",
        ),
        pytest.param(
            {"model_type": "granitemoehybrid", "position_embedding_type": "rope",
             "rope_theta": 10_000_000, "rope_scaling": None, "layer_types": ["attention"] * 40},
            {"model_type": "granitemoehybrid", "position_embedding_type": "rope",
             "layer_types": ["full_attention"] * 40,
             "rope_parameters": {"rope_type": "default", "rope_theta": 10_000_000}},
            id="granite-4-micro",
        ),
        pytest.param(
            {"model_type": "step3p5", "rope_theta": [5e6, 1e4, 1e4, 1e4] * 3, "sliding_window": 512,
             "partial_rotary_factors": [0.5, 1.0, 1.0, 1.0] * 3, "use_rope_layers": [],
             "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2,
             "rope_scaling": LLAMA3, "yarn_only_types": ["full_attention"]},
            {"model_type": "step3p5", "sliding_window": 512,
             "layer_types": ["full_attention", *["sliding_attention"] * 3] * 2,
             "rope_parameters": {
                 "full_attention": {**LLAMA3, "rope_theta": 5e6, "partial_rotary_factor": 0.5},
                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4,
                                       "partial_rotary_factor": 1.0}}},
            id="step-3.5",
        ),
        pytest.param(
            {"model_type": "modernbert", **WIDE, "global_rope_theta": 160_000.0,
             "local_rope_theta": 10_000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
            {"model_type": "modernbert", **WIDE, "rope_parameters": {
                "sliding_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1.6e5}}},
            id="modernbert-with-scaling",
        ),
        pytest.param(
            {"model_type": "zamba2", **WIDE, "use_mem_rope": True, "rope_theta": 10_000,
             "use_long_context": False},
            {"model_type": "zamba2", **WIDE, "use_mem_rope": True,
             "rope_parameters": {"rope_type": "default", "rope_theta": 10_000}},
            id="zamba2",
        ),
        pytest.param(
            {"model_type": "llama4_text", "head_dim": 128, "rope_theta": 500_000.0,
             "rope_scaling": LLAMA4, "no_rope_layers": [], "attention_chunk_size": 8192,
             "attn_temperature_tuning": 4, "floor_scale": 8192, "attn_scale": 0.1},
            {"model_type": "llama4_text", "head_dim": 128, "no_rope_layers": [1, 1, 1, 0] * 12,
             "rope_parameters": {**LLAMA4, "rope_theta": 500_000.0}, "attention_chunk_size": 8192,
             "layer_types": [*["chunked_attention"] * 3, "full_attention"] * 12},
            id="llama-4-scout",
        ),
        pytest.param(
            {"model_type": "llama", **WIDE, "rope_scaling": {**YARN, "finetuned": True}},
            {"model_type": "llama", **WIDE,
             "rope_parameters": {**YARN, "rope_type": "yarn", "rope_theta": 1e4}},
            id="yarn-llama-2",
        ),
        pytest.param(
            {"model_type": "mistral", **WIDE, "sliding_window": 131_072,
             "rope_scaling": {**YARN, "finetuned": True}},
            {"model_type": "mistral", **WIDE, "sliding_window": 131_072,
             "rope_parameters": {**YARN, "rope_type": "yarn", "rope_theta": 1e4}},
            id="yarn-mistral",
        ),
        pytest.param(
            {**MINIMAX_M2, "rotary_dim": 64},
            {**MINIMAX_M2, "rope_theta": None,
             "rope_parameters": {"rope_theta": 5_000_000, "partial_rotary_factor": 0.5}},
            id="minimax-m2",
        ),
        pytest.param(
            {"model_type": "qwen3_5_text", "head_dim": 256, "layer_types": ["full_attention"],
             "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10],
                                 "rope_type": "default", "rope_theta": 10_000_000,
                                 "partial_rotary_factor": 0.25}},
            {"model_type": "qwen3_5_text", "head_dim": 256, "layer_types": ["full_attention"],
             "rope_theta": 10_000_000, "partial_rotary_factor": 0.25,
             "rope_scaling": {"mrope_section": [11, 11, 10]}},
            id="qwen3.5",
        ),
        pytest.param(
            {"model_type": "gemma3_text", "head_dim": 256, "rope_theta": 1e6,
             "rope_local_base_freq": 1e4, "sliding_window": 1024, "sliding_window_pattern": 6,
             "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "num_hidden_layers": 12},
            {"model_type": "gemma3_text", "head_dim": 256, "sliding_window": 1024,
             "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 2,
             "rope_parameters": {
                 "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                 "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}},
            id="gemma-3",
        ),
    ],
)  # fmt: skip
def test_files_of_transformers_4_and_5_say_the_same(older, newer):
    assert layers(from_huggingface(older)) == layers(from_huggingface(newer))
    scaled = older.get("rope_scaling") or {}
    changed = {
        **older,
        "rope_theta": 123.0,
        "rope_parameters": None,
        "rope_scaling": scaled or None,
    }
    if older["model_type"] not in ("gptj", "modernbert"):  # whose base is in other fields
        assert layers(from_huggingface(changed)) != layers(from_huggingface(newer)), "control"


def test_mpt_storywriter_and_roberta():
    story = {"model_type": "mpt", "attn_config": {"alibi": True, "alibi_bias_max": 16}}
    assert from_huggingface(story) == make("alibi", bias_max=16.0)
    roberta = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert repr(from_huggingface(roberta)) == "from_row(learned(length=514), 2)"
    other = from_huggingface({**roberta, "pad_token_id": 0})
    assert repr(other) == "from_row(learned(length=514), 1)"


@pytest.mark.parametrize(
    ("config", "encoding"),
    [
        ({"model_type": "wav2vec2"}, convolved()),
        ({"model_type": "wav2vec2", "conv_pos_batch_norm": True}, convolved()),  # a field of HuBERT
        ({"model_type": "hubert", "num_conv_pos_embeddings": 64, "conv_pos_batch_norm": False},
         convolved(64)),
        ({"model_type": "unispeech-sat", "feat_extract_activation": "gelu_new",
          "num_conv_pos_embedding_groups": 8}, convolved(groups=8, activation="gelu_tanh")),
        # the field that is a kernel's size elsewhere is the number of layers
        ({"model_type": "data2vec-audio", "num_conv_pos_embeddings": 3},
         convolved(19, layers=3, norm=True)),
        ({"model_type": "omniasr_audio", "hidden_act": "silu", "feat_extract_activation": "relu"},
         convolved(activation="silu")),
        ({"model_type": "wavlm", "num_buckets": 64, "max_bucket_distance": 99},
         chain(convolved(), gated_buckets(64, 99))),
    ],
)  # fmt: skip
def test_convolutions_over_time_are_encodings(config, encoding):
    assert from_huggingface(config) == encoding


def test_convolutions_are_read_in_models_of_parts():
    sound = {"model_type": "hubert", "num_conv_pos_embeddings": 6}
    for kind, name in (
        ("speech-encoder-decoder", "encoder"), ("xcodec", "semantic_model_config"),
        ("higgs_audio_v2_tokenizer", "semantic_model_config"),
    ):  # fmt: skip
        answers = parts_from_huggingface({"model_type": kind, name: sound})
        assert answers[name] == convolved(6), kind
    audio = {"model_type": "omniasr_audio", "num_conv_pos_embeddings": 6}
    for kind in ("omniasr", "omniasr_ctc"):
        config = {"model_type": kind, "audio_config": audio}
        assert parts_from_huggingface(config)["audio_config"] == convolved(6), kind


def test_speecht5_has_positions_of_each_of_its_inputs():
    """Sound and text have an encoder's keys in common, and the decoder has none."""
    config = {"model_type": "speecht5", "encoder_max_relative_position": 4, "pad_token_id": 3}
    sines = make("sinusoidal", pairing="half", spacing="tensor2tensor")
    keys = make("shaw", distance=3, ahead=4, shared=True)
    assert parts_from_huggingface(config) == {
        "speech_encoder": chain(convolved(), from_row(sines, 4), keys),
        "text_encoder": chain(by_learned_factor(make("sinusoidal")), keys),
        "speech_decoder": by_learned_factor(make("sinusoidal")),
        "text_decoder": from_row(sines, 4),
        "cross": make("nope"),
    }


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "hubert", "conv_pos_batch_norm": True, "num_conv_pos_embeddings": 64},
         "adds what convolved(kernel=64) makes of batch_norm(x), which reads all rows of a batch"),
        ({"model_type": "sew", "squeeze_factor": 4},
         "shortens its row to means of 4 tokens, and adds to each what convolved() adds to the "
         "first of them"),
        ({"model_type": "sew-d"},
         "shortens its row to means of 2 tokens, and adds to each what convolved() adds to the "
         "first of them; its attention reads offsets as DeBERTa's does"),
    ],
)  # fmt: skip
def test_what_a_convolution_is_only_a_part_of_is_a_reason(config, reason):
    assert parts_from_huggingface(config) == {"": reason}
    with pytest.raises(FieldError, match=f"{config['model_type']!r} {reason[:6]}"):
        from_huggingface(config)


@pytest.mark.parametrize(
    ("kind", "fields", "line"),
    [
        ("wav2vec2", {"num_conv_pos_embedding_groups": 0},
         "num_conv_pos_embedding_groups: 0 must be 1 or more"),
        ("sew", {"num_conv_pos_embedding_groups": "16"},
         "num_conv_pos_embedding_groups: '16' is not of type int"),
        ("hubert", {"num_conv_pos_embedding_groups": 7, "hidden_size": 768},
         "num_conv_pos_embedding_groups: 7 do not divide the 768 channels of hidden_size"),
        ("unispeech", {"num_conv_pos_embeddings": -1},
         "num_conv_pos_embeddings: -1 must be 1 or more"),
        ("data2vec-audio", {"conv_pos_kernel_size": 1.5},
         "conv_pos_kernel_size: 1.5 is not of type int"),
        ("omniasr_audio", {"num_conv_pos_embeddings": 5},
         "num_conv_pos_embeddings: 5 is odd; the model takes even ones"),
        ("omniasr_audio", {"hidden_act": "selu"}, "hidden_act: 'selu' is not one of: 'gelu', "),
        ("wav2vec2", {"feat_extract_activation": 3},
         "feat_extract_activation: 3 is not of type str"),
        ("wav2vec2", {"position_embeddings_type": "rotary"},
         "position_embeddings_type: 'rotary' is not known for this model"),
        ("wavlm", {"num_buckets": 5}, "num_buckets: 5 must be even and 4 or more"),
        ("wavlm", {"max_bucket_distance": 80}, "max_bucket_distance: 80 must exceed 80"),
        ("speecht5", {"pad_token_id": 0}, "pad_token_id: 0 would make all frames padding"),
        ("speecht5", {"encoder_max_relative_position": 0},
         "encoder_max_relative_position: 0 must be 1 or more"),
    ],
)  # fmt: skip
def test_damaged_convolutions_are_one_line(kind, fields, line):
    with pytest.raises(FieldError) as error:
        parts_from_huggingface({"model_type": kind, **fields})
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def test_rows_name_types_that_exist():
    for kind, row in ROWS.items():
        for part in getattr(row, "types", {}).values() if hasattr(row, "own") else ():
            assert getattr(part, "type", part) in ROWS, (kind, part)


def test_chains_and_layers_of_this_file_compare():
    """Control of `layers`: another base, another window."""
    near = chain(make("rope"), make("window", distance=3))
    assert layers(per_layer([near, make("rope")]), 3) != layers(per_layer([near, near]), 3)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (  # facebook/sam-vit-base
            {"model_type": "sam", "prompt_encoder_config": {"model_type": "", "image_size": 1024}},
            {"model_type": "sam", "prompt_encoder_config": {"image_size": 1024}},
        ),
        (
            {"model_type": "granitemoe", "position_embedding_type": "rope", "rope_theta": 1e6},
            {"model_type": "granitemoe", "rope_parameters": {"rope_theta": 1e6}},
        ),
        (
            {"model_type": "fastspeech2_conformer_with_hifigan",
             "vocoder_config": {"model_type": "hifigan"}},
            {"model_type": "fastspeech2_conformer_with_hifigan", "vocoder_config": {}},
        ),
        ({"model_type": "hifigan"}, {"model_type": "speecht5_hifigan"}),
        # an empty list of layers says nothing
        ({"model_type": "inkling2_text", "layer_types": []}, {"model_type": "inkling2_text"}),
        ({"model_type": "gpt_neo", "attention_layers": []}, {"model_type": "gpt_neo"}),
        ({"model_type": "neomme", "layer_types": []}, {"model_type": "neomme"}),
        ({"model_type": "radio", "patch_size": [16, 16]}, {"model_type": "radio"}),
        (
            {"model_type": "step3p5", "rope_theta": 5e6},
            {"model_type": "step3p5", "rope_parameters": {"full_attention": {"rope_theta": 5e6}}},
        ),
        ({"model_type": "reformer", "local_attention_probs_dropout_prob": 0.05},
         {"model_type": "reformer"}),
        ({"model_type": "muse_spark_vision", "layer_types": ["window_attention"] * 4},
         {"model_type": "muse_spark_vision"}),
    ],
)  # fmt: skip
def test_files_of_older_versions_are_read_as_those_of_newer_ones(before, now):
    assert parts_from_huggingface(before) == parts_from_huggingface(now)


def test_mimo_sees_all_keys_in_its_first_layer_and_in_each_sixth():
    (answer,) = parts_from_huggingface({"model_type": "mimo_v2_flash"}).values()
    everywhere = [n for n, layer in enumerate(layers(answer, 48)) if "window" not in repr(layer)]
    assert everywhere == [0, *range(5, 48, 6)]


def test_no_other_position_type_is_taken_for_rope():
    with pytest.raises(FieldError, match=r"position_embedding_type: 'alibi' is not one of: 'rope'"):
        parts_from_huggingface({"model_type": "granitemoe", "position_embedding_type": "alibi"})
