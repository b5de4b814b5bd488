"""Small random models of the types of transformers, whose fields of positions are those of the
default config.
"""

# pyright: reportMissingImports=false

import importlib
import inspect
import json
import pkgutil
import re
from typing import Any

import transformers
from transformers import PretrainedConfig
from transformers import models as families

IDS = 61  # the vocabulary
# Names of sizes, and what they are in a small model.
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim"), 32),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "n_head", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("num_swa_attention_heads", "swa_num_attention_heads"), 2),
    **dict.fromkeys(("swa_num_key_value_heads", "num_global_key_value_heads"), 2),
    **dict.fromkeys(("head_dim", "swa_head_dim", "global_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "ffn_dim", "n_inner"), 32),
    **dict.fromkeys(("shared_expert_intermediate_size", "intermediate_size_mlp"), 32),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_hidden_size"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 2),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "n_group"), 1),
    **dict.fromkeys(("topk_group", "num_group", "num_expert_group"), 1),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts"), 1),
    "vocab_size": IDS, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "qk_head_dim": 16,
    "q_lora_rank": 8, "kv_lora_rank": 8, "first_k_dense_replace": 100, "index_topk": 64,
    "index_n_heads": 2, "index_head_dim": 16, "sliding_window": 4, "attention_chunk_size": 5,
    "vocab_size_per_layer_input": IDS, "hidden_size_per_layer_input": 4, "rotary_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "local_attention": 6, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "floor_scale": 4,
}  # fmt: skip
LAYERS = "num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"
# Fields of a small model that others have not.
SECTIONS = {"mrope_section": [2, 3, 3]}
HALF = {"mrope_section": [1, 2, 1], "partial_rotary_factor": 0.5}
INTERLEAVED = {"mrope_section": [4, 2, 2]}
QUARTER = {"mrope_section": [2, 1, 1], "partial_rotary_factor": 0.25}
SPECIAL: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"num_experts": 8, "n_group": 1, "topk_group": 1},
    "step3p5": {"sliding_window": 4},
    "bamba": {"attn_layer_indices": [1, 3], "mamba_n_heads": 4, "mamba_d_head": 16},
    "granitemoehybrid": {
        "mamba_n_heads": 4, "mamba_d_head": 16, "num_hidden_layers": 2,
        "layer_types": ["mamba", "attention"],
    },
    "zamba2": {
        "num_hidden_layers": 2, "layers_block_type": ["linear_attention", "hybrid"],
        "n_mamba_heads": 4, "mamba_d_state": 8, "intermediate_size": 32, "num_mem_blocks": 1,
    },
    "cosmos3_edge_text": {"rope_parameters": INTERLEAVED},
    "ernie4_5_vl_moe_text": {"moe_intermediate_size": [16, 16],
                             "rope_parameters": {"mrope_section": [3, 3, 2]}},
    "jetmoe": {"kv_channels": 16},
    **{kind: {"global_head_dim": 32}  # other than that of layers with a window
       for kind in ("embedding_gemma2_text", "gemma4_text", "gemma4_unified_text")},
    "glm5_next_text": {"qk_rope_head_dim": 0, "qk_head_dim": 8, "head_dim": 8},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "dots3_note_text": {
        "head_dim": 32, "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2,
        "swa_head_dim": 24, "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 16,
        "swa_q_lora_rank": 8, "swa_kv_lora_rank": 8,
    },
    "hy_v4_vl_text": {"rope_parameters": {"mrope_section": [2, 1, 1]}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_hidden_layers": 4},
    "mimo_v2_flash": {"swa_head_dim": 16, "swa_v_head_dim": 16},
    "mistral4": {"rope_parameters": {"rope_theta": 1e4}},
    "nemotron3_5_transcribe_word_timestamp": {"blank_token_id": 3},
    **{f"{kind}_text": {"rope_parameters": HALF}
       for kind in ("glm4v", "glm_ocr", "glm4v_moe", "glm_image")},
    **{kind: {"rope_parameters": SECTIONS}
       for kind in ("paddleocr_vl_text", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text",
                    "qwen2_5_omni_talker")},
    **{f"{kind}_text": {"rope_parameters": QUARTER, "head_dim": 32}
       for kind in ("qwen3_5_moe", "qwen3_5", "qwen4_exp")},
    **{f"{kind}_text": {"rope_parameters": INTERLEAVED}
       for kind in ("qwen3_omni_moe_talker", "qwen3_omni_moe", "qwen3_vl_moe", "qwen3_vl")},
}  # fmt: skip
# Further settings of a type: fields of the small model.
YARN = {
    "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16, "rope_theta": 1e4,
}  # fmt: skip
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "apertus": {"plain": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}},
    "deepseek_v32": {"yarn": {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}}},
    "deepseek_v3": {"half": {"rope_interleave": False}},
    "ernie4_5": {"llama3": {"rope_parameters": LLAMA3}},
    "granitemoehybrid": {"rope": {"position_embedding_type": "rope"}},
    "hunyuan_v1_dense": {"alpha": {"rope_parameters": {
        "rope_type": "dynamic", "alpha": 8.0, "factor": 1.0, "rope_theta": 1e4,
    }}},
    "qwen2_5_vl_text": {"yarn": {"rope_parameters": YARN | {"mrope_section": [2, 3, 3]}}},
    "zamba2": {"rope": {"use_mem_rope": True}},
}  # fmt: skip
# What of a config is frozen: fields of positions and sizes.
POSITIONAL = re.compile(
    "rope|rotary|position|sliding|window|layer_types|chunk|temperature|attn_scale|floor_scale"
    "|head|local_attention|qk_rope|hidden_size|n_embd|d_model|layers|block_types|every|pad_token"
)
TABLE = re.compile("pos_?emb|position.*emb|embed_positions|pos_embed|wpe|positions_embed")
# Types of parts that no config.json has of its own: Bark's.
INNER = {"coarse_acoustics", "fine_acoustics", "semantic"}
KEPT = {
    "position_embedding_type",
    "use_mem_rope",
    "rope_interleave",
    "use_sliding_window",
    "use_bidirectional_attention",
    "sliding_window",
}


