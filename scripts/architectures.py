"""Proves what posenc_jax reads from the config of each model of transformers, and freezes it.

    python scripts/architectures.py --only=llama,gemma3_text
    python scripts/architectures.py --write

It runs in an environment with torch, transformers and jax. Against a newer transformers it prints
what fails, whose numbers are others, which fields of the default configs are renamed, new, gone or
have another value, and which types are new or gone; --fields does the last two alone. Without
--write nothing is frozen; with it --fields freezes the defaults.

A small random model of a type runs twice with the same weights: with its positions, and with its
rotations by 0. Attention gives zeros both times, so layers have the same input: queries and keys of
the second run are those before a rotation, and the logits of the first are what ours must equal.
Fields of positions keep the values of the type's default config, or are those of SETTINGS.

Writes tests/goldens/huggingface/proofs.json, the small config and the error of ours of each type,
and proofs_N.npz, queries, keys and weights of the first layer of each kind. The defaults of a type
that is new go to types.json, of which the tests and the page know it.
"""

# pyright: reportMissingImports=false

import argparse
import functools
import importlib
import inspect
import json
import pathlib
import pkgutil
import re
import sys
import traceback
import warnings
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, PretrainedConfig
from transformers import models as families
from transformers.masking_utils import eager_mask

ROOT = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from goldens.config_changes import changes  # noqa: E402
from goldens.frozen import FOLDER, read, save  # noqa: E402
from goldens.golden import reset  # noqa: E402

TIME, IDS = 9, 61
CLOSE, SEEN = 2e-5, 1e-3  # the largest error of ours; the least that a wrong config must differ
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
    found = []
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.name.startswith("modeling_"):
            for name, thing in vars(importlib.import_module(f"{package}.{module.name}")).items():
                mine = inspect.isclass(thing) and issubclass(thing, transformers.PreTrainedModel)
                if mine and getattr(thing, "config_class", None) is cls:
                    found += [] if re.search("PreTrained|For[A-Z]", name) else [thing]
    if not found:
        return transformers.AutoModel._model_mapping[cls]
    ends = ("Encoder", "Decoder", "Transformer", "TextModel", "Model")  # the last one is best

    def rank(thing) -> tuple[int, int]:
        name = thing.__name__
        part = name.endswith(("EncoderModel", "DecoderModel"))
        return max(
            (n for n, end in enumerate(ends) if name.endswith(end)), default=-1
        ) - part, -len(name)

    return max(found, key=rank)


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
        self.layers[len(self.layers) if n is None or n in self.layers else n] = (
            query, every(key), added, scaling,
        )  # fmt: skip
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


