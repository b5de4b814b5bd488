"""Rotary models of Hugging Face: their layers' windows, bases and scalings."""

import dataclasses
import math
import re
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import make
from posenc_jax.encodings.by_layer import chunked, stepped
from posenc_jax.encodings.rotary_axes import Order
from posenc_jax.encodings.rotary_scaling import louder, root_temperature
from posenc_jax.encodings.rotation import Pairing
from posenc_jax.huggingface.fields import Fields
from posenc_jax.options import FieldError, choices_for
from posenc_jax.recipes import recorded

FULL, LOCAL, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
TYPES = "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"


class Rotary(NamedTuple):
    """What the config.json of a rotary model need not say.

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


PLAIN = "arcee", "falcon", "gemma", "granite", "llama", "olmo", "olmo2", "qwen3_moe", "seed_oss"
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
    **dict.fromkeys(("qwen2", "qwen2_moe", "qwen3"), Rotary(late=True)),
    **dict.fromkeys(
        ("qwen2_5_vl_text", "qwen2_vl_text"), Rotary(1_000_000.0, late=True, order="sections")
    ),
    "qwen3_vl_text": Rotary(500_000.0, order="interleaved"),
    "smollm3": Rotary(2_000_000.0, nope_every=4),
}


def rotary(model: Rotary, config: Fields) -> Encoding:
    """Rotary layers, with windows, chunks, and without positions where the model has such."""
    if model.around:
        window = config.number("local_attention", default=model.around) // 2 + 1
    else:
        on = config.get("use_sliding_window", default=not (model.late or model.nope_every))
        unsaid = "sliding_window" not in config.fields
        window = config.number("sliding_window", default=model.window if unsaid else 0)
        window = window if on else 0
    config.check("sliding_window_size", window)
    turns = _turning_layers(model, config)
    types = _layer_types(model, config, window, turns)
    if model.local_only and window:
        turns = [layer_type == LOCAL for layer_type in types]
    unturned = Encoding()
    if model.chunk and config.get("attn_temperature_tuning", default=True):
        floor = config.number("floor_scale", default=8192)
        unturned = stepped(config.number("attn_scale", default=0.1), floor)
    chunk = config.number("attention_chunk_size", default=model.chunk) if model.chunk else 0

    def layer(layer_type: str, turned: bool) -> Encoding:
        parts = [_turned(model, config, layer_type) if turned else unturned]
        if layer_type == LOCAL:
            parts.append(make("window", distance=window - 1))
        if layer_type == CHUNKED:
            parts.append(chunked(chunk))
        return parts[0] if len(parts) == 1 else chain(*parts)

    period = range(math.lcm(len(types), len(turns)))
    rows = [(types[n % len(types)], turns[n % len(turns)]) for n in period]
    made = {row: layer(*row) for row in dict.fromkeys(rows)}
    return made[rows[0]] if len(made) == 1 else per_layer([made[row] for row in rows])


def _turning_layers(model: Rotary, config: Fields) -> list[bool]:
    """Whether each layer turns, in one period."""
    if not model.nope_every:
        return [True]
    every = config.number("no_rope_layer_interval", default=model.nope_every)
    given = config.get("no_rope_layers") or [1] * (every - 1) + [0]
    return [bool(turned) for turned in given]


def _layer_types(model: Rotary, config: Fields, window: int, turns: list[bool]) -> list[str]:
    """What each layer sees, in one period: FULL, LOCAL or CHUNKED."""
    config.get("sliding_window_pattern")  # of EXAONE 4 the text "LLLG", beside the types
    late = config.number("max_window_layers", default=28)
    first = config.number("global_attn_every_n_layers", default=3) if model.around else 0
    given = config.need("layer_types") if window and model.nope_every else config.get("layer_types")
    for n, found in enumerate(given or ()):
        known = [FULL, *([LOCAL] if window else []), *([CHUNKED] if model.chunk else [])]
        if found not in known:
            raise FieldError(("layer_types", n), f"{found!r}{choices_for(found, known)}")
    if given:
        return list(given)
    if model.chunk:
        return [CHUNKED if turned else FULL for turned in turns]
    if model.around:
        return [FULL] + [LOCAL] * (first - 1)
    if not window:
        return [FULL]
    if model.late:
        return [LOCAL if n >= late else FULL for n in range(config.number("num_hidden_layers"))]
    every = config.number("sliding_window_pattern", default=model.every)
    return [LOCAL] * (every - 1) + [FULL] if every else [LOCAL]


def _turned(model: Rotary, config: Fields, layer_type: str) -> Encoding:
    """The rotary part of the layers of one type."""
    base, local = config.get("rope_theta", "rotary_emb_base", default=model.base), False
    if model.local_base is not None:
        base = config.get("global_rope_theta", "rope_theta", default=model.base)
        own = config.get("local_rope_theta", "rope_local_base_freq", default=model.local_base)
        local = layer_type == LOCAL
        base = own if local else base
    rope = _parameters(config, layer_type, scaled=not local)
    if rope is None:
        return Encoding()
    if (base := rope.get("rope_theta", default=base)) is None:
        raise FieldError("rope_parameters", "is missing; this model's positions need it")
    rope_type = str(rope.get("rope_type", "type", default="default"))
    rope_type = {"su": "longrope", "mrope": "default"}.get(rope_type, rope_type)
    if rope_type not in TYPES:
        raise FieldError((*rope.path, "rope_type"), f"{rope_type!r}{choices_for(rope_type, TYPES)}")
    share, name = 1.0, "partial_rotary_factor"
    if model.share is not None or rope_type == "proportional":
        share = config.number(name, "rotary_pct", "rope_pct", default=model.share or 1.0)
        share = rope.number(name, default=share)
    config.check(name, 1, share)
    rope.check(name, 1, share)
    last = model.channels == "qk_rope_head_dim"
    pairing = "half" if last and config.get("rope_interleave") is False else model.pairing
    turn = {"base": base, "pairing": pairing}
    if rope_type == "proportional":
        encoding, share = make("p_rope", share=share, **turn), 1.0
        rope.check("factor", 1)
    elif model.order is not None and rope_type == "default":
        rope.get("mrope_interleaved")
        encoding = make("mrope", sections=rope.need("mrope_section"), order=model.order, **turn)
    else:
        encoding = _scaled(rope, config, rope_type, turn)
    width = config.number(model.channels) if model.channels else 0
    if last:
        encoding = _deepseek(encoding, rope, rope_type, width)
    elif width:
        encoding = on_channels(encoding, width)
    elif share < 1:
        encoding = on_channels(encoding, share)
    rope.refuse_unread(re.compile(""))
    return encoding


def _parameters(config: Fields, layer_type: str, scaled: bool) -> Fields | None:
    """The dictionary of one layer type, or None if it has no positions."""
    name = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    given = config.get("rope_scaling", "rope_parameters", default={})
    if not {FULL, LOCAL, CHUNKED} & set(given):
        return Fields(given if scaled else {}, name)
    if layer_type not in given:
        raise FieldError((name, layer_type), "is missing; the model has such layers")
    nested = given[layer_type]
    return None if nested is None else Fields(nested, name, layer_type)


def _scaled(rope: Fields, config: Fields, rope_type: str, turn: dict[str, Any]) -> Encoding:
    """Rope in one of Hugging Face's scalings of it."""
    if rope_type == "default":
        return make("rope", **turn)
    if rope_type == "linear":
        return make("pi", factor=rope.need("factor"), **turn)
    most, name = config.get("max_position_embeddings"), "original_max_position_embeddings"
    if rope_type == "dynamic":
        most = config.need("max_position_embeddings")
        return make("dynamic_ntk", length=most, alpha=rope.need("factor"), **turn)
    length = config.get(name) or rope.get(name) or config.need("max_position_embeddings")
    turn |= {"length": length}
    if rope_type == "llama3":
        low, high = rope.need("low_freq_factor"), rope.need("high_freq_factor")
        return make("llama3", factor=rope.need("factor"), low=low, high=high, **turn)
    factor = rope.number("factor", default=(most or length) / length)
    if rope_type == "longrope":
        lists = {"short": rope.need("short_factor"), "long": rope.need("long_factor")}
        plain = make("longrope", factor=1.0, **lists, **turn)
        temperature = math.sqrt(1 + math.log(max(factor, 1)) / math.log(length))
    else:
        beta = {"beta_fast": rope.number("beta_fast", default=32)}
        beta["beta_slow"] = rope.number("beta_slow", default=1)
        ramp = "pairs_truncated" if rope.get("truncate", default=True) else "pairs"
        plain = make("ntk_by_parts", factor=factor, ramp=ramp, **beta, **turn)
        scales = rope.number("mscale", default=0), rope.number("mscale_all_dim", default=0)
        temperature = root_temperature(factor, *(scales if all(scales) else ()))
    return louder(plain, rope.number("attention_factor", default=temperature))


