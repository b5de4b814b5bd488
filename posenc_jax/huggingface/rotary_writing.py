"""The fields of a rotary model's config.json that say an encoding: the reverse of `rotary`."""

import math
from collections.abc import Sequence
from typing import Any

from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.normal_form import Layer, Rotation, close, layers_of, same
from posenc_jax.huggingface.rope_fields import CHUNKED, FULL, LOCAL
from posenc_jax.huggingface.rotary import ALIKE, NONE, Rotary, rotary
from posenc_jax.options import FieldError

ROPE = "rope_parameters"
CHANGES = {"": "", "backwards": "backwards", "values": "values_too", "head": "on_first_head"}
RAMPS = {"pairs": False, "pairs_truncated": True}  # by `truncate`


def rotary_fields(
    model: Rotary, kind: str, encoding: Encoding, count: int | None
) -> dict[str, Any]:
    """The fields of a config of type `kind`, of a model of `count` layers.

    FieldError: the code of the model does not read what the encoding needs.
    """
    layers = layers_of(encoding, count)
    if others := [part for layer in layers for part in layer.others]:
        reason = f"{others[0]!r} has no field in a config of {kind!r}, whose code reads {ROPE}"
        raise FieldError("encoding", reason)
    fields = _windows(model, kind, layers)
    _check_turning(model, kind, layers)
    if model.chunk:
        fields |= _chunks(layers)
    fields |= _dictionaries(model, kind, layers)
    if not (listed := _lists(model, layers)):
        return fields
    plain = fields | dict.fromkeys(listed) | _period(model, layers)
    if count is None and _reads_as(model, kind, plain, encoding):
        return plain
    if count is None:
        names = " and ".join(listed)
        reason = f"is missing; {names} of a config of {kind!r} has an entry for each layer"
        raise FieldError("layers", reason)
    return fields | listed


def unread(kind: str, path: str | tuple[str, ...], what: str) -> FieldError:
    """The error for a field that the model's code does not read, and that `what` would need."""
    return FieldError(path, f"the code of {kind!r} does not read it; the encoding has {what}")


def _reads_as(model: Rotary, kind: str, fields: dict[str, Any], encoding: Encoding) -> bool:
    try:
        return same(rotary(model, Fields({"model_type": kind, **fields})), encoding)
    except FieldError:
        return False


def _type(layer: Layer) -> str:
    if not layer.attends:
        return NONE
    return LOCAL if layer.window else CHUNKED if layer.chunk else FULL


def _only(values: Sequence[Any], path: str | tuple[str, ...], what: str) -> Any:
    """The one value that all of them are; None: there are none."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 1:
        reason = f"has one value; the encoding has {what}: {', '.join(map(str, distinct))}"
        raise FieldError(path, reason)
    return distinct[0] if distinct else None


def _windows(model: Rotary, kind: str, layers: Sequence[Layer]) -> dict[str, Any]:
    """Fields of the window, and checks of the types of layers."""
    windows = [layer.window for layer in layers if layer.window]
    window = _only(windows, "sliding_window", "windows of several sizes")
    if window and model.window is None and not model.around:
        raise unread(kind, "sliding_window", f"a window of {window} tokens")
    chunk = _only(
        [layer.chunk for layer in layers if layer.chunk], "attention_chunk_size", "chunks"
    )
    if chunk and not model.chunk:
        raise unread(kind, "attention_chunk_size", f"chunks of {chunk} positions")
    if not (model.hybrid or all(layer.attends for layer in layers)):
        raise unread(kind, "layer_types", "layers without attention")
    types = {_type(layer) for layer in layers}
    if len(types) > 1 and not _lists(model, layers):
        raise unread(kind, "layer_types", f"layers of several types: {', '.join(sorted(types))}")
    if model.window is None and not model.around:
        return {}
    written = window - 1 if window and model.radius else window
    if model.around and model.radius:
        return {"local_attention": 2 * written} if window else {}
    fields: dict[str, Any] = {}
    if window or not _lists(model, layers):  # where each layer has a type, that says it
        fields["attention_window_size" if model.types else "sliding_window"] = written
    if model.late or model.nope_every or model.dual_chunk:
        fields["use_sliding_window"] = bool(window)
    return fields


def _check_turning(model: Rotary, kind: str, layers: Sequence[Layer]) -> None:
    """FieldError: other layers turn than those that the code turns, or have a temperature."""
    attending = [layer for layer in layers if layer.attends]
    still = [layer for layer in attending if layer.rotation is None]
    by_window = model.local_only and any(layer.window for layer in attending)
    if by_window and not model.by_layer:
        if any((layer.rotation is None) != (not layer.window) for layer in attending):
            reason = f"the code of {kind!r} turns the layers with a window, and no others"
            raise FieldError("layer_types", reason)
    elif still and not (model.nope_every or model.by_layer):
        types = {_type(layer) for layer in still}
        names = {ALIKE.get(name, name) for name, rope in model.by_type.items() if rope is None}
        if not types <= names:
            raise unread(kind, "no_rope_layers", "layers without positions")
    for layer in attending:
        if layer.sharper_past and not model.dual_chunk:
            length = f"a temperature past {layer.sharper_past} tokens"
            raise unread(kind, "dual_chunk_attention_config", length)
        if layer.steps and layer.rotation and "llama_4_scaling_beta" not in model.scaling:
            raise unread(kind, (ROPE, "llama_4_scaling_beta"), "a temperature that grows by steps")
        if layer.steps and not layer.rotation and not model.chunk:
            raise unread(kind, "attn_temperature_tuning", "a temperature that grows by steps")


def _chunks(layers: Sequence[Layer]) -> dict[str, Any]:
    """Fields of Llama 4's chunks and temperature."""
    still = [layer.steps for layer in layers if layer.attends and layer.rotation is None]
    steps = _only(still, "attn_temperature_tuning", "temperatures")
    chunk = _only(
        [layer.chunk for layer in layers if layer.chunk], "attention_chunk_size", "chunks"
    )
    scale, floor, _ = steps or (None, None, None)
    return {
        **({"attention_chunk_size": chunk} if chunk else {}),
        "attn_temperature_tuning": steps is not None,
        **({"attn_scale": scale, "floor_scale": floor} if steps else {}),
    }


