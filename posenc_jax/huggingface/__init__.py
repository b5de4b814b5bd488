"""The positional encoding of a released model, read from its config.json."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding, place
from posenc_jax.encodings import make
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.rotary import ROTARY, rotary
from posenc_jax.options import FieldError, choices_for, shown
from posenc_jax.recipes import recorded

__all__ = ["from_huggingface"]


def from_huggingface(config: Mapping[str, Any]) -> Encoding:
    """The positional encoding of a model of Hugging Face's transformers, from its config.json.

    Files of transformers 5 and older ones are read. What is not positions stays with the model:
    norms of queries and keys, sinks, caps, other scales of logits.

    Heads are the model's own: of DeepSeek's the last `qk_rope_head_dim` channels turn. Learned
    tables have the rows of the model's weights. T5 is read as its encoder, and as its decoder if
    `is_decoder` is true. Of a model with images or sound, its `text_config` is read.

    Args:
      config: the file as a dictionary.

    FieldError: a model_type, a rope_type, or a field of positions that is not known, is missing or
    has a wrong value.

    Example:
      encoding = posenc_jax.from_huggingface(json.loads(Path("config.json").read_text()))
    """
    fields = Fields(config)
    kind = fields.get("model_type", default="None")
    if fields.get("text_config") is not None:
        fields = fields.inside("text_config")
        kind = fields.get("model_type", default=kind)
    if (language := f"{kind}_text") in READERS:
        kind = language
    if kind not in READERS:
        reason = f"{shown(kind)} is not known{choices_for(kind, READERS)}"
        raise FieldError((*fields.path, "model_type"), reason)
    with fields.named():
        encoding = READERS[kind](fields)
    if "position_embedding_type" not in fields.read:
        fields.check("position_embedding_type", "absolute")
    fields.refuse_unread(POSITIONAL)
    return encoding


def _bloom(config: Fields) -> Encoding:
    """BLOOM's ALiBi."""
    config.get("offset_alibi")  # released files have it, and transformers reads it nowhere
    return make("alibi")


def _mpt(config: Fields) -> Encoding:
    """MPT's ALiBi."""
    attention = config.inside("attn_config")
    attention.check("alibi", True)
    bias_max = attention.get("alibi_bias_max", default=8.0)  # which transformers does not read
    attention.refuse_unread(POSITIONAL)
    return make("alibi", bias_max=bias_max)


def _t5(config: Fields, shared: bool = True) -> Encoding:
    """T5's buckets, of the encoder or of the decoder."""
    buckets = config.get("relative_attention_num_buckets", default=32)
    distance = config.get("relative_attention_max_distance", default=128)
    sides = {"bidirectional": not config.get("is_decoder", default=False)}
    return make("t5", buckets=buckets, distance=distance, scaled=False, shared=shared, **sides)


def _deberta(config: Fields) -> Encoding:
    """DeBERTa's learned table, its offsets, or both."""
    length = config.get("max_position_embeddings", default=512)
    biased = config.get("position_biased_input", default=True)
    buckets = max(config.get("position_buckets", default=-1), 0)
    distance = config.get("max_relative_positions", default=-1)
    kinds = config.get("pos_att_type", default=())
    kinds = kinds.lower().split("|") if isinstance(kinds, str) else kinds
    parts = [make("learned", length=length)] if biased else []
    if config.get("relative_attention"):
        if {*kinds} != {"c2p", "p2c"}:
            reason = f"{shown(kinds)}; only c2p and p2c together are known"
            raise FieldError((*config.path, "pos_att_type"), reason)
        options = {"buckets": buckets, "distance": distance if distance > 0 else length}
        parts.append(make("deberta", flipped=False, **options))
    return parts[0] if len(parts) == 1 else chain(*parts, *([] if parts else [make("nope")]))


def _table(length: int, first: int, more: int, config: Fields) -> Encoding:
    """A learned table; it has the rows of the config and `more`, and position 0 reads the row
    `first`.
    """
    rows = config.get("n_positions", "max_position_embeddings", default=length) + more
    table = make("learned", length=rows)
    return from_row(table, first) if first else table


@recorded
def from_row(encoding: Encoding, first: int) -> Encoding:
    """The encoding with its positions moved by `first`, so that position 0 reads that row."""
    moved = lambda key, at: place(encoding, key, at.replace(pos_BT=at.pos_BT + first))
    return encoding._replace(place=moved)


XGLM = make("sinusoidal", pairing="half", spacing="tensor2tensor")
READERS: dict[str, Callable[[Fields], Encoding]] = {
    **{kind: functools.partial(rotary, model) for kind, model in ROTARY.items()},
    **dict.fromkeys(("bert", "distilbert", "electra"), functools.partial(_table, 512, 0, 0)),
    **dict.fromkeys(("camembert", "roberta", "xlm-roberta"), functools.partial(_table, 512, 2, 0)),
    "bloom": _bloom,
    "deberta": _deberta,
    "deberta-v2": _deberta,
    "gpt2": functools.partial(_table, 1024, 0, 0),
    "mpt": _mpt,
    "mt5": _t5,
    "opt": functools.partial(_table, 2048, 2, 2),
    "t5": _t5,
    "umt5": functools.partial(_t5, shared=False),
    "xglm": lambda config: from_row(XGLM, 2),
}
