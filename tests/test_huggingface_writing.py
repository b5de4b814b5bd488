"""The fields that `to_huggingface` writes: `from_huggingface` reads the same encoding from them."""

import itertools
import json
import random

import jax
import jax.numpy as jnp
import pytest

from posenc_jax import (
    Dims,
    Encoding,
    chain,
    convolved,
    frame,
    from_huggingface,
    make,
    per_layer,
    to_huggingface,
    weights,
)
from posenc_jax.huggingface.fields import HEAD, HEADS, LAYERS, WIDTH
from posenc_jax.huggingface.normal_form import close
from posenc_jax.huggingface.offset_readers import class_offsets
from posenc_jax.huggingface.rows import Absent, Parts, Reader, Seq2Seq
from posenc_jax.huggingface.types import ROWS
from posenc_jax.huggingface.writing import OWN
from posenc_jax.layout import full
from posenc_jax.options import FieldError
from tests.support import ROOT
from tests.support.catalogue import gap

FOLDER = ROOT / "tests" / "goldens" / "huggingface"
FROZEN = [
    case["config"]
    for name in ("proofs", "models", "inputs")
    for case in json.loads((FOLDER / f"{name}.json").read_text())
]
COUNT = 12  # layers
SIDES = {"is_encoder_decoder": False}, {"is_decoder": True}

SIZES = (*WIDTH, *HEADS, *HEAD, *LAYERS)
# A new value of an option by its name; other options stay as they are.
NEW = {
    "amplitude": lambda r: 1 + r.random(),
    "base": lambda r: r.uniform(2e3, 2e6),
    "bias_max": lambda r: r.uniform(4, 20),
    "buckets": lambda r: 2 * r.randint(8, 20),
    "channels": lambda r: r.choice((0.25, 0.5)),
    "chunk": lambda r: r.randint(16, 99),
    "columns": lambda r: r.randint(2, 40),
    "distance": lambda r: r.randint(100, 900),
    "factor": lambda r: r.uniform(1.5, 40),
    "first": lambda r: r.randint(1, 9),
    "floor": lambda r: r.randint(5, 5000),
    "groups": lambda r: r.randint(1, 32),
    "jitter": lambda r: r.uniform(1, 2),
    "kernel": lambda r: 2 * r.randint(1, 99),
    "layers": lambda r: r.randint(1, 9),
    "length": lambda r: r.randint(64, 9999),
    "rescale": lambda r: r.uniform(1, 2),
    "rows": lambda r: r.randint(2, 40),
    "share": lambda r: r.choice((0.25, 0.5, 0.75)),
    "temperature": lambda r: r.uniform(0.01, 1),
    "time": lambda r: r.randint(1, 9),
}


def varied(encoding, rng, cache=None):
    """The encoding with new values of half of its options, and of those of its parts."""
    cache = {} if cache is None else cache
    if id(encoding) in cache:
        return cache[id(encoding)]
    options = {}
    for name, value in encoding.options.items():
        if isinstance(value, Encoding):
            value = varied(value, rng, cache)
        elif name == "parts":
            value = [varied(part, rng, cache) for part in value]
        elif name in NEW and isinstance(value, int | float) and rng.random() < 0.5:
            new = NEW[name](rng)
            value = new if isinstance(value, float) else int(new) or value
        options[name] = value
    if encoding.name == "chain":
        result = chain(*options["parts"])
    elif encoding.recipe is None:
        result = encoding
    else:
        result = encoding.recipe.function(**options)
    return cache.setdefault(id(encoding), result)


def read_alone(row):
    """Whether a function reads the row, or a part of it, that has none the other way."""
    if isinstance(row, Reader):
        return row not in OWN
    parts = row.values() if isinstance(row, dict) else row if isinstance(row, tuple) else ()
    return any(map(read_alone, parts))


