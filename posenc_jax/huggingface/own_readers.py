"""Models whose config needs a function of its own, and encodings that only they have."""

from functools import partial

import jax
import jax.numpy as jnp

from posenc_jax.combinators import chain, each_layer, per_layer
from posenc_jax.encoding import Encoding, place
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings import make
from posenc_jax.encodings.by_layer import chunked
from posenc_jax.huggingface.fields import POSITIONAL, Fields
from posenc_jax.huggingface.rope_fields import rope_dictionary, unscaled_base
from posenc_jax.huggingface.rotary import Rotary, rotary
from posenc_jax.huggingface.rotary_parts import mrope_by_channel
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError, shown
from posenc_jax.recipes import recorded

TINY = 1e-6  # added to lengths of vectors


def _gpt_neo(config: Fields) -> Encoding:
    """GPT-Neo's windows, in every other layer."""
    near = make("window", distance=config.get("window_size", default=256) - 1)
    types = config.get("attention_layers") or ("global", "local")
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
    return joined(parts)


def _ernie(config: Fields) -> Encoding:
    """ERNIE 4.5's M-RoPE: slow pairs turn by time, the others by height and width in turn."""
    rope = config.inside(rope_dictionary(config)[0])
    rope.check("rope_type", "default")
    height, width, time = rope.sizes("mrope_section", (22, 22, 20), 3)
    if height != width:
        raise FieldError((*rope.path, "mrope_section"), f"{height} is not {width}; they alternate")
    base = rope.get("rope_theta", default=config.get("rope_theta", default=500_000.0))
    return make("video_rope", base=base, pairing="interleaved", time=time)


def _hunyuan_vl(config: Fields) -> Encoding:
    """HunYuan-VL's M-RoPE of (position, column, row, picture), or three of these."""
    rope = config.inside(rope_dictionary(config)[0])
    base = rope.get("rope_theta", default=config.get("rope_theta", default=10_000.0))
    sections = rope.get("mrope_section", "xdrope_section", default=(16, 16, 16, 16))
    rope_type = rope.get("rope_type", "type", default="default")
    if rope_type in ("dynamic", "xdrope"):
        for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            rope.get(name)
        head = 2 * sum(sections)
        base *= rope.need("alpha") ** (head / (head - 2))
    else:
        rope.check("rope_type", "default")
    return mrope_by_channel(tuple(int(count) for count in sections), base)


def _wav2vec2(kind: str) -> Reader:
    """Speech encoders of the conformer, of which a field says what their attention reads.

    kind: where the config does not say it.
    """

    def read(config: Fields) -> Encoding:
        config.get("max_source_positions", "num_conv_pos_embeddings")  # the convolution is not used
        config.get("num_conv_pos_embedding_groups")
        base = config.get("rotary_embedding_base", default=10_000.0)
        ends = {
            "distance": config.get("left_max_position_embeddings", default=64),
            "ahead": config.get("right_max_position_embeddings", default=8),
        }
        name = "position_embeddings_type"
        chosen = config.get(name, default=None if name in config.fields else kind)
        makers = {
            "relative": lambda: make("transformer_xl", shared=False),
            "relative_key": lambda: make("shaw", **ends),
            "rotary": lambda: make("rope", base=base),
            None: lambda: make("nope"),
        }
        if chosen not in makers:
            choices = ", ".join(repr(name) for name in makers)
            raise FieldError((*config.path, name), f"{shown(chosen)} is not one of: {choices}")
        return makers[chosen]()

    return Reader(read)


def _granite_speech(name: str, chunk: int) -> Reader:
    """Shaw's keys within chunks of frames.

    name: the field of the largest distance that has a vector.
    chunk: frames, where the config does not say them.
    """

    def read(config: Fields) -> Encoding:
        keys = make("shaw", distance=config.get(name, default=512))
        return chain(keys, chunked(config.get("context_size", default=chunk)))

    return Reader(read)


def _nemotron_streaming(config: Fields) -> Encoding:
    """Transformer-XL's scores; a query sees its chunk of frames, and chunks before it."""
    chunk = config.get("default_num_lookahead_tokens", default=13) + 1
    back = (config.get("sliding_window", default=71) - 1) // chunk
    return chain(make("transformer_xl", shared=False), chunked(chunk, back))


def _phi4_audio(config: Fields) -> Encoding:
    """Phi-4's clipped bias, whose table has one row less for keys ahead."""
    distance = config.get("bias_max_distance", default=1000)
    if config.get("bias_symmetric", default=False):
        raise FieldError((*config.path, "bias_symmetric"), "True is not known for this model")
    return make("clipped", distance=distance, ahead=distance - 1, shared=True)


