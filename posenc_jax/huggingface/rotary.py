"""Rotary models of Hugging Face: the windows, bases and scalings of their layers."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from posenc_jax.combinators import by_order, chain, per_layer
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.encodings import make
from posenc_jax.encodings.by_layer import chunked, stepped
from posenc_jax.encodings.rotary_axes import Order
from posenc_jax.encodings.rotary_scaling import louder, root_temperature
from posenc_jax.encodings.rotation import Pairing
from posenc_jax.huggingface import rotary_parts
from posenc_jax.huggingface.fields import HEAD, HEADS, MOST_LAYERS, SHARES, WIDTH, Fields
from posenc_jax.huggingface.rope_fields import CHUNKED, FULL, LOCAL, from_lists, rope_dictionary
from posenc_jax.options import FieldError, choices_for, shown

NONE = "linear_attention"  # and other types of layers without attention
TYPES = "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"
# Other names of these.
OLDER_TYPES = {
    "su": "longrope",
    "mrope": "default",
    "deepseek_yarn": "yarn",
    "telechat3-yarn": "yarn",
}
# Names of types of layers that do what another type does.
ALIKE = {
    **dict.fromkeys(("indexed_attention", "attention", "hybrid"), FULL),
    "hybrid_sliding": LOCAL,
    "reference_sliding_attention": FULL,  # a window that sees the prompt, too
}
WITHOUT = NONE, "conv", "mamba", "mlp", "moe", "recurrent"


class Rotary(NamedTuple):
    """Properties of a rotary model that its config.json need not state.

    base:       of rope; None: it must be said.
    local_base: that of layers with a window, where those are never scaled.
    pairing:    pairs of channels, as in `rope`.
    share:      of a head's channels that turn; None: always all.
    share_of:   an older field for the share: the number of channels that turn.
    window:     tokens that layers with a window see, the query's own included; 0: none has one;
                None: the model does not read `sliding_window`.
    every:      the last of so many layers has no window; 0: all layers are alike.
    late:       layers from `max_window_layers` on have the window, if it is switched on.
    nope_every: the last of so many layers does not turn; 0: all do.
    local_only: where layers have windows, those without do not turn.
    radius:     the window is that on either side of the query, its own not counted.
    around:     tokens of a window and its other side; every layer but each third has it.
    chunk:      positions of a chunk, in layers that turn; 0: no chunks.
    last:       the channels of the share are the last ones.
    channels:   the field that says how many channels turn: the first, or of DeepSeek the last.
    width:      of these channels, where the config does not say it.
    order:      of M-RoPE's sections.
    sections:   M-RoPE's, where the config does not say them.
    dual_chunk: the model may have dual chunk attention.
    hybrid:     `layer_types` may have layers without attention.
    by_layer:   the field with the base of each layer, 0 for layers that do not turn.
    scaled_by:  the field with the numbers of the layers whose rope is scaled; others have it plain.
    by_type:    `rope_parameters` of types of layers, where the config does not have them.
    lists:      older files have the base and the share of each layer in lists.
    scaling:    `rope_parameters`, where the config does not have them.
    pattern:    the types of layers where the config does not have them: G for all tokens, L for a
                window, N for no attention.
    types:      what the model means by types of layers in `block_types`.
    change:     further changes of the rotation: "backwards" turns the other way, "values" turns
                values too, "values and back" also the output back, "head" turns the first head
                alone, "learned" has learned factors of the frequencies and logits that grow with
                the logarithm of the keys, in all layers.
    options:    of rope that the code reads: all, the base alone, or none, so that nothing else may
                be written.
    reads:      further fields that the code reads, of those that only some models read.
    still:      what `layer_types` calls layers without attention.
    """

    base: float | None = 10_000.0
    local_base: float | None = None
    pairing: Pairing = "half"
    share: float | None = None
    share_of: str = ""
    window: int | None = None
    every: int = 0
    late: bool = False
    nope_every: int = 0
    local_only: bool = False
    radius: bool = False
    around: int = 0
    chunk: int = 0
    last: bool = False
    channels: Literal["", "rotary_dim", "qk_rope_head_dim"] = ""
    width: int = 64
    order: Order | None = None
    sections: tuple[int, ...] = ()
    dual_chunk: bool = False
    hybrid: bool = False
    by_layer: str = ""
    scaled_by: str = ""
    by_type: Mapping[str, Any] = {}
    lists: bool = False
    scaling: Mapping[str, Any] = {}
    pattern: str = ""
    types: Mapping[str, str] = {}
    change: Literal["", "backwards", "values", "values and back", "head", "learned"] = ""
    options: Literal["all", "base", "none"] = "all"
    reads: tuple[str, ...] = ()
    still: str = NONE


class Turned(NamedTuple):
    """How the queries and keys of a layer turn: whether they do; its base, None for that of the
    model; whether frequencies are scaled.
    """

    turns: bool = True
    base: float | None = None
    scaled: bool = True


def rotary(model: Rotary, config: Fields) -> Encoding:
    """The encoding of a rotary model, with windows, chunks and layers without positions where it
    has them.
    """
    config = from_lists(config) if model.lists else config
    neighbours = model.pairing == "interleaved"
    if "position_embedding_type" not in config.read:  # otherwise it chose this row
        config.check("position_embedding_type", "absolute", *(["rope_gptj"] if neighbours else []))
    if model.channels == "rotary_dim":
        config.check("rotary", True)
    window = _window(model, config)
    turned = _turning_layers(model, config)
    types = _layer_types(model, config, window, [layer.turns for layer in turned])
    if model.local_only and window and not (model.by_layer and config.get(model.by_layer)):
        turned = [Turned(layer_type == LOCAL) for layer_type in types]
    unturned = Encoding()
    if model.chunk and config.get("attn_temperature_tuning", default=True):
        floor = config.get("floor_scale", default=8192)
        unturned = stepped(config.get("attn_scale", default=0.1), floor)
    chunk = config.get("attention_chunk_size", default=model.chunk) if model.chunk else 0

    def layer(layer_type: str, turned: Turned) -> Encoding:
        if layer_type == NONE:
            return rotary_parts.without_attention()
        parts = [_turned(model, config, layer_type, turned) if turned.turns else unturned]
        if layer_type == LOCAL:
            near = make("window", distance=window - 1)
            parts.append(near if model.order is None else by_order(near))
        if layer_type == CHUNKED:
            parts.append(chunked(chunk))
        if model.change == "learned":
            parts.append(rotary_parts.louder_by_count())
        return parts[0] if len(parts) == 1 else chain(*parts)

    if (period := math.lcm(len(types), len(turned))) > MOST_LAYERS:
        reason = (
            f"{len(types)} types and {len(turned)} layers that turn or not give {period} layers"
        )
        raise FieldError((*config.path, "layer_types"), reason)
    rows = [(types[n % len(types)], turned[n % len(turned)]) for n in range(period)]
    listed = model.by_layer, model.scaled_by, "layer_types", "block_types", "no_rope_layers"
    every_layer = any(config.fields.get(name) for name in listed)  # else one period of layers
    repeats = lambda length: (
        (every_layer or period % length == 0)
        and all(row == rows[n % length] for n, row in enumerate(rows))
    )
    rows = rows[: next(filter(repeats, range(1, period + 1)))]
    by_row = {row: layer(*row) for row in dict.fromkeys(rows)}
    return by_row[rows[0]] if len(by_row) == 1 else per_layer([by_row[row] for row in rows])


def _window(model: Rotary, config: Fields) -> int:
    """Tokens that a layer with a window sees, 0 if no layer has one."""
    on = config.get("use_sliding_window", default=not (model.late or model.nope_every))
    if model.around:
        window = config.get("local_attention", default=model.around) // 2
        window = window if model.radius else config.get("sliding_window", default=window)
    elif model.window is None:
        window = 0
    else:
        unsaid = not {"sliding_window", "attention_window_size"} & config.fields.keys()
        window = config.get(
            "sliding_window", "attention_window_size", default=model.window if unsaid else 0
        )
        window = window if on else 0
        if window and config.get("use_bidirectional_attention") is True:  # Gemma 3's code halves it
            window = window // 2 + 1
    config.check("sliding_window_size", window)
    config.get("use_bidirectional_attention")  # which tokens are seen is not positions
    return window + 1 if window and model.radius else window


def _turning_layers(model: Rotary, config: Fields) -> list[Turned]:
    """How each layer turns, for one period of layers."""
    if model.by_layer and (bases := config.get(model.by_layer)):
        return [Turned(bool(base), base or None) for base in bases]
    if model.scaled_by and (numbers := config.get(model.scaled_by)) is not None:
        return [Turned(scaled=n in numbers) for n in range(config.need("num_hidden_layers"))]
    if not model.nope_every:
        return [Turned()]
    every = config.get("no_rope_layer_interval", default=model.nope_every)
    turns = config.get("no_rope_layers") or [1] * (every - 1) + [0]
    return [Turned(bool(layer)) for layer in turns]


def _layer_types(model: Rotary, config: Fields, window: int, turns: list[bool]) -> list[str]:
    """The type of each layer, for one period of layers: FULL, LOCAL, CHUNKED or NONE."""
    every = config.get("global_attn_every_n_layers", default=model.every)
    pattern = config.get("sliding_window_pattern", default=every)
    listed_by = "block_types" if model.types else "layer_types"
    late = config.get("max_window_layers", default=28)
    first = config.get("global_attn_every_n_layers", default=3) if model.around else 0
    listed = config.need("layer_types") if window and model.nope_every else config.get(listed_by)
    if listed:
        alike: dict[str, str] = {**ALIKE, **dict.fromkeys(WITHOUT, NONE), **model.types}
        types = [str(alike.get(name, name)) for name in listed]
        allowed = [
            FULL, *([LOCAL] if window else []), *([CHUNKED] if model.chunk else []),
            *([NONE] if model.hybrid else []),
        ]  # fmt: skip
        for n, layer_type in enumerate(types):
            if layer_type not in allowed:
                reason = f"{shown(listed[n])}{choices_for(layer_type, allowed)}"
                raise FieldError((*config.path, listed_by, n), reason)
        return types
    if model.pattern:
        names = {"G": FULL, "L": LOCAL if window else FULL, "N": NONE}
        return [names[letter] for letter in model.pattern]
    if model.hybrid:
        config.need("layer_types")
        raise FieldError((*config.path, "layer_types"), "() names no layer")
    if model.chunk:
        return [CHUNKED if turned else FULL for turned in turns]
    if model.around:
        return [FULL] + [LOCAL] * (first - 1)
    if not window:
        return [FULL]
    if model.late:
        return [LOCAL if n >= late else FULL for n in range(config.need("num_hidden_layers"))]
    if isinstance(pattern, str):  # of EXAONE 4 "LLLG"
        reason = f"{shown(pattern)} is text; give layer_types"
        raise FieldError((*config.path, "sliding_window_pattern"), reason)
    return [LOCAL] * (pattern - 1) + [FULL] if pattern else [LOCAL]


def _turned(model: Rotary, config: Fields, layer_type: str, layer: Turned) -> Encoding:
    """The rotary part of the layers of type `layer_type`."""
    base, local = config.get("rope_theta", "rotary_emb_base", default=model.base), False
    if model.local_base is not None:
        base = config.get("global_rope_theta", "rope_theta", default=model.base)
        local_base = config.get(
            "local_rope_theta", "rope_local_base_freq", default=model.local_base
        )
        local = layer_type == LOCAL
        base = local_base if local else base
    scaled = not local or model.around > 0  # ModernBERT's dictionary is of both types of layers
    rope = _parameters(model, config, layer_type, scaled)
    if rope is None:
        return Encoding()
    if (base := layer.base or rope.get("rope_theta", default=base)) is None:
        reason = "is missing; the model needs it"
        raise FieldError((*config.path, "rope_parameters"), reason)
    rope.get("rope_theta")
    rope_type: str = rope.get("rope_type", "type", default="default")
    rope_type = OLDER_TYPES.get(rope_type, rope_type)
    if rope_type not in TYPES:
        reason = f"{shown(rope_type)}{choices_for(rope_type, TYPES)}"
        raise FieldError((*rope.path, "rope_type"), reason)
    if not layer.scaled:
        rope.read.update(rope.fields)
        rope_type = "default"
    share = 1.0
    if model.share is not None or rope_type == "proportional":
        share = config.get(*SHARES, default=model.share or 1.0)
        if model.share_of and (count := config.get(model.share_of)):
            share = count / (_head(config) or count)
        share = rope.get(SHARES[0], default=share)
    for name in SHARES:
        config.check(name, 1, share)
    rope.check(SHARES[0], 1, share)
    last = model.channels == "qk_rope_head_dim"
    pairing = "half" if last and config.get("rope_interleave") is False else model.pairing
    turn = {"base": base, "pairing": pairing}
    width = config.get(model.channels, default=model.width) if model.channels else 0
    head = width or _head(config)
    if rope_type == "proportional":
        encoding, share = make("p_rope", share=share, **turn), 1.0
        rope.check("factor", 1)
    elif model.order is not None:
        encoding = _by_sections(model, rope, config, rope_type, turn)
    elif model.change == "head":
        encoding = rotary_parts.on_first_head(make("mhrope", heads=(1, 0, 0), **turn))
    elif model.dual_chunk and config.get("dual_chunk_attention_config"):
        encoding = _dual_chunk(config.inside("dual_chunk_attention_config"), rope, rope_type, turn)
    else:
        encoding = _scaled(rope, config, rope_type, turn)
    if model.change == "backwards":
        encoding = rotary_parts.backwards(encoding)
    if model.change == "learned":
        if rope_type not in ("default", "yarn"):
            reason = f"{shown(rope_type)} beside learned factors of frequencies"
            raise FieldError((*rope.path, "rope_type"), f"{reason}; choices: default, yarn")
        encoding = rotary_parts.with_factors(encoding)
    if model.change == "values":
        encoding = rotary_parts.values_too(encoding)
    if model.change == "values and back":
        encoding = rotary_parts.values_and_back(encoding)
    if head:  # refuses a width that does not pair, and lists of another length
        any_key: Any = np.zeros(2, np.uint32)  # none of these methods draws parameters
        encoding.init(any_key, Dims(head, 1, int(head * share) or 1))
    if last:
        encoding = _deepseek(encoding, rope, rope_type, width)
    elif width:
        encoding = rotary_parts.on_channels(encoding, width)
    elif share < 1:
        encoding = rotary_parts.on_channels(encoding, share, model.last)
    if growth := rope.get("llama_4_scaling_beta"):
        length = rope.need("original_max_position_embeddings")
        encoding = chain(encoding, stepped(growth, length, ahead=0))
    rope.refuse_unread(re.compile(""))
    return encoding


def _head(config: Fields) -> int | None:
    """The channels of a head, or None if the config does not state them."""
    width, heads = config.get(*WIDTH), config.get(*HEADS)
    return config.get(*HEAD) or (width // heads if width and heads else None)


def _parameters(model: Rotary, config: Fields, layer_type: str, scaled: bool) -> Fields | None:
    """The dictionary of one layer type; None if such layers have no positions."""
    name, dictionary = rope_dictionary(config)
    if not {"rope_scaling", "rope_parameters"} & config.fields.keys():
        dictionary = model.by_type or model.scaling
        config = config.replaced(name, dictionary)
    names = {ALIKE.get(key, key): key for key in dictionary}
    if not {FULL, LOCAL, CHUNKED} & set(names):
        return config.inside(name, empty=not scaled)
    if layer_type not in names:
        raise FieldError((*config.path, name, layer_type), "is missing; the model has such layers")
    key = names[layer_type]
    return None if dictionary[key] is None else config.inside(name, key)


def _by_sections(
    model: Rotary, rope: Fields, config: Fields, rope_type: str, turn: dict[str, Any]
) -> Encoding:
    """M-RoPE, of rope or of one of its scalings."""
    assert model.order is not None
    rope.get("mrope_interleaved")
    sections = rope.get("mrope_section", default=model.sections) or rope.need("mrope_section")
    if rope_type == "default":
        return make("mrope", sections=sections, order=model.order, **turn)
    return rotary_parts.by_sections(_scaled(rope, config, rope_type, turn), sections, model.order)


def _scaled(rope: Fields, config: Fields, rope_type: str, turn: dict[str, Any]) -> Encoding:
    """Rope with one of Hugging Face's scalings."""
    if rope_type == "default":
        return make("rope", **turn)
    if rope_type == "linear":
        return make("pi", factor=rope.need("factor"), **turn)
    if rope_type == "dynamic":
        if alpha := rope.get("alpha"):  # of Hunyuan, where the other fields are not read
            for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
                rope.get(name)
            return make("ntk", factor=alpha, **turn)
        most = config.need("max_position_embeddings")
        return make("dynamic_ntk", length=most, alpha=rope.need("factor"), **turn)
    name = "original_max_position_embeddings"
    length = config.get(name) or rope.get(name) or config.need("max_position_embeddings")
    turn |= {"length": length}
    if rope_type == "llama3":
        low, high = rope.need("low_freq_factor"), rope.need("high_freq_factor")
        if high < low:
            reason = f"{high} is below low_freq_factor {low}"
            raise FieldError((*rope.path, "high_freq_factor"), reason)
        return make("llama3", factor=rope.need("factor"), low=low, high=high, **turn)
    # YaRN may have a factor of null, which stands for the quotient of the lengths.
    if rope_type == "yarn" and "factor" not in rope.fields:
        rope.need("factor")
    factor = rope.get("factor") or config.need("max_position_embeddings") / length
    if rope_type == "longrope":
        return _longrope(rope, factor, length, turn)
    rope.get("finetuned")  # the authors' code reads it for the type "dynamic-yarn" alone
    turn |= {"beta_fast": rope.get("beta_fast") or 32.0, "beta_slow": rope.get("beta_slow") or 1.0}
    turn |= {"ramp": "pairs_truncated" if rope.get("truncate", default=True) else "pairs"}
    scales = rope.get("mscale", default=0.0), rope.get("mscale_all_dim", default=0.0)
    temperature = root_temperature(factor, *(scales if all(scales) else ()))
    amplitude = rope.get("attention_factor", default=temperature)
    if amplitude == root_temperature(factor):
        return make("yarn", factor=factor, **turn)
    return louder(make("ntk_by_parts", factor=factor, **turn), amplitude)