def encodings(every):
    """(type, encoding) of each type of one part, and of each side of one with two; of types that
    share a row, the first alone, if not `every`.
    """
    kinds = ROWS if every else {id(row): kind for kind, row in reversed(ROWS.items())}.values()
    for kind in kinds:
        row = ROWS[kind]
        for side in SIDES if isinstance(row, Seq2Seq) else ({},):
            if isinstance(row, Parts | Absent):
                continue
            try:
                encoding = from_huggingface(config(kind) | side)
            except FieldError:  # a reason, or heads that do not pair
                continue
            yield kind, encoding


def config(kind):
    return {"model_type": kind, "num_hidden_layers": COUNT}


def first_layers(encoding):
    """The encoding, as a list of the first layers' where it is `per_layer`, in chains too."""
    if encoding.name == "chain":
        return [*map(first_layers, encoding.options["parts"])]
    if encoding.name != "per_layer":
        return encoding
    parts = encoding.options["parts"]
    return [parts[n % len(parts)] for n in range(COUNT)]


def alike(a, b):
    """Whether encodings, or lists of them, are equal; floats to 1e-12, as a root and its square."""
    if isinstance(a, Encoding) and isinstance(b, Encoding) and a.name and a.name == b.name:
        return alike(sorted(a.options), sorted(b.options)) and all(
            alike(value, b.options[name]) for name, value in a.options.items()
        )
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(alike, a, b))
    return close(a, b)


@pytest.mark.thorough(after=1)
@pytest.mark.parametrize("seed", range(4))
def test_every_type_is_written_as_it_is_read(seed):
    """With its default options and with random ones, which are written over the defaults."""
    kinds, held, refused = set(), 0, 0
    for n, (kind, default) in enumerate(encodings(every=seed > 0)):
        try:
            fields = to_huggingface(default, kind, COUNT)
        except FieldError as error:
            if read_alone(ROWS[kind]) and "are not known the other way" in str(error):
                continue
            raise
        kinds.add(kind)
        json.dumps(fields)
        plain = config(kind) | fields
        assert first_layers(from_huggingface(plain)) == first_layers(default), kind
        try:
            encoding = varied(default, random.Random(1000 * seed + n))
            fields = to_huggingface(encoding, kind, COUNT)
        except FieldError:  # windows of several sizes, say
            refused += 1
            continue
        back = first_layers(from_huggingface(plain | fields))
        assert alike(back, first_layers(encoding)), (kind, fields)
        held += encoding != default
        if encoding != default:
            assert first_layers(from_huggingface(plain)) != back, "control: of other fields"
    assert len(kinds) > (400 if seed else 180)
    assert held > len(kinds) / 3
    assert refused < len(kinds) / 3


@pytest.mark.thorough
def test_encodings_of_released_files_are_written():
    """Of the files of small models whose queries, keys and tables are frozen."""
    again = 0
    for case in FROZEN:
        try:
            encoding = from_huggingface(case)
        except FieldError:
            continue
        kind, depth = case["model_type"], case.get("num_hidden_layers", COUNT)
        if read_alone(ROWS[kind]):
            continue
        sizes = {name: case[name] for name in SIZES if name in case}
        fields = to_huggingface(encoding, kind, depth)
        back = from_huggingface(sizes | fields)
        assert first_layers(back) == first_layers(encoding), kind
        again += 1
    assert again > 250


