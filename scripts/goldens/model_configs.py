"""The configs of whole models of transformers, of which `models` makes goldens."""

IDS = 23
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
