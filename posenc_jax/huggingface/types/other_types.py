"""Types without positions of their own: no attention, attention without positions, positions that
are an input, code of other projects.
"""

from typing import Any

from posenc_jax.huggingface.rows import Absent, Nope
from posenc_jax.huggingface.types.names import each

CONVOLUTIONS = Absent("has no attention: convolutions")
GIVEN = Absent("its positions are an input, made by another part of the model")
OUTSIDE = Absent("its code is not in transformers")
OTHERS: dict[str, Any] = {
    # attention without positions
    **each("apertus1p5_vision_tokenizer blip_2_qformer chameleon_vqgan emu3_vqgan", Nope()),
    **each("flava_multimodal_model glm5_next_text idefics2_perceiver idefics_perciever", Nope()),
    **each("jamba janus_vqgan kimi_linear molmo2_adapter moonshine_streaming_encoder", Nope()),
    **each("moshi_depth nemotron_h pp_ocrv5_mobile_rec pp_ocrv5_server_rec", Nope()),
    **each("pp_ocrv6_small_rec sam3_lite_text_mask_decoder sam3_mask_decoder", Nope()),
    **each("wavtokenizer zamba", Nope()),
    # attention without positions, among convolutions that see the grid
    **each("cvt florence_vision glpn mobilevit mobilevitv2 pvt_v2 segformer swiftformer", Nope()),
    # no attention
    **each("align_vision_model bit convnext convnextv2 dac dinov3_convnext", CONVOLUTIONS),
    **each("efficientnet encodec flava_image_codebook focalnet glm_image_vqmodel", CONVOLUTIONS),
    **each("hgnet_v2 mobilenet_v1 mobilenet_v2 pp_lcnet pp_lcnet_v3 pp_lcnet_v4", CONVOLUTIONS),
    **each("pp_ocrv5_mobile_det pp_ocrv5_server_det pp_ocrv6_medium_det", CONVOLUTIONS),
    **each("pp_ocrv6_small_det pp_ocrv6_tiny_rec regnet resnet rt_detr_resnet", CONVOLUTIONS),
    **each("slanet superpoint textnet uvdoc uvdoc_backbone", CONVOLUTIONS),
    **each("vibevoice_acoustic_tokenizer_decoder", CONVOLUTIONS),
    **each("vibevoice_acoustic_tokenizer_encoder wavtokenizer_encoder", CONVOLUTIONS),
    **each("fastspeech2_conformer_hifigan qwen2_5_omni_bigvgan speecht5_hifigan univnet",
           Absent("has no attention: a vocoder of convolutions")),
    **each("falcon_mamba mamba mamba2", Absent("has no attention: a state-space model")),
    **each("rwkv xlstm", Absent("has no attention: a recurrent model")),
    **each("gemma4_unified_audio inkling_audio inkling_vision muse_spark_audio",
           Absent("has no attention: projections")),
    **each("sapiens2_head vibevoice_diffusion", Absent("has no attention: a head of the model")),
    "poolformer": Absent("has no attention: pooling"),
    # positions are an input
    **each("edgetam_mask_decoder edgetam_video_mask_decoder sam2_mask_decoder", GIVEN),
    **each("sam2_video_mask_decoder sam3_detr_encoder sam3_lite_text_detr_encoder", GIVEN),
    **each("sam3_tracker_mask_decoder sam3_tracker_video_mask_decoder", GIVEN),
    **each("sam_hq_mask_decoder sam_mask_decoder", GIVEN),
    # code outside
    **each("gemma3n_vision timm_backbone timm_wrapper", OUTSIDE),
}  # fmt: skip
