"""Whole models of transformers, by their config.json: what each layer's attention weighs.

A model runs twice with the same weights: once with its positions, and once without. Attention gives
zeros both times, so that layers have the same input. The queries and keys of the second run are
those before a rotation, and the weights of the first are the golden.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .golden import arrays, reset

TIME, IDS = 11, 23
SMALL = {
    "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 16, "vocab_size": IDS, "max_position_embeddings": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 4.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0, 9.0, 9.0],
}  # fmt: skip
LOCAL, GLOBAL = "sliding_attention", "full_attention"
EXPERTS = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1}
LATENT = {
    "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 6, "qk_rope_head_dim": 8,
    "v_head_dim": 8, "first_k_dense_replace": 2, "head_dim": 8, "n_group": 1, "topk_group": 1,
    "n_routed_experts": 2,
}  # fmt: skip


def default(**more) -> dict:
    return {"rope_parameters": {"rope_type": "default", **more}}


# case -> (model_type, the config's own fields, fields of a wrong config)
CASES = {
    "llama old": ("llama", {"rope_theta": 5e5, "rope_scaling": None}, {"rope_theta": 1e4}),
    "llama grouped": (
        "llama",
        {"num_attention_heads": 4, "rope_theta": 1e3},
        {"rope_theta": 1e4},
    ),
    "llama linear": (
        "llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, {"rope_scaling": None},
    ),
    "llama dynamic": (
        "llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0},
                  "max_position_embeddings": 8},
        {"max_position_embeddings": 64},
    ),
    "llama llama3": (
        "llama", {"rope_theta": 5e5, "rope_scaling": LLAMA3}, {"rope_scaling": None},
    ),
    "mistral": ("mistral", {"sliding_window": 4}, {"sliding_window": 5}),
    "mixtral": ("mixtral", EXPERTS, {"rope_theta": 1e4}),
    "ministral": ("ministral", {"sliding_window": 4, "head_dim": 16,
                                "layer_types": [LOCAL, GLOBAL]}, {"layer_types": [LOCAL]}),
    "qwen2 window": (
        "qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
        {"max_window_layers": 0},
    ),
    "qwen2 yarn": (
        "qwen2", {"rope_scaling": YARN | {"attention_factor": 1.25}, "use_sliding_window": False,
                  "sliding_window": 4},
        {"rope_scaling": YARN},
    ),
    "qwen3": ("qwen3", {"head_dim": 16, "rope_theta": 1e6}, {"rope_theta": 1e4}),
    "qwen3_moe": (
        "qwen3_moe",
        {"head_dim": 16, "moe_intermediate_size": 8, "use_sliding_window": True,
         "sliding_window": 4, "max_window_layers": 1} | EXPERTS,
        {"sliding_window": 5},
    ),
    "gemma": ("gemma", {"head_dim": 16}, {"rope_theta": 100.0}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 4}, {"sliding_window": 5}),
    "gemma3": (
        "gemma3_text", {"head_dim": 16, "sliding_window": 4, "sliding_window_pattern": 2,
                        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
                        "rope_theta": 1e6, "rope_local_base_freq": 1e4},
        {"rope_local_base_freq": 1e3},
    ),
    "gemma4": (
        "gemma4_text", {"head_dim": 16, "global_head_dim": 16, "sliding_window": 4,
                        "layer_types": [LOCAL, GLOBAL],
                        "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": IDS,
                        "rope_parameters": {LOCAL: {"rope_type": "default", "rope_theta": 1e4},
                                            GLOBAL: {"rope_type": "proportional",
                                                     "partial_rotary_factor": 0.25,
                                                     "rope_theta": 1e6}}},
        {"rope_parameters": {LOCAL: {"rope_type": "default", "rope_theta": 1e4},
                             GLOBAL: {"rope_type": "default", "rope_theta": 1e6}}},
    ),
    "phi": ("phi", {"rope_scaling": None, "partial_rotary_factor": 0.25},
            {"partial_rotary_factor": 0.5}),
    "phi3 longrope": (
        "phi3", {"rope_scaling": LONG, "original_max_position_embeddings": 8,
                 "partial_rotary_factor": 0.75},
        {"original_max_position_embeddings": 16},
    ),
    "gpt_neox": ("gpt_neox", {"rotary_pct": 0.5, "rotary_emb_base": 1e3}, {"rotary_pct": 0.25}),
    "cohere": ("cohere", {}, {"rope_theta": 1e4}),
    "cohere2": (
        "cohere2", {"sliding_window": 4, "sliding_window_pattern": 2}, {"sliding_window": None},
    ),
    "glm": ("glm", {"head_dim": 16}, {"partial_rotary_factor": 1.0}),
    "glm4": ("glm4", {"head_dim": 16}, {"partial_rotary_factor": 1.0}),
    "helium": ("helium", {"head_dim": 16}, {"rope_theta": 1e4}),
    "olmo2": ("olmo2", {"rope_theta": 5e5}, {"rope_theta": 1e4}),
    "olmo3": (
        "olmo3", {"sliding_window": 4, "layer_types": [LOCAL, GLOBAL], "rope_theta": 5e5,
                  "rope_scaling": YARN},
        {"rope_scaling": None},
    ),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0]}, {"no_rope_layers": [0, 1]}),
    "starcoder2": ("starcoder2", {"sliding_window": 4}, {"sliding_window": None}),
    "stablelm": ("stablelm", {}, {"partial_rotary_factor": 0.5}),
    "persimmon": ("persimmon", {}, {"partial_rotary_factor": 0.25}),
    "nemotron": ("nemotron", {"head_dim": 16}, {"partial_rotary_factor": 0.25}),
    "granite": ("granite", {"rope_theta": 1e3}, {"rope_theta": 1e4}),
    "exaone4": (
        "exaone4", {"sliding_window": 4, "sliding_window_pattern": 2, "rope_scaling": LLAMA3},
        {"sliding_window": None},
    ),
    "modernbert": (
        "modernbert", {"local_attention": 6, "global_attn_every_n_layers": 2},
        {"local_attention": 8},
    ),
    "gpt_oss": (
        "gpt_oss", {"head_dim": 16, "sliding_window": 4, "rope_theta": 150000.0,
                    "rope_scaling": YARN | {"truncate": False}} | EXPERTS,
        {"sliding_window": 5},
    ),
    "llama4": (
        "llama4_text", {"head_dim": 16, "no_rope_layers": [1, 0], "attention_chunk_size": 5,
                        "floor_scale": 4, "attn_scale": 0.3, "use_qk_norm": False,
                        "intermediate_size_mlp": 16} | EXPERTS,
        {"attn_scale": 0.1},
    ),
    "deepseek_v2": (
        "deepseek_v2", LATENT | {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.7}},
        {"rope_scaling": YARN},
    ),
    "deepseek_v3": (
        "deepseek_v3", LATENT | {"rope_scaling": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}},
        {"rope_scaling": YARN},
    ),
    "deepseek_v3 half": (
        "deepseek_v3",
        LATENT | {"rope_interleave": False, "rope_theta": 1e3},
        {"rope_interleave": True},
    ),
    "qwen2_vl": (
        "qwen2_vl_text", {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
        {"rope_scaling": {"type": "mrope", "mrope_section": [4, 2, 2]}},
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl_text", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
                                                "mrope_section": [2, 3, 3]}},
        {"rope_theta": 1e4, "rope_parameters": {"mrope_section": [2, 3, 3]}},
    ),
    "qwen3_vl": (
        "qwen3_vl_text", {"head_dim": 16, "rope_scaling": {"mrope_section": [4, 2, 2],
                                                           "mrope_interleaved": True}},
        {"rope_theta": 1e2},
    ),
    "gptj": ("gptj", {"rotary_dim": 8}, {"rotary_dim": 4}),
    "codegen": (
        "codegen", {"rotary_dim": 4, "num_attention_heads": 4, "hidden_size": 64},
        {"rotary_dim": 8},
    ),
    "falcon": (
        "falcon", {"alibi": False, "multi_query": False, "rope_theta": 1e3}, {"rope_theta": 1e4},
    ),
    "bloom": ("bloom", {}, {"model_type": "llama"}),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 2, "n_layers": 2}, {"model_type": "llama"}),
    "t5": (
        "t5", {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
               "d_kv": 8},
        {"is_decoder": True},
    ),
    "t5 decoder": (
        "t5", {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
               "is_decoder": True, "d_kv": 8, "num_decoder_layers": 2},
        {"relative_attention_max_distance": 9},
    ),
    "umt5": ("umt5", {"d_kv": 8}, {"relative_attention_max_distance": 17}),
    "deberta-v2": (
        "deberta-v2", {"relative_attention": True, "position_biased_input": False,
                       "pos_att_type": ["p2c", "c2p"], "position_buckets": 4,
                       "max_relative_positions": 9, "share_att_key": False},
        {"max_relative_positions": 12},
    ),
    "gpt2": ("gpt2", {"n_positions": 64}, {"n_positions": 32}),
    "bert": ("bert", {}, {"max_position_embeddings": 32}),
    "electra": ("electra", {"embedding_size": 32}, {"max_position_embeddings": 32}),
    "distilbert": ("distilbert", {"dim": 32, "n_heads": 2, "hidden_dim": 8, "n_layers": 2},
                   {"max_position_embeddings": 32}),
    "roberta": ("roberta", {"max_position_embeddings": 18, "pad_token_id": 1},
                {"model_type": "bert"}),
    "opt": ("opt", {"ffn_dim": 8, "word_embed_proj_dim": 32}, {"model_type": "bert"}),
    "xglm": ("xglm", {"d_model": 32, "attention_heads": 2, "ffn_dim": 8, "num_layers": 2},
             {"model_type": "roberta"}),
}  # fmt: skip
TABLES = "wpe", "position_embeddings", "embed_positions"
FUSED = "query_key_value", "Wqkv"


class Seen:
    """An attention that notes queries, keys, what is added to logits, and the scale.

    It gives zeros.
    """

    def __init__(self):
        self.layers: list[tuple[Any, ...]] = []

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **rest):
        every = lambda x: x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)
        added = 0 if attention_mask is None else attention_mask
        added = added + (0 if rest.get("position_bias") is None else rest["position_bias"])
        self.layers.append((query, key, added, scaling))
        return torch.zeros_like(every(value)).transpose(1, 2).contiguous(), None

    def of_gptj(self, query, key, value, attention_mask=None):
        """In place of `_attn` of GPT-J and CodeGen."""
        late = torch.full((TIME, TIME), -torch.inf).triu(1)
        self.layers.append((query, key, late, None))
        return torch.zeros_like(value), None


def still(module, args, made):
    """A forward hook for rotary embeddings: the rotation by 0."""
    if isinstance(made, tuple):
        return torch.ones_like(made[0]), torch.zeros_like(made[1])
    return torch.ones_like(made)


def seen(model, pos, moves: bool) -> list:
    """What attention is given in each layer; moves: whether the model's rotation acts."""
    AttentionInterface.register("seen", notes := Seen())
    AttentionMaskInterface.register("seen", eager_mask)
    model.config._attn_implementation = "seen"
    with ExitStack() as stack:
        for module in model.modules():
            if type(module).__name__.endswith("RotaryEmbedding") and not moves:
                stack.callback(module.register_forward_hook(still).remove)
            if hasattr(module, "attn_temperature_tuning") and not moves:
                module.attn_temperature_tuning = False
            if hasattr(module, "_attn"):
                stack.enter_context(mock.patch.object(module, "_attn", notes.of_gptj))
                if not moves:
                    module.embed_positions = torch.arange(2).repeat_interleave(
                        module.embed_positions.shape[-1] // 2
                    ).expand(TIME, -1).float()  # fmt: skip
        model(tokens(), **({} if pos is None else {"position_ids": pos}), use_cache=False)
    return notes.layers


