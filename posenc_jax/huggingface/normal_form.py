"""The normal form of an encoding: what each layer does, in numbers where it is rotary.

Encodings that are made in different ways and compute the same, such as `make("yarn")` and the
encoding that a config of YaRN is read as, have the same normal form.
"""

import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from posenc_jax.encoding import Encoding

BY_LAYER = "irope", "local_global", "olmo3", "gpt_oss"  # methods that are `per_layer` of others
SCALINGS = "pi", "ntk", "ntk_by_parts"  # that are rope where their factor is 1
TURNING = "rope", *SCALINGS, "dynamic_ntk", "p_rope", "mhrope", "dual_chunk"
CLOSE = 1e-12  # relative error of numbers that a config has in another form


class Rotation(NamedTuple):
    """How queries and keys turn.

    method, options: of the catalogue; the options without those below.
    amplitude: of queries and of keys.
    by_length: (short, long, length): further amplitudes, up to a length of sequences and past it.
    channels:  that turn, a number or a share of a head's; `last`: its last ones; None: all.
    sections, order: pairs for each axis, as of `mrope`.
    sharper:   what products of all channels are multiplied by.
    change:    the function of `rotary_parts` that changed it further.
    """

    method: str
    base: float
    pairing: str
    options: tuple[tuple[str, Any], ...]
    amplitude: float = 1.0
    by_length: tuple[float, ...] = ()
    channels: float | None = None
    last: bool = False
    sections: tuple[int, ...] | None = None
    order: str | None = None
    sharper: float = 1.0
    change: str = ""


class Layer(NamedTuple):
    """What a layer does.

    window:   tokens that are seen, the query's own included; 0: all.
    by_order: the window counts tokens by their order, not by positions.
    chunk:    positions of a chunk; 0: no chunks.
    steps:    (temperature, floor, ahead) of `stepped`.
    sharper_past: the length of `sharper_past`; 0: none.
    attends:  whether the layer has attention.
    others:   parts that the fields above do not say.
    """

    rotation: Rotation | None = None
    window: int = 0
    by_order: bool = False
    chunk: int = 0
    steps: tuple[float, int, int] | None = None
    sharper_past: int = 0
    attends: bool = True
    others: tuple[Encoding, ...] = ()


def parts_of(encoding: Encoding) -> list[Encoding]:
    """The parts of a chain, and of chains in it, without those that do nothing."""
    if encoding.name == "chain":
        return [part for inner in encoding.options["parts"] for part in parts_of(inner)]
    return [] if encoding.name == "nope" or encoding == Encoding() else [encoding]


def layers_of(encoding: Encoding, count: int | None = None) -> list[Layer]:
    """What each layer does, for `count` layers; None: for one period of layers."""
    by_part = [_parts_by_layer(part) for part in parts_of(encoding)]
    rows = range(count or math.lcm(1, *map(len, by_part)))
    return [_layer([part for layers in by_part for part in layers[n % len(layers)]]) for n in rows]


def close(a: Any, b: Any) -> bool:
    """Whether normal forms, or parts of them, are equal; floats to 1e-12."""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) or isinstance(b, float):
        if not (isinstance(a, int | float) and isinstance(b, int | float)):
            return False
        return math.isclose(a, b, rel_tol=CLOSE)
    return a == b


def _parts_by_layer(part: Encoding) -> list[list[Encoding]]:
    if part.name in BY_LAYER:
        part = _expanded(part)
    if part.name == "per_layer":
        return [parts_of(layer) for layer in part.options["parts"]]
    return [[part]]


def _expanded(encoding: Encoding) -> Encoding:
    """The encoding as its method makes it of others."""
    assert encoding.recipe is not None
    return inspect.unwrap(encoding.recipe.function)(**encoding.options)


def _layer(parts: Sequence[Encoding]) -> Layer:
    layer = Layer()
    for part in parts:
        said = _said(part)
        again = any(getattr(layer, field) != Layer._field_defaults[field] for field in said)
        layer = layer._replace(
            **(said if said and not again else {"others": (*layer.others, part)})
        )
    return layer


def _said(part: Encoding) -> dict[str, Any]:
    """What a part says, as fields of `Layer`; none if they do not say it."""
    options = part.options
    if part.name == "without_attention":
        return {"attends": False}
    if part.name == "nearer":
        return {"window": options["window"]}
    if part.name == "window" and (options["first"], options["ahead"]) == (0, None):
        return {"window": options["distance"] + 1}
    if part.name == "by_order":
        said = _said(options["encoding"])
        return said | {"by_order": True} if "window" in said else {}
    if part.name == "chunked":
        return {"chunk": options["chunk"]}
    if part.name == "stepped":
        return {"steps": tuple(options[name] for name in ("temperature", "floor", "ahead"))}
    if part.name == "sharper_past":
        return {"sharper_past": options["length"]}
    rotation = rotation_of(part)
    return {"rotation": rotation} if rotation else {}


def rotation_of(encoding: Encoding) -> Rotation | None:
    """How a rotary encoding turns; None if it is another one."""
    options = dict(encoding.options)
    inner = options.pop("encoding", None)
    if isinstance(inner, Encoding):
        rotation = rotation_of(inner)
        return _changed(rotation, encoding.name, options) if rotation else None
    if encoding.name == "yarn":
        return rotation_of(_expanded(encoding))
    if encoding.name not in (*TURNING, "llama3", "longrope", "partial", "mrope"):
        return None
    base, pairing = options.pop("base"), options.pop("pairing")
    method = encoding.name
    more: dict[str, Any] = {}
    if method == "llama3":
        method = "ntk_by_parts"
        fast, slow = options.pop("high"), options.pop("low")
        options |= {"beta_fast": fast, "beta_slow": slow, "ramp": "turns"}
    if method == "longrope":
        factor, length = options.pop("factor"), options["length"]
        more = {"amplitude": math.sqrt(1 + math.log(factor) / math.log(length))}
    if method == "partial":
        more = {"channels": options.pop("share")}
    if method == "mrope":
        more = {"sections": options.pop("sections"), "order": options.pop("order")}
    if method in ("partial", "mrope") or (method in SCALINGS and options["factor"] == 1):
        method, options = "rope", {"values": False}
    return Rotation(method, base, pairing, tuple(sorted(options.items())), **more)


def _changed(rotation: Rotation, name: str, options: dict[str, Any]) -> Rotation | None:
    """The rotation after a function of `rotary_parts`, or `louder`, has changed it."""
    if name == "louder":
        return rotation._replace(amplitude=rotation.amplitude * options["amplitude"])
    if name == "louder_by_length":
        return rotation._replace(by_length=(options["short"], options["long"], options["length"]))
    if name == "on_channels":
        return rotation._replace(**options)
    if name == "by_sections":
        return rotation._replace(**options)
    if name == "sharper":
        return rotation._replace(sharper=options["factor"])
    if name in ("backwards", "values_too", "on_first_head"):
        return rotation._replace(change=name)
    return None


def same(a: Encoding, b: Encoding, count: int | None = None) -> bool:
    """Whether two encodings have the same normal form, in `count` layers; None: in all layers."""
    if count is None:
        count = math.lcm(len(layers_of(a)), len(layers_of(b)))
    return close(layers_of(a, count), layers_of(b, count))