def config_classes() -> dict[str, type[PretrainedConfig]]:
    """The config class of each type of transformers."""
    classes = {}
    for family in pkgutil.iter_modules(families.__path__):
        name = f"{families.__name__}.{family.name}"
        for module in pkgutil.iter_modules(importlib.import_module(name).__path__):
            if not module.name.startswith("configuration_"):
                continue
            members: Any = vars(importlib.import_module(f"{name}.{module.name}")).values()
            for member in members:
                ours = inspect.isclass(member) and issubclass(member, PretrainedConfig)
                if not ours or not member.__module__.endswith(module.name):
                    continue
                if kind := getattr(member, "model_type", ""):
                    classes.setdefault(kind, member)
    return classes


def small(kind: str, cls: type[PretrainedConfig], **more: Any) -> PretrainedConfig:
    """A config of a small model, whose fields of positions are those of the default one."""
    default = cls()
    fields = default.to_dict()
    changes: dict[str, Any] = {n: size for n, size in SIZES.items() if fields.get(n) is not None}
    changes |= {"head_dim": 16} if "head_dim" in fields else {}
    count = 6
    if fields.get("layer_types"):
        kinds = list(fields["layer_types"])
        count = min(len(kinds), 6)
        for name in dict.fromkeys(kinds):  # every type of layer is among them
            if name not in kinds[:count]:
                kinds[count - 1] = name
        changes["layer_types"] = kinds[:count]
    for name in ("no_rope_layers", "layer_rope_theta", "mlp_layer_types", "block_types"):
        if isinstance(fields.get(name), list):
            changes[name] = fields[name][:count]
    changes |= {name: count for name in LAYERS if fields.get(name) is not None}
    if fields.get("qk_rope_head_dim"):  # where `head_dim` is that of the channels that turn
        changes |= {"head_dim": SIZES["qk_rope_head_dim"]}
    special = dict(SPECIAL.get(kind, {}))
    if "rope_parameters" in special:
        rope = {**(fields.get("rope_parameters") or {}), **special["rope_parameters"]}
        special["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, **rope}
    return cls(**{**changes, **special, **more})


def model_class(cls: type[PretrainedConfig]) -> type:
    """The model of a config's class without a head."""
    if cls.__name__ == "PPChart2TableVisionConfig":  # a config without code of its own
        return transformers.models.got_ocr2.modeling_got_ocr2.GotOcr2VisionEncoder
    package = cls.__module__.rpartition(".")[0]
    candidates = []
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name.startswith("modeling_"):
            for name, thing in vars(importlib.import_module(f"{package}.{module.name}")).items():
                mine = inspect.isclass(thing) and issubclass(thing, transformers.PreTrainedModel)
                if mine and getattr(thing, "config_class", None) is cls:
                    candidates += [] if re.search("PreTrained|For[A-Z]", name) else [thing]
    if not candidates and cls in transformers.AutoModel._model_mapping:
        return transformers.AutoModel._model_mapping[cls]
    if not candidates:
        raise ValueError(f"no model without a head has {cls.__name__} as its config_class")
    ends = ("Encoder", "Decoder", "Transformer", "TextModel", "Model")  # the last one is best

    def rank(thing) -> tuple[int, int]:
        name = thing.__name__
        part = name.endswith(("EncoderModel", "DecoderModel"))
        return max(
            (n for n, end in enumerate(ends) if name.endswith(end)), default=-1
        ) - part, -len(name)

    return max(candidates, key=rank)


def plain(config: PretrainedConfig) -> dict[str, Any]:
    """The config as its file has it."""
    fields = json.loads(config.to_json_string(use_diff=False))
    return {"model_type": config.model_type} | {
        name: value
        for name, value in fields.items()
        if (value is not None and POSITIONAL.search(name) and not isinstance(value, str | bool))
        or name in KEPT
    }


def defaults(cls: type[PretrainedConfig]) -> dict[str, Any]:
    """The fields of a type's default config that we read, or that name positions, as a file has
    them.
    """
    from posenc_jax.huggingface.fields import POSITIONAL as POSITIONS
    from posenc_jax.huggingface.fields import TYPES

    def read(config: dict[str, Any]) -> dict[str, Any]:
        part = lambda value: isinstance(value, dict) and "model_type" in value
        return {
            name: read(value) if part(value) else value
            for name, value in config.items()
            if value is not None and (name in TYPES or POSITIONS.search(name) or part(value))
        }

    return {**read(json.loads(json.dumps(cls().to_dict()))), "model_type": cls.model_type}
