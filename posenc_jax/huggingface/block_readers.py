"""Models whose queries read some keys that stand for blocks of tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

from posenc_jax.combinators import per_layer
from posenc_jax.encoding import Encoding
from posenc_jax.huggingface.fields import POSITIONAL, SHARES, Fields
from posenc_jax.huggingface.rope_fields import LOCAL, rope_dictionary
from posenc_jax.huggingface.rotary import Rotary, rotary
from posenc_jax.huggingface.rotary_parts import without_attention
from posenc_jax.huggingface.rows import Parts, Reader
from posenc_jax.options import FieldError, choices_for, shown

# DeepSeek-V4's types of layers: by the tokens of a block, 0 in a layer without blocks.
SPARSE, HEAVY = "compressed_sparse_attention", "heavily_compressed_attention"
TYPES_BY_RATIO = {0: LOCAL, 4: SPARSE, 128: HEAVY}
# A head is key and value at once: its last channels turn, and those of the output turn back.
TURN = Rotary(pairing="interleaved", share=64 / 512, last=True, change="values and back")


def _deepseek_v4_tokens(config: Fields) -> Encoding:
    """Queries and the tokens of a window."""
    main, compress = _rope_by_kind(config)
    near = {
        layer_type: rotary(
            TURN._replace(window=128), _with_rope(config, main if layer_type == LOCAL else compress)
        )
        for layer_type in (LOCAL, HEAVY)
    }
    encoding = _by_layer(config, near[LOCAL], near[HEAVY])
    config.refuse_unread(POSITIONAL)
    return encoding


def _deepseek_v4_blocks(config: Fields) -> Encoding:
    """Queries and the keys of blocks, each at the position of the block's first token."""
    _, compress = _rope_by_kind(config)
    return _by_layer(config, without_attention(), rotary(TURN, _with_rope(config, compress)))


def _by_layer(config: Fields, local: Encoding, blocks: Encoding) -> Encoding:
    """The encoding of layers without blocks, and of those that have them."""
    layers = [local if layer_type == LOCAL else blocks for layer_type in _layer_types(config)]
    return layers[0] if len({*layers}) == 1 else per_layer(layers)


def _layer_types(config: Fields) -> Sequence[str]:
    """The type of each layer. An older file has the tokens of a block instead, and for more layers
    than the model has.
    """
    count = config.get("num_hidden_layers")
    types_by_name = {
        "layer_types": {layer_type: layer_type for layer_type in TYPES_BY_RATIO.values()},
        "compress_ratios": TYPES_BY_RATIO,
    }
    for name, types in types_by_name.items():
        if (listed := config.get(name)) is None:
            continue
        if len(listed) < (count or 1):
            reason = f"has {len(listed)} layers; num_hidden_layers is {count or 1}"
            raise FieldError((*config.path, name), reason)
        for n, layer in enumerate(listed[:count]):
            if layer not in types:
                choices = choices_for(str(layer), [str(choice) for choice in types])
                raise FieldError((*config.path, name, n), f"{shown(layer)}{choices}")
        return [types[layer] for layer in listed[:count]]
    count = count or 43
    return [HEAVY] * min(count, 2) + [(HEAVY, SPARSE)[n % 2] for n in range(count - 2)]


def _rope_by_kind(config: Fields) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """`rope_parameters` of layers without blocks, and of those that have them.

    A file may have one dictionary, which is of layers with blocks; YaRN then leaves lengths of
    vectors as they are. Where it has both, nothing else is read.
    """
    name, dictionary = rope_dictionary(config)
    kinds = "main", "compress"
    base, compress_base = config.get("rope_theta"), config.get("compress_rope_theta")
    head = config.get("head_dim", default=512)
    width = config.get("qk_rope_head_dim", default=64 * head / 512)
    share = {SHARES[0]: config.get(SHARES[0], default=width / head)}
    if all(isinstance(dictionary.get(kind), Mapping) for kind in kinds):
        main, compress = (config.inside(name, kind) for kind in kinds)
        for rope in (main, compress):
            rope.need("rope_theta")
        return {SHARES[0]: 1.0, **main.fields}, {SHARES[0]: 1.0, **compress.fields}
    main = {"rope_theta": base or 10_000.0, **share}
    compress = {n: value for n, value in dictionary.items() if n not in kinds}
    compress |= {"rope_theta": compress_base or 160_000.0, **share}
    if "yarn" in (compress.get("rope_type"), compress.get("type")):
        compress.setdefault("attention_factor", 1.0)
    return main, compress


def _with_rope(config: Fields, rope: Mapping[str, Any]) -> Fields:
    """The fields of a model whose layers all have this rope."""
    name, _ = rope_dictionary(config)
    others = {n: x for n, x in config.fields.items() if n not in ("layer_types", *SHARES)}
    head = {"head_dim": config.get("head_dim", default=512)}
    fields = Fields({**others, **head, name: rope}, *config.path)
    fields.read, fields.places = config.read, config.places
    return fields


DEEPSEEK_V4 = Parts(
    {}, own={"tokens": Reader(_deepseek_v4_tokens), "blocks": Reader(_deepseek_v4_blocks)}
)
