"""Released architectures: how their config.json maps to our model, and where weights differ."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from posenc_jax.combinators import pick_layer
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import make
from posenc_jax.huggingface import from_huggingface, parts_from_huggingface
from posenc_jax.huggingface.fields import HEAD, HEADS, LAYERS, WIDTH, Fields, Positive
from posenc_jax.huggingface.rows import Parts
from posenc_jax.huggingface.types import ROWS
from posenc_jax.lab.config.schema import BiasedPart, ModelConfig, check
from posenc_jax.lab.model.pretrained import weight_names as names
from posenc_jax.lab.model.transformer import Encodings
from posenc_jax.options import FieldError, choices_for, shown, typed

# Field of ModelConfig -> its names in a config.json.
FIELDS = {
    "width": WIDTH,
    "heads": HEADS,
    "layers": LAYERS,
    "head": HEAD,
    "kv_heads": ("num_key_value_heads",),
    "mlp_width": ("intermediate_size", "n_inner", "d_ff"),
    "eps": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon", "layer_norm_eps"),
    "activation": ("hidden_act", "activation_function", "hidden_activation", "feed_forward_proj"),
    "parallel": ("use_parallel_residual",),
    "cap": ("attn_logit_softcapping",),
    "logit_cap": ("final_logit_softcapping",),
    "tied": ("tie_word_embeddings",),
}
# The one field of the activation that a type reads, of those whose files may have two.
ACTIVATION_FIELDS = {
    "gemma": "hidden_act", "gemma2": "hidden_activation", "gemma3_text": "hidden_activation",
    "modernbert": "hidden_activation",
}  # fmt: skip
NULLABLE = "head", "kv_heads", "mlp_width", "cap", "logit_cap"  # null says something in these
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gated-gelu": "gelu_tanh",
    "gated-silu": "silu",
    "relu": "relu",
    "silu": "silu",
}


class Architecture(NamedTuple):
    """A released architecture.

    names:      of its weights.
    fields:     of ModelConfig that are always so.
    defaults:   of ModelConfig's fields that a config.json need not have.
    switches:   fields of the config.json that change what is computed, with the values known here.
    bias_field: whether `attention_bias` adds biases to the parts `bias_parts`, and its default;
                None: there is no such field.
    qkv:        rows of the tensor of queries, keys and values: one after another, or by head.
    conv1d:     kernels are [in, out], not [out, in].
    unit_offset: a norm multiplies by one plus its weight.
    relative:   how DeBERTa makes queries and keys of the vectors of offsets: "shared", of vectors
                that a norm has passed by the projections of content, as released models do, or
                "own", by projections of their own.
    types:      the table of vectors of types of tokens. The first is added to each position's
                vector, as all tokens are of the first type.
    pictures:   it reads patches of pictures, and gives their hidden states.
    unread:     a pattern of tensors that are not of the model but of what stands beside it.
    """

    names: names.Names
    fields: Mapping[str, Any]
    defaults: Mapping[str, Any] = {}
    switches: Mapping[str, tuple[Any, ...]] = {}
    bias_field: bool | None = None
    bias_parts: tuple[BiasedPart, ...] = ("qkv", "out")
    qkv: Literal["stacked", "by head"] = "stacked"
    conv1d: bool = False
    unit_offset: bool = False
    relative: Literal["", "shared", "own"] = ""
    types: str = ""
    pictures: bool = False
    unread: str = ""


_LLAMA = {"norm": "rmsnorm", "gated": True, "biases": ()}
_SILU = {"activation": "silu"}
_GEMMA = _LLAMA | {"norm_at": "both", "embedding": "scaled"}
_GEMMA_DEFAULTS = {"head": 256, "kv_heads": 4, "tied": True}  # the activation is the default
_BERT = {"kind": "encoder", "norm_at": "post", "embedding": "norm", "transform": True}
_GELU = {"activation": "gelu", "tied": True}
_T5 = {"kind": "encoder_decoder", "norm": "rmsnorm", "biases": ()}
_RELU = {"activation": "relu", "tied": True}
_ALL_BUT_LAST = ("norm", "qkv", "out", "mlp")
_ONE_WAY = {"add_cross_attention": (False,), "is_decoder": (False,)}
_DEBERTA = {
    "relative_attention": (True,), "position_biased_input": (False,), "type_vocab_size": (0,),
    "conv_kernel_size": (0,),
}  # fmt: skip
_CAUSAL = {"use_bidirectional_attention": (False,)}
_NO_MLP_BIAS = {"mlp_bias": (False,)}
_GLM_DEFAULTS = _SILU | {"eps": 1.5625e-07, "head": 128, "kv_heads": 2}
_COHERE = {"norm": "layernorm", "parallel": True, "gated": True, "biases": ()}
_COHERE_DEFAULTS = _SILU | {"eps": 1e-5, "tied": True}
_COHERE_SWITCHES = {
    "use_parallel_block": (True,), "use_gated_activation": (True,), "use_qk_norm": (False,),
}  # fmt: skip

ARCHITECTURES = {
    "bert": Architecture(
        names.BERT, _BERT, _GELU | {"eps": 1e-12}, _ONE_WAY,
        types="bert.embeddings.token_type_embeddings.weight",
    ),
    "bloom": Architecture(
        names.BLOOM, {"embedding": "norm", "biases": _ALL_BUT_LAST}, {"eps": 1e-5, "tied": True},
        {"apply_residual_connection_post_layernorm": (False,)}, qkv="by head",
    ),
    "cohere": Architecture(
        names.COHERE, _COHERE, _COHERE_DEFAULTS, _COHERE_SWITCHES, bias_field=False
    ),
    "cohere2": Architecture(
        names.COHERE, _COHERE, _COHERE_DEFAULTS, _COHERE_SWITCHES, bias_field=False
    ),
    "deberta-v2": Architecture(
        names.DEBERTA, _BERT, _GELU | {"eps": 1e-7}, _DEBERTA | {"norm_rel_ebd": ("none",)},
        relative="own",
    ),
    "deberta-v2 shared": Architecture(
        names.DEBERTA, _BERT, _GELU | {"eps": 1e-7}, _DEBERTA | {"norm_rel_ebd": ("layer_norm",)},
        relative="shared",
    ),
    "gemma": Architecture(
        names.LLAMA, _LLAMA | {"embedding": "scaled"}, _GEMMA_DEFAULTS | {"kv_heads": 16}, _CAUSAL,
        False, unit_offset=True,
    ),
    "gemma2": Architecture(
        names.GEMMA, _GEMMA, _GEMMA_DEFAULTS | {"cap": 50.0, "logit_cap": 30.0}, _CAUSAL, False,
        unit_offset=True,
    ),
    "gemma3_text": Architecture(
        names.GEMMA, _GEMMA | {"qk_norm": "head"}, _GEMMA_DEFAULTS, _CAUSAL, False, unit_offset=True
    ),
    "glm": Architecture(
        names.GLM, _LLAMA, _GLM_DEFAULTS, bias_field=True, bias_parts=("qkv",)
    ),
    "glm4": Architecture(
        names.GLM4, _LLAMA | {"norm_at": "both"}, _GLM_DEFAULTS, bias_field=True,
        bias_parts=("qkv",),
    ),
    "gpt2": Architecture(
        names.GPT2, {"biases": _ALL_BUT_LAST}, {"eps": 1e-5, "tied": True},
        {"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
         "add_cross_attention": (False,)},
        conv1d=True,
    ),
    "gpt_neox": Architecture(
        names.GPT_NEOX, {"biases": ("norm", "mlp")},
        {"eps": 1e-5, "activation": "gelu", "parallel": True}, bias_field=True, qkv="by head",
    ),
    "granite": Architecture(names.LLAMA, _LLAMA, _SILU, _NO_MLP_BIAS, bias_field=False),
    "llama": Architecture(names.LLAMA, _LLAMA, _SILU, _NO_MLP_BIAS, bias_field=False),
    "mistral": Architecture(names.LLAMA, _LLAMA, _SILU | {"kv_heads": 8}),
    "modernbert": Architecture(
        names.MODERNBERT,
        {"kind": "encoder", "embedding": "norm", "first_norm": False, "gated": True,
         "transform": True, "transform_bias": False, "biases": ("read_out",)},
        _GELU | {"eps": 1e-5},
        {**_NO_MLP_BIAS, "norm_bias": (False,), "classifier_bias": (False,),
         "decoder_bias": (True,)},
        bias_field=False,
    ),
    "mpt": Architecture(
        names.MPT, {"biases": ()}, _GELU | {"eps": 1e-5},
        {"expansion_ratio": (4,), "logit_scale": (None,)},
    ),
    "olmo2": Architecture(
        names.OLMO2, _LLAMA | {"norm_at": "output", "qk_norm": "heads"}, _SILU | {"eps": 1e-5},
        bias_field=False,
    ),
    "olmo3": Architecture(
        names.OLMO2, _LLAMA | {"norm_at": "output", "qk_norm": "heads"}, _SILU | {"eps": 1e-5},
        bias_field=False,
    ),
    "phi3": Architecture(names.PHI3, _LLAMA, _SILU | {"eps": 1e-5}),
    "qwen2": Architecture(names.LLAMA, _LLAMA | {"biases": ("qkv",)}, _SILU | {"kv_heads": 32}),
    "qwen3": Architecture(
        names.LLAMA, _LLAMA | {"qk_norm": "head"}, _SILU | {"kv_heads": 32, "head": 128},
        bias_field=False,
    ),
    "roberta": Architecture(
        names.ROBERTA, _BERT, _GELU | {"eps": 1e-12}, _ONE_WAY,
        types="roberta.embeddings.token_type_embeddings.weight",
    ),
    "siglip_vision_model": Architecture(
        names.SIGLIP, {"kind": "encoder"},
        {"width": 768, "heads": 12, "layers": 12, "mlp_width": 3072, "eps": 1e-6}, pictures=True,
        unread=r"^(vision_model\.)?head\.|^text_model\.|^logit_(scale|bias)$",
    ),
    "smollm3": Architecture(
        names.LLAMA, _LLAMA, _SILU | {"kv_heads": 4, "tied": True}, _NO_MLP_BIAS, bias_field=False
    ),
    "t5": Architecture(names.T5, _T5, _RELU),
    "t5 gated": Architecture(names.T5_GATED, _T5 | {"gated": True}, _RELU),
    "xlm-roberta": Architecture(
        names.ROBERTA, _BERT, _GELU | {"eps": 1e-12}, _ONE_WAY,
        types="roberta.embeddings.token_type_embeddings.weight",
    ),
}  # fmt: skip

# What other models have, and our model does not: their types.
MISSING = {
    "mixtures of experts": (
        "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "glm4_moe", "gpt_oss", "granitemoe",
        "llama4_text", "minimax_m2", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe",
    ),
    "vectors of tokens for each layer": ("gemma3n_text",),
    "heads of two widths, and vectors of tokens for each layer or experts": ("gemma4_text",),
    "layers of linear attention": (
        "kimi_linear", "minimax", "olmo_hybrid", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next",
    ),
    "layers of state spaces": (
        "bamba", "falcon_h1", "granitemoehybrid", "jamba", "nemotron_h", "zamba", "zamba2",
    ),
}  # fmt: skip


class Released(NamedTuple):
    """A released model without its weights.

    factors: end of a path -> what its weights are multiplied by as they are read, for scales that
      our model has no field for.
    types:   types of tokens.
    states:  the model has no read-out, and gives its hidden states.
    patch:   numbers of a patch of a picture, channels, rows and columns; None: it reads token ids.
    """

    architecture: Architecture
    config: ModelConfig
    encoding: Encoding | Encodings
    vocab: int
    factors: Mapping[str, float]
    types: int = 0
    states: bool = False
    patch: tuple[int, int, int] | None = None

    @property
    def features(self) -> int | None:
        """The width of the vectors that the model reads; None: it reads token ids."""
        return math.prod(self.patch) if self.patch else None


def released(config: Mapping[str, Any], dtype: str = "float32") -> Released:
    """The model that a config.json describes.

    Files of transformers 5 and older ones are read. Where a model has types of tokens, all tokens
    are of the first. Of SigLIP it is the tower of pictures.

    Args:
      config: the file as a dictionary.
      dtype: of the forward pass.

    FieldError: an architecture or a scaling of positions that is not known; a field that is missing
    or has a value that is not known.
    """
    config = _of_pictures(config)
    fields = Fields(config)
    kind = _kind(fields)
    architecture = ARCHITECTURES[kind]
    for name, accepted in architecture.switches.items():
        fields.check(name, *accepted)
    values = dict(architecture.defaults)
    names = {field: _name(theirs, config) for field, theirs in FIELDS.items()}
    names["activation"] = ACTIVATION_FIELDS.get(kind, names["activation"])
    for field, name in names.items():
        needed = field in ("width", "heads", "layers") and field not in values
        value = fields.need(name) if needed else fields.get(name)
        if value is not None or (field in NULLABLE and name in config):
            values[field] = _our_value(field, name, value)
    if kind == "gemma" and fields.get("hidden_act") == "gelu":  # a slip of its first files
        values["activation"] = "gelu_tanh"
    values |= dict(architecture.fields) | {"dtype": dtype}
    if architecture.bias_field is not None:
        biased = fields.get("attention_bias", default=architecture.bias_field)
        values["biases"] = (*values["biases"], *(architecture.bias_parts if biased else ()))
    if kind == "mpt":
        attention = Fields(config.get("attn_config") or {}, "attn_config")
        for name, accepted in (("clip_qkv", None), ("softmax_scale", None), ("qk_ln", False)):
            attention.check(name, accepted)
    if architecture.relative:
        for name in ("relative_attention", "position_biased_input"):
            fields.need(name)
    if kind.startswith("t5"):
        fields.check("num_decoder_layers", values["layers"])
    if kind == "modernbert":
        last = fields.get("classifier_activation", default="gelu")
        if ACTIVATIONS.get(last) != values["activation"]:
            reason = f"{shown(last)} is not the activation of the MLPs; our model has one for both"
            raise FieldError("classifier_activation", reason)
    model = _checked(values, names)
    model = model.model_copy(update={"logit_scale": _logit_scale(kind, fields, model)})
    factors, encoding = _factors(kind, fields, model), _encoding(config)
    if architecture.pictures:
        side = fields.get("patch_size", default=16)
        patch = fields.get("num_channels", default=3), side, side
        return Released(architecture, model, encoding, 1, factors, states=True, patch=patch)
    vocab = fields.need("vocab_size")
    types = fields.get("type_vocab_size", default=2) if architecture.types else 0
    return Released(architecture, model, encoding, vocab, factors, types)


def _of_pictures(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the tower of pictures of SigLIP; another config as it is."""
    if config.get("model_type") != "siglip":
        return config
    tower = Fields(config).get("vision_config", default={})
    return {**tower, "model_type": "siglip_vision_model"}


