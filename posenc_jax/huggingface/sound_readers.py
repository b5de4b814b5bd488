"""Encoders of sound that add positions of their own to those of convolutions."""

import jax
import jax.numpy as jnp

from posenc_jax.combinators import pick_layer
from posenc_jax.encoding import Dims, Encoding, Walk
from posenc_jax.encodings import make
from posenc_jax.encodings.gated import affine
from posenc_jax.heads import refuse_heads
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.own_readers import from_row
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError
from posenc_jax.recipes import recorded


@recorded
def gated_buckets(buckets: int, distance: int) -> Encoding:
    """WavLM's buckets of offsets, as of `t5`, times a gate of each query and head (Chen et al.
    2021, arXiv 2110.13900): q.k / sqrt(C) + (a (b s[h] - 1) + 2) bias[h, bucket(i - j)], where
    (a, b) = sigmoid(x[h] W + w), and x[h] are the channels of x that have head h's numbers.

    All layers share the table; each has its own W [C, 2], w [2] and s [H], all heads one W. W and w
    are the sums of WavLM's `gru_rel_pos_linear` over each four of its eight outputs.

    FieldError: as `t5`; later, a model that is not as wide as its heads together.
    """
    table = make("t5", buckets=buckets, distance=distance)
    bias = table.bias
    assert bias is not None

    def init(key, dims):
        if dims.model != dims.heads * dims.head:
            reason = f"{dims.model} channels are not those of {dims.heads} heads of {dims.head}"
            raise FieldError("model", reason)
        table_key, *keys = jax.random.split(key, dims.layers + 1)
        gates = ({
            "gate": dims.head**-0.5 * jax.random.normal(k, (dims.head, 2)),
            "gate_bias": jnp.zeros(2), "scale": jnp.ones(dims.heads),
        } for k in keys)  # fmt: skip
        return {**table.init(table_key, dims), "gates": tuple(gates)}

    def prepare(params, x_BTD):
        scale_H = params["scale"]
        x_BTHC = x_BTD.reshape(*x_BTD.shape[:2], len(scale_H), -1)
        gates_BTH2 = affine(x_BTHC, params["gate"])
        gates_BTH2 += params["gate_bias"].astype(gates_BTH2.dtype)[None, None, None]
        a_BTH, b_BTH = jnp.moveaxis(jax.nn.sigmoid(gates_BTH2), -1, 0)
        return a_BTH * (b_BTH * scale_H.astype(b_BTH.dtype)[None, None] - 1) + 2

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        heads, head = q.x_BTHC.shape[2:]
        bias_BHQK = bias(params, q.placed, k.placed, Dims(heads * head, heads, head))
        gate_BHQ1 = q.feat.swapaxes(1, 2)[..., None]
        return s_BHQK + (gate_BHQ1.astype(bias_BHQK.dtype) * bias_BHQK).astype(s_BHQK.dtype), carry

    walk = Walk(score=score, prepare=prepare)
    of_layer = Encoding(walk=walk)

    def at(layer, params, *placed):
        return of_layer, {**params, **pick_layer(params["gates"], layer)}, *placed

    return Encoding(init=init, walk=walk, at=at, of_heads=refuse_heads)


@recorded
def by_learned_factor(encoding: Encoding) -> Encoding:
    """The encoding at the input with its vectors times a learned number, "factor", from 1."""
    plain = encoding.embed
    assert plain is not None

    def init(key, dims):
        return {"code": encoding.init(key, dims), "factor": jnp.ones(())}

    def embed(params, x_BTD, placed):
        wide_BTD = x_BTD.astype(float)
        code_BTD = plain(params["code"], jnp.zeros_like(wide_BTD), placed)
        return (wide_BTD + params["factor"].astype(float) * code_BTD).astype(x_BTD.dtype)

    return encoding._replace(init=init, embed=embed)


def _wavlm(config: Fields) -> Encoding:
    buckets = config.get("num_buckets", default=320)
    return gated_buckets(buckets, config.get("max_bucket_distance", default=800))


def _speecht5_keys(config: Fields) -> Encoding:
    """SpeechT5's Shaw keys in its encoder, with one vector less for keys behind the query."""
    distance = config.get("encoder_max_relative_position", default=160)
    return make("shaw", distance=distance - 1, ahead=distance, shared=True)


def _speecht5_sines(config: Fields) -> Encoding:
    """The factor of sines that SpeechT5 adds to text, and to the sound that it has made."""
    config.get("max_text_positions", "max_speech_positions")  # sines have no last row
    config.get("positional_dropout")
    return by_learned_factor(make("sinusoidal"))


def _speecht5_frames(config: Fields) -> Encoding:
    """The sines of SpeechT5's frames of sound, which it tells from padding by numbers 0 and 1."""
    config.get("max_text_positions", "max_speech_positions")
    pad = config.get("pad_token_id", default=1)
    if pad == 0:
        raise FieldError((*config.path, "pad_token_id"), "0 would make all frames padding")
    return from_row(make("sinusoidal", pairing="half", spacing="tensor2tensor"), pad + 1)


WAVLM, SPEECHT5_KEYS = Reader(_wavlm), Reader(_speecht5_keys)
SPEECHT5_SINES, SPEECHT5_FRAMES = Reader(_speecht5_sines), Reader(_speecht5_frames)
