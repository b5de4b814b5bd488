"""The fields of a config.json: their types, a record of those that were read, and errors that name
one.

A file comes from anyone, so each value is checked against `TYPES` where it is read, by `Fields`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from posenc_jax.options import Bound, Count, FieldError, shown, typed

# Names of fields that may change positions: such a field that is not read is refused.
POSITIONAL = re.compile(
    "rope|rotary|alibi|relative|position|sliding|window|^layer_types|attention_chunk|buckets|mscale"
    "|temperature_tuning|bidirectional|local_attention$|every_n_layers|dual_chunk"
)
LENGTHS = "max_position_embeddings", "n_positions", "original_max_position_embeddings"
OTHER_LENGTHS = "max_seq_len", "seq_length"  # which say nothing of positions
SHARES = "partial_rotary_factor", "rotary_pct", "rope_pct"
# What the sizes of a model are called.
WIDTH = "hidden_size", "n_embd", "n_embed", "d_model"
HEADS = "num_attention_heads", "n_head", "n_heads", "num_heads"
LAYERS = "num_hidden_layers", "n_layer", "n_layers", "num_layers"
HEAD = "head_dim", "d_kv"

MOST_LAYERS = 4096  # a list is made with an entry for each
Layers = Annotated[int, Bound(1, MOST_LAYERS)]
Size = Annotated[int, Bound(1, 2**24)]
Whole = Annotated[int, Bound(0)]
Positive = Annotated[float, Bound()]
NotNegative = Annotated[float, Bound(0)]
Share = Annotated[float, Bound(0, 1)]
Several = tuple[float, ...]

# The type of each field that is read, wherever in the file it stands. Others are configs of parts.
TYPES: dict[str, Any] = {
    **dict.fromkeys(("model_type", "position_embedding_type", "rope_type", "type"), str),
    **dict.fromkeys((*WIDTH, *HEADS, *HEAD), Size),
    **dict.fromkeys(LAYERS, Layers),
    **dict.fromkeys((*LENGTHS, *OTHER_LENGTHS), Count),
    **dict.fromkeys(SHARES, Share),
    # dictionaries
    "attn_config": Mapping,
    "chunked_attention": Mapping,
    "dual_chunk_attention_config": Mapping,
    "full_attention": Mapping,
    "hybrid": Mapping,
    "hybrid_sliding": Mapping,
    "indexed_attention": Mapping,
    "rope_parameters": Mapping,
    "rope_scaling": Mapping,
    "sliding_attention": Mapping,
    "text_config": Mapping,
    # the model around the attention
    **dict.fromkeys(("add_cross_attention", "attention_bias", "mlp_bias"), bool),
    **dict.fromkeys(("is_decoder", "is_encoder_decoder"), bool),
    **dict.fromkeys(("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps"), Positive),
    **dict.fromkeys(("norm_bias", "decoder_bias", "classifier_bias"), bool),
    **dict.fromkeys(("use_parallel_block", "use_gated_activation", "use_qk_norm"), bool),
    **dict.fromkeys(("attention_multiplier", "embedding_multiplier"), Positive),
    **dict.fromkeys(("residual_multiplier", "logits_scaling"), Positive),
    **dict.fromkeys(("hidden_act", "activation_function", "hidden_activation"), str),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_ff", "num_key_value_heads"), Size),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), Positive),
    "apply_residual_connection_post_layernorm": bool,
    "classifier_activation": str,
    "conv_kernel_size": Whole,
    "expansion_ratio": Positive,
    "feed_forward_proj": str,
    "logit_scale": float | str,
    "norm_rel_ebd": str,
    "num_decoder_layers": Layers,
    "query_pre_attn_scalar": Positive,
    "scale_attn_by_inverse_layer_idx": bool,
    "scale_attn_weights": bool,
    "scale_decoder_outputs": bool,
    "share_att_key": bool,
    "tie_word_embeddings": bool,
    "type_vocab_size": Whole,
    "use_bidirectional_attention": bool | str,
    "use_parallel_residual": bool,
    "vocab_size": Size,
    # rotary models
    "alibi": bool,
    "attn_scale": NotNegative,
    "attn_temperature_tuning": bool | int,
    "attention_chunk_size": Count,
    "floor_scale": Count,
    "global_attn_every_n_layers": Layers,
    "global_rope_theta": Positive,
    "layer_rope_theta": Several,
    "layer_types": tuple[str, ...],
    "local_attention": Count,
    "local_rope_theta": Positive,
    "max_window_layers": Whole,
    "no_rope_layer_interval": Layers,
    "no_rope_layers": tuple[int, ...],
    "qk_rope_head_dim": Size,
    "rope_interleave": bool,
    "rope_local_base_freq": Positive,
    "rope_scaling_layers": tuple[int, ...],
    # DeepSeek-V4's keys that stand for blocks of tokens
    "compress_ratios": tuple[int, ...],
    "compress_rope_theta": Positive,
    "rope_theta": Positive,
    "rotary": bool,
    "rotary_dim": Size,
    "rotary_emb_base": Positive,
    "sliding_window": Whole,
    "attention_window_size": Count,
    "block_types": tuple[str, ...],
    "sliding_window_pattern": Layers | str,
    "sliding_window_size": Count,
    "use_sliding_window": bool,
    # scalings of rope
    "alpha": Positive,
    "llama_4_scaling_beta": NotNegative,
    "long_mscale": Positive,
    "short_mscale": Positive,
    "attention_factor": NotNegative,
    "beta_fast": NotNegative,
    "beta_slow": NotNegative,
    "factor": Positive,
    "finetuned": bool,
    "high_freq_factor": Positive,
    "long_factor": Several,
    "low_freq_factor": Positive,
    "mrope_interleaved": bool,
    "mrope_section": tuple[int, ...],
    "xdrope_section": tuple[int, ...],
    "mscale": NotNegative,
    "mscale_all_dim": NotNegative,
    "short_factor": Several,
    "truncate": bool,
    # dual chunk attention, and the approximation by which it is made faster
    "chunk_size": Count,
    "local_size": Count,
    "sparse_attention_config": object,
    "sparse_attention_enabled": object,
    "sparse_attention_last_q": object,
    "sparse_attention_threshold": object,
    # tables and switches
    "image_size": Count | tuple[int, ...],
    "max_num_patches": Count,
    "mm_posemb_size": Count,
    "num_patches": Count,
    "seq_len": Count,
    "pos_embed_jitter": Positive,
    "pos_embed_rescale": Positive,
    "positional_embedding_temperature": Positive,
    "positional_encoding_temperature": Positive,
    "temperature_height": Positive,
    "temperature_width": Positive,
    "sine_position_embedding_scale": Positive,
    "num_position_embeddings": Count,
    "patch_stride": Count | tuple[int, ...],
    "pretrain_image_size": Count | tuple[int, ...],
    "patch_size": Count | tuple[int, ...],
    "block_size": Count,
    **dict.fromkeys(("coordinate_size", "shape_size"), Size),
    **dict.fromkeys(("has_relative_attention_bias", "has_spatial_attention_bias"), bool),
    **dict.fromkeys(("max_rel_pos", "max_rel_2d_pos", "rel_pos_bins", "rel_2d_pos_bins"), Count),
    "bbox_scale": Positive,
    "dim_bbox": Count,
    "max_2d_position_embeddings": Count,
    # an entry of `relative_bias_args`
    "relative_bias_args": tuple[Mapping, ...],
    "augmentation": bool,
    "bidirectional": bool,
    "level": str,
    "max_distance": Count,
    "scaling_factor": Count,
    "max_decoder_position_embeddings": Count,
    "max_encoder_position_embeddings": Count,
    "max_source_positions": Count,
    "max_target_positions": Count,
    "max_pos_emb": Count,
    "axial_pos_embds": bool,
    "axial_pos_embds_dim": tuple[int, ...],
    "axial_pos_shape": tuple[int, ...],
    "d_rel": Count,
    "local_layer_ids": tuple[int, ...],
    "log_scaling_alpha": NotNegative,
    "log_scaling_n_floor": Count,
    "mtp_local_layer_ids": tuple[int, ...],
    "qk_l2_clip_threshold": Positive,
    "rel_extent": Count,
    "rel_l2_clip_threshold": Positive,
    "default_num_lookahead_tokens": Whole,
    "context_size": Count,
    "bias_max_distance": Count,
    "bias_symmetric": bool,
    "clamp_len": int,
    "left_max_position_embeddings": Whole,
    "right_max_position_embeddings": Whole,
    "position_embeddings_type": str,
    "rotary_embedding_base": Positive,
    "num_conv_pos_embeddings": Count,
    "num_conv_pos_embedding_groups": Count,
    "conv_pos_batch_norm": bool,
    **dict.fromkeys(("num_buckets", "max_bucket_distance"), Count),
    **dict.fromkeys(("max_speech_positions", "max_text_positions"), Count),
    "encoder_max_relative_position": Count,
    "conv_pos_kernel_size": Count,
    "feat_extract_activation": str,
    "squeeze_factor": Count,
    "num_hash_buckets": Count,
    "pad_token_id": Whole,
    "rotary_value": bool,
    "use_absolute_embeddings": bool,
    "use_absolute_position_embeddings": bool,
    "use_relative_position_bias": bool,
    "use_shared_relative_position_bias": bool,
    "use_learned_position_embeddings": bool,
    "use_mem_rope": bool,
    "use_positional_embedding": bool,
    "use_rotary_embedding": bool,
    "window_size": Whole,
    "encoder_attention_type": str,
    "local_radius": Count,
    "max_timescale": Count,
    "min_timescale": Count,
    # patches of time series
    **dict.fromkeys(("context_length", "patch_length"), Count),
    **dict.fromkeys(("self_attn", "use_cls_token", "use_positional_encoding"), bool),
    "positional_dropout": NotNegative,
    "positional_encoding_type": str,
    "speech_encoder_chunk_size": Count,
    "speech_encoder_left_chunk_num": int,
    # towers of pictures
    "attention_type": str,
    "depths": tuple[int, ...],
    "pretrained_window_sizes": tuple[int, ...],
    "frequency_stride": Count,
    "global_attn_indexes": tuple[int, ...],
    "interpolate_mode": str,
    "is_native": bool,
    "max_grid_col_position_embeddings": Count,
    "max_grid_row_position_embeddings": Count,
    "max_image_size": Count,
    "max_img_size": Count,
    "max_num_tiles": Count,
    **dict.fromkeys(
        ("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes"), tuple[int, ...]
    ),
    "supported_aspect_ratios": tuple[tuple[int, ...], ...],
    "num_detection_tokens": Whole,
    "num_encoder_blocks": Count,
    "num_spatial_rope_pairs_per_axis": Count,
    "num_uid_rope_pairs": Count,
    **dict.fromkeys(("spatial_rope_base_frequency", "uid_rope_base_frequency"), Positive),
    "patch_sizes": tuple[int, ...],
    "use_mid_position_embeddings": bool,
    "window_positional_embedding_background_size": tuple[int, ...],
    "window_size_per_stage": tuple[int, ...],
    "max_length": Count,
    "num_channels": Count,
    "num_frames": Count,
    "num_mel_bins": Count,
    "num_pos_feats": Count,
    "pos_emb_height": Count,
    "pos_emb_time": Count,
    "pos_emb_width": Count,
    "posemb_grid_size": Count,
    "position_embedding_size": Count,
    "time_stride": Count,
    "tubelet_size": tuple[int, ...],
    "use_abs_pos": bool,
    "use_rel_pos": bool,
    "use_relative_position_embeddings": bool,
    "window_block_indices": tuple[int, ...],
    "attention_layers": tuple[str, ...],
    "attention_types": object,
    # biases
    "position_bias_max_distance": Count,
    "position_bias_num_buckets": Count,
    "segment_types": Count,
    "alibi_bias_max": Positive,
    "max_relative_positions": int,
    "offset_alibi": object,
    "pos_att_type": str | tuple[str, ...],
    "position_biased_input": bool,
    "position_buckets": int,
    "relative_attention": bool,
    "relative_attention_max_distance": Count,
    "relative_attention_num_buckets": Count,
}

# An option of a method -> the fields that it may come from, where that is not the one of its name.
OPTIONS = {
    "alpha": ("factor",),
    "base": (
        "rope_theta", "rotary_emb_base", "global_rope_theta", "local_rope_theta",
        "rope_local_base_freq",
    ),
    "bias_max": ("alibi_bias_max",),
    "buckets": ("relative_attention_num_buckets", "position_buckets", "num_buckets"),
    "distance": (
        "relative_attention_max_distance", "max_relative_positions", "sliding_window",
        "max_bucket_distance", "encoder_max_relative_position",
    ),
    "floor": ("floor_scale",),
    "head": ("rotary_dim", "qk_rope_head_dim", *SHARES, *HEAD, *WIDTH),
    "high": ("high_freq_factor",),
    "length": LENGTHS,
    "long": ("long_factor",),
    "low": ("low_freq_factor",),
    "sections": ("mrope_section",),
    "window": ("window_size",),
    "share": SHARES,
    "short": ("short_factor",),
    "temperature": ("attn_scale",),
}  # fmt: skip


class Fields:
    """The fields of a dictionary in a config, and a record of those that were read.

    path: where the dictionary stands in the file.
    """

    def __init__(self, fields: Mapping[str, Any], *path: str):
        self.fields = typed(path or ("config",), Mapping, fields)
        if not all(isinstance(name, str) for name in self.fields):
            raise FieldError(path or ("config",), "has a field whose name is not text")
        self.path = path
        self.read: set[str] = set(LENGTHS)
        self.places: dict[str, tuple[str, ...]] = {}  # paths of fields, the last one read last

    def get(self, *names: str, default: Any = None) -> Any:
        """The value of the first of the names that has one; all of them count as read.

        FieldError: the value is not of the field's type.
        """
        self.read.update(names)
        for name in names:
            if (value := self.fields.get(name)) is not None:
                path = (*self.path, name)
                self.places.pop(name, None)
                self.places[name] = path
                return typed(path, TYPES.get(name, Mapping), value)
        return default

    def replaced(self, name: str, value: Any) -> "Fields":
        """The fields with another value of one of them."""
        other = Fields({**self.fields, name: value}, *self.path)
        other.read, other.places = self.read, self.places
        return other

    def need(self, *names: str) -> Any:
        """Returns the value as `get` does. FieldError: none of the names has a value."""
        if (value := self.get(*names)) is None:
            raise FieldError((*self.path, names[0]), "is missing; the model needs it")
        return value

    def sizes(self, name: str, default: int | tuple[int, ...], count: int = 2) -> tuple[int, ...]:
        """The `count` sizes of a field, as (height, width); one number stands for each.

        FieldError: the field has not so many numbers, or one below 1.
        """
        value = self.get(name, default=default)
        sizes = (value,) * count if isinstance(value, int) else tuple(value)
        if len(sizes) != count or min(sizes) < 1:
            raise FieldError((*self.path, name), f"{shown(value)} is not {count} numbers from 1")
        return sizes

    def side(self, name: str, default: int) -> int:
        """The side of a square, of which a field has one number or two equal ones."""
        height, width = self.sizes(name, default)
        if height != width:
            raise FieldError((*self.path, name), f"{height} x {width} is no square")
        return height

    def depths(self, default: tuple[int, ...]) -> tuple[int, ...]:
        """The layers of each stage. FieldError: there are none, or too many."""
        depths = self.get("depths", default=default)
        if min(depths, default=0) < 1 or sum(depths) > MOST_LAYERS:
            reason = f"{shown(depths)} is not layers of stages, in all 1 to {MOST_LAYERS}"
            raise FieldError((*self.path, "depths"), reason)
        return depths

    def inside(self, *path: str, empty: bool = False) -> "Fields":
        """The fields of a dictionary in this one; no fields if it is missing."""
        fields: Any = self
        for name in path:
            fields = Fields(fields.get(name, default={}), *fields.path, name)
        if empty:
            fields.fields = {}
        fields.places = self.places
        return fields

    def check(self, name: str, *allowed: Any) -> None:
        """Raises a FieldError if the field has a value that is not allowed."""
        if (value := self.get(name, default=allowed[0])) not in allowed:
            choices = ", ".join(map(repr, allowed))
            raise FieldError((*self.path, name), f"{shown(value)} is not one of: {choices}")

    def refuse_unread(self, pattern: re.Pattern) -> None:
        """Raises a FieldError if a field whose name matches has a value, is not off, and was not
        read.
        """
        for name, value in self.fields.items():
            unread = name not in self.read and not name.startswith("_")
            if unread and pattern.search(name) and value is not None and value is not False:
                reason = f"{shown(value)} is not known for this model"
                raise FieldError((*self.path, name), reason)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Makes errors about an option of a method name the field that the option was read from."""
        try:
            yield
        except FieldError as error:
            *_, option = error.path
            if error.path not in (("encoding", option), ("head",)):
                raise
            names = OPTIONS.get(str(option), (str(option),))
            read = [name for name in self.places if name in names]
            path = self.places[read[-1]] if read else (*self.path, names[0])
            raise FieldError(path, error.reason) from None
