"""Attention modules of small random models of transformers whose scores have parameters of
positions, or whose tokens are patches: what they compute of a layer's input.

Their queries and keys are projections of the input; the weights are those of the softmax inside.
"""

# pyright: reportMissingImports=false

import contextlib
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch

# A module's projections to queries and keys, by name; one for both, or keys beside values.
QUERIES = "q_proj", "linear_q", "to_q", "query", "qkv", "q"
KEYS = "k_proj", "linear_k", "to_kv", "key", "qkv", "k"


class Watched(NamedTuple):
    """A type whose attention is watched.

    name:   of its attention modules, a pattern.
    heads:  their number in the small model.
    fields: of the small model, that others have not.
    params: (module, model) -> the arrays of positions, by their names in our parameters.
    inputs: what the model is called with.
    pos:    positions of the tokens of a module, by its number of tokens, [T] or [T, A].
    """

    name: str
    heads: int
    fields: dict[str, Any]
    params: Callable[[Any, Any], dict[str, torch.Tensor]]
    inputs: Callable[[], dict[str, Any] | tuple]
    pos: Callable[[int], np.ndarray]
    form: str = "eager"  # of attention; NVIDIA's streaming encoder takes no mask of numbers,
    # and Inkling makes queries and keys by more than projections: "watched"


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def by_head(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """A projection of sines, neighbours in pairs, as ours of halves: [R, H, C]."""
    w_RD = weight.T
    w_RD = torch.cat([w_RD[0::2], w_RD[1::2]])
    return w_RD.reshape(len(w_RD), heads, -1)


def rows_and_columns(module, model) -> dict[str, torch.Tensor]:
    return {"rows": module.rel_pos_h, "columns": module.rel_pos_w}


def conformer(module, model) -> dict[str, torch.Tensor]:
    """Transformer-XL's of speech encoders."""
    first = lambda *names: next(getattr(module, n) for n in names if hasattr(module, n))
    u = first("bias_u", "pos_bias_u")
    w = first("relative_k_proj", "linear_pos").weight
    return {"u": u, "v": first("bias_v", "pos_bias_v"), "w": by_head(w, len(u))}


def xlnet(module, model) -> dict[str, torch.Tensor]:
    return {"u": module.r_w_bias, "v": module.r_r_bias, "w": module.r}


def shaw(name: str, heads: int, backwards: bool) -> Callable:
    """Vectors of offsets, which all heads share; backwards: those of j - i."""

    def params(module, model) -> dict[str, torch.Tensor]:
        table_RC = getattr(module, name).weight
        table_RC = table_RC.flip(0) if backwards else table_RC
        return {"keys": table_RC.expand(heads, -1, -1)}

    return params


def gated_buckets(module, model) -> dict[str, torch.Tensor]:
    """WavLM's table, that of its first layer, and the gate of this one, which adds four outputs."""
    gate = module.gru_rel_pos_linear
    return {
        "table": model.encoder.layers[0].attention.rel_attn_embed.weight,
        "gate": gate.weight.reshape(2, 4, -1).sum(1).T,
        "gate_bias": gate.bias.reshape(2, 4).sum(1),
        "scale": module.gru_rel_pos_const.flatten(),
    }


def speecht5_keys(module, model) -> dict[str, torch.Tensor]:
    return {"keys": model.encoder.wrapped_encoder.embed_positions.pe_k.weight.expand(2, -1, -1)}


def class_angle(module, model) -> dict[str, torch.Tensor]:
    return {"angle_F": model.class_pos_emb[0]}


def nothing(module, model) -> dict[str, torch.Tensor]:
    return {}


def row_major(rows: int, columns: int, prefix: int = 0, last: bool = False) -> Callable:
    """Positions (row, column) of patches, or of a square window with that many tokens; tokens
    before the patches, or after them, are (-1, n).
    """

    def pos(time: int) -> np.ndarray:
        sizes = (rows, columns)
        if time != rows * columns + prefix:
            sizes = (int(time**0.5),) * 2
        patches_T2 = np.indices(sizes).reshape(2, -1).T
        before_T2 = np.array([(-1, n) for n in range(prefix)]).reshape(-1, 2)
        parts = (patches_T2, before_T2) if last else (before_T2, patches_T2)
        return np.concatenate(parts).astype(np.int32)

    return pos


def counted(time: int) -> np.ndarray:
    return np.arange(time, dtype=np.int32)


SMALL_SAM = {
    "image_size": 32, "patch_size": 8, "window_size": 3, "global_attn_indexes": [1, 3],
    "num_hidden_layers": 4, "output_channels": 8, "num_pos_feats": 8, "hidden_size": 32,
    "num_attention_heads": 2, "mlp_dim": 32, "mlp_ratio": 1.0, "post_conv_in_channels": 8,
    "post_conv_mid_channels": 8, "post_conv_out_channels": 8,
}  # fmt: skip
LAYERED = {"num_hidden_layers": 2}
SPEECH = {
    "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, **LAYERED,
    "num_mel_bins": 16, "subsampling_conv_channels": 4, "conv_kernel_size": 3,
    "num_key_value_heads": 2,
}  # fmt: skip
FAST = {
    "hidden_size": 32, "encoder_layers": 2, "decoder_layers": 1, "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2, "encoder_linear_units": 32, "decoder_linear_units": 32,
    "vocab_size": 61, "num_mel_bins": 8, "speech_decoder_postnet_units": 8,
    "duration_predictor_channels": 8, "energy_predictor_channels": 8,
    "pitch_predictor_channels": 8, "max_source_positions": 100,
}  # fmt: skip
WAV2VEC2 = {
    "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, **LAYERED,
    "conv_dim": [8, 8], "conv_stride": [2, 2], "conv_kernel": [2, 2], "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 2, "apply_spec_augment": False,
    "max_source_positions": 100, "conv_depthwise_kernel_size": 3,
}  # fmt: skip
GRANITE = {
    "hidden_dim": 32, "num_heads": 2, "dim_head": 16, "num_layers": 2, "context_size": 6,
    "max_pos_emb": 8, "input_dim": 12, "output_dim": 8, "conv_kernel_size": 3,
}  # fmt: skip


def picture(side: int, height: int | None = None) -> Callable:
    return lambda: {"pixel_values": normal(1, 3, height or side, side)}


def features(name: str, time: int, width: int) -> Callable:
    return lambda: {name: normal(1, time, width)}


SAM = Watched(r"layers\.\d+\.attn$", 2, SMALL_SAM, rows_and_columns, picture(32), row_major(4, 4))
PICTURE = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, **LAYERED}
WATCHED: dict[str, Watched] = {
    **{
        kind: SAM
        for kind in (
            "deepseek_ocr2_sam_vision_model", "got_ocr2_vision", "pp_chart2table_vision",
            "pp_formulanet_vision", "sam_hq_vision_model", "sam_vision_model", "slanext_vision",
            "unlimited_ocr_sam_vision_model",
        )
    },
    "vitdet": Watched(
        r"layer\.\d+\.attention$", 2,
        {**PICTURE, "image_size": 32, "pretrain_image_size": 32, "patch_size": 8,
         "window_size": 3, "window_block_indices": [0], "use_relative_position_embeddings": True},
        rows_and_columns, picture(32), row_major(4, 4),
    ),
    "seggpt": Watched(
        r"layers\.\d+\.attention$", 2,
        {**PICTURE, "image_size": [32, 16], "pretrain_image_size": 16, "patch_size": 4,
         "mlp_dim": 32, "merge_index": 0, "intermediate_hidden_state_indices": [0, 1],
         "decoder_hidden_size": 8},
        rows_and_columns,
        lambda: {"pixel_values": normal(1, 3, 16, 16), "prompt_pixel_values": normal(1, 3, 16, 16),
                 "prompt_masks": normal(1, 3, 16, 16)},
        row_major(8, 4),
    ),
    **{
        kind: Watched(
            r"layers\.\d+\.self_attn$", 2, SPEECH | more, conformer,
            features("input_features", 80, 16), counted, "sdpa",
        )
        for kind, more in {
            "parakeet_encoder": {},
            "nemotron_asr_streaming_encoder": {
                "default_num_lookahead_tokens": 2, "sliding_window": 4,
            },
        }.items()
    },
    "phi4_multimodal_audio": Watched(
        r"encoders\.\d+\.self_attn$", 2,
        {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32, "num_blocks": 2,
         "input_size": 16, "nemo_conv_channels": 4, "ext_pw_out_channel": 32,
         "bias_max_distance": 4, "conv_glu_type": "swish", "nemo_final_size": 2,
         "depthwise_separable_out_channel": 32, "kernel_size": 3},
        lambda module, model: {
            "table": model.relative_attention_bias_layer.bias_values.weight.flip(0)
        }, lambda: {"hidden_states": normal(1, 72, 16), "mask": None}, counted,
    ),
    "fastspeech2_conformer": Watched(
        r"encoder\.conformer_layers\.\d+\.self_attn$", 2, FAST, conformer,
        lambda: {"input_ids": torch.arange(9)[None] + 3}, counted,
    ),
    "speecht5": Watched(
        r"^encoder\..*layers\.\d+\.attention$", 2,
        {"hidden_size": 32, "encoder_layers": 2, "encoder_attention_heads": 2,
         "encoder_ffn_dim": 32, "decoder_layers": 1, "decoder_attention_heads": 2,
         "decoder_ffn_dim": 32, "encoder_max_relative_position": 3,
         "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2},
        speecht5_keys, lambda: {"input_values": normal(1, 9, 32),
                                "decoder_input_values": normal(1, 3, 32)}, counted,
    ),
    "wavlm": Watched(
        r"layers\.\d+\.attention$", 2,
        {**{name: size for name, size in WAV2VEC2.items() if name != "max_source_positions"},
         "num_buckets": 8, "max_bucket_distance": 6},
        gated_buckets, lambda: {"input_values": normal(1, 40)}, counted,
    ),
    "wav2vec2-conformer": Watched(
        r"layers\.\d+\.self_attn$", 2, WAV2VEC2, conformer,
        lambda: {"input_values": normal(1, 40)}, counted,
    ),
    "wav2vec2-bert": Watched(
        r"layers\.\d+\.self_attn$", 2,
        {**WAV2VEC2, "feature_projection_input_dim": 12, "left_max_position_embeddings": 3,
         "right_max_position_embeddings": 1},
        shaw("distance_embedding", 2, True), features("input_features", 9, 12), counted,
    ),
    "xlnet": Watched(
        r"layer\.\d+\.rel_attn$", 2, {"d_model": 32, "n_head": 2, "d_head": 16, "n_layer": 2,
                                      "d_inner": 32, "vocab_size": 61},
        xlnet, lambda: {"input_ids": torch.arange(9)[None] + 3}, counted,
    ),
    **{
        kind: Watched(
            r"layers\.\d+\.attn$", 2, GRANITE, shaw("rel_pos_emb", 2, False),
            features("hidden_states", 12, 12), counted,
        )
        for kind in ("granite_speech_encoder", "granite_speech_plus_encoder")
    },
    "granite_speech5_encoder": Watched(
        r"layers\.\d+\.self_attn$", 2,
        {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 16, "num_hidden_layers": 2,
         "intermediate_size": 32, "context_size": 6, "max_position_embeddings": 8,
         "num_mel_bins": 12, "input_dim": 12, "conv_kernel_size": 3, "num_key_value_heads": 2,
         "output_dim": 8, "vocab_size": 8},
        shaw("rel_pos_emb", 2, False), features("input_features", 12, 48), counted,
    ),
}  # fmt: skip


INKLING = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "swa_num_attention_heads": 2, "swa_num_key_value_heads": 2, "head_dim": 16,
    "swa_head_dim": 16, "sliding_window_size": 4, "d_rel": 3, "rel_extent": 6, "vocab_size": 61,
    "layer_types": ["hybrid_sliding", "hybrid"], "mlp_layer_types": ["dense", "dense"],
    "intermediate_size": 32, "moe_intermediate_size": 8, "n_routed_experts": 2,
    "num_experts_per_tok": 1, "n_shared_experts": 1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip


GROWING = {"log_scaling_n_floor": 3, "log_scaling_alpha": 3.0, "rel_l2_clip_threshold": 2.0}


def curves(module, model) -> dict[str, torch.Tensor]:
    """Inkling's curves, and the weights that a layer makes of its input."""
    bias = getattr(module, "relative_position_bias", None)
    weight = module.r_proj.weight if bias is None else bias.linear.weight
    proj = module.rel_logits_proj.proj if bias is None else bias.proj
    scale = {} if bias is None else {"scale": bias.norm.scale}
    return {"weight": weight.T.reshape(32, 2, 3), "curves": proj, **scale}


WATCHED |= {
    kind: Watched(
        r"layers\.\d+\.self_attn$", 2, INKLING | more, curves,
        lambda: {"input_ids": torch.arange(9)[None] + 3, "use_cache": False}, counted, "watched",
    )
    for kind, more in {
        "inkling_text": {},
        "inkling2_text": GROWING,
        "inkling2_loop_text": GROWING,
    }.items()
}  # fmt: skip
AXIAL = {**PICTURE, "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0}}


def flat(patches: int, numbers: int) -> torch.Tensor:
    """Patches of several pictures one after the other, as models of any resolution read them."""
    return normal(patches, numbers)


WATCHED |= {
    "mlcd_vision_model": Watched(
        r"layers\.\d+\.self_attn$", 2, {**AXIAL, "image_size": 32, "patch_size": 8},
        class_angle, lambda: {"pixel_values": normal(1, 3, 32, 24)}, row_major(4, 3, 1),
    ),
    "step3p5_vision": Watched(
        r"layers\.\d+\.self_attn$", 2,
        {**AXIAL, "image_size": 32, "patch_size": 8, "mlp_ratio": 1.0},
        nothing, lambda: {"pixel_values": normal(1, 3, 32, 24)}, row_major(4, 3),
    ),
    "llama4_vision_model": Watched(
        r"layers\.\d+\.self_attn$", 2,
        {**AXIAL, "image_size": 32, "patch_size": 8, "vision_output_dim": 32,
         "projector_input_dim": 32, "projector_output_dim": 32, "intermediate_size": 128},
        nothing, lambda: {"pixel_values": normal(1, 3, 32, 32)}, row_major(4, 4, 1, last=True),
    ),
    "inkling2_vision": Watched(
        r"layers\.\d+\.self_attn$", 2, {**AXIAL, "patch_size": 4, "posemb_grid_size": 4,
                                         "spatial_merge_size": 1, "projection_hidden_dim": 32,
                                         "text_hidden_size": 32},
        nothing,
        lambda: {"pixel_values": normal(12, 4, 4, 3), "image_grid_thw": torch.tensor([[1, 4, 3]])},
        row_major(4, 3, 1),
    ),
    **{
        kind: Watched(
            r"\.attn$|\.self_attn$", 2, {**AXIAL, "patch_size": 4, "pos_emb_height": 4,
                                         "pos_emb_width": 4, "merge_size": 1,
                                         "max_position_embeddings": 16, "layer_types": None},
            nothing,
            lambda: {"pixel_values": flat(16, 96), "grid_thw": torch.tensor([[1, 4, 4]])},
            row_major(4, 4),
        )
        for kind in ("muse_glimmer_vision", "muse_spark_vision")
    },
    "sam3_vit_model": Watched(
        r"layers\.\d+\.attention$", 2,
        {**AXIAL, "image_size": 48, "pretrain_image_size": 16, "patch_size": 8, "window_size": 2,
         "global_attn_indexes": [1]},
        nothing, lambda: {"pixel_values": normal(1, 3, 48, 48)}, row_major(6, 6),
    ),
    "vjepa2": Watched(
        r"encoder\.layer\.\d+\.attention$", 2,
        {"hidden_size": 40, "num_attention_heads": 2, "num_hidden_layers": 1, "patch_size": 8,
         "crop_size": 24, "frames_per_clip": 4, "tubelet_size": 2, "mlp_ratio": 1,
         "pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1,
         "num_pooler_layers": 1},
        nothing, lambda: {"pixel_values_videos": normal(1, 4, 3, 24, 24), "skip_predictor": True},
        lambda time: np.indices((time // 9, 3, 3)).reshape(3, -1).T.astype(np.int32),
    ),
}  # fmt: skip


def heads_of(module, x: torch.Tensor, names: tuple[str, ...], heads: int, at: int) -> np.ndarray:
    """Queries (at 0) or keys (at 1) of a module, [1, T, H, C]."""
    name = next(n for n in names if hasattr(module, n))
    projection = getattr(module, name)
    x = module.pre_norm(x) if hasattr(module, "pre_norm") else x
    if isinstance(projection, torch.nn.Parameter):  # XLNet's; time is its first axis
        return torch.einsum("ibh,hnd->bind", x, projection).numpy()
    y = projection(x)
    if name == "qkv":
        y = y.reshape(1, -1, 3, y.shape[-1] // 3)[:, :, at]
    if name == "to_kv":
        y = y.chunk(2, dim=-1)[0]
    y_BTHC = y.reshape(1, y.shape[-2] if y.ndim == 3 else -1, heads, y.shape[-1] // heads)
    norm = getattr(module, ("q_norm", "k_norm")[at], None)
    return (y_BTHC if norm is None else norm(y_BTHC)).numpy()


@contextlib.contextmanager
def softmaxes(seen: list[torch.Tensor]) -> Iterator[None]:
    """Keeps what each softmax gives."""
    plain, method = torch.softmax, torch.Tensor.softmax

    def noted(x, *arguments, **options):
        options.pop("_stacklevel", None)
        y = method(x, *arguments, **options)
        seen.append(y)
        return y

    def fused(q, k, v, attn_mask=None, scale=None, **options):
        assert not options.get("is_causal")
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros(attn_mask.shape).masked_fill(~attn_mask, -torch.inf)
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        s = q @ k.transpose(-1, -2) * scale + (0 if attn_mask is None else attn_mask)
        return noted(s, dim=-1) @ v

    patches = (
        ("torch.nn.functional.softmax", noted), ("torch.softmax", noted),
        ("torch.Tensor.softmax", noted),
        ("torch.nn.functional.scaled_dot_product_attention", fused),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for name, function in patches:
            stack.enter_context(mock.patch(name, function))
        yield
    assert torch.softmax is plain


def interface(module, query, key, value, attention_mask, **options):
    """An attention that keeps queries, keys and what is added to logits on the module; it gives
    zeros.
    """
    if (bias := options.get("position_bias")) is None:  # attention to states of other layers
        p = (query @ key.transpose(-1, -2) * options["scaling"]).softmax(-1)
        return (p @ value).transpose(1, 2).contiguous(), None
    module._given = query, key, bias + attention_mask[..., : key.shape[2]].clamp(min=-1e30)
    return torch.zeros_like(query).transpose(1, 2).contiguous(), None


def growth(module, time: int) -> torch.Tensor:
    """The factor of each query in a layer of Inkling 2, [T]."""
    norm: Any = getattr(getattr(module, "relative_position_bias", None), "norm", None)
    if not hasattr(norm, "log_scale"):
        return torch.ones(time)
    return norm.log_scale(torch.ones(1, time, 1, 1), torch.arange(time)[None])[0, :, 0, 0]


def watch(model, watched: Watched) -> dict[int, dict[str, np.ndarray]]:
    """Queries, keys, weights, positions and parameters of each layer's attention, of the first
    window of its picture.
    """
    layers: dict[int, dict[str, np.ndarray]] = {}
    modules = [(n, m) for n, m in model.named_modules() if re.search(watched.name, n)]
    weights: list[torch.Tensor] = []
    hooks = []

    def before(module, args, kwargs):
        weights.clear()

    def after(number, module, args, kwargs, output):
        x = args[0] if args else kwargs["hidden_states"]
        x = x[None] if x.ndim == 2 else x  # of patches of several pictures
        first = x[:, :1] if hasattr(module, "r_w_bias") else x[:1]
        if given := vars(module).pop("_given", None):
            q, k, added = given
            tau = growth(module, q.shape[2])[None, None, :, None]
            weights.append((q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + added).softmax(-1))
            q, k = ((x / y).transpose(1, 2).numpy() for x, y in ((q, tau), (k, 1)))
        else:
            q, k = (
                heads_of(module, first, names, watched.heads, at)
                for at, names in enumerate((QUERIES, KEYS))
            )
        p_BHQK = weights[-1].reshape(-1, watched.heads, *weights[-1].shape[-2:])
        time = q.shape[1]
        p_HQK = p_BHQK[0]
        if p_HQK.shape[-1] < time:  # blocks of the batch
            p_HQK = torch.stack([torch.block_diag(*p_BHQK[:, h]) for h in range(watched.heads)])
        params = {name: x.detach().numpy() for name, x in watched.params(module, model).items()}
        layers.setdefault(number, {
            "q": q, "k": k, "weights": p_HQK[None].numpy(), "pos": watched.pos(time)[None],
            **{f"params/{name}": x for name, x in params.items()},
            **({"x": first.numpy()} if given or hasattr(module, "gru_rel_pos_linear") else {}),
        })  # fmt: skip

    for number, (_, module) in enumerate(modules):
        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        call = lambda *given, number=number: after(number, *given)
        hooks.append(module.register_forward_hook(call, with_kwargs=True))
    with torch.no_grad(), softmaxes(weights):
        inputs = watched.inputs()
        model(*inputs) if isinstance(inputs, tuple) else model(**inputs)
    for hook in hooks:
        hook.remove()
    return layers


ANY_SIZE = {
    "hidden_size": 32, "embed_dim": 32, "num_heads": 2, "num_attention_heads": 2, "depth": 2,
    "num_hidden_layers": 2, "in_channels": 3, "in_chans": 3, "num_channels": 3, "patch_size": 4,
    "temporal_patch_size": 1, "spatial_merge_size": 1, "intermediate_size": 32, "mlp_ratio": 1,
    "out_hidden_size": 32, "fullatt_block_indexes": [0, 1], "window_size": 64,
    "num_key_value_heads": 2, "layer_types": None, "temporal_merge_size": 1,
}  # fmt: skip
LFM3 = {n: size for n, size in ANY_SIZE.items() if n != "window_size"}
LFM3 |= {"layer_types": ["full_attention", "full_attention"]}
WATCHED |= {
    kind: Watched(
        r"(blocks|layers)\.\d+\.(attn|self_attn|attention)$", 2,
        LFM3 if kind == "lfm3_vl_vision" else ANY_SIZE,
        nothing, lambda: (flat(12, 48), torch.tensor([[1, 4, 3]])), row_major(4, 3),
    )
    for kind in (
        "ernie4_5_vl_moe_vision", "exaone4_5_vision",
        "glm5_next_vision", "glm_ocr_vision", "lfm3_vl_vision", "qwen2_5_omni_vision_encoder",
        "qwen2_5_vl_vision", "qwen2_vl_vision",
    )
}  # fmt: skip


def hunyuan_vl(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """HunYuan-VL's rotary class on numbers, since its norms stand behind the change of lengths."""
    rope = {
        "rope_type": "dynamic",
        "alpha": 8.0,
        "factor": 1.0,
        "rope_theta": 1e4,
        "mrope_section": [2, 2, 2, 2],
    }
    fields = {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 16, "rope_parameters": rope}
    file = importlib.import_module(cls.__module__.replace("configuration_", "modeling_"))
    module = file.HunYuanVLRotaryEmbedding(cls(**fields))
    q, k = (normal(1, 2, 9, 16, seed=n) for n in (0, 1))
    pos_T4 = np.stack([np.arange(9), np.arange(9) // 3, np.arange(9) % 3, np.arange(9) // 5], -1)
    cos, sin = module(q, torch.tensor(pos_T4.T)[:, None])
    turned_q, turned_k = file.apply_rotary_pos_emb(q, k, cos, sin)
    weights = (turned_q @ turned_k.transpose(2, 3) / 4).softmax(-1)
    by_token = lambda x: x.transpose(1, 2).numpy()
    arrays = {"q": by_token(q), "k": by_token(k), "weights": weights.numpy()}
    return fields, arrays | {"pos": pos_T4.astype(np.int32)[None]}


def swin_v2(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The bias of a window of 3 x 3 patches; queries and keys, which have cosines, are 0."""
    fields = {"image_size": 24, "patch_size": 4, "window_size": 3, "depths": [1, 1]}
    file = importlib.import_module(cls.__module__.replace("configuration_", "modeling_"))
    name = next(name for name in vars(file) if name.endswith("SelfAttention"))
    module = getattr(file, name)(cls(**fields, num_heads=[2, 2]), 32, 2, 3)
    with torch.no_grad():
        for n, parameter in enumerate(module.parameters()):
            parameter.copy_(0.3 * normal(*parameter.shape, seed=n))
        module.query.bias.zero_()
        weights = module(torch.zeros(1, 9, 32), output_attentions=True)[1]
    mlp = module.continuous_position_bias_mlp
    params = {"w1": mlp[0].weight.T, "b1": mlp[0].bias, "w2": mlp[2].weight.T}
    zeros = np.zeros((1, 9, 2, 16), np.float32)
    arrays = {"q": zeros, "k": zeros, "weights": weights.numpy(), "pos": row_major(3, 3)(9)[None]}
    return fields, arrays | {f"params/{n}": x.detach().numpy() for n, x in params.items()}


def mistral_large4(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Mistral Large 4's rotary class and its scale of queries on numbers, since its keys are chosen
    by an indexer; of a layer that turns.
    """
    fields = {
        "hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3,
        "num_hidden_layers": 1, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
        "no_rope_layers": [1],
    }  # fmt: skip
    file = importlib.import_module(cls.__module__.replace("configuration_", "modeling_"))
    config = cls(**fields)
    turned = file.MistralLarge4TextRotaryEmbedding(config)
    scale = file.MistralLarge4TextSoftmaxScaling(3)
    for seed, parameter in enumerate((turned.alpha, scale.scale, scale.bias)):
        parameter.data = 0.5 * normal(*parameter.shape, seed=seed) + seed // 2
    q, k = (normal(1, 3, 9, 16, seed=n) for n in (3, 4))
    pos_BT = torch.arange(9)[None]
    cos, sin = turned(q, pos_BT)
    parts = file.apply_rotary_pos_emb_interleave(q[..., 8:], k[..., 8:], cos, sin)
    whole_q, whole_k = (
        torch.cat([x[..., :8], part], -1) for x, part in zip((q, k), parts, strict=True)
    )
    whole_q = scale(whole_q, pos_BT, head_dim_first=True)
    unseen = torch.full((9, 9), -torch.inf).triu(1)
    weights = (whole_q @ whole_k.transpose(2, 3) / 4 + unseen).softmax(-1)
    by_token = lambda x: x.transpose(1, 2).numpy()
    params = {"alpha": turned.alpha, "s": scale.scale, "b": scale.bias}
    return fields | {"rope_parameters": config.rope_parameters}, {
        "q": by_token(q), "k": by_token(k), "weights": weights.detach().numpy(),
        "pos": pos_BT.numpy().astype(np.int32),
        **{f"params/{name}": x.detach().numpy() for name, x in params.items()},
    }  # fmt: skip


def layoutlm(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """LayoutLMv2's and v3's biases of their encoder on random queries and keys."""
    third = cls.model_type == "layoutlmv3"
    fields = {
        "hidden_size": 36, "num_attention_heads": 3, "num_hidden_layers": 1, "vocab_size": 5,
        "coordinate_size": 7, "shape_size": 4, "rel_pos_bins": 8, "max_rel_pos": 6,
        "rel_2d_pos_bins": 10, "max_rel_2d_pos": 20, "intermediate_size": 8, "pad_token_id": 0,
        "max_2d_position_embeddings": 31,
    }  # fmt: skip
    file = importlib.import_module(
        "transformers.models." + ("layoutlmv3.modeling_layoutlmv3" if third
                                  else "layoutlmv2.modeling_layoutlmv2")
    )  # fmt: skip
    encoder = getattr(file, f"LayoutLMv{2 + third}Encoder")(cls(**fields))
    tables = {"table": encoder.rel_pos_bias, "table of x": encoder.rel_pos_x_bias,
              "table of y": encoder.rel_pos_y_bias}  # fmt: skip
    for seed, layer in enumerate(tables.values()):
        layer.weight.data = normal(*layer.weight.shape, seed=seed)
    rng = np.random.default_rng(0)
    first_T2, size_T2 = rng.integers(0, 15, (9, 2)), rng.integers(0, 15, (9, 2))
    box_T4 = np.concatenate([first_T2, first_T2 + size_T2], axis=1)
    at_BT, box_BT4 = torch.arange(9)[None], torch.tensor(box_T4)[None]
    if third:
        bias = encoder._compute_position_bias(at_BT, box_BT4)
    else:
        bias = encoder._calculate_1d_position_embeddings(at_BT)
        bias = bias + encoder._calculate_2d_position_embeddings(box_BT4)
    q, k = (normal(1, 3, 9, 12, seed=n) for n in (3, 4))
    weights = (q @ k.transpose(2, 3) / 12**0.5 + bias).softmax(-1)
    by_token = lambda x: x.transpose(1, 2).numpy()
    pos_T5 = np.concatenate([np.arange(9)[:, None], box_T4], axis=1).astype(np.int32)
    return fields, {
        "q": by_token(q), "k": by_token(k), "weights": weights.detach().numpy(),
        "pos": pos_T5[None],
        **{f"params/{name}": layer.weight.detach().T.numpy() for name, layer in tables.items()},
    }  # fmt: skip


def modeling(cls, name: str):
    """A class of the file of a config's model."""
    return getattr(
        importlib.import_module(cls.__module__.replace("configuration_", "modeling_")), name
    )


def boxes() -> tuple[np.ndarray, np.ndarray]:
    """Numbers and boxes of 9 tokens, (number, left, top, right, bottom) as shares of a page of 32
    units, which float32 holds, [T, 5]; and the boxes alone.
    """
    rng = np.random.default_rng(0)
    first_T2, size_T2 = rng.integers(0, 16, (9, 2)), rng.integers(0, 16, (9, 2))
    box_T4 = np.concatenate([first_T2, first_T2 + size_T2], axis=1).astype(np.float32) / 32
    return np.concatenate([np.arange(9)[:, None], box_T4], axis=1).astype(np.float32), box_T4


def weighed(q, k, bias=0.0) -> dict[str, np.ndarray]:
    """Queries and keys [1, H, T, C] by token, and the weights of attention with a bias."""
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + bias
    by_token = lambda x: x.transpose(1, 2).detach().numpy()
    return {"q": by_token(q), "k": by_token(k), "weights": scores.softmax(-1).detach().numpy()}


def bros(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """BROS's attention, whose projections of queries and keys give them as they are."""
    fields = {"hidden_size": 64, "num_attention_heads": 2, "bbox_scale": 9.0}
    config = cls(**fields)
    embeddings = modeling(cls, "BrosBboxEmbeddings")(config)
    module = modeling(cls, "BrosSelfAttention")(config).eval()
    projection = embeddings.bbox_projection.weight
    projection.data = 0.3 * normal(*projection.shape, seed=2)
    pos_T5, box_T4 = boxes()
    x_BTD = normal(1, 9, 64, seed=3)
    corners = torch.tensor(box_T4)[None][:, :, [0, 1, 2, 1, 2, 3, 0, 3]] * config.bbox_scale
    with torch.no_grad():
        weights = module(x_BTD, embeddings(corners))[1]
        heads = lambda layer: layer(x_BTD).view(1, 9, 2, 32).numpy()
        arrays = {"q": heads(module.query), "k": heads(module.key), "weights": weights.numpy()}
    return fields, arrays | {
        "pos": pos_T5[None],
        "params/projection": projection.detach().T.numpy(),
    }


def udop(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The biases of UDOP's encoder on random queries and keys, whose products are not divided."""
    kinds = [
        {"type": "1d", "max_distance": 20},
        {"type": "horizontal", "scaling_factor": 30, "relative_attention_num_buckets": 10},
        {"type": "vertical", "max_distance": 40},
    ]
    fields = {"relative_bias_args": kinds, "num_heads": 3, "d_model": 36, "d_kv": 12}
    config = cls(**fields)
    bias = modeling(cls, "RelativePositionBiasAggregated")(
        modeling(cls, "create_relative_bias")(config)
    )
    tables = {}
    for n, part in enumerate(bias.biases):
        table = part.relative_attention_bias.weight
        table.data = normal(*table.shape, seed=n)
        tables[f"params/table {n}"] = table.detach().numpy()
    pos_T5, box_T4 = boxes()
    added = bias(torch.ones(1, 9), torch.tensor(box_T4)[None])
    q, k = (normal(1, 3, 9, 12, seed=n) / 3 for n in (3, 4))
    arrays = weighed(q * 12**0.5, k, added) | {"q": q.transpose(1, 2).numpy()}
    return {**fields, "is_encoder_decoder": True}, arrays | tables | {"pos": pos_T5[None]}


def cpmant(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """CPM-Ant's bias of segments on random queries and keys."""
    fields = {
        "segment_types": 3, "position_bias_num_buckets": 8, "position_bias_max_distance": 7,
        "num_attention_heads": 2,
    }  # fmt: skip
    module = modeling(cls, "CpmAntSegmentPositionEmbedding")(cls(**fields))
    table = module.relative_attention_bias
    table.data = normal(*table.shape, seed=1)
    at_BT, kind_BT = torch.arange(9)[None], torch.tensor([[0, 0, 1, 1, 1, 2, 2, 0, 0]])
    q, k = (normal(1, 2, 9, 12, seed=n) for n in (3, 4))
    arrays = weighed(q, k, module(at_BT, at_BT, kind_BT, kind_BT))
    pos_BT2 = torch.stack([at_BT, kind_BT], -1).numpy().astype(np.int32)
    return fields, arrays | {"pos": pos_BT2, "params/table": table.detach().numpy()}


def tower(name: str, fields: dict[str, Any], axes: int) -> Callable:
    """A rotary class of a tower of pictures or video, of 2 frames of 2 x 3 patches."""

    def called(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        pos_TA = torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(3))[:, -axes:]
        heads, width = fields["num_attention_heads"], fields["hidden_size"]
        q, k = (normal(1, heads, 12, width // heads, seed=n) for n in (0, 1))
        by_patch = [x[0].transpose(0, 1) for x in (q, k)]
        cos, sin = modeling(cls, name)(cls(**fields))(q, pos_TA)
        turned = modeling(cls, "apply_rotary_pos_emb_vision")(*by_patch, cos, sin)
        whole = weighed(*(x.transpose(0, 1)[None] for x in turned))
        arrays = {"q": by_patch[0][None].numpy(), "k": by_patch[1][None].numpy()}
        return fields, whole | arrays | {"pos": pos_TA[None].numpy().astype(np.int32)}

    return called


def gemma4_vision(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Gemma 4's rotary class on a grid of 3 x 4 patches, whose (column, row) it reads."""
    fields = {"hidden_size": 32, "num_attention_heads": 2, "head_dim": 16}
    config = cls(**fields)
    pos_T2 = torch.cartesian_prod(torch.arange(3), torch.arange(4))
    swapped = pos_T2.flip(-1)[None]
    q, k = (normal(1, 12, 2, 16, seed=n) for n in (0, 1))
    cos, sin = modeling(cls, "Gemma4VisionRotaryEmbedding")(config)(q, swapped)
    apply = modeling(cls, "apply_multidimensional_rope")
    whole = weighed(*(apply(x, cos, sin, swapped).transpose(1, 2) for x in (q, k)))
    arrays = {"q": q.numpy(), "k": k.numpy(), "pos": pos_T2[None].numpy().astype(np.int32)}
    return fields, whole | arrays


def class_biases(module, model) -> dict[str, torch.Tensor]:
    """The biases of all layers of BEiT and Data2Vec, and those of the first one."""
    tables = {name: x for name, x in model.named_parameters() if name.endswith("bias_table")}
    of_layer = next(name for name in tables if "layer.0." in name or "layers.0." in name)
    shared = next(name for name in tables if "layer.0." not in name and "layer.1." not in name)
    return {"table of all layers": tables[shared], "table": tables[of_layer]}


WATCHED |= {
    kind: Watched(
        rf"layers?\.0\.{name}$", 2,
        {**PICTURE, "image_size": 16, "patch_size": 4, "use_relative_position_bias": True,
         "use_shared_relative_position_bias": True},
        class_biases, picture(16), row_major(4, 4, 1),
    )
    for kind, name in (("beit", "attention"), ("data2vec-vision", "attention.attention"))
}  # fmt: skip


def levit(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """LeViT's biases of a picture of 4 x 4 patches on random queries and keys; those of queries of
    every second row and column are from the layer that shrinks the picture.
    """
    fields = {"image_size": 64, "depths": [1, 1, 1]}
    module: Any = modeling(cls, "LevitAttention")(16, 8, 2, 2, 4)
    shrinking: Any = modeling(cls, "LevitAttentionSubsample")(16, 16, 8, 2, 2, 2, 4, 2)
    module.attention_biases.data = normal(2, 16, seed=2)
    shrinking.attention_biases.data = module.attention_biases.data
    bias = module.get_attention_biases("cpu").clone()
    bias[:, [0, 2, 8, 10]] = shrinking.get_attention_biases("cpu")
    arrays = weighed(normal(1, 2, 16, 8, seed=0), normal(1, 2, 16, 8, seed=1), bias)
    table = module.attention_biases.detach().T.numpy()
    return fields, arrays | {"pos": row_major(4, 4)(16)[None], "params/table": table}


def longt5(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """LongT5's local attention of 10 tokens in blocks of 3, of which a query sees two either side.

    The blocks of a query are its own and its neighbours.
    """
    fields = {
        "d_model": 32, "d_kv": 16, "num_heads": 2, "local_radius": 2,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6,
    }  # fmt: skip
    module = modeling(cls, "LongT5LocalAttention")(cls(**fields), True).eval()
    module.relative_attention_bias.weight.data = normal(8, 2, seed=2)
    x_BTD, seen = normal(1, 10, 32, seed=3), []
    mask = modeling(cls, "_get_local_attention_mask")(torch.ones(1, 10), 3, "cpu")
    with torch.no_grad(), softmaxes(seen):
        module(x_BTD, mask=mask)
    heads = lambda layer: layer(x_BTD).view(1, 10, 2, 16).detach().numpy()
    p_NHQK = seen[-1][0].numpy()
    whole_HQK = np.zeros((2, 12, 18), np.float32)
    for block, p_HQK in enumerate(p_NHQK):  # of the keys from a block before the first one on
        whole_HQK[:, 3 * block : 3 * block + 3, 3 * block : 3 * block + 9] = p_HQK
    return fields, {
        "q": heads(module.q), "k": heads(module.k), "weights": whole_HQK[None, :, :10, 3:13],
        "pos": counted(10)[None],
        "params/table": module.relative_attention_bias.weight.detach().numpy(),
    }  # fmt: skip


def seamless_speech(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """SeamlessM4T v2's speech encoder, in chunks of 3 frames that see one chunk before."""
    fields = {
        "hidden_size": 32, "feature_projection_input_dim": 12, "speech_encoder_layers": 1,
        "speech_encoder_attention_heads": 2, "speech_encoder_intermediate_size": 32,
        "left_max_position_embeddings": 3, "right_max_position_embeddings": 1,
        "speech_encoder_chunk_size": 3, "speech_encoder_left_chunk_num": 1,
        "conv_depthwise_kernel_size": 3, "adaptor_kernel_size": 3, "adaptor_stride": 2,
        "num_adapter_layers": 1,
    }  # fmt: skip
    config = cls(**fields)
    config._attn_implementation = "sdpa"  # "eager" adds the mask of chunks, of booleans, to logits
    model = modeling(cls, "SeamlessM4Tv2SpeechEncoder")(config).eval()
    for seed, parameter in enumerate(model.parameters()):
        parameter.data = 0.3 * normal(*parameter.shape, seed=seed)
    inputs = features("input_features", 9, 12)
    params = shaw("distance_embedding", 2, True)
    name = r"encoder\.layers\.\d+\.self_attn$"
    return fields, watch(model, Watched(name, 2, fields, params, inputs, counted))[0]


def efficient_loftr(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """EfficientLoFTR's rotation of queries and keys before they are cut into heads."""
    fields = {
        "hidden_size": 32, "num_attention_heads": 4,
        "rope_parameters": {"rope_theta": 1e2, "partial_rotary_factor": 2.0},
    }  # fmt: skip
    config = cls(**fields, out_features=[8, 8, 16, 32])
    cos, sin = modeling(cls, "EfficientLoFTRRotaryEmbedding")(config)(torch.zeros(1, 32, 12, 16))
    q, k = (normal(1, 12, 1, 32, seed=n) for n in (0, 1))
    by_patch = (x.reshape(1, 12, 32) for x in (cos, sin))
    turned = modeling(cls, "apply_rotary_pos_emb")(q, k, *by_patch, unsqueeze_dim=2)
    whole = weighed(*(x.reshape(1, 12, 4, 8).transpose(1, 2) for x in turned))
    cut = {name: x.reshape(1, 12, 4, 8).numpy() for name, x in (("q", q), ("k", k))}
    return fields, whole | cut | {"pos": row_major(3, 4)(12)[None]}


def lightglue(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """LightGlue's rotation of points (x, y)."""
    fields = {"descriptor_dim": 32, "num_attention_heads": 2}
    module = modeling(cls, "LightGluePositionalEncoder")(cls(**fields))
    module.projector.weight.data = normal(8, 2, seed=2)
    point_BT2 = normal(1, 9, 2, seed=3)
    q, k = (normal(1, 2, 9, 16, seed=n) for n in (0, 1))
    with torch.no_grad():
        ((cos, sin),) = module(point_BT2)
        turned = modeling(cls, "apply_rotary_pos_emb")(q, k, cos, sin)
    by_token = {name: x.transpose(1, 2).numpy() for name, x in (("q", q), ("k", k))}
    freq_2F = module.projector.weight.detach().T.flip(0).numpy()
    pos_BT2 = point_BT2.flip(-1).numpy()
    return fields, weighed(*turned) | by_token | {"pos": pos_BT2, "params/freq_2F": freq_2F}


def atoms(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """ESMFold2's rotation of atoms in a window of 4 either side, the first three of one residue."""
    atom = {"hidden_size": 48, "num_attention_heads": 2, "head_dim": 24, "num_uid_rope_pairs": 4,
            "num_spatial_rope_pairs_per_axis": 2}  # fmt: skip
    fields = {"sliding_window": 8, "atom_encoder": atom | {"spatial_rope_base_frequency": 15.0}}
    config = cls(**fields)
    module = modeling(cls, "EsmFold2RotaryEmbedding")(config.atom_encoder)
    place_BT3, number_BT = 3 * normal(1, 9, 3, seed=3), torch.arange(9)[None] // 3
    cos, sin = module(place_BT3, number_BT, torch.float32)
    q, k = (normal(1, 2, 9, 24, seed=n) for n in (0, 1))
    turned = modeling(cls, "apply_rotary_pos_emb")(q, k, cos, sin)
    overlay = importlib.import_module("transformers.masking_utils")
    sees = overlay.sliding_window_bidirectional_overlay(config.sliding_window // 2)
    at_T = torch.arange(9)
    hidden = torch.zeros(9, 9).masked_fill(~sees(0, 0, at_T[:, None], at_T), -torch.inf)
    by_token = {name: x.transpose(1, 2).numpy() for name, x in (("q", q), ("k", k))}
    pos_BT4 = torch.cat([place_BT3, number_BT[..., None]], -1).numpy()
    return fields, weighed(turned[0], turned[1], hidden) | by_token | {"pos": pos_BT4}


def memory(cls) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The rotation of SAM 2's attention to its memory, of 3 x 4 patches."""
    fields = {
        "memory_attention_hidden_size": 32, "memory_attention_num_attention_heads": 2,
        "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
    }  # fmt: skip
    file = vars(importlib.import_module(cls.__module__.replace("configuration_", "modeling_")))
    rotary = next(thing for name, thing in file.items() if name.endswith("VisionRotaryEmbedding"))
    attention = next(thing for name, thing in file.items() if name.endswith("VideoMemoryAttention"))
    config = cls(**fields)
    config.memory_attention_rope_feat_sizes = [4, 3]  # SAM 3's makes it of the image's size
    q, k = (normal(1, 2, 12, 16, seed=n) for n in (0, 1))
    cos, sin = rotary(config)(q, attention.precompute_positions(config))
    turned = next(file[name] for name in APPLIED if name in file)(q, k, cos, sin)
    by_token = {name: x.transpose(1, 2).numpy() for name, x in (("q", q), ("k", k))}
    return fields, weighed(*turned) | by_token | {"pos": row_major(3, 4)(12)[None]}


MEMORIES = "edgetam_video", "sam2_video", "sam3_tracker_video"
APPLIED = "apply_rotary_pos_emb_2d", "apply_rotary_pos_emb_2d_self_attn"
# The part whose attention that is, of models whose first part with an encoding is another one.
PARTS = {"esmfold2": "atom_encoder", "speecht5": "speech_encoder"} | dict.fromkeys(
    MEMORIES, "memory_attention"
)
CALLED = {
    "esmfold2": atoms, **dict.fromkeys(MEMORIES, memory),
    "efficientloftr": efficient_loftr, "levit": levit, "lightglue": lightglue, "longt5": longt5,
    "seamless_m4t_v2": seamless_speech,
    "gemma4_vision": gemma4_vision,
    "bros": bros, "cpmant": cpmant, "udop": udop,
    "kimi_k25_vision": tower(
        "Kimi_K25VisionRotaryEmbedding", {"hidden_size": 32, "num_attention_heads": 2}, 2
    ),
    "minimax_m3_vl_vision": tower(
        "MiniMaxM3VLVisionRotaryEmbedding", {"hidden_size": 40, "num_attention_heads": 2}, 3
    ),
    "layoutlmv2": layoutlm, "layoutlmv3": layoutlm, "layoutxlm": layoutlm,
    "hunyuan_vl_text": hunyuan_vl, "mistral_large4_text": mistral_large4, "swin2sr": swin_v2,
    "swinv2": swin_v2,
}  # fmt: skip
