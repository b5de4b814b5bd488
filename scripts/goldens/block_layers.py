"""The whole attention of a small DeepSeek-V4, whose queries read tokens of a window and keys that
stand for blocks of tokens.
"""

# pyright: reportMissingImports=false

import sys
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import eager_mask

from goldens.compared import block_outputs_gap
from goldens.golden import reset
from goldens.layer_records import inputs_of
from goldens.small_models import IDS, YARN, model_class
from posenc_jax import make, parts_from_huggingface

# Fields of positions of the small model, by setting. Blocks are of 2 and of 4 tokens.
FIELDS: dict[str, Any] = {
    "num_hidden_layers": 3, "head_dim": 16, "partial_rotary_factor": 0.5, "sliding_window": 3,
    "layer_types": [
        "sliding_attention", "heavily_compressed_attention", "compressed_sparse_attention",
    ],
}  # fmt: skip
BLOCKS = {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}
SETTINGS = {"": {}, "yarn": {"rope_parameters": YARN}}
SIZES = {
    "vocab_size": IDS, "hidden_size": 32, "num_attention_heads": 2, "q_lora_rank": 8,
    "moe_intermediate_size": 16, "n_routed_experts": 2, "num_experts_per_tok": 1, "hc_mult": 2,
    "o_groups": 2, "o_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 2,
    "mlp_layer_types": ["moe"] * 3, "compress_rates": BLOCKS, "pad_token_id": 0,
}  # fmt: skip


def block_outputs(kind: str, cls: type[PretrainedConfig]) -> list[tuple[dict[str, Any], Any]]:
    """Queries, keys and what attention gives, in a layer of each kind."""
    rows = []
    for setting, fields in SETTINGS.items():
        written = FIELDS | fields
        torch.manual_seed(0)
        config = cls(**SIZES, **written)
        model = reset(model_class(cls)(config), kind).float()
        written = {"model_type": kind, **written}
        parts = parts_from_huggingface(written)
        for n, arrays in recorded_layers(model).items():
            error = block_outputs_gap(parts, n, arrays)
            control = block_outputs_gap(dict.fromkeys(parts, make("nope")), n, arrays)
            note = {"case": f"{kind} {setting} {n}".replace("  ", " "), "type": kind, "layer": n}
            note |= {"parts": [*parts], "config": written, "error": error, "control": control}
            rows.append((note, arrays))
    return rows


def recorded_layers(model) -> dict[int, dict[str, np.ndarray]]:
    """What the attention of each layer turns, sees and gives.

    Arrays: "q" [1, T, H, C] and "tokens" [1, T, 1, C], and "blocks" [1, J, 1, C] where there are
    some, all before they turn; "pos" of the blocks, [1, J]; "sees" [1, 1, T, T + J]; "sink" [H];
    "out" [1, T, H, C], after it turned back.
    """
    code = sys.modules[type(model).__module__]
    turn, turns, masks = code.apply_rotary_pos_emb, [], []
    layers: dict[int, dict[str, np.ndarray]] = {}

    def noted_turn(x, cos, sin, **options):
        turns.append((x, turn(x, cos, sin, **options)))
        return turns[-1][1]

    def attention(module, query, key, value, attention_mask, **options):
        masks.append(attention_mask)
        return code.eager_attention_forward(module, query, key, value, attention_mask, **options)

    def record(module, *_):
        (q, _), (tokens, _), *rest, (_, out) = turns
        arrays = {"q": q, "tokens": tokens, "sees": masks[-1] == 0, "sink": module.sinks}
        # The indexer of sparse layers turns narrower keys of its own.
        blocks = [x for x, _ in rest if x.shape[1] == 1 and x.shape[-1] == q.shape[-1]]
        if blocks:
            arrays["blocks"] = blocks[-1]
        heads_last = {name: x.transpose(1, 2) for name, x in arrays.items() if x.ndim == 4}
        arrays |= {name: heads_last[name] for name in ("q", "tokens", "blocks") if name in arrays}
        arrays["out"] = out.transpose(1, 2)
        layers[module.layer_idx] = {name: x.detach().numpy() for name, x in arrays.items()}
        if blocks:
            size = BLOCKS[module.layer_type]
            layers[module.layer_idx]["pos"] = np.arange(blocks[-1].shape[2])[None] * size
        turns.clear()

    AttentionInterface.register("recorded", attention)
    AttentionMaskInterface.register("recorded", eager_mask)
    model.config._attn_implementation = "recorded"
    for module in model.modules():
        if type(module).__name__ == "DeepseekV4Attention":
            module.register_forward_hook(record)
            torch.nn.init.normal_(module.sinks, std=1.0)
    inputs, _ = inputs_of(model, model.config)
    with torch.no_grad(), mock.patch.object(code, "apply_rotary_pos_emb", noted_turn):
        model(**inputs)
    return layers
