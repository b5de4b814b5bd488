"""Types whose tokens are patches of pictures or frames of video: tables, sines, axial rope, biases
of windows.
"""

from typing import Any

from posenc_jax.huggingface.rows import Layers, Switch, Use, ignoring, missing
from posenc_jax.huggingface.types.names import each

GRID = missing("grid tables with prefix rows and 2-D interpolation")
GRID_AND_AXIAL = GRID
DETR = missing("DETR's sines")
AXIAL = ignoring(
    Use("axial", {"base": ("rope_theta", 10_000.0)}), "num_position_embeddings", "window_size"
)
ABSOLUTE = "use_absolute_position_embeddings"
SAM = missing("decomposed keys of windows beside a grid table")
POINTS = missing("Fourier features of points")
PICTURES: dict[str, Any] = {
    # a table of the patches of a grid
    **each("altclip_vision_model audio-spectrogram-transformer blip_2_vision_model", GRID),
    **each("blip_vision_model bridgetower_vision_model chinese_clip_vision_model", GRID),
    **each("clip_vision_model clipseg_vision_model cosmos3_edge_vision deit dinov2", GRID),
    **each("dinov2_with_registers dpt eomt flava_image_model gemma4_unified_vision", GRID),
    **each("git_vision_model glm_image_vision groupvit_vision_model hiera", GRID),
    **each("hunyuan_vl_vision hy_v4_vl_vision idefics2_vision idefics3_vision", GRID),
    **each("idefics_vision ijepa instructblip_vision_model", GRID),
    **each("instructblipvideo_vision_model internvl_vision janus_vision_model", GRID),
    **each("kosmos_2_vision_model lw_detr_vit metaclip_2_vision_model mgp-str", GRID),
    **each("minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision molmo2_vision", GRID),
    **each("ovis2_vision owlv2_vision_model owlvit_vision_model", GRID),
    **each("phi4_multimodal_vision pixio pvt qianfan_ocr_vision radio rf_detr_dinov2", GRID),
    **each("sam2_hiera_det_model siglip2_vision_model siglip_vision_model", GRID),
    **each("smolvlm_vision timesformer tipsv2_vision_model", GRID),
    **each("unlimited_ocr_vision_encoder videomt videoprism_vision_model vilt vit vit_msn", GRID),
    **each("vitpose_backbone vivit xclip_vision_model yolos", GRID),
    # axial rope
    **each("dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision", AXIAL),
    **each("glm5_next_vision glm_ocr_vision qwen2_5_omni_vision_encoder", AXIAL),
    **each("qwen2_5_vl_vision qwen2_vl_vision video_llama_3_vision", AXIAL),
    "lfm3_vl_vision": Layers(AXIAL),
    "pixtral": Use("axial", {"base": ("rope_theta", 10_000.0), "bands": "alternate"}),
    **each("dinov3_vit eomt_dinov3 sapiens2", missing("DINOv3's rope of a config")),
    "efficientloftr": missing("axial rope over the whole width, axes alternating"),
    "neomme": missing("axial rope by type of layer, axes alternating"),
    # axial rope and a table
    **each(
        "cohere_compass_vision glm4v_moe_vision glm4v_vision mlcd mlcd_vision_model", GRID_AND_AXIAL
    ),
    **each("muse_glimmer_vision muse_spark_vision paddleocr_vl_vision", GRID_AND_AXIAL),
    **each("qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder", GRID_AND_AXIAL),
    **each("qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision sam3_vit_model", GRID_AND_AXIAL),
    **each(
        "inkling2_vision llama4_vision_model step3p5_vision",
        missing("axial rope, column first, with still prefix tokens"),
    ),
    "gemma4_vision": missing("axial rope in halves within an axis"),
    "kimi_k25_vision": missing("axial rope, axes alternating"),
    # three axes, or real coordinates
    "minimax_m3_vl_vision": missing("rotary of three axes on a part of a head"),
    "vjepa2": missing("three axes whose two channels of a pair differ"),
    "lightglue": missing("learned maps of points to angles"),
    "esmfold2": missing("rotary of atoms' coordinates"),
    # sines
    "aimv2_vision_model": missing("a switch between sines and a grid table"),
    "vit_mae": missing("sines with a prefix row"),
    "granite_docling_vision": missing("a grid table beside sines"),
    **each("edgetam_vision_model mask2former maskformer sam2_vision_model sam3_detr_decoder", DETR),
    **each("sam3_geometry_encoder sam3_lite_text_detr_decoder", DETR),
    **each("sam3_lite_text_geometry_encoder sam3_vision_model", DETR),
    # points
    **each("edgetam_prompt_encoder edgetam_video_prompt_encoder sam2_prompt_encoder", POINTS),
    **each("sam2_video_prompt_encoder sam3_tracker_prompt_encoder", POINTS),
    **each("sam3_tracker_video_prompt_encoder sam_hq_prompt_encoder sam_prompt_encoder", POINTS),
    # biases of windows
    "swin": Use("swin_2d", {"window": ("window_size", 7)}),
    "clap_audio_model": Use("swin_2d", {"window": ("window_size", 8)}),
    **each(
        "donut-swin maskformer-swin",
        Switch(
            "use_absolute_embeddings",
            {
                False: Use("swin_2d", {"window": ("window_size", 7)}),
                True: GRID,
            },
        ),
    ),
    **each("swinv2 swin2sr", missing("Swin V2's bias of a window that shrinks")),
    **each("beit data2vec-vision", missing("Swin's bias with rows for the class token")),
    "dinat": missing("biases of neighbourhoods"),
    "levit": missing("biases of absolute offsets"),
    # decomposed keys
    **each("deepseek_ocr2_sam_vision_model got_ocr2_vision pp_chart2table_vision", SAM),
    **each("pp_formulanet_vision sam_hq_vision_model sam_vision_model seggpt", SAM),
    **each("slanext_vision unlimited_ocr_sam_vision_model vitdet", SAM),
    # others
    **each("kosmos_2_5_vision_model pix2struct_vision_model", missing("sums of two tables")),
    "mllama_vision_model": missing("gated tables of tiles"),
}