def with_pictures(released: Released, image: tuple[int, int] | None) -> Released:
    """The model for pictures of so many patches along height and width: its table is resized.

    FieldError: the model reads no pictures.
    """
    if image is None:
        return released
    if released.patch is None:
        raise FieldError("image", f"{image} are patches of a picture; the model reads text")
    rows, columns = image
    encoding = released.encoding
    assert isinstance(encoding, Encoding)
    options = {**encoding.options, "image_rows": rows, "image_columns": columns}
    return released._replace(encoding=make(encoding.name, **options))


def with_read_out(released: Released) -> Released:
    """The model with a read-out that is not the embedding, whatever its config says.

    transformers 5 always ties T5 in the config, and lets the weights decide: those of T5 1.1 have
    a read-out of their own.
    """
    return released._replace(config=released.config.model_copy(update={"tied": False}))


def _kind(fields: Fields) -> str:
    """The row of ARCHITECTURES for a config.json. FieldError: there is none."""
    kind = fields.get("model_type", default="None")
    if kind == "t5" and fields.get("feed_forward_proj", default="").startswith("gated-"):
        kind = "t5 gated"
    if kind == "deberta-v2" and fields.get("share_att_key"):
        kind = "deberta-v2 shared"
    if what := _missing(kind):
        reason = f"{shown(kind)} has {what}, which our model does not have"
        raise FieldError("model_type", f"{reason}; from_huggingface reads its positions")
    if kind not in ARCHITECTURES or " " in fields.get("model_type"):
        raise FieldError("model_type", _not_loaded(kind, fields))
    return kind


