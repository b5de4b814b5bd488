"""Types with parts that have configs of their own."""

from typing import Any

from posenc_jax.huggingface.offset_readers import DAB_DETR, MIDDLES
from posenc_jax.huggingface.picture_readers import MEMORY
from posenc_jax.huggingface.rows import (
    Absent,
    Nope,
    Partly,
    Parts,
    Switch,
    Table,
    Use,
    Whole,
    parts,
)
from posenc_jax.huggingface.types.names import each


def picture(type_: str, image: int, patch: int) -> Whole:
    """A type of pictures with the sizes that a model gives it."""
    return Whole(type_, {"image_size": image, "patch_size": patch})


def sines(base: str, default: float) -> Use:
    """DETR's sines, of a base that a field has."""
    return Use(
        "sinusoidal_2d", {"base": (base, default), "pairing": "interleaved", "normalized": True}
    )


NORMALIZED = Use("sinusoidal_2d", {"pairing": "interleaved", "normalized": True})
LEARNED = Use("learned_2d", {"length": 50})
DETR = Switch("position_embedding_type", {"sine": NORMALIZED, "learned": LEARNED})
GROUNDING_DINO = Switch(
    "position_embedding_type",
    {"sine": sines("positional_embedding_temperature", 20.0), "learned": LEARNED},
)
BOXES = Absent("positions of its queries are boxes that the model predicts, anew in each layer")
PREDICTED = Absent(
    "tables of LayoutLMv3 and sines of quotients read boxes that the model has predicted"
)
RT_DETR = Use("sinusoidal_2d", {"base": ("positional_encoding_temperature", 10_000.0)})
BASE_1E6 = Whole("qwen2", {"rope_theta": 1e6})
CROSS = {"cross": Nope()}
COMPOSITES: dict[str, Any] = {
    "aimv2": parts(text="aimv2_text_model", vision="aimv2_vision_model"),
    "align": parts(text="align_text_model", vision="align_vision_model"),
    "altclip": parts(text="altclip_text_model", vision="altclip_vision_model"),
    "apertus1p5": parts(
        text="apertus1p5_text", vision="apertus1p5_vision_tokenizer", audio="wavtokenizer_encoder"
    ),
    "aria": parts(vision="idefics3_vision", text="aria_text"),
    "audioflamingo3": parts(audio="audioflamingo3_encoder", text="qwen2"),
    "aya_vision": parts(vision=picture("siglip_vision_model", 384, 14), text="cohere2"),
    "blip": parts(text="blip_text_model", vision="blip_vision_model"),
    "blip-2": parts(vision="blip_2_vision_model", qformer="blip_2_qformer", text="opt"),
    "blt": Parts(
        {
            "patcher_config": "blt_patcher",
            "encoder_config": "blt_local_encoder",
            "decoder_config": "blt_local_decoder",
            "global_config": "blt_global_transformer",
        }
    ),
    "bridgetower": parts(text="bridgetower_text_model", vision="bridgetower_vision_model"),
    "canary": parts(encoder="parakeet_encoder", decoder="canary_decoder"),
    "chinese_clip": parts(text="chinese_clip_text_model", vision="chinese_clip_vision_model"),
    "chmv2": parts(backbone=picture("dinov3_vit", 416, 16)),
    "clap": parts(text="clap_text_model", audio="clap_audio_model"),
    "clip": parts(text="clip_text_model", vision="clip_vision_model"),
    "clipseg": parts(text="clipseg_text_model", vision="clipseg_vision_model"),
    "clvp": parts(text="clvp_encoder", speech="clvp_encoder", decoder="clvp_decoder"),
    "cohere2_vision": parts(vision=picture("siglip_vision_model", 512, 16), text="cohere2"),
    "cohere_compass": parts(text="cohere_compass_text", vision="cohere_compass_vision"),
    "colmodernvbert": parts(vlm="modernvbert"),
    "colpali": parts(vlm="paligemma"),
    "colqwen2": parts(vlm="qwen2_vl"),
    "cosmos3_edge": parts(text="cosmos3_edge_text", vision="cosmos3_edge_vision"),
    "cosmos3_omni": parts(text="qwen3_vl_text", vision="qwen3_vl_vision"),
    "deepseek_ocr2": parts(vision="deepseek_ocr2_vision", text="deepseek_ocr2_text"),
    "deepseek_ocr2_vision": parts(
        sam="deepseek_ocr2_sam_vision_model", encoder="deepseek_ocr2_encoder"
    ),
    "deepseek_vl": parts(text="llama", vision="siglip_vision_model"),
    "deepseek_vl_hybrid": parts(
        text="llama", vision="siglip_vision_model", high_res_vision="sam_vision_model"
    ),
    "depth_anything": parts(backbone=picture("dinov2", 518, 14)),
    "depth_pro": parts(
        image_model=picture("dinov2", 384, 14),
        patch_model=picture("dinov2", 384, 14),
        fov_model=picture("dinov2", 384, 14),
    ),
    "dia": parts(encoder="dia_encoder", decoder="dia_decoder"),
    "diffusion_gemma": parts(text="diffusion_gemma_text", vision="gemma4_vision"),
    "dots3_note": parts(
        text="dots3_note_text", vision="dots3_note_vision_encoder", audio="dots3_note_audio_encoder"
    ),
    "edgetam": parts(
        vision="edgetam_vision_model",
        prompt_encoder="edgetam_prompt_encoder",
        mask_decoder="edgetam_mask_decoder",
    ),
    "edgetam_video": Parts(
        {
            "vision_config": "sam2_vision_model",
            "prompt_encoder_config": "edgetam_video_prompt_encoder",
            "mask_decoder_config": "edgetam_video_mask_decoder",
        },
        {"memory_attention": MEMORY},
    ),
    "embedding_gemma2": parts(text="embedding_gemma2_text"),
    "emu3": parts(vq="emu3_vqgan", text="emu3_text_model"),
    "encoder-decoder": Parts({"encoder": "bert", "decoder": "bert"}),
    "ernie4_5_vl_moe": parts(text="ernie4_5_vl_moe_text", vision="ernie4_5_vl_moe_vision"),
    "exaone4_5": parts(text="exaone4", vision="exaone4_5_vision"),
    "fast_vlm": parts(vision="timm_wrapper", text="qwen2"),
    "fastspeech2_conformer_with_hifigan": parts(
        model="fastspeech2_conformer", vocoder="fastspeech2_conformer_hifigan"
    ),
    "flava": parts(
        image="flava_image_model",
        text="flava_text_model",
        multimodal="flava_multimodal_model",
        image_codebook="flava_image_codebook",
    ),
    "florence2": parts(text="bart", vision="florence_vision"),
    "fun_asr_nano": parts(audio="fun_asr_nano_encoder", text="qwen3"),
    "fuyu": parts(text="persimmon"),
    "gemma3": parts(text="gemma3_text", vision="siglip_vision_model"),
    "gemma3n": parts(text="gemma3n_text", vision="gemma3n_vision", audio="gemma3n_audio"),
    "gemma4": parts(text="gemma4_text", vision="gemma4_vision", audio="gemma4_audio"),
    "gemma4_assistant": parts(text="gemma4_text"),
    "gemma4_unified": parts(text="gemma4_unified_text", vision="gemma4_unified_vision"),
    "gemma4_unified_assistant": parts(text="gemma4_unified_text"),
    "glm46v": parts(text="glm4v_text", vision="glm4v_vision"),
    "glm4v": parts(text="glm4v_text", vision="glm4v_vision"),
    "glm4v_moe": parts(text="glm4v_moe_text", vision="glm4v_moe_vision"),
    "glm5_next": parts(text="glm5_next_text", vision="glm5_next_vision"),
    "glm_image": parts(text="glm_image_text", vision="glm_image_vision", vq="glm_image_vqmodel"),
    "glm_ocr": parts(text="glm_ocr_text", vision="glm_ocr_vision"),
    "glmasr": parts(audio="glmasr_encoder", text="llama"),
    "glmga": parts(text="glm4v_text", vision="glm4v_vision"),
    "got_ocr2": parts(vision="got_ocr2_vision", text=BASE_1E6),
    "granite4_vision": parts(
        vision="clip_vision_model", text="granite4_vision_text", qformer="blip_2_qformer"
    ),
    "granite_docling": parts(text="granite_docling_text", vision="granite_docling_vision"),
    "granite_speech": parts(
        text="granite", encoder="granite_speech_encoder", projector="blip_2_qformer"
    ),
    "granite_speech5_ctc": parts(encoder="granite_speech5_encoder"),
    "granite_speech_plus": parts(
        text="granite", encoder="granite_speech_plus_encoder", projector="blip_2_qformer"
    ),
    "groupvit": parts(text="groupvit_text_model", vision="groupvit_vision_model"),
    "higgs_audio_v2_tokenizer": parts(acoustic_model="dac", semantic_model="hubert"),
    "hunyuan_vl": parts(text="hunyuan_vl_text", vision="hunyuan_vl_vision"),
    "hy_v4_vl": parts(text="hy_v4_vl_text", vision="hy_v4_vl_vision"),
    "hyperclovax_vision_v2": parts(text="hyperclovax", vision="qwen2_5_vl_vision"),
    "idefics2": parts(vision="idefics2_vision", perceiver="idefics2_perceiver", text="mistral"),
    "idefics3": parts(vision="idefics3_vision", text="llama"),
    "inkling2": parts(text="inkling2_text", vision="inkling2_vision"),
    "inkling2_loop": parts(text="inkling2_loop_text", vision="inkling2_vision"),
    "inkling_mm_model": parts(text="inkling_text", audio="inkling_audio", vision="inkling_vision"),
    "instructblip": parts(
        vision="instructblip_vision_model", qformer="instructblip_qformer", text="opt"
    ),
    "instructblipvideo": parts(
        vision="instructblipvideo_vision_model", qformer="instructblipvideo_qformer", text="opt"
    ),
    "internvl": parts(vision="internvl_vision", text="qwen2"),
    "janus": parts(text="llama", vision="janus_vision_model", vq="janus_vqgan"),
    "jev": parts(text="qwen3_5_text"),
    "kimi_k25": parts(text="deepseek_v3", vision="kimi_k25_vision"),
    "kosmos-2": parts(text="kosmos_2_text_model", vision="kosmos_2_vision_model"),
    "kosmos-2.5": parts(text="kosmos_2_5_text_model", vision="kosmos_2_5_vision_model"),
    "lasr_ctc": parts(encoder="lasr_encoder"),
    "lfm2_vl": parts(vision="siglip2_vision_model", text="lfm2"),
    "lfm3_vl": parts(vision="lfm3_vl_vision", text="lfm3"),
    "lighton_ocr": parts(vision="pixtral", text=Whole("qwen3", {"rope_theta": 1e6})),
    "llama4": parts(vision="llama4_vision_model", text="llama4_text"),
    "llava": parts(vision=picture("clip_vision_model", 336, 14), text="llama"),
    "llava_next": parts(vision=picture("clip_vision_model", 336, 14), text="llama"),
    "llava_next_video": parts(vision=picture("clip_vision_model", 336, 14), text="llama"),
    "llava_onevision": parts(vision=picture("siglip_vision_model", 384, 14), text="qwen2"),
    "metaclip_2": parts(text="metaclip_2_text_model", vision="metaclip_2_vision_model"),
    "minicpm_ocr": parts(text="qwen3_5_text", vision="minicpm_ocr_vision"),
    "minicpmv4_6": parts(text="qwen3_5_text", vision="minicpmv4_6_vision"),
    "minicpmv4_7": parts(text="qwen3_5_text", vision="minicpmv4_7_vision"),
    "minimax_m3_vl": parts(vision="minimax_m3_vl_vision", text="minimax_m3_vl_text"),
    "mistral3": parts(vision="pixtral", text=Whole("mistral", {"rope_theta": 1e9})),
    "mistral_large4": parts(vision="pixtral", text="mistral_large4_text"),
    "mllama": parts(vision="mllama_vision_model", text="mllama_text_model"),
    "modernvbert": parts(text="modernbert", vision="siglip_vision_model"),
    "molmo2": parts(vision="molmo2_vision", adapter="molmo2_adapter", text="molmo2_text"),
    "moss_transcribe_diarize": parts(
        audio="moss_transcribe_diarize_audio", text=Whole("qwen3", {"rope_theta": 1e6})
    ),
    "muse_glimmer": parts(text="muse_glimmer_text", vision="muse_glimmer_vision"),
    "muse_spark": parts(
        text="muse_spark_text", vision="muse_spark_vision", audio="muse_spark_audio"
    ),
    "musicgen": Parts(
        {"text_encoder": "t5", "audio_encoder": "encodec", "decoder": "musicgen_decoder"}
    ),
    "musicgen_melody": Parts(
        {"text_encoder": "t5", "audio_encoder": "encodec", "decoder": "musicgen_melody_decoder"}
    ),
    "nemo_speechlm": parts(
        audio="nemotron3_5_transcribe_audio",
        text="nemotron_h",
        word_timestamp="nemotron3_5_transcribe_word_timestamp",
    ),
    "nemotron3_5_asr": parts(encoder="nemotron_asr_streaming_encoder"),
    "nemotron3_5_transcribe_audio": parts(
        asr="nemotron3_5_transcribe_asr_audio", diarization="nemotron3_diarization"
    ),
    "nemotron3_diarization": parts(audio="nemotron3_diarization_audio"),
    "nemotron_asr_streaming": parts(encoder="nemotron_asr_streaming_encoder"),
    "nemotron_h_omni": parts(vision="radio", text="nemotron_h"),
    "nougat": Parts({"encoder": "donut-swin", "decoder": "mbart"}, CROSS),
    "omniasr": parts(audio="omniasr_audio", text="llama"),
    "omniasr_ctc": parts(audio="omniasr_audio"),
    "ovis2": parts(vision="ovis2_vision", text="qwen2"),
    "owlv2": parts(text="owlv2_text_model", vision="owlv2_vision_model"),
    "owlvit": parts(text="owlvit_text_model", vision="owlvit_vision_model"),
    "paddleocr_vl": parts(text="paddleocr_vl_text", vision="paddleocr_vl_vision"),
    "paligemma": parts(vision=picture("siglip_vision_model", 224, 14), text="gemma"),
    "parakeet_ctc": parts(encoder="parakeet_encoder"),
    "parakeet_rnnt": parts(encoder="parakeet_encoder"),
    "pe_audio": parts(text="modernbert", audio="pe_audio_encoder"),
    "pe_audio_video": parts(text="modernbert", audio_video="pe_audio_video_encoder"),
    "pe_video": parts(text="modernbert", video="pe_video_encoder"),
    "perception_lm": parts(vision="timm_wrapper", text="llama"),
    "pi0": parts(vlm="paligemma", dit="gemma"),
    "pix2struct": parts(text="pix2struct_text_model", vision="pix2struct_vision_model"),
    "pocket_tts_audio_tokenizer": parts(
        encoder="pocket_tts_audio_tokenizer_encoder", decoder="pocket_tts_audio_tokenizer_decoder"
    ),
    "pp_chart2table": parts(vision="pp_chart2table_vision", text=BASE_1E6),
    "pp_formulanet": parts(text="pp_formulanet_text", vision="pp_formulanet_vision"),
    "prompt_depth_anything": parts(backbone=picture("dinov2", 518, 14)),
    "qianfan_ocr": parts(vision="qianfan_ocr_vision", text="qwen3"),
    "qwen2_5_omni": parts(
        thinker="qwen2_5_omni_thinker",
        talker="qwen2_5_omni_talker",
        token2wav="qwen2_5_omni_token2wav",
    ),
    "qwen2_5_omni_thinker": parts(
        audio="qwen2_5_omni_audio_encoder",
        vision="qwen2_5_omni_vision_encoder",
        text="qwen2_5_omni_text",
    ),
    "qwen2_5_omni_token2wav": parts(dit="qwen2_5_omni_dit", bigvgan="qwen2_5_omni_bigvgan"),
    "qwen2_5_vl": parts(text="qwen2_5_vl_text", vision="qwen2_5_vl_vision"),
    "qwen2_audio": parts(audio="qwen2_audio_encoder", text="qwen2"),
    "qwen2_vl": parts(text="qwen2_vl_text", vision="qwen2_vl_vision"),
    "qwen3_5": parts(text="qwen3_5_text", vision="qwen3_5_vision"),
    "qwen3_5_moe": parts(text="qwen3_5_moe_text", vision="qwen3_5_moe_vision"),
    "qwen3_asr": parts(audio="qwen3_asr_encoder", text="qwen3"),
    "qwen3_omni_moe": parts(thinker="qwen3_omni_moe_thinker"),
    "qwen3_omni_moe_thinker": parts(
        audio="qwen3_omni_moe_audio_encoder",
        vision="qwen3_omni_moe_vision_encoder",
        text="qwen3_omni_moe_text",
    ),
    "qwen3_vl": parts(text="qwen3_vl_text", vision="qwen3_vl_vision"),
    "qwen3_vl_moe": parts(text="qwen3_vl_moe_text", vision="qwen3_vl_moe_vision"),
    "qwen4_exp": parts(text="qwen4_exp_text", vision="qwen4_exp_vision"),
    "rag": Parts({"question_encoder": "dpr", "generator": "bart"}),
    "sam": parts(
        vision="sam_vision_model",
        prompt_encoder="sam_prompt_encoder",
        mask_decoder="sam_mask_decoder",
    ),
    "sam2": parts(
        vision="sam2_vision_model",
        prompt_encoder="sam2_prompt_encoder",
        mask_decoder="sam2_mask_decoder",
    ),
    "sam2_video": Parts(
        {
            "vision_config": "sam2_vision_model",
            "prompt_encoder_config": "sam2_video_prompt_encoder",
            "mask_decoder_config": "sam2_video_mask_decoder",
        },
        {"memory_attention": MEMORY},
    ),
    "sam3": parts(
        vision="sam3_vision_model",
        text=Whole("clip_text_model", {"max_position_embeddings": 32}),
        geometry_encoder="sam3_geometry_encoder",
        detr_encoder="sam3_detr_encoder",
        detr_decoder="sam3_detr_decoder",
        mask_decoder="sam3_mask_decoder",
    ),
    "sam3_lite_text": parts(
        vision="sam3_vision_model",
        text="sam3_lite_text_text_model",
        geometry_encoder="sam3_lite_text_geometry_encoder",
        detr_encoder="sam3_lite_text_detr_encoder",
        detr_decoder="sam3_lite_text_detr_decoder",
        mask_decoder="sam3_lite_text_mask_decoder",
    ),
    "sam3_tracker": parts(
        vision="sam3_vision_model",
        prompt_encoder="sam3_tracker_prompt_encoder",
        mask_decoder="sam3_tracker_mask_decoder",
    ),
    "sam3_tracker_video": Parts(
        {
            "vision_config": "sam3_vision_model",
            "prompt_encoder_config": "sam3_tracker_video_prompt_encoder",
            "mask_decoder_config": "sam3_tracker_video_mask_decoder",
        },
        {"memory_attention": MEMORY},
    ),
    "sam3_video": parts(detector="sam3", tracker="sam3_tracker_video"),
    "sam_hq": parts(
        vision="sam_hq_vision_model",
        prompt_encoder="sam_hq_prompt_encoder",
        mask_decoder="sam_hq_mask_decoder",
    ),
    "shieldgemma2": parts(text="gemma3_text", vision="siglip_vision_model"),
    "siglip": parts(text="siglip_text_model", vision="siglip_vision_model"),
    "siglip2": parts(text="siglip2_text_model", vision="siglip2_vision_model"),
    "slanext": parts(vision="slanext_vision"),
    "smolvlm": parts(vision="smolvlm_vision", text="llama"),
    "speech-encoder-decoder": Parts({"encoder": "wav2vec2", "decoder": "bert"}),
    "step3p7": parts(vision="step3p5_vision", text="step3p5"),
    "t5gemma2": Parts({"encoder": "t5gemma2_encoder", "decoder": "t5gemma2_decoder"}),
    "t5gemma2_encoder": parts(text="t5gemma2_text", vision="siglip_vision_model"),
    "tipsv2": parts(text="tipsv2_text_model", vision="tipsv2_vision_model"),
    "tipsv2_dpt": parts(backbone="tipsv2_vision_model"),
    "ultravbert": parts(text="ultrabert", vision="siglip_vision_model"),
    "unlimited_ocr": parts(vision="unlimited_ocr_vision", text="unlimited_ocr_text"),
    "unlimited_ocr_vision": parts(
        sam="unlimited_ocr_sam_vision_model", encoder="unlimited_ocr_vision_encoder"
    ),
    "upernet": parts(backbone="resnet"),
    "vibevoice": parts(
        audio="vibevoice_acoustic_tokenizer",
        semantic_model="vibevoice_acoustic_tokenizer_encoder",
        text="qwen2",
        diffusion_head="vibevoice_diffusion",
    ),
    "vibevoice_acoustic_tokenizer": parts(
        encoder="vibevoice_acoustic_tokenizer_encoder",
        decoder="vibevoice_acoustic_tokenizer_decoder",
    ),
    "vibevoice_asr": parts(
        acoustic_tokenizer_encoder="vibevoice_acoustic_tokenizer_encoder",
        semantic_tokenizer_encoder="vibevoice_acoustic_tokenizer_encoder",
        text="qwen2",
    ),
    "video_llama_3": parts(text="qwen2", vision="video_llama_3_vision"),
    "video_llava": parts(vision=picture("clip_vision_model", 224, 14), text="llama"),
    "videoprism": parts(text="videoprism_text_model", vision="videoprism_vision_model"),
    "vipllava": parts(vision=picture("clip_vision_model", 336, 14), text="llama"),
    "vision-encoder-decoder": Parts({"encoder": "vit", "decoder": "bert"}),
    "vision-text-dual-encoder": parts(text="bert", vision="vit"),
    "vitmatte": parts(backbone="vitdet"),
    "vitpose": parts(backbone="vitpose_backbone"),
    "voxtral": parts(audio="voxtral_encoder", text=Partly("llama", {"rope_theta": 1e8})),
    "voxtral_realtime": parts(
        audio="voxtral_realtime_encoder",
        text=Partly("voxtral_realtime_text", {"rope_theta": 1e6, "sliding_window": 8192}),
    ),
    "xclip": parts(text="xclip_text_model", vision="xclip_vision_model"),
    "xcodec": parts(acoustic_model="dac", semantic_model="hubert"),
    "zoedepth": parts(
        backbone=Whole("beit", {"use_relative_position_bias": True, "image_size": 384})
    ),
    "parakeet_tdt": parts(encoder="parakeet_encoder"),
    # models with an encoding of their own, beside their parts
    "bark": Parts(
        {
            "semantic_config": "semantic",
            "coarse_acoustics_config": "coarse_acoustics",
            "fine_acoustics_config": "fine_acoustics",
            "codec_config": "encodec",
        }
    ),
    **each("coarse_acoustics fine_acoustics semantic", Table(1024, names=("block_size",))),
    "cohere_asr": Parts({"encoder_config": "parakeet_encoder"}, {"decoder": Table(1024), **CROSS}),
    **each(
        "conditional_detr detr table-transformer",
        Parts({"backbone_config": "timm_backbone"}, {"model": DETR}),
    ),
    "dab-detr": Parts({"backbone_config": "timm_backbone"}, {"model": DAB_DETR}),
    "deformable_detr": Parts(
        {"backbone_config": "timm_backbone"},
        {
            "model": Switch(
                "position_embedding_type",
                {
                    "sine": MIDDLES,
                    "learned": LEARNED,
                },
            )
        },
    ),
    **each(
        "d_fine deimv2 pp_doclayout_v3 pp_doclayout_v4",
        Parts({"backbone_config": "hgnet_v2"}, {"model": RT_DETR}),
    ),
    "edgetam_vision_model": Parts({"backbone_config": "timm_wrapper"}, {"neck": NORMALIZED}),
    "mask2former": Parts({"backbone_config": "swin"}, {"model": NORMALIZED}),
    "maskformer": Parts(
        {"backbone_config": Whole("swin", {"window_size": 12}), "decoder_config": "detr"},
        {"model": NORMALIZED},
    ),
    "sam2_vision_model": Parts({"backbone_config": "sam2_hiera_det_model"}, {"neck": NORMALIZED}),
    "sam3_vision_model": Parts({"backbone_config": "sam3_vit_model"}, {"neck": NORMALIZED}),
    "git": Parts({"vision_config": "git_vision_model"}, {"text": Table(1024)}),
    **each(
        "grounding-dino mm-grounding-dino",
        Parts({"text_config": "bert", "backbone_config": "swin"}, {"model": GROUNDING_DINO}),
    ),
    "lw_detr": Parts({"backbone_config": "lw_detr_vit"}, {"model": BOXES}),
    "omdet-turbo": Parts(
        {"text_config": "clip_text_model", "backbone_config": "timm_backbone"}, {"model": RT_DETR}
    ),
    "oneformer": Parts({"backbone_config": "swin"}, {"model": NORMALIZED}),
    "pp_doclayout_v2": Parts(
        {"backbone_config": "hgnet_v2"}, {"model": RT_DETR, "reading_order_config": PREDICTED}
    ),
    "rf_detr": Parts({"backbone_config": picture("rf_detr_dinov2", 518, 14)}, {"model": BOXES}),
    **each("rt_detr rt_detr_v2", Parts({"backbone_config": "rt_detr_resnet"}, {"model": RT_DETR})),
    "superglue": Parts(
        {"keypoint_detector_config": "superpoint"},
        {
            "model": Absent("a network makes vectors of keypoints and scores at the input"),
        },
    ),
    "t5gemma": Parts({"encoder": "t5_gemma_module", "decoder": "t5_gemma_module"}, CROSS),
}
