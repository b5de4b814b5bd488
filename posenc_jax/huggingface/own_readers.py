"""Models whose config needs a function of its own, and encodings that only they have."""

import jax.numpy as jnp

from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding, place
from posenc_jax.encodings import make
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.rotary import rope_dictionary
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError, shown
from posenc_jax.recipes import recorded


def _gpt_neo(config: Fields) -> Encoding:
    """GPT-Neo's windows, in every other layer."""
    near = make("window", distance=config.get("window_size", default=256) - 1)
    types = config.get("attention_layers", default=("global", "local"))
    config.get("attention_types")  # says the same
    return per_layer([near if type_ == "local" else make("nope") for type_ in types])


def _mpt(config: Fields) -> Encoding:
    """MPT's ALiBi."""
    attention = config.inside("attn_config")
    attention.check("alibi", True)
    bias_max = attention.get("alibi_bias_max", default=8.0)  # which transformers does not read
    attention.refuse_unread(POSITIONAL)
    return make("alibi", bias_max=bias_max)


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


def _ernie(config: Fields) -> Encoding:
    """ERNIE 4.5's M-RoPE: slow pairs turn by time, the others by height and width in turn."""
    rope = config.inside(rope_dictionary(config)[0])
    rope.check("rope_type", "default")
    height, width, time = rope.get("mrope_section", default=(22, 22, 20))
    if height != width:
        raise FieldError((*rope.path, "mrope_section"), f"{height} is not {width}; they alternate")
    base = rope.get("rope_theta", default=config.get("rope_theta", default=500_000.0))
    return make("video_rope", base=base, pairing="interleaved", time=time)


def pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    """(height, width) of a size, which is one number for a square."""
    return (size, size) if isinstance(size, int) else size


def _dinov3(config: Fields, side: int = 224) -> Encoding:
    """DINOv3's rope of a picture, of `side` pixels where the config does not say it."""
    image, patch = (
        pair(config.get(name, default=size))
        for name, size in (("image_size", side), ("patch_size", 16))
    )
    rope = config.inside(rope_dictionary(config)[0])
    rope.check("rope_type", "default")
    augmented = {
        "jitter": config.get("pos_embed_jitter", default=1.0),
        "rescale": config.get(
            "pos_embed_rescale", default=2.0 if "pos_embed_rescale" not in config.fields else 1.0
        ),
    }
    return make(
        "dinov3",
        rows=image[0] // patch[0],
        columns=image[1] // patch[1],
        base=rope.get("rope_theta", default=config.get("rope_theta", default=100.0)),
        **augmented,
    )


def _beit(config: Fields) -> Encoding | str:
    """BEiT's flags of positions, all off where the config does not have them."""
    flags = (
        "use_relative_position_bias",
        "use_shared_relative_position_bias",
        "use_absolute_position_embeddings",
    )
    if any([config.get(flag, default=False) for flag in flags]):
        rows = "rows for the class token"
        return (
            f"needs Swin's bias or a grid table with {rows}, which the catalogue does not have yet"
        )
    return make("nope")


@recorded
def from_row(encoding: Encoding, first: int) -> Encoding:
    """The encoding with its positions moved by `first`, so that position 0 reads that row."""
    moved = lambda key, at: place(encoding, key, at.replace(pos_BT=at.pos_BT + first))
    return encoding._replace(place=moved)


@recorded
def unscaled() -> Encoding:
    """Attention without positions whose products are not divided by the root of the head's width,
    as T5's from its decoder to its encoder.
    """
    temper = lambda params, count, placed, dims: jnp.full((1, 1, 1), dims.head**0.5)
    return Encoding(temper=temper)


@recorded
def inside_scale(encoding: Encoding) -> Encoding:
    """The encoding with its bias divided by the root of the head's width, as the products are."""
    plain = encoding.bias
    assert plain is not None
    bias = lambda params, q, k, dims: plain(params, q, k, dims) * dims.head**-0.5
    return encoding._replace(bias=bias)


BEIT = Reader(_beit)
EOMT_DINOV3 = Reader(lambda config: _dinov3(config, 640))
UNSCALED = Reader(lambda config: unscaled())
# Falcon's ALiBi; transformers makes it in bfloat16.
FALCON_ALIBI = Reader(lambda config: inside_scale(make("alibi")))
DEBERTA, DINOV3, ERNIE, GPT_NEO, MPT = map(Reader, (_deberta, _dinov3, _ernie, _gpt_neo, _mpt))