def _missing(kind: str) -> str:
    """What a type has that our model has not; "" if nothing is known of it."""
    return next((what for what, kinds in MISSING.items() if kind in kinds), "")


def _not_loaded(kind: str, fields: Fields) -> str:
    """Why the weights of a type are not loaded."""
    row = ROWS.get(kind)
    if isinstance(row, Parts) and row.types:
        reason = f"{shown(kind)} has several parts, {', '.join(row.types)}, and is not loaded"
        text = row.types.get("text_config", "")
        default = text if isinstance(text, str) else text.type
        text_type = fields.inside("text_config").get("model_type", default=default)
        if what := _missing(text_type):
            reason += f"; its text part has {what}, which our model does not have"
        return f"{reason}; parts_from_huggingface reads their positions"
    choices = choices_for(kind, [name for name in ARCHITECTURES if " " not in name])
    if row is None:
        return f"{shown(kind)} is not known{choices}"
    try:
        from_huggingface({"model_type": kind})
    except FieldError:  # it has no attention, say
        return f"{shown(kind)} is not loaded{choices}"
    return f"{shown(kind)} is not loaded, but from_huggingface reads its positions{choices}"


def _name(theirs: tuple[str, ...], config: Mapping[str, Any]) -> str:
    """The name under which the config has a field, or the first of its possible names."""
    return next((name for name in theirs if name in config), theirs[0])