@recorded
def clipped_curves(
    curves: int, distance: int, threshold: float, floor: int = 0, growth: float = 0.0
) -> Encoding:
    """`content_bias` of weights that have a learned factor each, and of a head at most a length.

    threshold: the largest length of a head's weights.
    floor, growth: all logits grow by 1 + growth ln(max((t + 1) / floor, 1)), those of the curves
      too; floor 0: they do not grow.
    """
    plain = make("content_bias", curves=curves, distance=distance, shared=True)
    walk = plain.walk
    assert walk is not None
    assert walk.prepare is not None
    affine = walk.prepare

    def init(key, dims):
        return {**plain.init(key, dims), "scale": jnp.ones((dims.heads, curves))}

    def prepare(params, x_BTD):
        weight_BTHN = affine(params, x_BTD)
        weight_BTHN = weight_BTHN * params["scale"].astype(weight_BTHN.dtype)[None, None]
        length = jnp.sqrt(jnp.sum(weight_BTHN**2, axis=-1, keepdims=True) + TINY**2)
        return weight_BTHN * jnp.minimum(threshold / (length + TINY), 1)

    def tau(pos_BQ):
        steps_BQ = (pos_BQ.astype(float) + 1) / floor
        return 1 + growth * jnp.log(jnp.maximum(steps_BQ, 1))

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        if floor:
            grown = q.feat * tau(q.placed)[..., None, None].astype(q.feat.dtype)
            q = q._replace(feat=grown)
        return walk.score(params, s_BHQK, q, k, visible_BHQK, carry)

    temper = lambda params, count, q_pos_BQ, dims: tau(q_pos_BQ)[..., None]
    by_content = walk._replace(score=score, prepare=prepare)
    return each_layer(Encoding(init=init, walk=by_content, temper=temper if floor else None))


def _inkling(config: Fields) -> Encoding:
    """Inkling's curves by type of layer, within a window in most."""
    if config.get("log_scaling_n_floor") is not None:
        raise FieldError((*config.path, "log_scaling_n_floor"), "a number is not known here")
    config.get("log_scaling_alpha")
    near, far, curves = _curves(config, 512)
    make_curves = lambda size: make("content_bias", curves=curves, distance=size)
    return _hybrid(config, near, make_curves(near), make_curves(far))


def _inkling2(floor: int) -> Reader:
    """Inkling 2's: weights of curves have a length at most, and logits of far queries grow.

    floor: from where on they grow, where the config does not say it.
    """

    def read(config: Fields) -> Encoding:
        near, far, curves = _curves(config, 1024)
        threshold = config.get("rel_l2_clip_threshold", default=8.0)
        config.get("qk_l2_clip_threshold")  # of queries and keys, which stay with the model
        grows = {
            "floor": config.get("log_scaling_n_floor", default=floor),
            "growth": config.get("log_scaling_alpha", default=0.1),
        }
        local = clipped_curves(curves, near, threshold)
        whole = clipped_curves(curves, far, threshold, **grows)
        return _hybrid(config, near, local, whole)

    return Reader(read)


# YaRN over a trained length of 512 tokens, without its temperature.
_MISTRAL_LARGE4 = Rotary(
    pairing="interleaved", channels="qk_rope_head_dim", nope_every=4, change="learned",
    scaling={
        "rope_type": "yarn", "factor": 2048.0, "original_max_position_embeddings": 512,
        "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.0,
    },
)  # fmt: skip


def _curves(config: Fields, window: int) -> tuple[int, int, int]:
    """The tokens of a window, the distances of other layers' curves, and the number of curves."""
    return (
        config.get("sliding_window_size", "sliding_window", default=window),
        config.get("rel_extent", default=1024),
        config.get("d_rel", default=16),
    )


def _hybrid(config: Fields, window: int, near: Encoding, far: Encoding) -> Encoding:
    """Layers with a window, of type "hybrid_sliding", and others, "hybrid"."""
    local = chain(near, make("window", distance=window - 1))
    default = ["hybrid_sliding" if (n + 1) % 6 else "hybrid" for n in range(6)]
    types = config.get("layer_types") or default
    config.get("local_layer_ids", "mtp_local_layer_ids")
    return per_layer([local if type_ == "hybrid_sliding" else far for type_ in types])


