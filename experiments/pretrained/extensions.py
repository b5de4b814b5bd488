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
from posenc_jax.huggingface.rotary import FULL, ROTARY
from posenc_jax.lab.model.pretrained import Released, released
from posenc_jax.options import FieldError

LENGTHS = "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"
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
    found = released(config)
    if found.config.kind != "decoder":
        kind = found.config.kind.replace("_", "-")
        raise FieldError("model_type", f"{config['model_type']} is an {kind}; use a decoder")
    assert isinstance(found.encoding, Encoding)
    rope, kind = _rope(config), config["model_type"]
    trained = length or rope.get(ORIGINAL) or _first(config, ORIGINAL, *LENGTHS)
    if trained is None:
        raise FieldError(LENGTHS[0], "is missing; give model.length")
    own = str(_first(rope, "rope_type", "type") or "default")
    if kind not in ROTARY:
        return Extended(found, trained, {"plain": found.encoding})
    if own != "default":
        plain = _edited(config, rope_type="default")
        return Extended(found, trained, {own: found.encoding, "plain": from_huggingface(plain)})
    made = {"plain": found.encoding} | _by_config(found, config, factor, trained)
    if found.encoding.at is None and found.encoding.bias is None:
        made |= _of_whole_heads(found, config, factor, trained)
    return Extended(found, trained, made)


def _by_config(found: Released, config: Mapping, factor: float, length: int) -> dict[str, Encoding]:
    """The extensions that an edited config.json describes."""
    base, width = _rotation(found, config)
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
    found: Released, config: Mapping, factor: float, length: int
) -> dict[str, Encoding]:
    """The extensions that no config.json describes; none if only a part of a head turns.

    Resonance rounds the wavelengths of YaRN. The others change distances of far keys. Windows have
    the published share of the trained length: a quarter for Self-Extend, whose group is then the
    smallest that reaches; half for ReRoPE and Leaky ReRoPE, whose far distances then grow just as
    slowly as needed; of dual chunk attention chunks of 11/16 and distances of up to 3/4.
    """
    base, width = _rotation(found, config)
    if width != found.config.dims.head:
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
    return {name: encodings.make(name, base=base, **own) for name, own in options.items()}


def _rotation(found: Released, config: Mapping) -> tuple[float, int]:
    """The base of rope, and the channels of a head that turn."""
    rope, model = _rope(config), ROTARY[config["model_type"]]
    bases = rope.get("rope_theta"), _first(config, "rope_theta", "rotary_emb_base"), model.base
    base = next(base for base in bases if base is not None)
    shares = "partial_rotary_factor", "rotary_pct", "rope_pct"
    share = rope.get(shares[0]) or _first(config, *shares) or model.share or 1.0
    return base, int(found.config.dims.head * share)


def _rope(config: Mapping) -> Mapping:
    """The fields of rope in layers that see everything."""
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    return given.get(FULL) or given


def _edited(config: Mapping, **fields: Any) -> dict[str, Any]:
    """The config with other fields of rope in layers that see everything."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    given = config.get(name) or {}
    fields = {"rope_type": "default"} | fields
    kept = {"rope_theta", "partial_rotary_factor"} & {*_rope(config)}
    whole = {key: _rope(config)[key] for key in kept} | fields
    return {**config, name: {**given, FULL: whole} if FULL in given else whole}


def _first(fields: Mapping, *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