def _deepseek(encoding: Encoding, rope: Fields, rope_type: str, width: int) -> Encoding:
    """On a head's last channels; YaRN's divisor, squared, multiplies products of all channels."""
    encoding = on_channels(encoding, width, last=True)
    if rope_type == "default" or not (scale := rope.number("mscale_all_dim", default=0)):
        return encoding
    return sharper(encoding, root_temperature(rope.number("factor"), scale) ** 2)


@recorded
def sharper(encoding: Encoding, factor: float) -> Encoding:
    """The encoding, and the products of queries and keys multiplied by the factor."""
    return encoding._replace(temper=lambda *_: jnp.full((1, 1, 1), factor))


@recorded
def on_channels(encoding: Encoding, channels: float, last: bool = False) -> Encoding:
    """The rotary encoding on some channels of a head, the first ones or the last ones.

    channels: a whole number of them, or a share of the head's as a float.
    """
    table, rotate = encoding.table, encoding.rotate
    assert table is not None
    assert rotate is not None

    def cut(head: int) -> slice:
        width = channels if isinstance(channels, int) else int(head * channels)
        return slice(head - width, head) if last else slice(0, width)

    narrow = lambda dims: dataclasses.replace(dims, head=len(range(dims.head)[cut(dims.head)]))

    def on_some(made, x_BTHC, side):
        part = cut(x_BTHC.shape[-1])
        turned = rotate(made, x_BTHC[..., part], side)
        ends = x_BTHC[..., : part.start], x_BTHC[..., part.stop :]
        return jnp.concatenate([ends[0], turned, ends[1]], axis=-1)

    return encoding._replace(
        init=lambda key, dims: encoding.init(key, narrow(dims)),
        table=lambda params, placed, dims: table(params, placed, narrow(dims)),
        rotate=on_some,
    )