@recorded
def product_table(shape: tuple[int, ...], widths: tuple[int, ...]) -> Encoding:
    """Reformer's table of shape[0] x shape[1] whole positions: row t // shape[1] of one table
    beside row t % shape[1] of another (Kitaev et al. 2020, arXiv 2001.04451).

    widths: channels of the two tables.
    """

    def init(key, width):
        if sum(widths) != width:
            raise FieldError("model", f"{width} channels are not the {widths} of the two tables")
        draw = lambda key, n: codes.normal(key, (shape[n], widths[n]))
        keys = jax.random.split(key)
        return {"rows": draw(keys[0], 0), "columns": draw(keys[1], 1)}

    def code(params, pos_BT, width):
        row_BTW = codes.read(lambda n: params["rows"][n], pos_BT // shape[1], shape[0], "error")
        read = lambda n: params["columns"][n]
        column_BTW = codes.read(read, pos_BT % shape[1], shape[1], "error")
        return jnp.concatenate([row_BTW, column_BTW], axis=-1)

    return codes.coded("add", None, code, init)


def _reformer(config: Fields) -> Encoding:
    """Reformer's two tables, or one; which keys are seen stays with the model."""
    if not config.get("axial_pos_embds", default=True):
        return make("learned", length=config.get("max_position_embeddings", default=4096))
    shape = config.sizes("axial_pos_shape", (64, 64))
    return product_table(shape, config.sizes("axial_pos_embds_dim", (64, 192)))


def _xlnet(config: Fields) -> Encoding:
    """XLNet's; scores of segments, which are no positions, stay with the model."""
    config.check("clamp_len", -1, 0)
    return make("transformer_xl", shared=False)


def joined(parts: list[Encoding]) -> Encoding:
    """The parts as one encoding; `nope` where there is none."""
    return chain(*parts) if len(parts) > 1 else parts[0] if parts else make("nope")


def _dinov3(config: Fields, side: int = 224) -> Encoding:
    """DINOv3's rope of a picture, of `side` pixels where the config does not say it."""
    image, patch = config.sizes("image_size", side), config.sizes("patch_size", 16)
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
        base=unscaled_base(config, 100.0, "default"),
        **augmented,
    )


def _seamless_speech(config: Fields) -> Encoding:
    """Shaw's keys of SeamlessM4T v2's speech encoder, in chunks of frames."""
    config.check("position_embeddings_type", "relative_key")
    keys = make(
        "shaw",
        distance=config.get("left_max_position_embeddings", default=64),
        ahead=config.get("right_max_position_embeddings", default=8),
    )
    chunk = config.get("speech_encoder_chunk_size", default=20_000)
    back = config.get("speech_encoder_left_chunk_num", default=128)
    if back < 0:
        reason = f"{back} for all chunks is not known; give those of the longest sound"
        raise FieldError((*config.path, "speech_encoder_left_chunk_num"), reason)
    return chain(keys, chunked(chunk, back))


@recorded
def from_row(encoding: Encoding, first: int) -> Encoding:
    """The encoding with its positions moved by `first`, so that position 0 reads that row."""
    moved = lambda key, at: place(encoding, key, at.replace(pos_BT=at.pos_BT + first))
    return encoding._replace(place=moved)


@recorded
def over_root_width(encoding: Encoding) -> Encoding:
    """The encoding at the input with its vectors divided by the root of the width."""
    plain = encoding.embed
    assert plain is not None

    def embed(params, x_BTD, placed):
        code_BTD = plain(params, jnp.zeros_like(x_BTD), placed)
        return x_BTD + code_BTD * x_BTD.shape[-1] ** -0.5

    return encoding._replace(embed=embed)


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


CANARY = Reader(lambda config: over_root_width(make("sinusoidal", pairing="half")))
WAV2VEC2_CONFORMER, WAV2VEC2_BERT = _wav2vec2("relative"), _wav2vec2("relative_key")
GRANITE_SPEECH = _granite_speech("max_pos_emb", 200)
GRANITE_SPEECH5 = _granite_speech("max_position_embeddings", 128)
REFORMER = Reader(_reformer)
HUNYUAN_VL, INKLING, PHI4_AUDIO, XLNET = map(Reader, (_hunyuan_vl, _inkling, _phi4_audio, _xlnet))
INKLING2, INKLING2_LOOP = _inkling2(128_000), _inkling2(8_192)
NEMOTRON_STREAMING = Reader(_nemotron_streaming)
EOMT_DINOV3 = Reader(lambda config: _dinov3(config, 640))
MISTRAL_LARGE4 = Reader(partial(rotary, _MISTRAL_LARGE4))
UNSCALED = Reader(lambda config: unscaled())
SEAMLESS_SPEECH = Reader(_seamless_speech)
# Falcon's ALiBi; transformers makes it in bfloat16.
FALCON_ALIBI = Reader(lambda config: inside_scale(make("alibi")))
DEBERTA, DINOV3, ERNIE, GPT_NEO, MPT = map(Reader, (_deberta, _dinov3, _ernie, _gpt_neo, _mpt))
