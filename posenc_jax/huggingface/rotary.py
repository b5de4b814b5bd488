"""Rotary models of Hugging Face: the windows, bases and scalings of their layers."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import by_order, chain, per_layer
from posenc_jax.encoding import Dims, Encoding
from posenc_jax.encodings import make
from posenc_jax.encodings.by_layer import chunked, stepped
from posenc_jax.encodings.rotary_axes import Order
from posenc_jax.encodings.rotary_scaling import louder, root_temperature
from posenc_jax.encodings.rotation import Pairing
from posenc_jax.huggingface.fields import HEAD, HEADS, SHARES, WIDTH, Fields
from posenc_jax.options import FieldError, choices_for, shown
from posenc_jax.recipes import recorded

FULL, LOCAL, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
TYPES = "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"
OLDER_TYPES = {"su": "longrope", "mrope": "default"}
MOST_LAYERS = 4096


class Rotary(NamedTuple):
    """Properties of a rotary model that its config.json need not state.

    base:       of rope; None: it must be said.
    local_base: that of layers with a window, where those are never scaled.
    pairing:    pairs of channels, as in `rope`.
    share:      of a head's channels that turn; None: always all.
    window:     tokens that layers with a window see, the query's own included; 0: none has one.
    every:      the last of so many layers has no window; 0: all layers are alike.
    late:       layers from `max_window_layers` on have the window, if it is switched on.
    nope_every: the last of so many layers does not turn; 0: all do.
    local_only: where layers have windows, those without do not turn.
    around:     tokens of a window with the query in its middle; every layer but each third has it.
    chunk:      positions of a chunk, in layers that turn; 0: no chunks.
    channels:   the field that says how many channels turn: the first, or of DeepSeek the last.
    order:      of M-RoPE's sections.
    dual_chunk: the model may have dual chunk attention.
    """

    base: float | None = 10_000.0
    local_base: float | None = None
    pairing: Pairing = "half"
    share: float | None = None
    window: int = 0
    every: int = 0
    late: bool = False
    nope_every: int = 0
    local_only: bool = False
    around: int = 0
    chunk: int = 0
    channels: Literal["", "rotary_dim", "qk_rope_head_dim"] = ""
    order: Order | None = None
    dual_chunk: bool = False


PLAIN = "arcee", "falcon", "gemma", "granite", "llama", "olmo", "olmo2", "seed_oss"
ROTARY = {
    **dict.fromkeys((*PLAIN, "starcoder2"), Rotary()),
    **dict.fromkeys(("codegen", "gptj"), Rotary(pairing="interleaved", channels="rotary_dim")),
    "cohere": Rotary(500_000.0, pairing="interleaved"),
    "cohere2": Rotary(pairing="interleaved", window=4096, every=4, local_only=True),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3"), Rotary(pairing="interleaved", channels="qk_rope_head_dim")
    ),
    "exaone4": Rotary(window=4096, every=4, local_only=True),
    "gemma2": Rotary(window=4096, every=2),
    "gemma3_text": Rotary(1_000_000.0, 10_000.0, window=4096, every=6),
    "gemma4_text": Rotary(None, window=512, every=6),
    **dict.fromkeys(("glm", "glm4"), Rotary(pairing="interleaved", share=0.5)),
    **dict.fromkeys(("gpt_neox", "stablelm"), Rotary(share=0.25)),
    "gpt_oss": Rotary(None, window=128, every=2),
    "helium": Rotary(100_000.0, pairing="interleaved"),
    "llama4_text": Rotary(500_000.0, pairing="interleaved", nope_every=4, chunk=8192),
    **dict.fromkeys(("ministral", "mistral"), Rotary(window=4096)),
    "mixtral": Rotary(1_000_000.0),
    "modernbert": Rotary(160_000.0, 10_000.0, around=128),
    **dict.fromkeys(("nemotron", "persimmon", "phi"), Rotary(share=0.5)),
    "olmo3": Rotary(500_000.0, 500_000.0, window=4096, every=4),
    "phi3": Rotary(share=1.0),
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3"), Rotary(late=True, dual_chunk=True)),
    **dict.fromkeys(
        ("qwen2_5_vl_text", "qwen2_vl_text"), Rotary(1_000_000.0, late=True, order="sections")
    ),
    "qwen3_moe": Rotary(dual_chunk=True),
    "qwen3_vl_text": Rotary(500_000.0, order="interleaved"),
    "smollm3": Rotary(2_000_000.0, nope_every=4),
}


def rotary(model: Rotary, config: Fields) -> Encoding:
    """The encoding of a rotary model, with windows, chunks and layers without positions where it
    has them.
    """
    neighbours = model.pairing == "interleaved"
    config.check("position_embedding_type", "absolute", *(["rope_gptj"] if neighbours else []))
    if model.channels == "rotary_dim":
        config.check("rotary", True)
    if model.around:
        window = config.get("local_attention", default=model.around) // 2 + 1
    else:
        on = config.get("use_sliding_window", default=not (model.late or model.nope_every))
        unsaid = "sliding_window" not in config.fields
        window = config.get("sliding_window", default=model.window if unsaid else 0)
        window = window if on else 0
    config.check("sliding_window_size", window)
    turns = _turning_layers(model, config)
    types = _layer_types(model, config, window, turns)
    if model.local_only and window:
        turns = [layer_type == LOCAL for layer_type in types]
    unturned = Encoding()
    if model.chunk and config.get("attn_temperature_tuning", default=True):
        floor = config.get("floor_scale", default=8192)
        unturned = stepped(config.get("attn_scale", default=0.1), floor)
    chunk = config.get("attention_chunk_size", default=model.chunk) if model.chunk else 0

    def layer(layer_type: str, turned: bool) -> Encoding:
        parts = [_turned(model, config, layer_type) if turned else unturned]
        if layer_type == LOCAL:
            near = make("window", distance=window - 1)
            parts.append(near if model.order is None else by_order(near))
        if layer_type == CHUNKED:
            parts.append(chunked(chunk))
        return parts[0] if len(parts) == 1 else chain(*parts)

    if (period := math.lcm(len(types), len(turns))) > MOST_LAYERS:
        reason = f"{len(types)} types and {len(turns)} layers that turn or not give {period} layers"
        raise FieldError((*config.path, "layer_types"), reason)
    rows = [(types[n % len(types)], turns[n % len(turns)]) for n in range(period)]
    by_row = {row: layer(*row) for row in dict.fromkeys(rows)}
    return by_row[rows[0]] if len(by_row) == 1 else per_layer([by_row[row] for row in rows])


def rope_dictionary(config: Fields) -> tuple[str, Mapping[str, Any]]:
    """The name and the content of the field with the options of rope.

    FieldError: a file with both names, of which transformers reads the older one alone.
    """
    older, newer = (config.get(name, default={}) for name in ("rope_scaling", "rope_parameters"))
    if older and newer:
        reason = "is given beside rope_parameters; give all in one of them, and null for the other"
        raise FieldError((*config.path, "rope_scaling"), reason)
    return ("rope_scaling", older) if older else ("rope_parameters", newer)


def _turning_layers(model: Rotary, config: Fields) -> list[bool]:
    """Whether each layer turns, for one period of layers."""
    if not model.nope_every:
        return [True]
    every = config.get("no_rope_layer_interval", default=model.nope_every)
    turns = config.get("no_rope_layers") or [1] * (every - 1) + [0]
    return [bool(turned) for turned in turns]


def _layer_types(model: Rotary, config: Fields, window: int, turns: list[bool]) -> list[str]:
    """The type of each layer, for one period of layers: FULL, LOCAL or CHUNKED."""
    pattern = config.get("sliding_window_pattern", default=model.every)
    late = config.get("max_window_layers", default=28)
    first = config.get("global_attn_every_n_layers", default=3) if model.around else 0
    listed = (
        config.need("layer_types") if window and model.nope_every else config.get("layer_types")
    )
    for n, layer_type in enumerate(listed or ()):
        allowed = [FULL, *([LOCAL] if window else []), *([CHUNKED] if model.chunk else [])]
        if layer_type not in allowed:
            reason = f"{shown(layer_type)}{choices_for(layer_type, allowed)}"
            raise FieldError((*config.path, "layer_types", n), reason)
    if listed:
        return list(listed)
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


def _turned(model: Rotary, config: Fields, layer_type: str) -> Encoding:
    """The rotary part of the layers of type `layer_type`."""
    base, local = config.get("rope_theta", "rotary_emb_base", default=model.base), False
    if model.local_base is not None:
        base = config.get("global_rope_theta", "rope_theta", default=model.base)
        local_base = config.get(
            "local_rope_theta", "rope_local_base_freq", default=model.local_base
        )
        local = layer_type == LOCAL
        base = local_base if local else base
    rope = _parameters(config, layer_type, scaled=not local)
    if rope is None:
        return Encoding()
    if (base := rope.get("rope_theta", default=base)) is None:
        reason = "is missing; the model needs it"
        raise FieldError((*config.path, "rope_parameters"), reason)
    rope_type: str = rope.get("rope_type", "type", default="default")
    rope_type = OLDER_TYPES.get(rope_type, rope_type)
    if rope_type not in TYPES:
        reason = f"{shown(rope_type)}{choices_for(rope_type, TYPES)}"
        raise FieldError((*rope.path, "rope_type"), reason)
    share = 1.0
    if model.share is not None or rope_type == "proportional":
        share = config.get(*SHARES, default=model.share or 1.0)
        share = rope.get(SHARES[0], default=share)
    for name in SHARES:
        config.check(name, 1, share)
    rope.check(SHARES[0], 1, share)
    last = model.channels == "qk_rope_head_dim"
    pairing = "half" if last and config.get("rope_interleave") is False else model.pairing
    turn = {"base": base, "pairing": pairing}
    width = config.need(model.channels) if model.channels else 0
    head = width or _head(config)
    if rope_type == "proportional":
        encoding, share = make("p_rope", share=share, **turn), 1.0
        rope.check("factor", 1)
    elif model.order is not None and rope_type == "default":
        rope.get("mrope_interleaved")
        encoding = make("mrope", sections=rope.need("mrope_section"), order=model.order, **turn)
    elif model.dual_chunk and config.get("dual_chunk_attention_config"):
        encoding = _dual_chunk(config.inside("dual_chunk_attention_config"), rope, rope_type, turn)
    else:
        encoding = _scaled(rope, config, rope_type, turn)
    if head:  # refuses a width that does not pair, and lists of another length
        any_key: Any = np.zeros(2, np.uint32)  # none of these methods draws parameters
        encoding.init(any_key, Dims(head, 1, int(head * share) or 1))
    if last:
        encoding = _deepseek(encoding, rope, rope_type, width)
    elif width:
        encoding = on_channels(encoding, width)
    elif share < 1:
        encoding = on_channels(encoding, share)
    rope.refuse_unread(re.compile(""))
    return encoding


def _head(config: Fields) -> int | None:
    """The channels of a head, or None if the config does not state them."""
    width, heads = config.get(*WIDTH), config.get(*HEADS)
    return config.get(*HEAD) or (width // heads if width and heads else None)


def _parameters(config: Fields, layer_type: str, scaled: bool) -> Fields | None:
    """The dictionary of one layer type; None if such layers have no positions."""
    name, dictionary = rope_dictionary(config)
    if not {FULL, LOCAL, CHUNKED} & set(dictionary):
        return config.inside(name, empty=not scaled)
    if layer_type not in dictionary:
        raise FieldError((*config.path, name, layer_type), "is missing; the model has such layers")
    return None if dictionary[layer_type] is None else config.inside(name, layer_type)


def _scaled(rope: Fields, config: Fields, rope_type: str, turn: dict[str, Any]) -> Encoding:
    """Rope with one of Hugging Face's scalings."""
    if rope_type == "default":
        return make("rope", **turn)
    if rope_type == "linear":
        return make("pi", factor=rope.need("factor"), **turn)
    if rope_type == "dynamic":
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
        lists = {"short": rope.need("short_factor"), "long": rope.need("long_factor")}
        plain = make("longrope", factor=1.0, **lists, **turn)
        temperature = math.sqrt(1 + math.log(max(factor, 1)) / math.log(length))
    else:
        rope.get("finetuned")  # the authors' code reads it for the type "dynamic-yarn" alone
        beta = {"beta_fast": rope.get("beta_fast") or 32.0}
        beta["beta_slow"] = rope.get("beta_slow") or 1.0
        ramp = "pairs_truncated" if rope.get("truncate", default=True) else "pairs"
        plain = make("ntk_by_parts", factor=factor, ramp=ramp, **beta, **turn)
        scales = rope.get("mscale", default=0.0), rope.get("mscale_all_dim", default=0.0)
        temperature = root_temperature(factor, *(scales if all(scales) else ()))
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
    return chain(encoding, sharper_past(trained)) if trained else encoding


