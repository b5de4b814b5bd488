"""What the attention of a small model of transformers is given in each layer."""

# pyright: reportMissingImports=false

import inspect
import re
import sys
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers.masking_utils import eager_mask

from goldens.small_models import IDS, SIZES

TIME = 9  # tokens


class Notes:
    """An attention that notes queries, keys, what is added to logits and the scale, by layer; it
    gives zeros.
    """

    def __init__(self):
        self.layers: dict[int, tuple[Any, ...]] = {}

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **rest):
        every = lambda x: x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)
        added = torch.zeros(1, 1, query.shape[2], key.shape[2])
        if attention_mask is not None:
            added = added + attention_mask[..., : key.shape[2]]
        if rest.get("position_bias") is not None:
            added = added + rest["position_bias"]
        n = getattr(module, "layer_idx", None)
        if n is None or n < 0 or n in self.layers:  # -1: shared by layers
            n = len(self.layers)
        self.layers[n] = query, every(key), added, scaling
        return torch.zeros_like(every(value)).transpose(1, 2).contiguous(), None


def still(module, args, output):
    """A forward hook for rotary embeddings: the rotation by 0."""
    if isinstance(output, tuple):
        return torch.ones_like(output[0]), torch.zeros_like(output[1])
    return torch.ones_like(output)


def noted(model, inputs: dict[str, Any], moves: bool) -> dict[int, tuple[Any, ...]]:
    """What attention is given in each layer; moves: whether rotations act."""
    AttentionInterface.register("noted", notes := Notes())
    AttentionMaskInterface.register("noted", eager_mask)
    for module in model.modules():
        if isinstance(getattr(module, "config", None), PretrainedConfig):
            module.config._attn_implementation = "noted"
    hooks = []
    for module in model.modules():
        if re.search("Rotary.*Embedding|RotaryEmb|RoPE", type(module).__name__) and not moves:
            hooks.append(module.register_forward_hook(still))
        if hasattr(module, "attn_temperature_tuning") and not moves:
            module.attn_temperature_tuning = False
    model(**inputs)
    for hook in hooks:
        hook.remove()
    return notes.layers


def inputs_of(model, cls_config) -> tuple[dict[str, Any], np.ndarray]:
    """Tokens for a forward pass, and their positions."""
    taken = inspect.signature(model.forward).parameters
    pos = torch.arange(TIME)[None]
    inputs: dict[str, Any] = {}
    if "input_ids" in taken:
        inputs["input_ids"] = torch.arange(TIME)[None] % (IDS - 3) + 3
    else:
        width = next(
            getattr(model.config, n) for n in ("hidden_size", "d_model") if hasattr(model.config, n)
        )
        name = "inputs_embeds" if "inputs_embeds" in taken else next(iter(taken))
        inputs[name] = torch.randn(1, TIME, width, generator=torch.Generator().manual_seed(0))
    rope = getattr(cls_config, "rope_parameters", None) or {}
    sections = "mrope_section" in rope and "position_ids" in taken
    if sections or cls_config.model_type == "neomme":
        pos = torch.stack([pos, pos // 3, pos % 3][0 if sections else 1 :])
        inputs["position_ids"] = pos
        pos = pos.permute(1, 2, 0)
    if "use_cache" in taken:
        inputs["use_cache"] = False
    return inputs, pos.numpy()


def reordered(model) -> torch.Tensor | None:
    """The channel at each place after DeepSeek's rotation by 0, which puts neighbours apart."""
    module = sys.modules[type(model).__module__]
    apply = getattr(module, "apply_rotary_pos_emb_interleave", None)
    if apply is None or getattr(model.config, "rope_interleave", True) is False:
        return None
    width = SIZES["qk_rope_head_dim"]
    x = torch.arange(float(width))[None, None, None]
    for count in (width, width // 2):
        try:
            return (
                apply(x, x, torch.ones(1, 1, count), torch.zeros(1, 1, count))[0].flatten().long()
            )
        except RuntimeError:
            continue
    raise ValueError("the rotation was not understood")


def in_order(x: torch.Tensor, order: torch.Tensor | None) -> torch.Tensor:
    """Queries or keys with their last channels as they were before a rotation by 0."""
    if order is None:
        return x
    width = len(order)
    return torch.cat([x[..., :-width], x[..., -width:][..., order.argsort()]], -1)


def record(kind: str, model, pos: np.ndarray, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Queries and keys before rotation, and the attention weights, of each layer."""
    arrays = {}
    moved, at_rest = noted(model, inputs, True), noted(model, inputs, False)
    order = reordered(model)
    fields = model.config.to_dict()
    rope_type = (fields.get("rope_parameters") or {}).get("rope_type")
    latent = (
        "qk_rope_head_dim" in fields and rope_type == "yarn"
    )  # whose scale has YaRN's temperature
    for n, (q, k, added, scale) in sorted(moved.items()):
        scale = scale if latent else q.shape[-1] ** -0.5
        q_still, k_still = (in_order(x, order) for x in at_rest[n][:2])
        size = 2 * q_still.std() * k_still.std()  # weights are then not one-hot
        s = q @ k.transpose(2, 3) * scale / size + added.clamp(min=-1e30)
        arrays[f"{n}/q"] = (q_still.transpose(1, 2) / size).numpy()
        arrays[f"{n}/k"] = k_still.transpose(1, 2).numpy()
        arrays[f"{n}/weights"] = s.softmax(-1).numpy()
    return arrays


def frozen(config: PretrainedConfig, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the first layer of each kind."""
    kinds, kept = set(), {}
    for n in sorted({int(name.split("/")[0]) for name in arrays}):
        fields = "layer_types", "no_rope_layers", "layer_rope_theta", "block_types"
        lists = [getattr(config, name, None) for name in fields]
        kind = tuple(values[n] if isinstance(values, list) else None for values in lists)
        if kind not in kinds:
            kinds.add(kind)
            kept |= {f"{n}/{x}": arrays[f"{n}/{x}"] for x in ("q", "k", "weights")}
    return kept