def _checked(values: dict[str, Any], names: Mapping[str, str]) -> ModelConfig:
    """The ModelConfig with these values. FieldError: names the fields of the config.json."""
    heads, many = names["heads"], values["heads"]
    if values.get("head") is None and values["width"] % many:
        raise FieldError(heads, f"{many} heads do not divide {names['width']} {values['width']}")
    if (shared := values.get("kv_heads")) and many % shared:
        raise FieldError(names["kv_heads"], f"{shared} does not divide {heads} {many}")
    try:
        return check(ModelConfig, values)
    except FieldError as error:
        first, *inner = error.path or ("model_type",)
        raise FieldError((names.get(str(first), first), *inner), error.reason) from None


def _our_value(field: str, name: str, value: Any) -> Any:
    """The value of our field `field` for the value of their field `name`."""
    if field != "activation":
        return value
    if value not in ACTIVATIONS:
        raise FieldError(name, f"{shown(value)} is not known{choices_for(value, ACTIVATIONS)}")
    return ACTIVATIONS[value]


def _encoding(config: Mapping[str, Any]) -> Encoding | Encodings:
    """The encoding; for T5 an `Encodings`, whose cross-attention has no scale."""
    if config["model_type"] == "deberta-v2":
        return _with_bias(from_huggingface(config))
    if config["model_type"] != "t5":
        return from_huggingface(config)
    sides = parts_from_huggingface({**config, "is_decoder": False, "is_encoder_decoder": True})
    return Encodings(*(side for side in sides.values() if isinstance(side, Encoding)))