def tokens() -> torch.Tensor:
    return torch.arange(TIME)[None] % (IDS - 3) + 3


def by_layer(model, pos, scaled: bool) -> dict[str, torch.Tensor]:
    """Queries and keys before rotation and the weights of each layer; `scaled` by the model."""
    found = {}
    moved = seen(model, pos, moves=True)
    rows = zip(moved, seen(model, pos, moves=False), strict=True)
    for n, ((q, k, added, scale), (q_still, k_still, _, _)) in enumerate(rows):
        size = 2 * q_still.std() * k_still.std()  # weights are then not one-hot
        scale = scale if scaled else q.shape[-1] ** -0.5
        every_k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        s = q @ every_k.transpose(2, 3) * scale / size + added
        found |= {f"{n}__q": q_still.transpose(1, 2) / size, f"{n}__k": k_still.transpose(1, 2)}
        found[f"{n}__weights"] = s.softmax(-1)
    return found


def fused(model) -> dict[str, torch.Tensor]:
    """The same of a model with an attention of its own, whose projections are one."""
    found, made = {}, []
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if name.endswith(FUSED):
                module.weight.mul_(0.1)
                hook = lambda module, args, out: made.append(out)
                stack.callback(module.register_forward_hook(hook).remove)
        attentions = model(tokens(), output_attentions=True, use_cache=False).attentions
    for n, (qkv, weights) in enumerate(zip(made, attentions, strict=True)):
        q, k = qkv.chunk(3, -1)[:2] if "mpt" in model.config.model_type else split(qkv)
        found |= {f"{n}__q": q.reshape(1, TIME, 2, -1), f"{n}__k": k.reshape(1, TIME, 2, -1)}
        found[f"{n}__weights"] = weights
    return found


