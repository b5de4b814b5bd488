"""Types whose tokens of text, or frames of sound, turn queries and keys by rope."""

from typing import Any

from posenc_jax.huggingface.block_readers import DEEPSEEK_V4
from posenc_jax.huggingface.own_readers import ERNIE, FALCON_ALIBI, HUNYUAN_VL, MISTRAL_LARGE4
from posenc_jax.huggingface.rope_fields import FULL, LOCAL
from posenc_jax.huggingface.rotary import Rotary
from posenc_jax.huggingface.rows import (
    PAD,
    Absent,
    Nope,
    Parts,
    Switch,
    Table,
    ignoring,
    same,
)
from posenc_jax.huggingface.types.names import each

LLAMA3: dict[str, Any] = {
    "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
YARN: dict[str, Any] = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0}
GPT_OSS = YARN | {"factor": 32.0, "truncate": False, "original_max_position_embeddings": 4096}
MISTRAL = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}


def by_type(local: float, full: float, **of_full: Any) -> dict[str, Any]:
    """`rope_parameters` of layers with a window and without, by their bases."""
    return {LOCAL: {"rope_theta": local}, FULL: {"rope_theta": full, **of_full}}


PROPORTIONAL: dict[str, Any] = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
INTERLEAVED = Rotary(pairing="interleaved")
LATENT = Rotary(pairing="interleaved", channels="qk_rope_head_dim")
EITHER = LATENT._replace(reads=("rope_interleave",))
QWEN2_VL = Rotary(1_000_000.0, late=True, window=0, order="sections", sections=(16, 24, 24))
ROTARY: dict[str, Any] = {
    # rope alone
    **each("arcee aria_text chameleon deepseek_ocr2_text dia_decoder dia_encoder", Rotary()),
    **each("diffllama esmc eurobert falcon_h1 gemma gradium_phonon_tts granite", Rotary()),
    **each("granite4_vision_text granite_docling_text", Rotary()),
    # files of transformers 4 say it
    **each("granitemoe granitemoeshared", Switch("position_embedding_type", {"rope": Rotary()})),
    **each("hrm_text hyperclovax internlm3", Rotary()),
    **each("hunyuan_v1_dense hunyuan_v1_moe", Rotary(reads=("alpha",))),
    **each("iquestcoder jais2 jetmoe llama neucodec olmo olmo2 olmoe", Rotary()),
    **each("pocket_tts seed_oss telechat3 timesfm2_5 xcodec2", Rotary()),
    **each("bitnet csm_depth_decoder_model evolla EvollaModel exaone", Rotary(500_000.0)),
    **each("flex_olmo mllama_text_model", Rotary(500_000.0)),
    **each("apertus apertus1p5_text", Rotary(12_000_000.0, scaling=LLAMA3)),
    "doge": ignoring(Rotary(), "keep_window_size"),
    "emu3_text_model": Rotary(1_000_000.0),
    "gte": Rotary(160_000.0),
    "higgs_audio_v2": Rotary(500_000.0, scaling=LLAMA3 | {
        "factor": 32.0, "high_freq_factor": 0.5, "low_freq_factor": 0.125,
        "original_max_position_embeddings": 1024,
    }),
    "hy_v3": Rotary(11_158_840.0),
    "jina_embeddings_v3": Rotary(20_000.0),
    "lasr_encoder": ignoring(Rotary(), "dropout_positions"),
    "nanochat": Rotary(change="backwards"),
    "nomic_bert": Rotary(1_000.0),
    # neighbouring channels in pairs
    **each("blt_global_transformer blt_local_decoder cohere ernie4_5",
           Rotary(500_000.0, pairing="interleaved")),
    "ernie4_5_moe": Rotary(500_000.0, pairing="interleaved"),
    "helium": Rotary(100_000.0, pairing="interleaved"),
    **each("pe_audio_encoder pe_audio_video_encoder pe_video_encoder",
           Rotary(20_000.0, pairing="interleaved")),
    "qwen2_5_omni_dit": Rotary(pairing="interleaved", change="head"),
    "roformer": Switch("rotary_value", {
        False: INTERLEAVED._replace(options="none"),
        True: INTERLEAVED._replace(options="none", change="values"),
    }),
    # a window in every layer
    "blt_local_encoder": Rotary(500_000.0, pairing="interleaved", window=0),
    "blt_patcher": Rotary(pairing="interleaved", window=512),
    **each("kyutai_speech_to_text moshi", ignoring(Rotary(), "sliding_window")),
    **each("mimi mimi_decoder mimi_encoder", Rotary(window=250)),
    **each("pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder",
           Rotary(window=250)),
    **each("ministral mistral", Rotary(window=4096, reads=("layer_types",))),
    "voxtral_realtime_text": Rotary(window=4096),
    "mixtral": Rotary(1_000_000.0, window=0),
    "ministral3": Rotary(1_000_000.0, window=0, reads=("layer_types",), scaling=MISTRAL | {
        "factor": 16.0, "original_max_position_embeddings": 16_384,
    }),
    "muse_glimmer_assistant": Rotary(500_000.0, window=2048, reads=("layer_types",)),
    "openai_privacy_filter": Rotary(
        150_000.0, pairing="interleaved", window=128, radius=True, scaling=GPT_OSS
    ),
    "starcoder2": Rotary(window=0),
    "unlimited_ocr_text": ignoring(Rotary(), "sliding_window"),
    "voxtral_realtime_encoder": Rotary(window=750),
    # windows in some layers
    "cwm": Rotary(1_000_000.0, window=8192, pattern="GLLL", scaling=LLAMA3 | {"factor": 16.0}),
    **each("deepseek_ocr2_encoder qwen3_omni_moe_talker_code_predictor",
           Rotary(late=True, window=0)),
    "dots1": Rotary(window=4096, pattern="G"),
    "gemma2": Rotary(window=4096, every=2),
    "gpt_oss": Rotary(150_000.0, window=128, every=2, scaling=GPT_OSS),
    **each("qwen2 qwen2_moe qwen3", Rotary(late=True, window=0, dual_chunk=True)),
    "qwen3_moe": Rotary(window=0, dual_chunk=True),
    **each("t5_gemma_module vaultgemma", Rotary(window=4096, every=2)),
    # bases by type of layer
    "embedding_gemma2_text": Rotary(
        window=512, radius=True, every=6, by_type=by_type(1e4, 1e6)
    ),
    "diffusion_gemma_text": Rotary(
        None, window=512, every=6, by_type=by_type(1e4, 1e6, **PROPORTIONAL)
    ),
    "gemma3_text": Rotary(1_000_000.0, 10_000.0, window=4096, every=6),
    "gemma3n_text": Rotary(1_000_000.0, 10_000.0, window=512, every=5),
    "gemma4_text": Rotary(None, window=512, every=6, by_type=by_type(1e4, 1e6, **PROPORTIONAL)),
    "gemma4_unified_text": same("gemma4_text", window=1024),
    "laguna": Rotary(share=1.0, window=512, pattern="G", by_type={
        FULL: {"rope_theta": 500_000.0, "partial_rotary_factor": 0.5},
        LOCAL: {"rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
    }),
    "mellum": Rotary(window=1024, pattern="G", by_type=by_type(1e4, 5e5)),
    "mimo_v2_flash": Rotary(
        share=0.334, window=129, pattern="G" + "LLLLG" + "LLLLLG" * 7, by_type=by_type(1e4, 5e6)
    ),
    "modernbert": Rotary(160_000.0, 10_000.0, around=128, radius=True),
    "modernbert-decoder": Rotary(160_000.0, 10_000.0, around=128),
    "olmo3": Rotary(500_000.0, 500_000.0, window=4096, every=4),
    "step3p5": ignoring(
        Rotary(
            share=1.0, window=0, pattern="G", by_type={FULL: {"rope_theta": 10_000.0}}, lists=True
        ),
        "num_sliding_attention_heads", "use_rope_layers",
    ),
    **each("t5gemma2_decoder t5gemma2_text", Rotary(1_000_000.0, 10_000.0, window=4096, every=6)),
    "ultrabert": Rotary(window=128, radius=True, every=3, by_type=by_type(1e4, 2_560_000.0)),
    # layers that do not turn
    "afmoe": Rotary(window=1024, every=4, local_only=True),
    "beam": Rotary(window=512, every=6, by_type={LOCAL: {"rope_theta": 10_000.0}, FULL: None}),
    "cohere2": Rotary(pairing="interleaved", window=4096, every=4, local_only=True),
    "cohere2_moe": ignoring(
        Rotary(pairing="interleaved", window=4096, every=4, local_only=True),
        "prefix_dense_sliding_window_pattern",
    ),
    **each("exaone4 exaone_moe", Rotary(window=4096, every=4, local_only=True)),
    "flint": Rotary(window=513, local_only=True, pattern="G" + "GLLL" * 12),
    **each("granite_swa granitemoe_swa",
           Rotary(window=128, pattern="GLLL", by_layer="layer_rope_theta")),
    "kolibri1": Rotary(window=513, every=5, local_only=True),
    "llama4_text": Rotary(500_000.0, pairing="interleaved", nope_every=4, chunk=8192),
    "muse_glimmer_text": Rotary(
        window=2048, every=4, local_only=True, by_layer="layer_rope_theta"
    ),
    "muse_spark_text": Rotary(
        500_000.0, window=2048, pattern="LGLL", local_only=True, by_layer="layer_rope_theta"
    ),
    "smollm3": Rotary(2_000_000.0, window=0, nope_every=4),
    # the first channels of a head
    **each("codegen gptj", Rotary(pairing="interleaved", channels="rotary_dim", options="none")),
    **each("glm glm4", Rotary(pairing="interleaved", share=0.5)),
    **each("gpt_neox stablelm", Rotary(share=0.25)),
    **each("glm4_moe glmasr_encoder nemotron nemotron3_5_transcribe_asr_audio", Rotary(share=0.5)),
    **each("dots3_note_audio_encoder nemotron3_5_transcribe_word_timestamp persimmon phi",
           Rotary(share=0.5)),
    **each("gpt_neox_japanese nemotron3_diarization_audio", Rotary(share=1.0)),
    "minimax_m2": Rotary(5_000_000.0, share=1.0, share_of="rotary_dim"),
    "minimax_m3_vl_text": ignoring(Rotary(5_000_000.0, share=1.0), "rotary_dim"),
    **each("phi3 phi4_multimodal", Rotary(share=1.0, window=0)),
    "phimoe": Rotary(1_000_000.0, window=0, reads=("short_mscale",)),
    "sarvam_moe": Rotary(8_000_000.0, share=1.0),
    "solar_open": Rotary(1_000_000.0, share=1.0),
    # the last qk_rope_head_dim channels of a head
    **each("deepseek_v2 deepseek_v32 glm_moe_dsa", LATENT),
    **each("axk1 deepseek_v3 glm4_moe_lite kimi_k2 sarvam_mla youtu", EITHER),
    "axk2": LATENT._replace(width=32),
    "hy_v4": LATENT._replace(pairing="half"),
    "minicpm3": LATENT._replace(pairing="half", width=32),
    "longcat_flash": LATENT._replace(base=10_000_000.0),
    "mistral4": EITHER._replace(share=0.5, scaling=MISTRAL | {
        "factor": 128.0, "original_max_position_embeddings": 8192,
    }),
    # three axes: time, height, width
    "cohere_compass_text": Rotary(
        order="interleaved", sections=(24, 20, 20), window=4096, pattern="G",
        by_type=by_type(1e4, 1e4),
    ),
    "cosmos3_edge_text": Rotary(1e8, order="interleaved", sections=(24, 20, 20)),
    "ernie4_5_vl_moe_text": ERNIE,
    **each("glm4v_text glm_ocr_text",
           Rotary(pairing="interleaved", share=0.5, order="sections", sections=(8, 12, 12))),
    **each("glm4v_moe_text glm_image_text",
           Rotary(share=0.5, order="sections", sections=(8, 12, 12))),
    "hunyuan_vl_text": HUNYUAN_VL,
    "hy_v4_vl_text": LATENT._replace(
        order="interleaved", sections=(24, 20, 20), scaling={"mrope_section": (12, 10, 10)}
    ),
    "paddleocr_vl_text": Rotary(500_000.0, order="sections", sections=(16, 24, 24)),
    **each("qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text", QWEN2_VL),
    "qwen2_5_omni_talker": ignoring(QWEN2_VL, "position_id_per_seconds"),
    **each("qwen3_5_moe_text qwen3_5_text", Rotary(
        share=0.25, order="interleaved", sections=(11, 11, 10), hybrid=True, pattern="NNNG"
    )),
    "qwen3_omni_moe_talker_text": Rotary(order="interleaved", sections=(24, 20, 20)),
    "qwen3_omni_moe_text": Rotary(1_000_000.0, order="interleaved", sections=(24, 20, 20)),
    **each("qwen3_vl_moe_text qwen3_vl_text",
           Rotary(500_000.0, order="interleaved", sections=(24, 20, 20))),
    "qwen4_exp_text": Rotary(
        share=0.25, order="interleaved", sections=(11, 11, 10), hybrid=True, pattern="NNNG"
    ),
    # beside layers without attention
    "bailing_hybrid": LATENT._replace(base=6_000_000.0, hybrid=True, pattern="NNNNNG"),
    "bamba": Rotary(share=0.5),
    "dory": Rotary(
        window=1024, hybrid=True, pattern="LNLNLNGN", by_type=by_type(1e4, 1e7), still="mlp"
    ),
    "granitemoehybrid": Switch("position_embedding_type", {
        None: Nope(), "nope": Nope(), "rope": Rotary(hybrid=True),
    }),
    "lara_mini": Rotary(window=512, local_only=True, hybrid=True, pattern="NLNGL"),
    **each("lfm2 lfm2_moe", Rotary(1_000_000.0, hybrid=True, pattern="G", still="conv")),
    "lfm3": Rotary(
        window=256, hybrid=True, pattern="NN" + "GNLN" * 5 + "GN", still="conv",
        by_type=by_type(1e4, 1e6, rope_type="proportional", partial_rotary_factor=0.5),
    ),
    "minimax": Rotary(1_000_000.0, hybrid=True, pattern="GN"),
    "olmo_hybrid": Rotary(hybrid=True, pattern="NNNG"),
    "qwen3_next": Rotary(share=0.25, hybrid=True, pattern="NNNG"),
    "recurrent_gemma": Rotary(
        share=0.5, window=2048, hybrid=True, pattern="NNL", types={"attention": LOCAL},
        options="base", still="recurrent",
    ),
    "zamba2": Switch("use_mem_rope", {False: Nope(), True: Rotary()}),
    "zaya": Rotary(share=0.5, window=0, pattern="G", by_type={
        "hybrid": {"rope_theta": 5_000_000.0}, "hybrid_sliding": {"rope_theta": 10_000.0},
    }),
    # others
    "clvp_encoder": Switch("use_rotary_embedding", {
        True: Rotary(change="values", options="none"), False: Nope(),
    }),
    "csm": Parts({"depth_decoder_config": "csm_depth_decoder_model", "codec_config": "mimi"}, {
        "backbone": Rotary(500_000.0),
    }),
    "dbrx": Rotary(),
    "deepseek_v4": DEEPSEEK_V4,
    "dots3_note_text": LATENT._replace(
        share=1.0, window=512, pattern="GG" + "LLLG" * 11, by_type=by_type(5e4, 8e7)
    ),
    "esm": Switch("position_embedding_type", {
        "absolute": ignoring(Table(1026, first=PAD), "rope_theta"),
        "rotary": Rotary(options="base"),
    }),
    "falcon": Switch("alibi", {False: Rotary(), True: FALCON_ALIBI}),
    "idefics": Parts(
        {"vision_config": "idefics_vision", "perceiver_config": "idefics_perciever"},
        {"text": Rotary()},
    ),
    "mistral_large4_text": MISTRAL_LARGE4,
    "molmo2_text": Rotary(scaled_by="rope_scaling_layers"),
    "moonshine": Rotary(pairing="interleaved", share=0.9),
    "moonshine_streaming": Parts({"encoder_config": "moonshine_streaming_encoder"}, {
        "adapter": Table(4096), "decoder": Rotary(pairing="interleaved", share=0.8),
    }),
    "musicflamingo": Parts({"audio_config": "audioflamingo3_encoder", "text_config": "qwen2"}, {
        "audio": Absent(
            "turns hidden states of sound themselves by their seconds, once, before the text part"
        ),
    }),
}  # fmt: skip
