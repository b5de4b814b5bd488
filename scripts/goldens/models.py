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
from .model_configs import CASES, IDS, SMALL

TIME = 11
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


def still(module, args, output):
    """A forward hook for rotary embeddings: the rotation by 0."""
    if isinstance(output, tuple):
        return torch.ones_like(output[0]), torch.zeros_like(output[1])
    return torch.ones_like(output)


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
    arrays = {}
    moved = seen(model, pos, moves=True)
    rows = zip(moved, seen(model, pos, moves=False), strict=True)
    for n, ((q, k, added, scale), (q_still, k_still, _, _)) in enumerate(rows):
        size = 2 * q_still.std() * k_still.std()  # weights are then not one-hot
        scale = scale if scaled else q.shape[-1] ** -0.5
        every_k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        s = q @ every_k.transpose(2, 3) * scale / size + added
        arrays |= {f"{n}__q": q_still.transpose(1, 2) / size, f"{n}__k": k_still.transpose(1, 2)}
        arrays[f"{n}__weights"] = s.softmax(-1)
    return arrays


def fused(model) -> dict[str, torch.Tensor]:
    """The same of a model with an attention of its own, whose projections are one."""
    arrays, hooked = {}, []
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if name.endswith(FUSED):
                module.weight.mul_(0.1)
                hook = lambda module, args, out: hooked.append(out)
                stack.callback(module.register_forward_hook(hook).remove)
        attentions = model(tokens(), output_attentions=True, use_cache=False).attentions
    for n, (qkv, weights) in enumerate(zip(hooked, attentions, strict=True)):
        q, k = qkv.chunk(3, -1)[:2] if "mpt" in model.config.model_type else split(qkv)
        arrays |= {f"{n}__q": q.reshape(1, TIME, 2, -1), f"{n}__k": k.reshape(1, TIME, 2, -1)}
        arrays[f"{n}__weights"] = weights
    return arrays


def split(qkv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of Bloom and Falcon, whose heads have all three side by side."""
    q, k, _ = qkv.reshape(1, TIME, 2, 3, -1).unbind(3)
    return q, k


def table(model) -> dict[str, torch.Tensor]:
    """What the model adds to its embeddings, and the table that it is from."""
    outputs = []
    (module,) = (m for name, m in model.named_modules() if name.endswith(TABLES))
    module.register_forward_hook(lambda module, args, out: outputs.append(out))
    model(tokens())
    code = outputs[0].expand(1, -1, -1)
    learned = isinstance(module, torch.nn.Embedding)
    return {"code": code} | ({"params__table": module.weight} if learned else {})


def t5(model, decoder: bool) -> dict[str, torch.Tensor]:
    stack = model.decoder if decoder else model.encoder
    arrays = by_layer(stack, None, scaled=True)
    for n, block in enumerate(stack.block):
        attention = block.layer[0].SelfAttention
        if attention.has_relative_attention_bias:
            prefix = "params__" if model.config.model_type == "t5" else f"params__{n}__"
            arrays[f"{prefix}table"] = attention.relative_attention_bias.weight
    return arrays


def deberta(model) -> dict[str, torch.Tensor]:
    arrays: dict[str, Any] = {"params__table": model.encoder.rel_embeddings.weight}
    projections: dict[str, list] = {"q": [], "k": []}
    for n, layer in enumerate(model.encoder.layer):
        attention = layer.attention.self
        for side, kind in (("query", "queries"), ("key", "keys")):
            getattr(attention, f"{side}_proj").weight.mul_(0.2)
            pos = getattr(attention, f"pos_{side}_proj")
            pos.weight.mul_(0.2)
            if pos.bias is not None:
                pos.bias.zero_()
            arrays[f"params__{kind}__{n}"] = pos.weight.T.reshape(32, 2, 16)
            keep = lambda module, args, out, side=side: projections[side[0]].append(out)
            getattr(attention, f"{side}_proj").register_forward_hook(keep)
    attentions = model(tokens(), output_attentions=True).attentions
    for n, weights in enumerate(attentions):
        arrays |= {f"{n}__{x}": projections[x][n].reshape(1, TIME, 2, 16) for x in "qk"}
        arrays[f"{n}__weights"] = weights
    return arrays


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
    arrays = by_layer(model, pos, scaled=kind.startswith("deepseek"))
    if (
        kind == "deepseek_v3" and model.config.rope_interleave
    ):  # which reorders channels as it turns them
        for name in [f"{n}__{side}" for n in range(2) for side in "qk"]:
            plain, turned = arrays[name].split([6, 8], -1)
            arrays[name] = torch.cat([plain, turned.unflatten(-1, (2, 4)).mT.flatten(-2)], -1)
    return arrays


def models() -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """A row of the manifest, and arrays, of each model.

    config: as a user has it; saved: as transformers saves it; wrong: fields of a wrong one.
    """
    for case, (kind, fields, wrong) in CASES.items():
        config = {"model_type": kind, **SMALL, **fields}
        model_config = CONFIG_MAPPING[kind].from_dict(json.loads(json.dumps(config)))
        saved = {"model_type": kind} | json.loads(model_config.to_json_string())
        model_config._attn_implementation = "eager"
        model = reset(transformers.AutoModel.from_config(model_config), case).float()
        causal = kind not in ("modernbert", "deberta-v2", "t5", "umt5") or "decoder" in case
        row = {"case": case, "config": config, "saved": saved, "wrong": wrong, "causal": causal}
        yield row, arrays(**frozen(case, model))
