"""Types that add a learned table or sines to their tokens of text or frames of sound, and types
whose attention has a bias.
"""

from typing import Any

from posenc_jax.huggingface.box_readers import (
    BROS,
    CPMANT,
    LAYOUTLM,
    LAYOUTLM_2,
    LAYOUTLM_3,
    UDOP,
)
from posenc_jax.huggingface.own_readers import (
    CANARY,
    DEBERTA,
    GPT_NEO,
    GRANITE_SPEECH,
    GRANITE_SPEECH5,
    INKLING,
    INKLING2,
    INKLING2_LOOP,
    MPT,
    NEMOTRON_STREAMING,
    PHI4_AUDIO,
    REFORMER,
    SEAMLESS_SPEECH,
    UNSCALED,
    WAV2VEC2_BERT,
    WAV2VEC2_CONFORMER,
    XLNET,
)
from posenc_jax.huggingface.rows import (
    PAD,
    Absent,
    Buckets,
    Convolution,
    Nope,
    Parts,
    Seq2Seq,
    Sines,
    Sum,
    Switch,
    Table,
    Use,
    ignoring,
)
from posenc_jax.huggingface.series_readers import PATCHTSMIXER, PATCHTST, TIMESFM
from posenc_jax.huggingface.sound_readers import (
    SPEECHT5_FRAMES,
    SPEECHT5_KEYS,
    SPEECHT5_SINES,
    WAVLM,
)
from posenc_jax.huggingface.types.names import each

SOURCE, TARGET = ("max_source_positions",), ("max_target_positions",)
BART = Table(1024, first=2, more=2)
FAIRSEQ = Sines(first=PAD)
SEAMLESS = FAIRSEQ._replace(pad=0)
MARIAN = Sines(spacing="paper")
WHISPER = Table(1500, names=SOURCE)
SQUEEZED = Convolution(stride=("squeeze_factor", 2))
NGRAMS = Absent(
    "predicts several tokens by streams that attend to the main one and to themselves, with "
    "buckets of offsets for each that are made of content"
)
CAPPED = Absent(
    "bounds the sum of products and positions, within chunks, in which each query has its own "
    "window; a cap here bounds the products before positions are added"
)
GLOBAL_BLOCKS = Absent(
    "tokens attend to means of blocks too, whose buckets count blocks; a config with "
    "encoder_attention_type 'local' is read"
)
CHARACTERS = Absent(
    "adds sines of the numbers of characters and of units, each times a learned factor, which are "
    "made of the text and of predicted durations"
)
BY_CLASS = Absent(
    "the class of the model, not its config, says which Fourier features or table pixels have"
)
INFORMER = Sines(spacing="paper")
TRANSFORMER_XL = Use("transformer_xl", {"shared": False})


def both(row: Any) -> Seq2Seq:
    """An encoder and a decoder of the same kind."""
    return Seq2Seq(row, row, Nope())


