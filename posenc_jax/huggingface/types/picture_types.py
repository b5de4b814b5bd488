"""Types whose tokens are patches of pictures or frames of video: tables, sines, axial rope, biases
of windows.
"""

from typing import Any

from posenc_jax.huggingface import offset_readers
from posenc_jax.huggingface import picture_readers as pictures
from posenc_jax.huggingface.own_readers import DINOV3, EOMT_DINOV3
from posenc_jax.huggingface.point_readers import ATOMS, EFFICIENT_LOFTR, LIGHTGLUE, NEOMME
from posenc_jax.huggingface.rows import (
    Absent,
    Grid,
    Layers,
    Nope,
    Parts,
    Reader,
    Sum,
    Switch,
    Table,
    Use,
    ignoring,
)
from posenc_jax.huggingface.tile_readers import LATER_TILES, TILES
from posenc_jax.huggingface.types.names import each

AXIAL = ignoring(
    Use("axial", {"base": ("rope_theta", 10_000.0)}), "num_position_embeddings", "window_size"
)
CLIP, WITHOUT_CLASS = Grid(), Grid(prefix=0)
ANTIALIASED = "bicubic_antialiased"
QWEN3_VL = Sum((Grid(square=("num_position_embeddings", 2304), prefix=0, resize="corners"), AXIAL))
SWIN = Use("swin_2d", {"window": ("window_size", 7)})
ABSOLUTE = "use_absolute_position_embeddings"


def without_table(row: Any) -> Switch:
    """The row of a model whose table of patches is made with a row too many."""
    reason = "its code cannot run with use_absolute_embeddings: its table has a row too many"
    return Switch("use_absolute_embeddings", {False: row, True: Absent(reason)})


