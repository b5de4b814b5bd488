"""Fields of released models' config.json that decide their shapes."""

LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_scaling": None, "pretraining_tp": 1,
    "tie_word_embeddings": False,
}  # fmt: skip
PYTHIA = {
    "model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512, "intermediate_size": 2048,
    "num_hidden_layers": 6, "num_attention_heads": 8, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
    "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": True,
    "tie_word_embeddings": False,
}  # fmt: skip