T5 = Seq2Seq(Buckets(), Buckets(decoder=True), UNSCALED)
TABLES: dict[str, Any] = {
    # a table whose row 0 is position 0
    **each("albert align_text_model bert bert-generation blip_text_model", Table(512)),
    **each("chinese_clip_text_model convbert distilbert dpr electra ernie", Table(512)),
    **each("flaubert flava_text_model fnet instructblip_qformer", Table(512)),
    **each("instructblipvideo_qformer lxmert megatron-bert mobilebert openai-gpt", Table(512)),
    **each("rembert roc_bert splinter squeezebert visual_bert xlm", Table(512)),
    **each("aimv2_text_model clip_text_model clipseg_text_model groupvit_text_model", Table(77)),
    **each("metaclip_2_text_model sam3_lite_text_text_model xclip_text_model", Table(77)),
    **each("gpt-sw3 gpt2 gpt_bigcode imagegpt", Table(1024)),
    **each("owlv2_text_model owlvit_text_model", Table(16)),
    **each("siglip2_text_model siglip_text_model", Table(64)),
    "big_bird": Table(4096),
    "clvp_decoder": Table(608),
    "tapas": ignoring(Table(1024), "reset_position_index_per_cell"),
    "gpt_neo": Sum((Table(2048), GPT_NEO)),
    **each("audioflamingo3_encoder moss_transcribe_diarize_audio", WHISPER),
    **each("qwen2_audio_encoder voxtral_encoder", WHISPER),
    "bigbird_pegasus": both(Table(4096)),
    "blenderbot": both(Table(128)),
    "blenderbot-small": both(Table(512)),
    "led": Seq2Seq(
        ignoring(Table(16_384, names=("max_encoder_position_embeddings",)), "attention_window"),
        Table(1024, names=("max_decoder_position_embeddings",)),
        Nope(),
    ),
    "whisper": Seq2Seq(WHISPER, Table(448, names=TARGET), Nope()),
    # a table whose first rows are others' than position 0
    **each("camembert data2vec-text ibert luke roberta", Table(512, first=PAD)),
    **each("roberta-prelayernorm xlm-roberta xmod", Table(512, first=PAD)),
    **each("altclip_text_model bridgetower_text_model clap_text_model", Table(514, first=PAD)),
    "xlm-roberta-xl": Table(514, first=PAD),
    "longformer": ignoring(Table(512, first=PAD), "attention_window"),
    "mra": Table(512, first=2, more=2),
    "nystromformer": Table(510, first=2, more=2),
    "yoso": Table(4096, first=2, more=2),
    "biogpt": BART,
    "opt": Table(2048, first=2, more=2),
    "pp_formulanet_text": Table(2560, first=2, more=2),
    "trocr": Switch("use_learned_position_embeddings", {
        True: Table(512, first=2, more=2), False: FAIRSEQ,
    }),
    **each("bart mbart mvp plbart", both(BART)),
    # sines
    "ctrl": Sines(spacing="paper"),
    **each("autoformer informer time_series_transformer", both(INFORMER)),
    "canary_decoder": CANARY,
    **each("fsmt m2m_100 nllb-moe", both(FAIRSEQ)),
    "fun_asr_nano_encoder": Sines(first=1),
    **each("kosmos_2_5_text_model kosmos_2_text_model", FAIRSEQ),
    **each("marian pegasus", both(MARIAN)),
    **each("musicgen_decoder musicgen_melody_decoder", Use("sinusoidal", {
        "pairing": "half", "spacing": "tensor2tensor", "first": "cosine",
    })),
    "pegasus_x": both(Sines()),
    **each("qwen2_5_omni_audio_encoder qwen3_asr_encoder qwen3_omni_moe_audio_encoder",
           ignoring(Sines(), "n_window", "n_window_infer")),
    "speech_to_text": both(FAIRSEQ),
    "timesfm": Switch("use_positional_embedding", {False: Nope(), True: TIMESFM}),
    **each("tipsv2_text_model videoprism_text_model", Sines()),
    "videomae": Use("sinusoidal"),
    "xglm": Sines(first=2),
    # buckets of offsets
    **each("mt5 pop2piano switch_transformers t5", T5),
    "umt5": Seq2Seq(Buckets(shared=False), Buckets(decoder=True, shared=False), UNSCALED),
    "pix2struct_text_model": Buckets(decoder=True),
    "mpnet": Sum((
        Table(512, first=2),  # whatever its pad_token_id
        Buckets(scaled=True, names=("relative_attention_num_buckets", "")),
    )),
    "longt5": Seq2Seq(
        Switch("encoder_attention_type", {
            "local": Sum((Buckets(), Use("window", {"distance": ("local_radius", 127)}))),
            "transient-global": GLOBAL_BLOCKS,
        }),
        Buckets(decoder=True), UNSCALED,
    ),
    "cpmant": CPMANT,
    "phi4_multimodal_audio": ignoring(PHI4_AUDIO, "chunk_size", "left_chunk"),
    "prophetnet": Seq2Seq(Table(512, first=PAD, pad=0), NGRAMS, Nope()),
    # other biases
    "bloom": ignoring(Use("alibi"), "offset_alibi"),
    **each("deberta deberta-v2", DEBERTA),
    "mpt": MPT,
    "sew-d": SQUEEZED._replace(beside="its attention reads offsets as DeBERTa's does"),
    "inkling_text": INKLING,
    "inkling2_text": INKLING2,
    "inkling2_loop_text": INKLING2_LOOP,
    # relative keys and sines
    "fastspeech2_conformer": ignoring(
        TRANSFORMER_XL, "positionwise_conv_kernel_size", "encoder_positional_dropout_rate",
        "decoder_positional_dropout_rate", "use_masking", "max_source_positions",
    ),
    "nemotron_asr_streaming_encoder": ignoring(NEMOTRON_STREAMING, "dropout_positions"),
    "parakeet_encoder": ignoring(TRANSFORMER_XL, "dropout_positions"),
    "wav2vec2-conformer": WAV2VEC2_CONFORMER,
    "wav2vec2-bert": WAV2VEC2_BERT,
    "xlnet": XLNET,
    "funnel": Absent(
        "halves its sequence after each block by a mean of neighbours, so that queries and keys of "
        "Transformer-XL's scores stand at different steps"
    ),
    **each("gemma3n_audio gemma4_audio", CAPPED),
    "seamless_m4t": Parts({}, {
        "speech_encoder": WAV2VEC2_CONFORMER, "text_encoder": SEAMLESS, "text_decoder": SEAMLESS,
        "t2u_encoder": Nope(), "t2u_decoder": SEAMLESS, "cross": Nope(),
    }),
    **each("granite_speech_encoder granite_speech_plus_encoder", GRANITE_SPEECH),
    "granite_speech5_encoder": GRANITE_SPEECH5,
    "seamless_m4t_v2": Parts({}, {
        "speech_encoder": SEAMLESS_SPEECH, "text_encoder": SEAMLESS, "text_decoder": SEAMLESS,
        "t2u_encoder": Nope(), "t2u_decoder": CHARACTERS, "cross": Nope(),
    }),
    "vits": Absent(
        "adds a vector of each offset to keys and to values, and none to tokens further away; "
        "encodings here change values by rotations alone"
    ),
    # convolutions over time
    **each("unispeech unispeech-sat wav2vec2", Convolution()),
    "hubert": Convolution(batch_norm=True),
    "omniasr_audio": Convolution(activation="hidden_act", even=True),
    "data2vec-audio": Convolution(("conv_pos_kernel_size", 19), ("num_conv_pos_embeddings", 5)),
    "sew": SQUEEZED,
    "speecht5": Parts({}, {
        "speech_encoder": Sum((Convolution(), SPEECHT5_FRAMES, SPEECHT5_KEYS)),
        "text_encoder": Sum((SPEECHT5_SINES, SPEECHT5_KEYS)),
        "speech_decoder": SPEECHT5_SINES, "text_decoder": FAIRSEQ, "cross": Nope(),
    }),
    "wavlm": Sum((Convolution(), WAVLM)),
    # boxes on a page
    "layoutlm": LAYOUTLM,
    **each("layoutlmv2 layoutxlm", LAYOUTLM_2),
    "layoutlmv3": LAYOUTLM_3,
    "bros": BROS,
    "lilt": Absent("boxes have a stream of their own, whose scores are added to those of the text"),
    "udop": Seq2Seq(UDOP, Buckets(decoder=True), UNSCALED),
    "markuplm": Absent(
        "adds vectors of the path to a token's place in a web page: of the tags and their numbers, "
        "for each of 50 depths"
    ),
    # others
    "canine": Table(16_384, names=("num_hash_buckets",)),  # a row for each position, no hash
    "decision_transformer": Absent("positions are an input: time steps of an environment"),
    "patchtsmixer": Switch("self_attn", {
        False: Absent("has no attention: projections"),
        True: Switch("use_positional_encoding", {False: Nope(), True: PATCHTSMIXER}),
    }),
    "patchtst": PATCHTST,
    "perceiver": Parts({}, {"text": Table(2048), "pictures": BY_CLASS}),
    "reformer": REFORMER,
}  # fmt: skip