def at_input(model, inputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is read or made of positions at the input, by part: "encoder", "decoder", or ""."""
    notes: dict[str, dict[str, Any]] = {}

    part_of = lambda name: next((p for p in ("encoder", "decoder") if f"{p}." in name), "")
    tables = {
        id(module.weight): name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and TABLE.search(name.rpartition(".")[2])
    }
    plain_embedding = torch.nn.functional.embedding

    def embedding(ids, weight, *args, **options):
        if (name := tables.get(id(weight))) is not None and not made_of_sines(model, name):
            rows = ids.flatten()[:TIME].tolist()
            notes[part_of(name)] = {"ids": rows, "rows": len(weight)}
        return plain_embedding(ids, weight, *args, **options)

    def note(name, module, args, output):
        if torch.is_tensor(output) and part_of(name) not in notes:
            code_TD = output.reshape(-1, output.shape[-1])[:TIME]
            # Kosmos-2.5 adds the vector of a segment to it in place
            notes[part_of(name)] = {"code": code_TD.numpy().copy()}

    hooks = []
    for name, module in model.named_modules():
        if TABLE.search(name.rpartition(".")[2]) and not list(module.children()):
            hooks.append(module.register_forward_hook(functools.partial(note, name)))
    with mock.patch("torch.nn.functional.embedding", embedding):
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return notes


def made_of_sines(model, name: str) -> bool:
    """Whether a table is sines, which are no parameters."""
    return "inusoid" in type(model.get_submodule(name)).__name__


def proved_at_input(kind: str, cls: type[PretrainedConfig]) -> list[tuple[dict, dict]]:
    """What is noted of a type that adds positions at the input: a row for each part."""
    from goldens.compared import input_gap

    from posenc_jax import Encoding, parts_from_huggingface

    config = small(kind, cls)
    model = model_class(cls)(config)
    sines = {
        name: module.weight.clone()
        for name, module in model.named_modules()
        if "inusoid" in type(module).__name__ and isinstance(module, torch.nn.Embedding)
    }
    model = reset(model, kind).float()
    for name, weight in sines.items():
        model.get_submodule(name).weight.data = weight
    fields, rows = plain(config), []
    answers = parts_from_huggingface(fields)
    with torch.no_grad():
        inputs, _ = inputs_of(model, config)
        if "decoder" in answers:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        for part, seen in at_input(model, inputs).items():
            answer = answers[part if part in answers else ""]
            if not isinstance(answer, Encoding):  # a reason, beside a part with an encoding
                continue
            code = seen.pop("code", None)
            error = input_gap(answer, seen.get("ids"), seen.get("rows"), code)
            note = {"case": f"{kind} {part}".strip(), "type": kind, "config": fields, "part": part}
            rows.append((note | seen | {"error": error}, {} if code is None else {"code": code}))
    if not rows:
        raise ValueError("nothing was seen at the input")
    return rows


def pictures(kind: str, cls: type[PretrainedConfig]) -> list[tuple[dict, dict]]:
    """What a model of pictures adds to its tokens: at its table's size, and at another one."""
    from goldens.compared import grid_gap

    from posenc_jax import parts_from_huggingface

    default = cls().to_dict()
    patch = default.get("patch_size") or 16
    patch = patch[0] if isinstance(patch, list | tuple) else patch
    side = 4 * patch
    if default.get("num_patches"):
        sizes = {"num_patches": 16}
    elif isinstance(default.get("image_size"), list | tuple):
        sizes = {"image_size": [side, side]}
    else:
        sizes = {"image_size": side}
    config = small(kind, cls, **sizes)
    model = reset(model_class(cls)(config), kind).float()
    fields = plain(config) | {
        name: value for name, value in config.to_dict().items() if name in (*sizes, "patch_size")
    }
    (answer,) = parts_from_huggingface(fields).values()
    image_size: Any = sizes.get("image_size", side)
    height, width = image_size if isinstance(image_size, list) else (image_size, image_size)
    name, table = next(
        (name, weight) for name, weight in model.named_parameters() if TABLE.search(name)
    )
    parent = model.get_submodule(re.sub(r"\.?[^.]*(\.weight)?$", "", name))
    channels, rows = getattr(config, "num_channels", 3), []
    for image in (None, (height // patch + 1, width // patch + 2)):
        more = {}
        if image is not None:
            height, width = image[0] * patch, image[1] * patch
            name = "interpolate_pos_encoding"  # without it a model reads every size, or this alone
            more = {name: True} if name in inspect.signature(model.forward).parameters else {}
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randn(1, channels, height, width, generator=generator)
        outputs: list[Any] = []
        keep = lambda kept, module, args, output: kept.append(output)
        hook = parent.register_forward_hook(functools.partial(keep, outputs))
        try:
            with torch.no_grad():
                weight = table.clone()
                model(pixels, **more)
                table.zero_()
                model(pixels, **more)
                table.copy_(weight)
        except (RuntimeError, ValueError):
            if image is None or more:
                raise
            break
        finally:
            hook.remove()
        with_table, without = (o[0] if isinstance(o, tuple) else o for o in outputs)
        code_TD = (with_table - without)[0].reshape(-1, weight.shape[-1])
        code_TD = code_TD[code_TD.abs().sum(-1) > 0].numpy()  # registers have no position
        table_LD = weight.reshape(-1, weight.shape[-1]).numpy()
        error = grid_gap(answer, table_LD, code_TD, image)
        case = f"{kind} {image[0]}x{image[1]}" if image else kind
        note = {"case": case, "type": kind, "config": fields, "image": image, "error": error}
        rows.append((note, {"table": table_LD, "code": code_TD}))
    return rows


def plain(config: PretrainedConfig) -> dict[str, Any]:
    """The config as its file has it."""
    fields = json.loads(config.to_json_string(use_diff=False))
    return {"model_type": config.model_type} | {
        name: value
        for name, value in fields.items()
        if (value is not None and POSITIONAL.search(name) and not isinstance(value, str | bool))
        or name in KEPT
    }


def proved(kind: str, cls: type[PretrainedConfig], **more: Any) -> tuple[dict, dict]:
    """What is noted of a type: its small config and error; and the arrays."""
    from goldens.compared import layers_gap

    from posenc_jax import Encoding, make, parts_from_huggingface

    config = small(kind, cls, **more)
    torch.manual_seed(0)
    model = reset(model_class(cls)(config), kind).float()
    with torch.no_grad():
        if kind.startswith("hunyuan_v1"):  # norms after the rotation, whose weights do not commute
            for name, parameter in model.named_parameters():
                parameter.fill_(1) if re.search("(query|key)_layernorm", name) else None
        inputs, pos = inputs_of(model, config)
        arrays = record(kind, model, pos, inputs)
    if not arrays:
        raise ValueError("attention was not seen")
    fields = plain(config)
    (answer,) = parts_from_huggingface(fields).values()
    if not isinstance(answer, Encoding):
        raise ValueError(answer)
    causal = all(np.allclose(np.triu(a[0, 0], 1), 0) for n, a in arrays.items() if "weights" in n)
    error = layers_gap(answer, arrays, pos, causal)
    other = make("rope" if answer == make("nope") else "nope")
    control = layers_gap(other, arrays, pos[..., 0] if pos.ndim == 3 else pos, causal)
    axes = pos.shape[2] if pos.ndim == 3 else 1
    note = {"type": kind, "config": fields, "causal": causal, "axes": axes}
    return note | {"error": error, "control": control}, frozen(config, arrays)


def watched_scores(kind: str, cls: type[PretrainedConfig]) -> list[tuple[dict, dict]]:
    """The attention of the first layers of a type whose scores have parameters, or of pictures."""
    from goldens.attention_modules import CALLED, WATCHED, interface, watch

    if kind in CALLED:
        config, arrays = CALLED[kind](cls)
        watched_layers = {0: arrays}
        fields = {"model_type": kind, **config}
        return score_rows(kind, fields, watched_layers)
    watched = WATCHED[kind]
    config = cls(**watched.fields)
    AttentionInterface.register("watched", interface)
    AttentionMaskInterface.register("watched", eager_mask)
    config._attn_implementation = watched.form
    torch.manual_seed(0)
    model = reset(model_class(cls)(config), kind).float()
    with torch.no_grad():
        for parameter in model.parameters():  # weights of attention are then not one-hot
            parameter.mul_(0.3 if parameter.ndim > 1 else 1)
    fields = (
        {"model_type": kind}
        | {name: value for name, value in plain(config).items()}
        | {name: value for name, value in watched.fields.items() if not isinstance(value, dict)}
    )
    return score_rows(kind, fields, watch(model, watched))


def score_rows(
    kind: str, fields: dict[str, Any], layers: dict[int, dict[str, np.ndarray]]
) -> list[tuple[dict, dict]]:
    """What is noted of a type's attention: a row for each layer of other shapes."""
    from goldens.attention_modules import PARTS
    from goldens.compared import answer_of, scores_gap

    from posenc_jax import make

    answer = answer_of(fields, PARTS.get(kind))
    rows, shapes = [], set()
    for n, arrays in layers.items():
        shape = tuple(x.shape for x in arrays.values())
        if shape in shapes:
            continue
        shapes.add(shape)
        error = scores_gap(answer, n, arrays)
        still = {name: x for name, x in arrays.items() if "/" not in name}
        note = {"case": f"{kind} {n}", "type": kind, "config": fields, "layer": n, "error": error}
        note |= {"part": PARTS[kind]} if kind in PARTS else {}
        control = scores_gap(make("nope"), n, still)
        rows.append((note | {"control": control}, arrays))
    if not rows:
        raise ValueError("attention was not seen")
    return rows


def added_codes(kind: str, cls: type[PretrainedConfig]) -> list[tuple[dict, dict]]:
    """What a type adds to patches, points or frames, in each of its settings."""
    from goldens.compared import answer_of, code_gap
    from goldens.embedding_modules import ADDED

    rows = []
    for setting, function in ADDED[kind].items():
        added = function(cls)
        arrays = {"pos": added.pos, "code": added.code.numpy()}
        arrays |= {f"params/{name}": table.numpy() for name, table in added.params.items()}
        fields = {"model_type": kind, **added.config}
        error = code_gap(answer_of(fields, added.part, added.image), arrays)
        case = f"{kind} {setting}".strip()
        note = {"case": case, "type": kind, "config": fields, "error": error}
        more = {"part": added.part, "image": added.image}
        rows.append((note | {name: x for name, x in more.items() if x is not None}, arrays))
    return rows


def tables(cls: type[PretrainedConfig]) -> dict[str, list[int]]:
    """The shapes of a default model's tables of positions, which is made without memory."""
    with torch.device("meta"):
        model = model_class(cls)(cls())
    arrays = [*model.named_parameters(), *model.named_buffers()]
    return {
        name: [*array.shape]
        for name, array in arrays
        if TABLE.search(name) and array.ndim > 1 and not re.search("ids|inv_freq", name)
    }


def prove_inputs(
    chosen: list[str],
    classes: dict[str, type[PretrainedConfig]],
    name: str,
    arguments: argparse.Namespace,
) -> None:
    """Proves, and with --write freezes, what models add at their input: to tokens, "inputs", to
    patches, "pictures", to points, "codes"; or attention weights of watched types, "scores".
    """
    functions = {"inputs": proved_at_input, "pictures": pictures, "scores": watched_scores}
    functions["codes"] = added_codes
    proved_rows = functions[name]
    notes, files = [], {}
    for kind in chosen:
        try:
            rows = proved_rows(kind, classes[kind])
        except Exception as failed:
            print(f"{kind:40} {type(failed).__name__}: {str(failed)[:150]!r}", flush=True)
            if arguments.trace:
                traceback.print_exc()
            continue
        for note, arrays in rows:
            good = note["error"] < CLOSE and note.get("control", 1) > SEEN
            print(
                f"{note['case']:40} error {note['error']:.1e}{'' if good else '  WRONG'}",
                flush=True,
            )
            if good:
                notes.append({"version": transformers.__version__, **note})
                files |= {f"{note['case']}/{key}": array for key, array in arrays.items()}
    print(f"{len(notes)} parts proved")
    if not arguments.write:
        return
    add_types(classes, notes)
    notes, files = merged(notes, files, chosen, name)
    lines = ",\n".join(json.dumps(note) for note in notes)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    save(name, files)


def merged(notes: list, files: dict, chosen: list[str], name: str = "proofs") -> tuple[list, dict]:
    """What is proved now, and what was before of types that were not chosen."""
    older = json.loads((FOLDER / f"{name}.json").read_text())
    kept = {note["case"] for note in older if note["type"] not in chosen}
    same = {key: array for key, array in read(name).items() if key.split("/")[0] in kept}
    rows = [note for note in older if note["case"] in kept] + notes
    return sorted(rows, key=lambda note: note["case"]), same | files


def new_types(classes: dict[str, type[PretrainedConfig]]) -> list[str]:
    """The types of transformers that types.json does not have."""
    return sorted({*classes} - {*json.loads((FOLDER / "types.json").read_text())} - INNER)


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


def print_changes(chosen: list[str], classes: dict[str, type[PretrainedConfig]]) -> None:
    """Prints how the default configs differ from those of types.json, and which types are new or
    gone.
    """
    frozen = json.loads((FOLDER / "types.json").read_text())
    for kind, now in made_defaults(chosen, frozen, classes).items():
        for line in changes(frozen[kind], now):
            print(f"{kind:40} {line}", flush=True)
    print("new types:", ", ".join(new_types(classes)) or "none")
    known = {*classes, *transformers.CONFIG_MAPPING}
    print("types that are gone:", ", ".join(sorted({*frozen} - known)) or "none")


def made_defaults(
    chosen: list[str], frozen: dict[str, Any], classes: dict[str, type[PretrainedConfig]]
) -> dict[str, dict[str, Any]]:
    """The defaults of chosen types that types.json has; says of those that cannot be made why."""
    made = {}
    for kind in (kind for kind in chosen if kind in frozen):
        try:
            made[kind] = defaults(classes[kind])
        except Exception as failed:
            print(f"{kind:40} {type(failed).__name__}: {str(failed)[:150]!r}", flush=True)
    return made


def add_types(classes: dict[str, type[PretrainedConfig]], notes: list[dict[str, Any]]) -> None:
    """Adds the default configs of new types that are proved to types.json."""
    types = json.loads((FOLDER / "types.json").read_text())
    for kind in {note["type"] for note in notes} & {*new_types(classes)}:
        types[kind] = defaults(classes[kind])
    save_lines("types", dict(sorted(types.items())), separators=(",", ":"))


def save_lines(name: str, rows: dict[str, Any], separators: tuple[str, str] = (", ", ": ")) -> None:
    """Writes a dictionary to a file of tests/goldens/huggingface, an entry a line."""
    dumped = functools.partial(json.dumps, separators=separators)
    lines = (f"{dumped(kind)}{separators[1]}{dumped(row)}" for kind, row in rows.items())
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--only", default="", help="types, with commas between")
    flags.add_argument("--tables", action="store_true", help="freeze shapes of tables alone")
    flags.add_argument("--input", action="store_true", help="what is added at the input")
    flags.add_argument("--pictures", action="store_true", help="what is added to patches")
    flags.add_argument("--scores", action="store_true", help="attention with parameters")
    flags.add_argument("--codes", action="store_true", help="what is added to points and frames")
    flags.add_argument("--fields", action="store_true", help="changes of the default configs")
    flags.add_argument("--trace", action="store_true", help="show where a type fails")
    flags.add_argument("--write", action="store_true", help="freeze what is proved")
    arguments = flags.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    classes = config_classes()
    chosen = arguments.only.split(",") if arguments.only else sorted(classes)
    if absent := sorted({*chosen} - {*classes}):
        flags.error(f"--only: transformers {transformers.__version__} has no {', '.join(absent)}")

    def having(place: str, functions: dict[str, Any]) -> list[str]:
        """The chosen types that have a function, which is made for each by hand."""
        absent = [kind for kind in chosen if kind not in functions]
        if arguments.only and absent:
            flags.error(f"--only: add a function for {', '.join(absent)} to {place}")
        return [kind for kind in chosen if kind in functions]

    if arguments.tables:
        shapes = {}
        for kind in chosen:
            try:
                shapes[kind] = tables(classes[kind])
            except Exception as failed:
                print(f"{kind:40} {type(failed).__name__}: {str(failed)[:100]!r}", flush=True)
        older = json.loads((FOLDER / "tables.json").read_text()) if arguments.only else {}
        shapes = {kind: row for kind, row in {**older, **shapes}.items() if row}
        save_lines("tables", shapes)
        return
    if arguments.fields:
        print_changes(chosen, classes)
        if arguments.write:
            types = json.loads((FOLDER / "types.json").read_text())
            types |= made_defaults(chosen, types, classes)
            save_lines("types", types, separators=(",", ":"))
        return
    if arguments.input or arguments.pictures:
        prove_inputs(chosen, classes, "inputs" if arguments.input else "pictures", arguments)
        return
    if arguments.codes:
        from goldens.embedding_modules import ADDED

        watched = having("ADDED of scripts/goldens/embedding_modules.py", ADDED)
        prove_inputs(watched, classes, "codes", arguments)
        return
    if arguments.scores:
        from goldens.attention_modules import CALLED, WATCHED

        place = "WATCHED or CALLED of scripts/goldens/attention_modules.py"
        prove_inputs(having(place, {**WATCHED, **CALLED}), classes, "scores", arguments)
        return
    notes, files = [], {}
    for kind in chosen:
        for setting, more in {"": {}, **SETTINGS.get(kind, {})}.items():
            case = f"{kind} {setting}".strip()
            try:
                note, arrays = proved(kind, classes[kind], **more)
            except Exception as failed:
                print(f"{case:40} {type(failed).__name__}: {str(failed)[:150]!r}", flush=True)
                if arguments.trace:
                    traceback.print_exc()
                continue
            good = note["error"] < CLOSE and note["control"] > SEEN
            words = "" if good else "  WRONG"
            print(
                f"{case:40} error {note['error']:.1e} control {note['control']:.1e}{words}",
                flush=True,
            )
            if good:
                notes.append({"case": case, "version": transformers.__version__, **note})
                files |= {f"{case}/{name}": array for name, array in arrays.items()}
    print_changes(chosen, classes)
    print(f"{len(notes)} cases proved by a small model")
    if arguments.write:
        add_types(classes, notes)
        if arguments.only:
            notes, files = merged(notes, files, chosen)
        rows = ",\n".join(json.dumps(note) for note in notes)
        (FOLDER / "proofs.json").write_text(f"[\n{rows}\n]\n")
        save("proofs", files)


if __name__ == "__main__":
    main()
