"""Names of weights: our path -> the tensor's name in the files of a released model.

A path is that of a module, whose kernel, scale or table is theirs with ".weight" and whose bias is
theirs with ".bias", or that of one array, whose name is then whole. A star is a layer's number.
`qkv` stands for query, key and value, which some models keep in one tensor.
"""

Names = dict[str, str]


def _layers(theirs: str, **parts: str) -> Names:
    """The names of a layer's parts, each inside `theirs`."""
    return {f"block_*/{part}": f"{theirs}.*.{name}" for part, name in parts.items()}


def _inside(prefix: str, names: Names) -> Names:
    """The names with `prefix` before each path."""
    return {f"{prefix}/{path}": name for path, name in names.items()}


_ATTENTION = {part: f"self_attn.{part[0]}_proj" for part in ("query", "key", "value", "out")}
_GATED = {part: f"mlp.{part}_proj" for part in ("gate", "up", "down")}
_QK_NORM = {"query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm"}
_ENDS = {"embed": "model.embed_tokens", "norm": "model.norm", "read_out": "lm_head"}

LLAMA = _ENDS | _layers(
    "model.layers",
    attention_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
    **_ATTENTION, **_QK_NORM, **_GATED,
)  # fmt: skip
_FUSED_GATE = {"gate_up": "mlp.gate_up_proj", "down": "mlp.down_proj"}
PHI3 = _ENDS | _layers(
    "model.layers",
    attention_norm="input_layernorm",
    qkv="self_attn.qkv_proj",
    out="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    **_FUSED_GATE,
)  # fmt: skip
GLM = _ENDS | _layers(
    "model.layers",
    attention_norm="input_layernorm",
    mlp_norm="post_attention_layernorm",
    **_ATTENTION, **_FUSED_GATE,
)  # fmt: skip
GLM4 = GLM | _layers(
    "model.layers",
    attention_out_norm="post_self_attn_layernorm",
    mlp_out_norm="post_mlp_layernorm",
)  # fmt: skip
COHERE = _ENDS | _layers(
    "model.layers",
    attention_norm="input_layernorm",
    mlp_norm="input_layernorm",
    **_ATTENTION, **_GATED,
)  # fmt: skip
OLMO2 = _ENDS | _layers(
    "model.layers",
    attention_out_norm="post_attention_layernorm",
    mlp_out_norm="post_feedforward_layernorm",
    **_ATTENTION, **_QK_NORM, **_GATED,
)  # fmt: skip
GEMMA = _ENDS | _layers(
    "model.layers",
    attention_norm="input_layernorm",
    attention_out_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_out_norm="post_feedforward_layernorm",
    **_ATTENTION, **_QK_NORM, **_GATED,
)  # fmt: skip
GPT2 = {
    "embed": "transformer.wte",
    "encoding/table": "transformer.wpe.weight",
    "norm": "transformer.ln_f",
    "read_out": "lm_head",
} | _layers(
    "transformer.h",
    attention_norm="ln_1",
    qkv="attn.c_attn",
    out="attn.c_proj",
    mlp_norm="ln_2",
    up="mlp.c_fc",
    down="mlp.c_proj",
)
GPT_NEOX = {
    "embed": "gpt_neox.embed_in",
    "norm": "gpt_neox.final_layer_norm",
    "read_out": "embed_out",
} | _layers(
    "gpt_neox.layers",
    attention_norm="input_layernorm",
    qkv="attention.query_key_value",
    out="attention.dense",
    mlp_norm="post_attention_layernorm",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
BLOOM = {
    "embed": "transformer.word_embeddings",
    "embed_norm": "transformer.word_embeddings_layernorm",
    "norm": "transformer.ln_f",
    "read_out": "lm_head",
} | _layers(
    "transformer.h",
    attention_norm="input_layernorm",
    qkv="self_attention.query_key_value",
    out="self_attention.dense",
    mlp_norm="post_attention_layernorm",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)
MPT = {
    "embed": "transformer.wte",
    "norm": "transformer.norm_f",
    "read_out": "lm_head",
} | _layers(
    "transformer.blocks",
    attention_norm="norm_1",
    qkv="attn.Wqkv",
    out="attn.out_proj",
    mlp_norm="norm_2",
    up="ffn.up_proj",
    down="ffn.down_proj",
)


def _bert(prefix: str, query: str = "query", key: str = "key", value: str = "value") -> Names:
    """An encoder of BERT's kind, without its head."""
    return {
        "embed": f"{prefix}.embeddings.word_embeddings",
        "embed_norm": f"{prefix}.embeddings.LayerNorm",
    } | _layers(
        f"{prefix}.encoder.layer",
        query=f"attention.self.{query}",
        key=f"attention.self.{key}",
        value=f"attention.self.{value}",
        out="attention.output.dense",
        attention_out_norm="attention.output.LayerNorm",
        up="intermediate.dense",
        down="output.dense",
        mlp_out_norm="output.LayerNorm",
    )


def _rows(prefix: str) -> Names:
    """The name of BERT's table of positions."""
    return {"encoding/table": f"{prefix}.embeddings.position_embeddings.weight"}


_BERT_HEAD = {
    "transform": "cls.predictions.transform.dense",
    "transform_norm": "cls.predictions.transform.LayerNorm",
    "read_out_bias": "cls.predictions.bias",
}
BERT = _bert("bert") | _BERT_HEAD | _rows("bert")
ROBERTA = (
    _bert("roberta")
    | _rows("roberta")
    | {
        "transform": "lm_head.dense",
        "transform_norm": "lm_head.layer_norm",
        "read_out_bias": "lm_head.bias",
    }
)
MODERNBERT = {
    "embed": "model.embeddings.tok_embeddings",
    "embed_norm": "model.embeddings.norm",
    "norm": "model.final_norm",
    "transform": "head.dense",
    "transform_norm": "head.norm",
    "read_out_bias": "decoder.bias",
} | _layers(
    "model.layers",
    attention_norm="attn_norm",
    qkv="attn.Wqkv",
    out="attn.Wo",
    mlp_norm="mlp_norm",
    gate_up="mlp.Wi",
    down="mlp.Wo",
)
SIGLIP = {
    "embed": "vision_model.embeddings.patch_embedding",
    "encoding/table": "vision_model.embeddings.position_embedding.weight",
    "norm": "vision_model.post_layernorm",
} | _layers(
    "vision_model.encoder.layers",
    attention_norm="layer_norm1",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    out="self_attn.out_proj",
    mlp_norm="layer_norm2",
    up="mlp.fc1",
    down="mlp.fc2",
)
DEBERTA = _bert("deberta", "query_proj", "key_proj", "value_proj") | _BERT_HEAD


def _t5_side(side: str, mlp: int, **parts: str) -> Names:
    """The encoder or the decoder of T5, whose layer number `mlp` of a block is the MLP."""
    blocks = _layers(
        f"{side}.block",
        attention_norm="layer.0.layer_norm",
        **{part: f"layer.0.SelfAttention.{part[0]}" for part in ("query", "key", "value", "out")},
        mlp_norm=f"layer.{mlp}.layer_norm",
        **{part: f"layer.{mlp}.DenseReluDense.{name}" for part, name in parts.items()},
    )
    table = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    ends = {"embed": "shared", "encoding/table": table, "norm": f"{side}.final_layer_norm"}
    return _inside(side, ends | blocks)


def _t5(**parts: str) -> Names:
    """Both sides of T5; the names of the MLP's parts differ between its versions."""
    crossed = _layers(
        "decoder.block",
        cross_norm="layer.1.layer_norm",
        **{
            f"cross_{part}": f"layer.1.EncDecAttention.{part[0]}"
            for part in ("query", "key", "value", "out")
        },
    )
    sides = _t5_side("encoder", 1, **parts) | _t5_side("decoder", 2, **parts)
    return sides | _inside("decoder", crossed | {"read_out": "lm_head"})


T5 = _t5(up="wi", down="wo")
T5_GATED = _t5(gate="wi_0", up="wi_1", down="wo")