@recorded
def sharper_past(length: int) -> Encoding:
    """Multiplies logits by (1 + 0.1 ln max(1, n / length))^2 in a sequence of n tokens."""

    def temper(params, count, length_BQ, dims):
        stretch_BQ = jnp.maximum(length_BQ.astype(float) / length, 1)
        return jnp.square(1 + 0.1 * jnp.log(stretch_BQ))[..., None]

    return Encoding(place=lambda key, layout: layout.length_BT, temper=temper)


def _deepseek(encoding: Encoding, rope: Fields, rope_type: str, width: int) -> Encoding:
    """The encoding on a head's last channels; the square of YaRN's divisor multiplies the products
    of all channels.
    """
    encoding = on_channels(encoding, width, last=True)
    if rope_type == "default" or not (scale := rope.get("mscale_all_dim", default=0.0)):
        return encoding
    return sharper(encoding, root_temperature(rope.need("factor"), scale) ** 2)


@recorded
def sharper(encoding: Encoding, factor: float) -> Encoding:
    """The encoding with the products of queries and keys multiplied by the factor."""
    return encoding._replace(temper=lambda *_: jnp.full((1, 1, 1), factor))


@recorded
def on_channels(encoding: Encoding, channels: float, last: bool = False) -> Encoding:
    """The rotary encoding on the first, or the last, channels of a head.

    channels: a whole number of them, or a share of the head's as a float.
    """
    table, rotate = encoding.table, encoding.rotate
    assert table is not None
    assert rotate is not None

    def cut(head: int) -> slice:
        width = channels if isinstance(channels, int) else int(head * channels)
        return slice(head - width, head) if last else slice(0, width)

    narrow = lambda dims: dataclasses.replace(dims, head=len(range(dims.head)[cut(dims.head)]))

    def turn_part(factors, x_BTHC, side):
        part = cut(x_BTHC.shape[-1])
        turned = rotate(factors, x_BTHC[..., part], side)
        ends = x_BTHC[..., : part.start], x_BTHC[..., part.stop :]
        return jnp.concatenate([ends[0], turned, ends[1]], axis=-1)

    return encoding._replace(
        init=lambda key, dims: encoding.init(key, narrow(dims)),
        table=lambda params, placed, dims: table(params, placed, narrow(dims)),
        rotate=turn_part,
    )