def _lists(model: Rotary, layers: Sequence[Layer]) -> dict[str, Any]:
    """The fields with an entry for each layer."""
    fields: dict[str, Any] = {}
    varied = model.every or model.late or model.pattern or model.around or model.chunk
    windowed = model.nope_every and model.window is not None
    if varied or windowed or model.hybrid or "layer_types" in model.reads:
        names = {ALIKE.get(name, name): name for name in model.by_type}
        names |= {type_: name for name, type_ in model.types.items()} | {NONE: model.still}
        types = [_type(layer) for layer in layers]
        name = "block_types" if model.types else "layer_types"
        fields[name] = [names.get(type_, type_) for type_ in types]
    if model.nope_every:
        fields["no_rope_layers"] = [int(layer.rotation is not None) for layer in layers]
    if model.by_layer:
        turns = [layer.rotation for layer in layers]
        fields[model.by_layer] = [turn.base if turn else 0.0 for turn in turns]
    if model.scaled_by:
        turns = [layer.rotation for layer in layers]
        scaled = [n for n, turn in enumerate(turns) if turn and turn.method != "rope"]
        fields |= {model.scaled_by: scaled, "num_hidden_layers": len(layers)}
    return fields


def _period(model: Rotary, layers: Sequence[Layer]) -> dict[str, Any]:
    """The fields of a period of layers, where these say it without a list."""
    return {"no_rope_layer_interval": len(layers)} if model.nope_every and len(layers) > 1 else {}


def _dictionaries(model: Rotary, kind: str, layers: Sequence[Layer]) -> dict[str, Any]:
    """The field `rope_parameters`, for all layers or by their type, and fields beside it."""
    turning = [layer for layer in layers if layer.rotation]
    if model.by_type or model.local_base is not None:
        names = {ALIKE.get(name, name): name for name in model.by_type}
        fields, by_type = {}, {}
        types = {_type(layer) for layer in layers}
        for type_ in (FULL, LOCAL):
            alike = [layer for layer in turning if _type(layer) == type_]
            name = names.get(type_, type_)
            by_type[name], beside = _dictionary(model, kind, alike, (ROPE, name))
            fields |= beside
            if type_ not in types:  # transformers takes one dictionary alone for that of all types
                base = model.base if type_ == FULL else model.local_base or model.base
                plain = {"rope_type": "default", "rope_theta": base}
                by_type[name] = model.by_type.get(name, plain)
        return {ROPE: by_type, **fields}
    if model.by_layer:
        turning = [_at_base(layer, turning[0]) for layer in turning]
    if model.scaled_by:
        scaled = [layer for layer in turning if layer.rotation and layer.rotation.method != "rope"]
        bases = [layer.rotation.base for layer in turning if layer.rotation]
        _only(bases, (ROPE, "rope_theta"), "bases")
        turning = scaled or turning
    dictionary, fields = _dictionary(model, kind, turning, (ROPE,))
    if dictionary is None:
        return fields
    return {ROPE: dictionary, **fields}