def attends(encoding, tokens=14):
    """The attention weights of two layers of a small model, and what it adds at its input."""
    dims = Dims(16, 2, 16, COUNT)
    axes = 3 if "mrope" in repr(encoding) else 1
    at = full(1, tokens)
    if axes == 3:
        pos_T = jnp.arange(tokens)
        at = at.replace(pos_BT=jnp.stack([pos_T, pos_T // 3, pos_T % 3], -1)[None])
    params = encoding.init(jax.random.key(0), dims)
    view = frame(encoding, params, at, dims, form="dense")
    q, k = jax.random.normal(jax.random.key(1), (2, 1, tokens, 2, 16))
    added = view.embed(jnp.zeros((1, tokens, 16)))
    return [added, *(weights(q, k, view.layer(n)) for n in (0, 3))]


EXTENDED = {"factor": 3.0, "length": 5, "base": 50.0}
LISTS = {"short": (1.0,) * 8, "long": tuple(1.0 + n for n in range(8))}
TURNED = "rope_theta", "floor_scale"  # of the control
# Methods that a config says in other words, at options that show in 14 tokens, and a type of each.
METHODS = [
    (make("rope", base=50.0), "llama"),
    (make("pi", base=50.0, factor=3.0), "qwen3"),
    (make("ntk", base=50.0, factor=3.0), "hunyuan_v1_dense"),
    (make("dynamic_ntk", base=50.0, length=5), "llama"),
    (make("ntk_by_parts", beta_fast=4.0, **EXTENDED), "llama"),
    (make("yarn", ramp="pairs", beta_fast=4.0, **EXTENDED), "mistral"),
    (make("yarn", ramp="pairs_truncated", mscale=0.7, mscale_all_dim=0.4, **EXTENDED), "olmo"),
    (make("llama3", high=2.0, **EXTENDED), "smollm3"),
    (make("longrope", **EXTENDED, **LISTS), "phi3"),
    (make("partial", share=0.5, base=50.0), "glm4_moe"),
    (make("p_rope", share=0.5, base=50.0), "gemma"),
    (make("mrope", sections=(2, 3, 3), base=50.0), "qwen2_vl_text"),
    (make("mrope", sections=(4, 2, 2), order="interleaved", base=50.0), "qwen3_vl_text"),
    (make("rope+window", distance=4, base=50.0), "mistral"),
    (make("local_global", every=3, window=4, base=50.0, local_base=9.0, factor=2.0), "gemma3_text"),
    (make("olmo3", window=4, **EXTENDED), "olmo3"),
    (make("gpt_oss", window=4, every=3, **EXTENDED), "gpt_oss"),
    (make("irope", base=50.0, pairing="interleaved", floor=4, chunk=5), "llama4_text"),
    (per_layer([make("rope", base=50.0)] * 3 + [make("nope")]), "smollm3"),
    (make("learned", length=20), "bert"),
    (make("sinusoidal", pairing="half", spacing="tensor2tensor"), "pegasus_x"),
    (make("t5", buckets=8, distance=12, scaled=False, bidirectional=False), "t5"),
    (make("alibi"), "bloom"),
    (make("deberta", buckets=4, distance=9, flipped=False), "deberta-v2"),
]


@pytest.mark.thorough(after=2)
@pytest.mark.parametrize(
    ("encoding", "kind"), METHODS, ids=[f"{kind}_{n}" for n, (_, kind) in enumerate(METHODS)]
)
def test_methods_have_equal_frames(encoding, kind):
    fields = to_huggingface(encoding, kind, COUNT)
    back = from_huggingface({"num_hidden_layers": COUNT} | fields)
    for ours, theirs in zip(attends(encoding), attends(back), strict=True):
        assert gap(ours, theirs) < 1e-6
    if numbers := [name for name in TURNED if name in leaves(fields)]:
        other = from_huggingface({"num_hidden_layers": COUNT} | changed(fields, numbers[0]))
        apart = zip(attends(encoding), attends(other), strict=True)
        assert max(gap(*pair) for pair in apart) > 1e-3, "control: one field is another"


def test_beit_has_a_field_for_each_of_its_tables():
    parts = {
        "use_absolute_position_embeddings": make("learned_grid", rows=4, columns=4, prefix=1),
        "use_shared_relative_position_bias": class_offsets(4, 4, shared=True),
        "use_relative_position_bias": class_offsets(4, 4),
    }
    for names in itertools.product((False, True), repeat=3):
        chosen = [part for on, part in zip(names, parts.values(), strict=True) if on]
        encoding = chain(*chosen) if len(chosen) > 1 else (chosen or [make("nope")])[0]
        for kind in ("beit", "data2vec-vision"):
            fields = to_huggingface(encoding, kind)
            assert [fields[name] for name in parts] == [*names]
            assert from_huggingface(fields) == encoding
    with pytest.raises(FieldError, match=r"encoding: rope\(\) has no field in a config of 'beit'"):
        to_huggingface(make("rope"), "beit")


def leaves(fields):
    """The names of fields, also of those in dictionaries."""
    for name, value in fields.items():
        yield from leaves(value) if isinstance(value, dict) else [name]


def changed(fields, name):
    """The fields with twice the value of one of them, wherever it stands."""
    inside = lambda value: changed(value, name) if isinstance(value, dict) else value
    other = {key: inside(value) for key, value in fields.items()}
    return other | {name: 2 * fields[name]} if name in fields else other


@pytest.mark.parametrize(
    ("encoding", "kind", "layers", "line"),
    [
        (make("alibi"), "llama", None, r"encoding: alibi\(\) .*whose code reads rope_parameters"),
        (make("partial"), "llama", None, r"rope_parameters\.partial_rotary_factor: the code of"),
        (make("ntk"), "llama", None, r"rope_parameters\.alpha: the code of 'llama' does not"),
        (make("rope+window"), "llama", None, "sliding_window: .* a window of 129 tokens"),
        (make("rope", pairing="interleaved"), "llama", None, "encoding.pairing: 'interleaved'"),
        (make("yarn"), "llama", None, "rope_parameters.attention_factor: the ramp 'turns'"),
        (make("pi"), "gptj", None, r"encoding.pairing: 'half'"),
        (make("pi"), "esm", None, "encoding: pi"),
        (make("longrope"), "phi3", None, r"rope_parameters\.short_factor: lists a divisor"),
        (make("mrope"), "qwen2_vl_text", None, r"rope_parameters\.mrope_section: lists"),
        (make("mrope"), "llama", None, r"rope_parameters\.mrope_section: the code of 'llama'"),
        (make("rope"), "qwen2_vl", None, "model_type: 'qwen2_vl' has several parts; .*_text'"),
        (make("rope"), "deepseek_v3", None, "qk_rope_head_dim: is the number of channels"),
        (make("nope"), "llama", None, "no_rope_layers: the code of 'llama' does not read it"),
        (make("rope+window"), "qwen2", None, "layers: is missing; layer_types of a config of"),
        (make("rope+window"), "qwen2", 0, r"to_huggingface\.layers: 0 must"),
        ("rope", "llama", None, r"to_huggingface\.encoding: 'rope' is not of type Encoding"),
        (make("rope"), 3, None, r"to_huggingface\.model_type: 3 is not of type str"),
        (make("irope"), "smollm3", 8, "attn_temperature_tuning: the code of 'smollm3'"),
        (make("learned", length=9, beyond="clamp"), "gpt2", None, "encoding.beyond: 'clamp' has"),
        (make("learned"), "opt", None, "encoding: position 0 has number 0; .* counts from 2"),
        (make("learned_grid"), "vit", None, "encoding.prefix: 0 has no field"),
        (make("rope"), "mamba", None, "model_type: 'mamba' has no attention"),
        (make("rope"), "lama", None, "model_type: 'lama' is not known; did you mean llama"),
        (make("rope"), "bert", None, r"encoding: rope\(\) .* whose positions are 'learned'"),
        (make("resonance"), "llama", None, r"encoding: resonance\(\) has no field"),
        (make("rope"), "wav2vec2", None, r"encoding: rope\(\) .* whose positions are 'convolved'"),
        (convolved(layers=2), "wav2vec2", None, "encoding.layers: 2 has no field"),
        (convolved(norm=True), "hubert", None, "encoding.norm: True has no field"),
        (convolved(5), "omniasr_audio", None, "num_conv_pos_embeddings: 5 is odd"),
        (convolved(), "sew", None, "model_type: 'sew' shortens its row"),
        (chain(make("rope"), make("alibi")), "llama", None, r"encoding: alibi\(\) has no field"),
    ],
    ids=str,
)
def test_what_a_target_does_not_read_is_one_line(encoding, kind, layers, line):
    with pytest.raises(FieldError, match=f"^{line}") as error:
        to_huggingface(encoding, kind, layers)
    assert "\n" not in str(error.value)