def _longrope(rope: Fields, factor: float, length: int, turn: dict[str, Any]) -> Encoding:
    """LongRoPE, with one temperature, or of Phi-3.5-MoE with one for each list."""
    lists = {"short": rope.need("short_factor"), "long": rope.need("long_factor")}
    plain = make("longrope", factor=1.0, **lists, **turn)
    if rope.get("short_mscale") or rope.get("long_mscale"):
        scales = rope.need("short_mscale"), rope.need("long_mscale")
        return rotary_parts.louder_by_length(plain, *scales, length)
    temperature = math.sqrt(1 + math.log(max(factor, 1)) / math.log(length))
    return louder(plain, rope.get("attention_factor", default=temperature))


def _dual_chunk(dual: Fields, rope: Fields, rope_type: str, turn: dict[str, Any]) -> Encoding:
    """Dual chunk attention, with YaRN's temperature of sequences past the trained length.

    transformers does not read it; this is what vLLM and SGLang compute. Both approximate it for
    speed by the fields `sparse_attention`, which change no position.
    """
    if rope_type != "default":
        raise FieldError((*rope.path, "rope_type"), f"{rope_type!r} beside {dual.path[-1]}")
    size, local = dual.need("chunk_size"), dual.need("local_size")
    if 2 * local >= size:
        reason = f"{local} is not below half of chunk_size {size}"
        raise FieldError((*dual.path, "local_size"), reason)
    trained = dual.get("original_max_position_embeddings", default=0)
    for name in ("config", "enabled", "last_q", "threshold"):
        dual.get(f"sparse_attention_{name}")
    dual.refuse_unread(re.compile(""))
    encoding = make("dual_chunk", chunk=size - local, most=size, **turn)
    return chain(encoding, rotary_parts.sharper_past(trained)) if trained else encoding


def _deepseek(encoding: Encoding, rope: Fields, rope_type: str, width: int) -> Encoding:
    """The encoding on a head's last channels; the square of YaRN's divisor multiplies the products
    of all channels.
    """
    encoding = rotary_parts.on_channels(encoding, width, last=True)
    if rope_type == "default" or not (scale := rope.get("mscale_all_dim", default=0.0)):
        return encoding
    return rotary_parts.sharper(encoding, root_temperature(rope.need("factor"), scale) ** 2)
