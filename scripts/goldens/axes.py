"""Rotary methods over several axes: images, and streams of text, images, sound and video."""

import functools
import types
from collections.abc import Iterator

import timm.layers
import torch
from diffusers.models.embeddings import apply_rotary_emb, get_3d_rotary_pos_embed
from diffusers.models.transformers.transformer_cosmos import CosmosRotaryPosEmbed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoRotaryPosEmbed
from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed
from transformers import (
    DINOv3ViTConfig,
    Llama4VisionConfig,
    PixtralVisionConfig,
    Qwen2VLConfig,
    Qwen2VLTextConfig,
    Qwen3VLTextConfig,
    Sam2VideoConfig,
)
from transformers.models.dinov3_vit import modeling_dinov3_vit
from transformers.models.ernie4_5_vl_moe import modeling_ernie4_5_vl_moe
from transformers.models.ernie4_5_vl_moe.configuration_ernie4_5_vl_moe import (
    Ernie4_5_VLMoeTextConfig,
)
from transformers.models.llama4 import modeling_llama4
from transformers.models.pixtral import modeling_pixtral
from transformers.models.qwen2_5_omni import modeling_qwen2_5_omni
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniTextConfig
from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2_vl
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3_vl
from transformers.models.sam2_video import modeling_sam2_video

from .golden import Golden, arrays, grid, reset
from .rotary import hugging_face, turned


def axial() -> Iterator[Golden]:
    config = Qwen2VLConfig().vision_config
    config.embed_dim = 24
    config.num_heads = config.num_attention_heads = 2
    module = qwen2_vl.Qwen2VLVisionRotaryEmbedding(config)
    pos = grid(3, 5)
    cos, sin = module(torch.zeros(1), pos[0])

    def vision(x):
        x = x[0].transpose(0, 1)
        return qwen2_vl.apply_rotary_pos_emb_vision(x, x, cos, sin)[0].transpose(0, 1)[None]

    yield turned(
        "axial/qwen2_vl", "transformers", "Qwen2VLVisionRotaryEmbedding",
        {"base": 1e4, "pairing": "half"}, {"base": 100.0}, pos, 2, 12, vision,
    )  # fmt: skip
    sin_emb, cos_emb = timm.layers.build_rotary_pos_embed(
        [4, 3], dim=8, temperature=100.0, in_pixels=False
    )
    yield turned(
        "axial/timm", "timm", "build_rotary_pos_embed, apply_rot_embed",
        {"pairing": "interleaved"}, {"pairing": "half"}, grid(4, 3), 2, 8,
        lambda x: timm.layers.apply_rot_embed(x, sin_emb, cos_emb),
    )  # fmt: skip

    yield pixtral()
    yield llama4_vision()
    yield sam2_video()


def pixtral() -> Golden:
    config = PixtralVisionConfig(hidden_size=24, num_attention_heads=2, image_size=16, patch_size=4)
    pos = grid(3, 4)
    cos, sin = modeling_pixtral.PixtralVisionRotaryEmbedding(config)(torch.zeros(1), pos[0])
    return turned(
        "axial/pixtral", "transformers", "PixtralVisionRotaryEmbedding, apply_rotary_pos_emb",
        {"base": 1e4, "bands": "alternate"}, {"bands": "same"}, pos, 2, 12,
        lambda x: modeling_pixtral.apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=0)[0],
    )  # fmt: skip


