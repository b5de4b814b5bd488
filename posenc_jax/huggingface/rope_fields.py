"""The options of rope in a config.json: in `rope_scaling`, `rope_parameters`, or lists by layer."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from posenc_jax.huggingface.fields import SHARES, Fields, Several
from posenc_jax.options import FieldError, shown, typed

FULL, LOCAL, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def rope_dictionary(config: Fields) -> tuple[str, Mapping[str, Any]]:
    """The name and the content of the field with the options of rope.

    FieldError: a file with both names, of which transformers reads the older one alone.
    """
    older, newer = (config.get(name, default={}) for name in ("rope_scaling", "rope_parameters"))
    if older and newer:
        reason = "is given beside rope_parameters; give all in one of them, and null for the other"
        raise FieldError((*config.path, "rope_scaling"), reason)
    return ("rope_scaling", older) if older else ("rope_parameters", newer)


def unscaled_base(config: Fields, default: float, *types: str, reads: Sequence[str] = ()) -> float:
    """The base of rope of a model that has no scalings of it.

    types: the values of `rope_type` that say so.
    reads: further fields that the model reads beside the base.

    FieldError: another `rope_type`, or another field.
    """
    rope = config.inside(rope_dictionary(config)[0])
    for name in ("rope_type", "type"):
        rope.check(name, *types)
    rope.read.update(reads)
    base = rope.get("rope_theta", default=config.get("rope_theta", default=default))
    rope.refuse_unread(re.compile(""))
    return base


def from_lists(config: Fields) -> Fields:
    """The fields with `rope_parameters` by type of layer in place of a number for all layers, or
    of lists with one for each. `rope_scaling` beside them is of layers without a window.
    """
    names = {"rope_theta": "rope_theta", "partial_rotary_factors": SHARES[0]}
    lists = {n: x for n in names if (x := config.fields.get(n)) is not None}
    if not lists or config.fields.get("rope_parameters"):
        return config
    types = config.get("layer_types") or (FULL,)
    by_type: dict[str, dict[str, Any]] = {layer_type: {} for layer_type in types}
    for name, value in lists.items():
        path = *config.path, name
        value = value if isinstance(value, list | tuple) else [value] * len(types)
        numbers = typed(path, Several, value)
        if len(numbers) < len(types):
            reason = f"has {len(numbers)} numbers; layer_types has {len(types)} layers"
            raise FieldError(path, reason)
        for layer_type, number in zip(types, numbers, strict=False):  # more are of other heads
            if (first := by_type[layer_type].setdefault(names[name], number)) != number:
                reason = f"layers of type {shown(layer_type)} have {first} and {number}"
                raise FieldError(path, reason)
    if FULL in by_type:
        by_type[FULL] |= config.get("rope_scaling", default={})
    config.read.update((*lists, "rope_scaling"))
    others = {n: x for n, x in config.fields.items() if n not in (*lists, "rope_scaling")}
    result = Fields({**others, "rope_parameters": by_type}, *config.path)
    result.read, result.places = config.read, config.places
    return result
