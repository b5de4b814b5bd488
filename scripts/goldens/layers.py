"""Layouts over layers: attention modules of transformers, one layer at a time."""

from collections.abc import Iterator

import torch
from transformers import Gemma3TextConfig, Llama4TextConfig
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.llama4 import modeling_llama4

from .golden import Golden, attended, count, normal, projected, reset


def irope() -> Iterator[Golden]:
    """The third of three layers has no positions, and a temperature that grows by steps of 4."""
    heads, head, time = 2, 6, 13
    config = Llama4TextConfig(
        hidden_size=12, num_attention_heads=heads, num_key_value_heads=heads, head_dim=head,
        num_hidden_layers=3, no_rope_layers=[1, 1, 0], floor_scale=4, attn_scale=0.3,
        use_qk_norm=False, rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        attn_implementation="eager",
    )  # fmt: skip
    freqs = modeling_llama4.Llama4TextRotaryEmbedding(config)(torch.zeros(1), count(time))
    late = torch.full((time, time), -torch.inf).triu(1)[None, None]
    options = {"every": 3, "pairing": "interleaved", "temperature": 0.3, "floor": 4}
    for layer, wrong in ((1, {"pairing": "half"}), (2, {"temperature": 0.0})):
        case = f"irope/llama4 {layer}"
        module = reset(modeling_llama4.Llama4TextAttention(config, layer), case)
        x = normal(case, 1, time, 12)
        _, made = module(x, freqs, late)
        q, k = projected(x, heads, module.q_proj, module.k_proj)
        yield attended(
            case, "transformers", "Llama4TextAttention", options, wrong, q, k, made, layer=layer
        )  # fmt: skip


def local_global() -> Iterator[Golden]:
    """Two layers with a window of four tokens, then one that sees all."""
    heads, head, time = 2, 8, 11
    config = Gemma3TextConfig(
        hidden_size=16, num_attention_heads=heads, num_key_value_heads=heads, head_dim=head,
        num_hidden_layers=3, sliding_window=4, sliding_window_pattern=3,
        query_pre_attn_scalar=head, attn_implementation="eager",
    )  # fmt: skip
    rotary = modeling_gemma3.Gemma3RotaryEmbedding(config)
    options = {"every": 3, "window": 4}
    for layer, wrong in ((1, {"window": 5}), (2, {"base": 1e4})):
        case = f"local_global/gemma3 {layer}"
        module = reset(modeling_gemma3.Gemma3Attention(config, layer), case)
        x = normal(case, 1, time, 16)
        make_mask = (create_sliding_window_causal_mask, create_causal_mask)[layer - 1]
        mask = make_mask(config, x, None, None, position_ids=count(time))
        turns = rotary(torch.zeros(1), count(time), config.layer_types[layer])
        _, made = module(x, turns, mask)
        q, k = projected(x, heads, module.q_proj, module.k_proj)
        q, k = module.q_norm(q), module.k_norm(k)
        yield attended(
            case, "transformers", "Gemma3Attention", options, wrong, q, k, made, layer=layer
        )
