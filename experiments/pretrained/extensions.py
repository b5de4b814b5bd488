"""The extensions of context that fit a released model, each as its encoding.

Those that Hugging Face knows are edits of config.json, so layers with windows, partial rotation and
bases by layer stay as they are. The others take rope on whole heads in every layer.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.huggingface import from_huggingface
from posenc_jax.huggingface.fields import SHARES, Fields
from posenc_jax.huggingface.rotary import FULL, Rotary, rope_dictionary
from posenc_jax.huggingface.types import ROWS
from posenc_jax.lab.config.schema import MOST_LENGTH
from posenc_jax.lab.model.pretrained import Released, released
from posenc_jax.options import FieldError

LENGTHS = "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"
LEAST_LENGTH = 8  # of which a quarter can be a window
DUAL = "dual_chunk_attention_config"
ORIGINAL = "original_max_position_embeddings"


class Extended(NamedTuple):
    """A released model and what it may be read under.

    length: tokens that it was trained on.
    encodings: by name; "plain" has no extension. A model that was released with one has it first,
      by its `rope_type`.
    """

    released: Released
    length: int
    encodings: dict[str, Encoding]


def extended(config: Mapping[str, Any], factor: float, length: int | None = None) -> Extended:
    """The model of a config.json, under its own positions and every extension that fits.

    Args:
      factor: times the trained length that the extensions are made for.
      length: tokens that the model was trained on; None: as the config says.

    FieldError: see `pretrained.released`; a model that is no decoder; a config without a length.
    """
    source = released(config)
    if source.config.kind != "decoder":
        kind = source.config.kind.replace("_", "-")
        reason = f"{config['model_type']} is an {kind}; use a decoder"
        if kind == "encoder":
            reason += ", or read this one with configs/permutation.py or configs/padding_leakage.py"
        raise FieldError("model_type", reason)
    assert isinstance(source.encoding, Encoding)
    fields, kind = Fields(config), config["model_type"]
    rope = _rope(fields)
    trained = length or trained_length(config)
    if trained is None:
        raise FieldError(LENGTHS[0], "is missing; give model.length")
    if not LEAST_LENGTH <= trained <= MOST_LENGTH:
        reason = f"{trained} is not in {LEAST_LENGTH} to {MOST_LENGTH}; give model.length"
        raise FieldError(LENGTHS[0], reason)
    rope_type = rope.get("rope_type", "type", default="default")
    rope_type = "dual_chunk" if fields.get(DUAL) else rope_type
    if not isinstance(ROWS[kind], Rotary):
        return Extended(source, trained, {"plain": source.encoding})
    if rope_type != "default":
        plain = _edited({**config, DUAL: None}, rope_type="default")
        return Extended(
            source, trained, {rope_type: source.encoding, "plain": from_huggingface(plain)}
        )
    extended_by = {"plain": source.encoding} | _by_config(source, config, factor, trained)
    if source.encoding.at is None and source.encoding.bias is None:
        extended_by |= _of_whole_heads(source, config, factor, trained)
    return Extended(source, trained, extended_by)


def trained_length(config: Mapping[str, Any]) -> int | None:
    """The tokens that a released model was trained on, by its config.json; None: not said."""
    fields = Fields(config)
    return _rope(fields).get(ORIGINAL) or fields.get(ORIGINAL, *LENGTHS)


def _by_config(
    source: Released, config: Mapping, factor: float, length: int
) -> dict[str, Encoding]:
    """The extensions that an edited config.json describes."""
    base, width = _rotation(source, config)
    stretched = {"factor": factor, ORIGINAL: length}
    ramp = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    edits = {
        "pi": {"rope_type": "linear", "factor": factor},
        "ntk": {"rope_theta": base * factor ** (width / max(width - 2, 1))},
        "dynamic_ntk": {"rope_type": "dynamic", "factor": 1.0},
        "ntk_by_parts": {"rope_type": "yarn", "attention_factor": 1.0, **stretched},
        "yarn": {"rope_type": "yarn", **stretched},
        "llama3": {"rope_type": "llama3", **ramp, **stretched},
    }
    whole = {**config, "max_position_embeddings": length}
    return {name: from_huggingface(_edited(whole, **edit)) for name, edit in edits.items()}


def _of_whole_heads(
    source: Released, config: Mapping, factor: float, length: int
) -> dict[str, Encoding]:
    """The extensions that no config.json describes; none if only a part of a head turns.

    Resonance rounds the wavelengths of YaRN. The others change distances of far keys. Windows have
    the published share of the trained length: a quarter for Self-Extend, whose group is then the
    smallest that reaches; half for ReRoPE and Leaky ReRoPE, whose far distances then grow just as
    slowly as needed; of dual chunk attention chunks of 11/16 and distances of up to 3/4.
    """
    base, width = _rotation(source, config)
    if width != source.config.dims.head:
        return {}
    quarter, half = (max(length // n, 1) for n in (4, 2))
    slower = lambda window: (factor * length - window) / (length - window)
    group = max(math.ceil(slower(quarter)), 1)
    options = {
        "resonance": {"factor": factor, "length": length, "ramp": "pairs_truncated"},
        "self_extend": {"window": quarter, "group": group},
        "rerope": {"window": half},
        "leaky_rerope": {"window": half, "factor": slower(half)},
        "dual_chunk": {"chunk": length * 11 // 16, "most": length * 3 // 4},
    }
    return {name: encodings.make(name, base=base, **settings) for name, settings in options.items()}


def _rotation(source: Released, config: Mapping) -> tuple[float, int]:
    """The base of rope, and the channels of a head that turn."""
    fields, model = Fields(config), ROWS[config["model_type"]]
    base = fields.get("rope_theta", "rotary_emb_base", default=model.base)
    base = _rope(fields).get("rope_theta", default=base)
    share = _rope(fields).get(SHARES[0], default=fields.get(*SHARES, default=model.share or 1.0))
    return base, int(source.config.dims.head * share)


def _rope(fields: Fields) -> Fields:
    """The fields of rope in layers that see everything."""
    name, stored = rope_dictionary(fields)
    return fields.inside(name, FULL) if stored.get(FULL) else fields.inside(name)


def _edited(config: Mapping, **changes: Any) -> dict[str, Any]:
    """The config with other fields of rope in layers that see everything."""
    fields = Fields(config)
    name, stored = rope_dictionary(fields)
    rope = _rope(fields).fields
    shared = {"rope_theta", "partial_rotary_factor"} & {*rope}
    whole = {key: rope[key] for key in shared} | {"rope_type": "default"} | changes
    return {**config, name: {**stored, FULL: whole} if FULL in stored else whole}