def _at_base(layer: Layer, other: Layer) -> Layer:
    """The layer with the base of another one, where each layer's base has a field of its own."""
    if layer.rotation is None or other.rotation is None:
        return layer
    return layer._replace(rotation=layer.rotation._replace(base=other.rotation.base))


def _dictionary(
    model: Rotary, kind: str, layers: Sequence[Layer], path: tuple[str, ...]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The dictionary of layers that turn alike, None if none turns or the code reads none, and
    fields beside it.
    """
    if not layers:
        return None, {}
    rotation, steps, past = layers[0].rotation, layers[0].steps, layers[0].sharper_past
    assert rotation is not None
    for layer in layers:
        if not close((layer.rotation, layer.steps, layer.sharper_past), (rotation, steps, past)):
            assert layer.rotation is not None
            reason = f"is one for all such layers of {kind!r}; the encoding has "
            raise FieldError(path, reason + f"{_shown(rotation)} and {_shown(layer.rotation)}")
    _check_change(model, kind, rotation)
    rope, beside = _scaling(model, kind, rotation, path)
    beside |= _channels(model, kind, rotation, rope, path)
    if steps:
        rope["llama_4_scaling_beta"], length = steps[:2]
        rope.setdefault("original_max_position_embeddings", length)
    if rotation.method == "dual_chunk":
        options = dict(rotation.options)
        most, chunk = options["most"], options["chunk"]
        dual = {"chunk_size": most, "local_size": most - chunk}
        if past:
            dual["original_max_position_embeddings"] = past
        beside["dual_chunk_attention_config"] = dual
    elif model.dual_chunk:
        beside["dual_chunk_attention_config"] = None
    if model.options == "all":
        return rope, beside
    if model.options == "base":
        return rope, beside | {"rope_theta": rotation.base}
    if not close(rotation.base, model.base):
        raise unread(kind, (*path, "rope_theta"), f"a base of {rotation.base}")
    return None, beside


def _shown(rotation: Rotation) -> str:
    more = [f"{name}={value!r}" for name, value in rotation.options]
    return f"{rotation.method}({', '.join([f'base={rotation.base}', *more])})"


def _check_change(model: Rotary, kind: str, rotation: Rotation) -> None:
    """FieldError: the rotation has pairs, axes or a direction that the model has not."""
    pairings = {model.pairing} | ({"half"} if "rope_interleave" in model.reads else set())
    if rotation.pairing not in pairings:
        reason = f"{rotation.pairing!r}: the code of {kind!r} pairs {model.pairing!r}; "
        raise FieldError("encoding.pairing", reason + "convert_pairing converts weights")
    if rotation.change != CHANGES[model.change]:
        reason = f"the code of {kind!r} turns otherwise: "
        reason += f"{rotation.change or 'plainly'} is not {CHANGES[model.change] or 'plainly'}"
        raise FieldError("encoding", reason)
    if (model.order is None) != (rotation.sections is None):
        what = "one axis" if rotation.sections is None else "three axes"
        raise unread(kind, (ROPE, "mrope_section"), f"positions of {what}")
    if rotation.order != model.order:
        reason = f"{rotation.order!r}: the code of {kind!r} has {model.order!r}"
        raise FieldError("encoding.order", reason)
    if rotation.sections == ():
        reason = "lists the pairs of each axis; give the encoding its sections"
        raise FieldError((ROPE, "mrope_section"), reason)


def _scaling(
    model: Rotary, kind: str, rotation: Rotation, path: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The dictionary of a scaling of rope, and fields beside it."""
    options, method = dict(rotation.options), rotation.method
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": rotation.base}
    if rotation.sections:
        rope["mrope_section"] = list(rotation.sections)
    if method not in ("rope", "mhrope", "dual_chunk") and model.options != "all":
        raise unread(kind, (*path, "rope_type"), f"the scaling {method!r}")
    if options.get("values") or options.get("start"):
        name = "values" if options.get("values") else "start"
        reason = f"{options[name]!r}: no field of a config says it"
        raise FieldError(("encoding", name), reason)
    if method == "dual_chunk" and not model.dual_chunk:
        raise unread(kind, "dual_chunk_attention_config", "dual chunk attention")
    louder = rotation.amplitude != 1
    if louder and method not in ("longrope", "ntk_by_parts"):
        raise unread(kind, (*path, "attention_factor"), f"a {method!r} with a temperature")
    length = options.get("length")
    beside = {} if length is None else {"original_max_position_embeddings": length}
    if method == "pi":
        rope |= {"rope_type": "linear", "factor": options["factor"]}
    elif method == "ntk":
        if "alpha" not in model.reads:
            raise unread(kind, (*path, "alpha"), "the scaling 'ntk'")
        rope |= {"rope_type": "dynamic", "alpha": options["factor"], "factor": 1.0}
    elif method == "dynamic_ntk":
        rope |= {"rope_type": "dynamic", "factor": options["alpha"]}
        beside = {"max_position_embeddings": length}
    elif method == "p_rope":
        rope |= {"rope_type": "proportional", "partial_rotary_factor": options["share"]}
    elif method == "longrope":
        rope |= _longrope(model, kind, rotation, options, path)
    elif method == "ntk_by_parts" and options["ramp"] == "turns":
        if louder:
            reason = "the ramp 'turns' is written as llama3, which has no temperature; "
            raise FieldError((*path, "attention_factor"), reason + "choose the ramp 'pairs'")
        ends = {"low_freq_factor": options["beta_slow"], "high_freq_factor": options["beta_fast"]}
        rope |= {"rope_type": "llama3", "factor": options["factor"], **ends}
    elif method == "ntk_by_parts":
        rope |= {
            "rope_type": "yarn",
            **{name: options[name] for name in ("factor", "beta_fast", "beta_slow")},
            "truncate": RAMPS[options["ramp"]],
            "attention_factor": rotation.amplitude,
        }
    if rotation.sharper != 1:
        rope |= _sharper(model, kind, rotation, options, path)
    return rope | {name: value for name, value in beside.items() if name[0] == "o"}, beside


def _longrope(
    model: Rotary, kind: str, rotation: Rotation, options: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    for name in ("short", "long"):
        if not options[name]:
            reason = f"lists a divisor for each pair; give the encoding its {name}"
            raise FieldError((*path, f"{name}_factor"), reason)
    # Code that does not read attention_factor makes it of this quotient of lengths.
    factor = max(options["length"] ** (rotation.amplitude**2 - 1), 1.0)
    lists = {"short_factor": list(options["short"]), "long_factor": list(options["long"])}
    lists = {**lists, "factor": factor}
    if not rotation.by_length:
        return {"rope_type": "longrope", **lists, "attention_factor": rotation.amplitude}
    if "short_mscale" not in model.reads:
        raise unread(kind, (*path, "short_mscale"), "temperatures for short and long texts")
    short, long = (scale * rotation.amplitude for scale in rotation.by_length[:2])
    return {"rope_type": "longrope", **lists, "short_mscale": short, "long_mscale": long}


def _sharper(
    model: Rotary, kind: str, rotation: Rotation, options: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """DeepSeek's number by which YaRN's divisor, squared, multiplies all products."""
    last = model.channels == "qk_rope_head_dim"
    if not last or rotation.method != "ntk_by_parts" or options["ramp"] not in RAMPS:
        raise unread(kind, (*path, "mscale_all_dim"), f"products times {rotation.sharper}")
    return {"mscale_all_dim": (math.sqrt(rotation.sharper) - 1) / 0.1 / math.log(options["factor"])}


def _channels(
    model: Rotary, kind: str, rotation: Rotation, rope: dict[str, Any], path: tuple[str, ...]
) -> dict[str, Any]:
    """Puts the share of channels that turn into the dictionary; returns fields of their number."""
    channels = rotation.channels
    if model.channels:
        last = model.channels == "qk_rope_head_dim"
        if not isinstance(channels, int) or rotation.last != last:
            which = "last" if last else "first"
            reason = f"is the number of channels that turn, the {which} of a head; "
            raise FieldError(model.channels, reason + f"the encoding turns {channels or 'all'}")
        either = "rope_interleave" in model.reads
        beside = {"rope_interleave": rotation.pairing == "interleaved"} if either else {}
        return {model.channels: channels, **beside}
    if rotation.last or isinstance(channels, int):
        raise unread(kind, "qk_rope_head_dim", f"{channels} channels of a head that turn")
    if model.share is not None and rotation.method != "p_rope":
        rope["partial_rotary_factor"] = 1.0 if channels is None else channels
    elif channels is not None:
        raise unread(kind, (*path, "partial_rotary_factor"), f"a share of {channels} that turns")
    return {}