def _with_bias(encoding: Encoding) -> Encoding:
    """DeBERTa's encoding with a bias on the queries of offsets. A bias of keys would change no
    weight.
    """
    assert encoding.at is not None
    init, at = encoding.init, encoding.at

    def init_biased(key, dims):
        zeros_HC = jnp.zeros((dims.heads, dims.head))
        return {**init(key, dims), "bias": (zeros_HC,) * dims.layers}

    def at_biased(layer, params, *placed):
        layer_encoding, layer_params, *placed = at(layer, params, *placed)
        bias_HC = pick_layer(params["bias"], layer)
        return (
            layer_encoding,
            {**layer_params, "queries": layer_params["queries"] + bias_HC[None]},
            *placed,
        )

    return encoding._replace(init=init_biased, at=at_biased)


def _logit_scale(kind: str, fields: Fields, model: ModelConfig) -> float:
    """What the read-out's logits are multiplied by."""
    if kind.startswith("cohere"):
        return typed(("logit_scale",), Positive, fields.get("logit_scale", default=0.0625))
    if kind == "granite":  # a read-out that is the embedding has been multiplied with it
        embedded = fields.get("embedding_multiplier", default=1.0) if model.tied else 1.0
        return 1 / (embedded * fields.get("logits_scaling", default=1.0))
    return model.logit_scale


def _factors(kind: str, fields: Fields, model: ModelConfig) -> dict[str, float]:
    """`Released.factors`: the scales that are multiplied into weights."""
    if kind in ("gemma2", "gemma3_text"):
        scaled = "query_norm/scale" if model.qk_norm else "query/kernel"
        scale = fields.get("query_pre_attn_scalar", default=256.0)
        return {scaled: (model.dims.head / scale) ** 0.5}
    if kind == "granite":
        products = fields.get("attention_multiplier", default=1.0) * model.dims.head**0.5
        added = fields.get("residual_multiplier", default=1.0)
        parts = {"query": products, "out": added, "down": added}
        scaled = {f"{part}/{leaf}": x for part, x in parts.items() for leaf in ("kernel", "bias")}
        return {**scaled, "embed": fields.get("embedding_multiplier", default=1.0)}
    # Older files say by the tie of a read-out to the embedding that logits are scaled.
    if kind.startswith("t5") and fields.get("scale_decoder_outputs", default=model.tied):
        return {"decoder/norm/scale": model.width**-0.5}
    return {}