def split(qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of Bloom and Falcon, whose heads have all three side by side."""
    q, k, _ = qkv.reshape(1, TIME, 2, 3, -1).unbind(3)
    return q, k


def table(model) -> dict[str, torch.Tensor]:
    """What the model adds to its embeddings, and the table that it is from."""
    made = []
    (module,) = (m for name, m in model.named_modules() if name.endswith(TABLES))
    module.register_forward_hook(lambda module, args, out: made.append(out))
    model(tokens())
    code = made[0].expand(1, -1, -1)
    learned = isinstance(module, torch.nn.Embedding)
    return {"code": code} | ({"params__table": module.weight} if learned else {})


def t5(model, decoder: bool) -> dict[str, torch.Tensor]:
    stack = model.decoder if decoder else model.encoder
    found = by_layer(stack, None, scaled=True)
    for n, block in enumerate(stack.block):
        attention = block.layer[0].SelfAttention
        if attention.has_relative_attention_bias:
            each = "params__" if model.config.model_type == "t5" else f"params__{n}__"
            found[f"{each}table"] = attention.relative_attention_bias.weight
    return found


def deberta(model) -> dict[str, torch.Tensor]:
    found: dict[str, Any] = {"params__table": model.encoder.rel_embeddings.weight}
    made: dict[str, list] = {"q": [], "k": []}
    for n, layer in enumerate(model.encoder.layer):
        own = layer.attention.self
        for side, kind in (("query", "queries"), ("key", "keys")):
            getattr(own, f"{side}_proj").weight.mul_(0.2)
            pos = getattr(own, f"pos_{side}_proj")
            pos.weight.mul_(0.2)
            if pos.bias is not None:
                pos.bias.zero_()
            found[f"params__{kind}__{n}"] = pos.weight.T.reshape(32, 2, 16)
            keep = lambda module, args, out, side=side: made[side[0]].append(out)
            getattr(own, f"{side}_proj").register_forward_hook(keep)
    attentions = model(tokens(), output_attentions=True).attentions
    for n, weights in enumerate(attentions):
        found |= {f"{n}__{x}": made[x][n].reshape(1, TIME, 2, 16) for x in "qk"}
        found[f"{n}__weights"] = weights
    return found


def frozen(case: str, model) -> dict[str, torch.Tensor]:
    kind = model.config.model_type
    if kind in ("bloom", "mpt", "falcon"):
        return fused(model)
    if kind in ("t5", "umt5"):
        return t5(model, "decoder" in case)
    if kind == "deberta-v2":
        return deberta(model)
    if any(name.endswith(TABLES) for name, _ in model.named_modules()):
        return table(model)
    pos = torch.arange(TIME)[None]
    if "vl" in kind:
        pos = torch.stack([pos, pos // 3, pos % 3])
        return {"pos": pos.permute(1, 2, 0)} | by_layer(model, pos, scaled=False)
    found = by_layer(model, pos, scaled=kind.startswith("deepseek"))
    if (
        kind == "deepseek_v3" and model.config.rope_interleave
    ):  # which reorders channels as it turns them
        for name in [f"{n}__{side}" for n in range(2) for side in "qk"]:
            plain, turned = found[name].split([6, 8], -1)
            found[name] = torch.cat([plain, turned.unflatten(-1, (2, 4)).mT.flatten(-2)], -1)
    return found


def models() -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """A row of the manifest, and arrays, of each model.

    config: as a user has it; saved: as transformers saves it; wrong: fields of a wrong one.
    """
    for case, (kind, fields, wrong) in CASES.items():
        config = {"model_type": kind, **SMALL, **fields}
        made = CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))
        saved = {"model_type": kind} | json.loads(made.to_json_string())
        made._attn_implementation = "eager"
        model = reset(transformers.AutoModel.from_config(made), case).float()
        causal = kind not in ("modernbert", "deberta-v2", "t5", "umt5") or "decoder" in case
        row = {"case": case, "config": config, "saved": saved, "wrong": wrong, "causal": causal}
        yield row, arrays(**frozen(case, model))