OF_PAIRS = Absent(
    "distances along the chain are features of pairs of residues, of which biases are made"
)
POINTS, SAM = pictures.points(1024), pictures.sam()
PICTURES: dict[str, Any] = {
    # a table of the patches of a grid, after a class token
    **each("flava_image_model git_vision_model vit vit_msn", CLIP),
    **each("dinov2 idefics_vision kosmos_2_vision_model", Grid(patch=14)),
    **each("altclip_vision_model chinese_clip_vision_model clip_vision_model", Grid(patch=32)),
    **each("clipseg_vision_model metaclip_2_vision_model xclip_vision_model", Grid(patch=32)),
    **each("blip_2_vision_model instructblip_vision_model", Grid(patch=14)),
    "instructblipvideo_vision_model": Grid(patch=14),
    **each("blip_vision_model dpt", Grid(384)),
    "bridgetower_vision_model": Grid(288),
    "deit": Grid(prefix=2),
    "dinov2_with_registers": Grid(resize=ANTIALIASED),
    **each("internvl_vision qianfan_ocr_vision", ignoring(Grid((448, 448), (14, 14)), ABSOLUTE)),
    "lw_detr_vit": ignoring(
        Grid(fields=("pretrain_image_size", "patch_size")),
        ABSOLUTE,
        "window_block_indices",
        "num_windows",
        "num_windows_side",
    ),
    "mgp-str": Grid((32, 128), 4),
    **each("owlv2_vision_model", Grid(768)),
    **each("owlvit_vision_model", Grid(768, 32)),
    "pixio": Grid(256, prefix=8),
    "rf_detr_dinov2": ignoring(
        Grid(patch=14, resize=ANTIALIASED), "num_windows", "window_block_indexes"
    ),
    "tipsv2_vision_model": Grid(448, 14, resize="bilinear_antialiased"),
    "unlimited_ocr_vision_encoder": Grid(patch=14, resize=ANTIALIASED),
    # a table of the patches alone
    **each("groupvit_vision_model ijepa siglip_vision_model", WITHOUT_CLASS),
    **each(
        "cosmos3_edge_vision siglip2_vision_model",
        Grid(square=("num_patches", 256), prefix=0, resize="bilinear_antialiased"),
    ),
    **each("eomt videomt", Grid(640, prefix=0)),
    "glm_image_vision": Grid(2048, prefix=0, resize="bilinear"),
    "hiera": Grid((224, 224), (4, 4), ("image_size", "patch_stride"), prefix=0),
    **each(
        "idefics2_vision idefics3_vision smolvlm_vision", Grid(patch=32, prefix=0, resize="nearest")
    ),
    "janus_vision_model": Grid(384, prefix=0),
    "molmo2_vision": Grid(square=("num_position_embeddings", 729), prefix=0),
    "ovis2_vision": Grid(patch=14, prefix=0),
    "phi4_multimodal_vision": Grid(448, 14, prefix=0, resize="nearest"),
    # other tables of patches
    "audio-spectrogram-transformer": pictures.SPECTROGRAM,
    "gemma4_unified_vision": Use("learned_2d", {"length": ("mm_posemb_size", 1120), "join": "sum"}),
    "hunyuan_vl_vision": pictures.HUNYUAN,
    "hy_v4_vl_vision": offset_readers.HY_V4,
    **each(
        "minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision",
        ignoring(Grid(prefix=0, resize="nearest"), "window_kernel_size"),
    ),
    "pvt": Parts({}, {f"stage {n + 1}": offset_readers.pvt(n) for n in range(4)}),
    "radio": ignoring(offset_readers.RADIO, "num_registers"),
    "sam2_hiera_det_model": offset_readers.SAM2_HIERA,
    "timesformer": pictures.TIMESFORMER,
    "videoprism_vision_model": Parts(
        {},
        {
            "spatial_encoder": Reader(pictures.videoprism),
            "temporal_encoder": Table(16, names=("num_frames",)),
        },
    ),
    "vivit": pictures.VIVIT,
    "tvp": Parts({"backbone_config": "resnet"}, {"text": Table(512), "picture": pictures.TVP}),
    "vilt": Parts({}, {"text": Table(40), "picture": Grid(384, 32, resize="corners")}),
    "vitpose_backbone": pictures.VITPOSE,
    "yolos": Switch(
        "use_mid_position_embeddings",
        {
            True: Absent(
                "adds a table of patches to the input of each layer, not of the first alone"
            ),
            False: offset_readers.YOLOS,
        },
    ),
    # axial rope
    **each("dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision", AXIAL),
    **each("glm5_next_vision glm_ocr_vision qwen2_5_omni_vision_encoder", AXIAL),
    **each("qwen2_5_vl_vision qwen2_vl_vision video_llama_3_vision", AXIAL),
    "lfm3_vl_vision": Layers(Use("axial", {"base": ("rope_theta", 1_000_000.0)})),
    "pixtral": Use("axial", {"base": ("rope_theta", 10_000.0), "bands": "alternate"}),
    **each("dinov3_vit sapiens2", DINOV3),
    "eomt_dinov3": EOMT_DINOV3,
    "efficientloftr": Parts({}, {"self": EFFICIENT_LOFTR, "cross": Nope()}),
    "neomme": NEOMME,
    # axial rope and a table
    **each("cohere_compass_vision qwen3_5_moe_vision qwen3_5_vision", QWEN3_VL),
    **each("qwen3_omni_moe_vision_encoder qwen3_vl_moe_vision qwen3_vl_vision", QWEN3_VL),
    "qwen4_exp_vision": QWEN3_VL,
    **each("glm4v_moe_vision glm4v_vision", Sum((Grid(336, 14, prefix=0), AXIAL))),
    "paddleocr_vl_vision": Sum((Grid(384, 14, prefix=0, resize="bilinear"), AXIAL)),
    **each("mlcd mlcd_vision_model", pictures.MLCD),
    **each(
        "muse_glimmer_vision muse_spark_vision",
        ignoring(
            Sum((pictures.side("pos_emb_height", 32, resize="zeros"), pictures.column_first(1))),
            "layer_types",  # windows of patches, which stay with the model
        ),
    ),
    "sam3_vit_model": pictures.SAM3,
    "inkling2_vision": Sum(
        (pictures.side("posemb_grid_size", 32, 1), pictures.column_first(1, "interleaved"))
    ),
    "llama4_vision_model": pictures.LLAMA4,
    "step3p5_vision": Sum((Grid(728, 14, prefix=0, resize="bilinear"), pictures.column_first())),
    "gemma4_vision": pictures.GEMMA4,
    "kimi_k25_vision": pictures.KIMI_K25,
    # three axes, or real coordinates
    "minimax_m3_vl_vision": pictures.MINIMAX_M3,
    "vjepa2": pictures.VJEPA2,
    "lightglue": Parts(
        {"keypoint_detector_config": "superpoint"}, {"self": LIGHTGLUE, "cross": Nope()}
    ),
    "esmfold2": Parts({"esmc_config": "esmc"}, {"atom_encoder": ATOMS, "structure_head": OF_PAIRS}),
    # sines
    "aimv2_vision_model": pictures.AIMV2,
    "vit_mae": pictures.VIT_MAE,
    "granite_docling_vision": Grid(512, prefix=0),
    **each(
        "sam3_detr_decoder sam3_lite_text_detr_decoder",
        Absent("positions are boxes that the model predicts, anew in each layer"),
    ),
    **each(
        "sam3_geometry_encoder sam3_lite_text_geometry_encoder",
        Absent(
            "positions are an input: sines of points and boxes that a user draws, of which its "
            "tokens are made"
        ),
    ),
    # points
    **each("edgetam_prompt_encoder edgetam_video_prompt_encoder sam2_prompt_encoder", POINTS),
    **each("sam2_video_prompt_encoder sam_hq_prompt_encoder sam_prompt_encoder", POINTS),
    **each("sam3_tracker_prompt_encoder sam3_tracker_video_prompt_encoder", pictures.points(1008)),
    # biases of windows
    "clap_audio_model": Use("swin_2d", {"window": ("window_size", 8)}),
    "swin": Switch(
        "use_absolute_embeddings", {False: SWIN, True: Sum((Grid(patch=4, prefix=0), SWIN))}
    ),
    **each("donut-swin maskformer-swin", without_table(SWIN)),
    "swin2sr": without_table(pictures.swin_v2(False, 64, 1, 8, (6,) * 6)),
    "swinv2": without_table(pictures.swin_v2(True, 224, 4, 7, (2, 2, 6, 2))),
    **each("beit data2vec-vision", offset_readers.BEIT),
    "dinat": Absent(
        "attends to a neighbourhood of patches, moved to the inside at the borders, in layers with "
        "steps of several patches; its code needs the package natten"
    ),
    "levit": offset_readers.LEVIT,
    # decomposed keys
    **each("deepseek_ocr2_sam_vision_model got_ocr2_vision pp_chart2table_vision", SAM),
    **each("sam_hq_vision_model sam_vision_model unlimited_ocr_sam_vision_model", SAM),
    **each("pp_formulanet_vision slanext_vision", pictures.sam(512)),
    "seggpt": pictures.SEGGPT,
    "vitdet": pictures.VITDET,
    # others
    "kosmos_2_5_vision_model": Use(
        "learned_2d", {"length": ("max_num_patches", 4096), "join": "sum"}, 1
    ),
    "pix2struct_vision_model": ignoring(
        Use("learned_2d", {"length": ("seq_len", 4096), "join": "sum"}, 1),
        "relative_attention_num_buckets",
        "relative_attention_max_distance",
    ),
    "mllama_vision_model": Parts({}, {"transformer": TILES, "global_transformer": LATER_TILES}),
}