def llama4_vision() -> Golden:
    """Patches stand at (column + 1, row + 1), and a last token, which stands for all, at (0, 0)."""
    config = Llama4VisionConfig(
        hidden_size=16, num_attention_heads=2, image_size=6, patch_size=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    freqs = modeling_llama4.Llama4VisionRotaryEmbedding(config)(torch.zeros(1))
    rotate = lambda x: modeling_llama4.vision_apply_rotary_emb(x, x, freqs)[0]
    pos = torch.cat([grid(3, 3).flip(-1) + 1, torch.zeros(1, 1, 2, dtype=torch.int64)], dim=1)
    return turned(
        "axial/llama4", "transformers", "Llama4VisionRotaryEmbedding, vision_apply_rotary_emb",
        {"base": 1e4, "pairing": "interleaved"}, {"pairing": "half"}, pos, 2, 8,
        lambda x: rotate(x.transpose(1, 2)).transpose(1, 2),
    )  # fmt: skip


def sam2_video() -> Golden:
    """Patches stand at (column, row)."""
    config = Sam2VideoConfig(
        memory_attention_hidden_size=8, memory_attention_num_attention_heads=1,
        memory_attention_downsample_rate=1, memory_attention_rope_feat_sizes=[4, 3],
    )  # fmt: skip
    pos = grid(3, 4).flip(-1)
    cos, sin = modeling_sam2_video.Sam2VideoVisionRotaryEmbedding(config)(torch.zeros(1), pos[0])
    return turned(
        "axial/sam2_video", "transformers",
        "Sam2VideoVisionRotaryEmbedding, apply_rotary_pos_emb_2d",
        {"base": 1e4, "pairing": "interleaved"}, {"pairing": "half"}, pos, 1, 8,
        lambda x: modeling_sam2_video.apply_rotary_pos_emb_2d(x, x, cos, sin)[0],
    )  # fmt: skip


def dinov3() -> Iterator[Golden]:
    for rows, columns, head in ((3, 5, 8), (4, 4, 12)):
        config = DINOv3ViTConfig(hidden_size=2 * head, num_attention_heads=2, patch_size=2)
        module = modeling_dinov3_vit.DINOv3ViTRopePositionEmbedding(config).eval()
        cos, sin = module(torch.zeros(1, 3, 2 * rows, 2 * columns))
        yield turned(
            f"dinov3/{rows} x {columns}", "transformers",
            "DINOv3ViTRopePositionEmbedding, apply_rotary_pos_emb",
            {"rows": rows, "columns": columns}, {"rows": 2}, grid(rows, columns), 2, head,
            lambda x, cos=cos, sin=sin: modeling_dinov3_vit.apply_rotary_pos_emb(x, x, cos, sin)[0],
        )  # fmt: skip


def mixed() -> Iterator[Golden]:
    """The grid is (x, y): x is the column."""
    for heads, head, shape in ((2, 8, (3, 4)), (3, 4, (2, 5))):
        case = f"mixed/timm {head}"
        module = timm.layers.RotaryEmbeddingMixed(heads * head, 1, heads, feat_shape=list(shape))
        reset(module, case)
        sin, cos = module.get_embed()[0].chunk(2, -1)
        yield turned(
            case, "timm", "RotaryEmbeddingMixed, apply_rot_embed", {"pairing": "interleaved"},
            {"pairing": "half"}, grid(*shape), heads, head,
            functools.partial(timm.layers.apply_rot_embed, sin_emb=sin, cos_emb=cos),
            params__0__freq_AHF=module.freqs[:, 0].flip(0),
        )  # fmt: skip


def moments(rows: int, columns: int, times: tuple[int, ...]) -> torch.Tensor:
    """Ids (time, row, column) of three words, frames at some times, and a word, [1, T, 3]."""
    first = torch.arange(3)[:, None].repeat(1, 3)
    frames = [
        torch.cat([torch.full((rows * columns, 1), time), grid(rows, columns)[0]], dim=1)
        for time in times
    ]
    video = torch.cat(frames) + 3
    return torch.cat([first, video, video.max() + torch.ones(1, 3, dtype=torch.int64)])[None]


def mrope() -> Iterator[Golden]:
    second = ("qwen2_vl", Qwen2VLTextConfig, qwen2_vl.Qwen2VLRotaryEmbedding, "sections")
    third = ("qwen3_vl", Qwen3VLTextConfig, qwen3_vl.Qwen3VLTextRotaryEmbedding, "interleaved")
    for (name, config_of, module, order), sections in (
        (second, (2, 3, 3)), (second, (1, 2, 2)), (third, (3, 2, 2)), (third, (4, 2, 2)),
    ):  # fmt: skip
        yield hugging_face(
            f"mrope/{name} {2 * sum(sections)}", module, sectioned(config_of, sections),
            {"sections": sections, "order": order}, {"base": 1e4}, moments(2, 3, (0, 1)) + 4,
        )  # fmt: skip


def video_rope() -> Iterator[Golden]:
    """Sections of pairs are those of height, width and time."""
    for sections in ((3, 3, 2), (2, 2, 1)):
        yield hugging_face(
            f"video_rope/ernie4_5_vl {2 * sum(sections)}",
            modeling_ernie4_5_vl_moe.Ernie4_5_VLMoeTextRotaryEmbedding,
            sectioned(Ernie4_5_VLMoeTextConfig, sections),
            {"time": sections[2], "pairing": "interleaved"}, {"pairing": "half"},
            moments(2, 3, (0, 1)) + 4,
        )  # fmt: skip


def sectioned(config_of, sections: tuple[int, ...]):
    """A config of two heads whose pairs are cut into sections."""
    head = 2 * sum(sections)
    return config_of(
        hidden_size=2 * head, num_attention_heads=2, head_dim=head, rope_parameters={
            "rope_type": "default", "rope_theta": 1e6, "mrope_section": list(sections),
        },
    )  # fmt: skip


IMAGE, VIDEO, AUDIO, BEGIN, SOUND, WORD = range(6)


def omni_ids(tokens: list[int], **sizes) -> torch.Tensor:
    """Ids [1, T, 3] that Qwen2.5-Omni gives a stream, at 25 a second and a chunk of 2 seconds."""
    family = modeling_qwen2_5_omni.Qwen2_5OmniPreTrainedModelForConditionalGeneration
    config = types.SimpleNamespace(
        image_token_id=IMAGE, video_token_id=VIDEO, audio_token_id=AUDIO, seconds_per_chunk=2,
        vision_start_token_id=BEGIN, audio_start_token_id=SOUND, position_id_per_seconds=25,
    )  # fmt: skip
    bare = types.SimpleNamespace(spatial_merge_size=1, config=config)
    for name in ("get_llm_pos_ids_for_vision", "get_chunked_index"):
        setattr(bare, name, functools.partial(getattr(family, name), bare))
    ids, _ = family.get_rope_index(bare, torch.tensor([tokens]), **sizes)
    return ids.permute(1, 2, 0)


def tmrope() -> Iterator[Golden]:
    """Ids of streams, their marks counted as text; then rotation, by the middle of an id's time."""
    video = [WORD] * 3 + [BEGIN] + [VIDEO] * 12 + [WORD] * 2
    video_ids = omni_ids(
        video, video_grid_thw=torch.tensor([[3, 2, 2]]), second_per_grids=torch.tensor([0.5])
    )
    mixed = [WORD, BEGIN] + [IMAGE] * 6 + [WORD] * 2 + [BEGIN] + [VIDEO] * 4 + [WORD] * 2
    mixed += [SOUND] + [AUDIO] * 3 + [WORD] * 2
    mixed_ids = omni_ids(
        mixed,
        image_grid_thw=torch.tensor([[1, 2, 3]]),
        audio_seqlens=torch.tensor([10]),
        video_grid_thw=torch.tensor([[2, 2, 1]]),
        second_per_grids=torch.tensor([0.25]),
    )
    both = [BEGIN, SOUND] + [VIDEO] * 20 + [AUDIO] * 60 + [WORD] * 2
    both_ids = omni_ids(
        both, video_grid_thw=torch.tensor([[5, 2, 2]]), second_per_grids=torch.tensor([0.5]),
        audio_seqlens=torch.tensor([240]), use_audio_in_video=True,
    )[:, 2:-2]  # fmt: skip
    seconds = tuple(k * 0.5 for k in range(5))
    for name, ids, parts in (
        ("video", video_ids, [("Text", 4), ("Video", 2, 2, seconds[:3]), ("Text", 2)]),
        ("mixed", mixed_ids, [
            ("Text", 2), ("Image", 2, 3), ("Text", 3), ("Video", 2, 1, (0.0, 0.25)), ("Text", 3),
            ("Audio", 3), ("Text", 2),
        ]),
        ("both", both_ids - 1, [("Video", 2, 2, seconds, 60)]),
    ):  # fmt: skip
        yield Golden(
            f"tmrope/qwen2_5_omni ids {name}", "transformers", "qwen2_5_omni.get_rope_index",
            "stream", {"parts": parts}, {"rate": 50}, (0, 0, 0), {}, arrays(ids=ids[0]),
        )  # fmt: skip
    for ids, sections in ((video_ids, (1, 2, 2)), (mixed_ids, (2, 3, 3))):
        golden = hugging_face(
            f"tmrope/qwen2_5_omni {2 * sum(sections)}",
            modeling_qwen2_5_omni.Qwen2_5OmniRotaryEmbedding,
            sectioned(Qwen2_5OmniTextConfig, sections), {"sections": sections}, {"rate": 50}, ids,
        )  # fmt: skip
        seconds = torch.cat([(ids[..., :1] + 0.5) / 25, ids[..., 1:].float()], dim=-1)
        golden.inputs.update(arrays(pos=seconds))
        yield golden


def nd_rope() -> Iterator[Golden]:
    """Models of pictures and of video in diffusers; those of video have 2 frames of 3 by 4."""
    interleaved, half = {"pairing": "interleaved"}, {"pairing": "half"}
    ids = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 2, 3], [5, 4, 0]])
    yield diffusers(
        "flux", "FluxPosEmbed", FluxPosEmbed(10_000, [4, 6, 6])(ids), ids,
        {"sections": [2, 3, 3], "bases": [1e4], **interleaved}, {"sections": [4, 2, 2]},
    )  # fmt: skip
    video = torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(4))
    pixels = torch.zeros(1, 1, 2, 3, 4)
    wan = [x[0, :, 0] for x in WanRotaryPosEmbed(20, (1, 1, 1), 16)(pixels)]
    yield diffusers("wan", "WanRotaryPosEmbed", wan, video, interleaved, {"ladders": "head"})
    hunyuan = HunyuanVideoRotaryPosEmbed(1, 1, [4, 6, 6], 256.0)(pixels)
    yield diffusers(
        "hunyuan_video", "HunyuanVideoRotaryPosEmbed", hunyuan, video,
        {"sections": [2, 3, 3], "bases": [256.0], **interleaved}, {"bases": [1e4]},
    )  # fmt: skip
    cog = get_3d_rotary_pos_embed(16, ((0, 0), (3, 4)), (3, 4), 2)
    yield diffusers(
        "cogvideox", "get_3d_rotary_pos_embed", cog, video,
        {"sections": [2, 3, 3], **interleaved}, half,
    )  # fmt: skip
    cosmos = CosmosRotaryPosEmbed(18, (8, 8, 8), (1, 1, 1), rope_scale=(2.0, 1.0, 3.0))(pixels)
    bases = [1e4 * scale ** (6 / 4) for scale in (2.0, 1.0, 3.0)]
    yield diffusers(
        "cosmos", "CosmosRotaryPosEmbed", cosmos, video, {"bases": bases, **half},
        {"bases": [1e4]}, -2,
    )  # fmt: skip


def diffusers(setting, function, waves, ids, options, wrong, unbind=-1) -> Golden:
    """Rotated by cosines and sines [T, C], at the ids [T, 3], with two heads."""
    rotate = functools.partial(apply_rotary_emb, freqs_cis=waves, use_real_unbind_dim=unbind)
    return turned(
        f"nd_rope/{setting}", "diffusers", f"{function}, apply_rotary_emb", options, wrong,
        ids[None], 2, waves[0].shape[-1], rotate,
    )  # fmt: skip
