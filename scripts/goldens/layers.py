"""Layouts over layers: attention modules of transformers, one layer at a time."""

from collections.abc import Iterator

import torch
from transformers import Gemma3TextConfig, GptOssConfig, Llama4TextConfig, Olmo3Config
from transformers.masking_utils import (
    create_causal_mask,
    create_chunked_causal_mask,
    create_sliding_window_causal_mask,
)
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama4 import modeling_llama4
from transformers.models.olmo3 import modeling_olmo3

from .golden import Golden, attended, count, normal, projected, reset


def irope() -> Iterator[Golden]:
    """The third of three layers has no positions, and a temperature that grows by steps of 4."""
    heads, head, time = 2, 6, 13
    config = Llama4TextConfig(
        hidden_size=12, num_attention_heads=heads, num_key_value_heads=heads, head_dim=head,
        num_hidden_layers=3, no_rope_layers=[1, 1, 0], floor_scale=4, attn_scale=0.3,
        attention_chunk_size=5, use_qk_norm=False, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
    )  # fmt: skip
    freqs = modeling_llama4.Llama4TextRotaryEmbedding(config)(torch.zeros(1), count(time))
    late = torch.full((time, time), -torch.inf).triu(1)[None, None]
    options = {"every": 3, "pairing": "interleaved", "temperature": 0.3, "floor": 4}
    chunks = create_chunked_causal_mask(
        config, torch.zeros(1, time, 12), None, None, position_ids=count(time)
    )
    for name, layer, mask, more, wrong in (
        ("llama4 1", 1, late, {}, {"pairing": "half"}),
        ("llama4 2", 2, late, {}, {"temperature": 0.0}),
        ("llama4 chunks", 1, chunks, {"chunk": 5}, {"chunk": 6}),
    ):
        case = f"irope/{name}"
        module = reset(modeling_llama4.Llama4TextAttention(config, layer), case)
        x = normal(case, 1, time, 12)
        _, probs = module(x, freqs, mask)
        q, k = projected(x, heads, module.q_proj, module.k_proj)
        yield attended(
            case, "transformers", "Llama4TextAttention", options | more, wrong, q, k, probs,
            layer=layer,
        )  # fmt: skip


def local_global() -> Iterator[Golden]:
    """Two layers with a window of four tokens, then one that sees all, scaled in the last case."""
    scaling = {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    yield gemma3("gemma3 1", 1, {}, {"window": 5})
    yield gemma3("gemma3 2", 2, {}, {"base": 1e4})
    yield gemma3("gemma3 scaled", 2, {"factor": 8.0}, {"factor": 1.0}, **scaling)


def gemma3(name, layer, options, wrong, **settings) -> Golden:
    heads, head, time = 2, 8, 11
    config = Gemma3TextConfig(
        hidden_size=16, num_attention_heads=heads, num_key_value_heads=heads, head_dim=head,
        num_hidden_layers=3, sliding_window=4, sliding_window_pattern=3,
        query_pre_attn_scalar=head, attn_implementation="eager", **settings,
    )  # fmt: skip
    turns = modeling_gemma3.Gemma3RotaryEmbedding(config)(
        torch.zeros(1), count(time), config.layer_types[layer]
    )
    module = modeling_gemma3.Gemma3Attention(config, layer)
    options = {"every": 3, "window": 4} | options
    return windows(f"local_global/{name}", config, module, turns, options, wrong, layer)


def windows(case, config, module, turns, options, wrong, layer) -> Golden:
    """One layer of a model whose layers have a window, except some."""
    heads, time = config.num_attention_heads, 11
    reset(module, case)
    if hasattr(module, "sinks"):
        module.sinks.data.fill_(-1e9)  # takes no part
    x = normal(case, 1, time, config.hidden_size)
    local = config.layer_types[layer] == "sliding_attention"
    make_mask = create_sliding_window_causal_mask if local else create_causal_mask
    mask = make_mask(config, x, None, None, position_ids=count(time))
    _, probs = module(x, turns, mask)
    q, k = normed(module, "q", x, heads), normed(module, "k", x, heads)
    return attended(
        case, "transformers", type(module).__name__, options, wrong, q, k, probs, layer=layer
    )  # fmt: skip


def normed(module, side: str, x: torch.Tensor, heads: int) -> torch.Tensor:
    """Queries or keys [B, T, H, C] after their norm, if any: of each head, or of all at once."""
    projection = getattr(module, f"{side}_proj")(x)
    norm = getattr(module, f"{side}_norm", None)
    apart = projection.reshape(*x.shape[:2], heads, -1)
    if norm is None:
        return apart
    of_a_head = norm.weight.shape[0] == apart.shape[-1]
    return norm(apart) if of_a_head else norm(projection).reshape(apart.shape)


YARN = {
    "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512,
    "beta_fast": 32.0, "beta_slow": 1.0, "rope_theta": 1e4,
}  # fmt: skip


def olmo3() -> Iterator[Golden]:
    """A layer with a window and rope, then one with YaRN that sees all."""
    plain = {"rope_type": "default", "rope_theta": 1e4}
    config = Olmo3Config(
        hidden_size=32, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=2,
        layer_types=["sliding_attention", "full_attention"], sliding_window=4,
        max_position_embeddings=4096,
        rope_parameters={"sliding_attention": plain, "full_attention": YARN},
        attn_implementation="eager",
    )  # fmt: skip
    rotary = modeling_olmo3.Olmo3RotaryEmbedding(config)
    options = {"every": 2, "window": 4, "base": 1e4, "factor": 8.0, "length": 512}
    for layer, wrong in ((0, {"window": 5}), (1, {"factor": 1.0})):
        turns = rotary(torch.zeros(1), count(11), config.layer_types[layer])
        module = modeling_olmo3.Olmo3Attention(config, layer)
        yield windows(f"olmo3/layer {layer}", config, module, turns, options, wrong, layer)


def gpt_oss() -> Iterator[Golden]:
    """A layer with a window, then one that sees all, both with YaRN; no sinks."""
    config = GptOssConfig(
        hidden_size=32, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        num_hidden_layers=2, sliding_window=4, max_position_embeddings=4096,
        rope_parameters=YARN | {"truncate": False},
        attn_implementation="eager",
    )  # fmt: skip
    turns = modeling_gpt_oss.GptOssRotaryEmbedding(config)(torch.zeros(1), count(11))
    options = {"window": 4, "base": 1e4, "factor": 8.0, "length": 512}
    for layer, wrong in ((0, {"window": 5}), (1, {"factor": 1.0})):
        module = modeling_gpt_oss.GptOssAttention(config, layer)
        yield windows(f"gpt_oss/layer {layer}", config, module, turns, options, wrong, layer)
