"""Models of pictures and video whose config needs a function of its own, and what only they have.

Positions are (row, column), or (time, row, column). The tokens before the patches, such as a class
token, have rows, or times, of -1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding, Placed, place
from posenc_jax.encodings import make
from posenc_jax.encodings.grids import Resize
from posenc_jax.encodings.rotation import Turn
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.own_readers import joined
from posenc_jax.huggingface.rope_fields import unscaled_base
from posenc_jax.huggingface.rotary_parts import paired_by_axis, rope_3d_by_channel
from posenc_jax.huggingface.rows import Reader
from posenc_jax.layout import Layout
from posenc_jax.options import FieldError, shown
from posenc_jax.recipes import recorded

TRANSPOSED = 1, 0


@recorded
def on_axes(encoding: Encoding, axes: int | tuple[int, ...]) -> Encoding:
    """The encoding, reading one axis of the positions, or several in this order."""
    picked = axes if isinstance(axes, int) else list(axes)
    moved = lambda key, at: place(encoding, key, at.replace(pos_BT=at.pos_BT[..., picked]))
    return encoding._replace(place=moved)


def _place_patches(encoding: Encoding) -> Callable[[Any, Layout], tuple[jax.Array, Placed]]:
    """A `place` that gives which tokens are patches, and the encoding's positions of them; tokens
    before the patches have positions below 0, and are placed as the patch at 0.
    """

    def place_patches(key, at):
        inside = at.replace(pos_BT=jnp.maximum(at.pos_BT, 0))
        return at.pos_BT[..., 0] >= 0, place(encoding, key, inside)

    return place_patches


@recorded
def of_patches(encoding: Encoding) -> Encoding:
    """The encoding at the input, which adds nothing to the tokens before the patches."""
    plain = encoding.embed
    assert plain is not None

    def embed(params, x_BTD, placed):
        patches_BT, inside = placed
        return jnp.where(patches_BT[..., None], plain(params, x_BTD, inside), x_BTD)

    return encoding._replace(place=_place_patches(encoding), embed=embed)


@recorded
def still_prefix(encoding: Encoding, first: int = 0, step: float = 1.0) -> Encoding:
    """The rotary encoding whose first row and column have the number `first`, and others follow at
    `step`; the tokens before the patches do not turn.
    """

    def moved(key, at):
        patches_BT1 = at.pos_BT[..., :1] >= 0
        pos_BTA = (at.pos_BT + first) if step == 1 else (at.pos_BT + first).astype(float) * step
        return place(encoding, key, at.replace(pos_BT=jnp.where(patches_BT1, pos_BTA, 0)))

    return encoding._replace(place=moved)


@recorded
def learned_prefix(encoding: Encoding) -> Encoding:
    """The rotary encoding, by which the tokens before the patches turn by learned angles."""
    plain = encoding.table
    assert plain is not None

    def init(key, dims):
        angle_F = dims.head**-0.5 * jax.random.normal(key, (dims.head // 2,))
        return {"plain": encoding.init(key, dims), "angle_F": angle_F}

    def table(params, placed, dims):
        patches_BT, inside = placed
        turn = plain(params["plain"], inside, dims)
        angle_F = params["angle_F"].astype(turn.cos.dtype)
        pick = lambda leaf, of_prefix_F: jnp.where(patches_BT[..., None, None], leaf, of_prefix_F)
        return Turn(pick(turn.cos, jnp.cos(angle_F)), pick(turn.sin, jnp.sin(angle_F)))

    return encoding._replace(init=init, place=_place_patches(encoding), table=table)


@recorded
def with_first_row(encoding: Encoding) -> Encoding:
    """The `learned_grid` of which each patch has the first token's row of the table, too."""
    plain = encoding.embed
    assert plain is not None

    def embed(params, x_BTD, placed):
        first_BT2 = jnp.zeros_like(placed).at[..., 0].set(-1)
        return plain(params, plain(params, x_BTD, placed), first_BT2)

    return encoding._replace(embed=embed)


def patches_of(
    config: Fields, image: int | tuple[int, int], patch: int, name: str = "image_size"
) -> tuple[int, ...]:
    """(rows, columns) of the patches of a picture, of sizes in pixels."""
    sizes = config.sizes(name, image), config.sizes("patch_size", patch)
    return tuple(size // part for size, part in zip(*sizes, strict=True))


def _base(config: Fields, default: float = 10_000.0) -> float:
    """The base of axial rope."""
    return unscaled_base(config, default, "axial", "default")


def sam(image: int = 1024) -> Reader:
    """Segment Anything's tower: a grid table, and keys of rows and columns of a window or of the
    whole picture, by layer.
    """

    def read(config: Fields) -> Encoding:
        rows, columns = patches_of(config, image, 16)
        window = config.get("window_size", default=14)
        everywhere = config.get("global_attn_indexes", default=(2, 5, 8, 11))
        count = config.get("num_hidden_layers", default=12)
        config.get("num_pos_feats")  # of the points
        parts = []
        if config.get("use_abs_pos", default=True):
            parts.append(make("learned_grid", rows=rows, columns=columns))
        if config.get("use_rel_pos", default=True):
            whole = make("decomposed", window=rows, columns=columns)
            near = make("decomposed", window=window) if window else whole
            layers = [whole if n in everywhere else near for n in range(count)]
            parts.append(per_layer(layers) if {*layers} != {whole} else whole)
        return joined(parts)

    return Reader(read)


def _vitdet(config: Fields) -> Encoding:
    """ViTDet's table, of which the class token's row is not read, and keys by layer."""
    rows, columns = patches_of(config, 224, 16)
    window = config.get("window_size", default=0)
    windows = config.get("window_block_indices", default=())
    parts = []
    if config.get("use_absolute_position_embeddings", default=True):
        parts.append(_pretrained(config, rows, columns))
    if config.get("use_relative_position_embeddings", default=False):
        whole, near = make("decomposed", window=rows, columns=columns), None
        near = make("decomposed", window=window) if window else whole
        count = config.get("num_hidden_layers", default=12)
        layers = [near if n in windows else whole for n in range(count)]
        parts.append(per_layer(layers) if {*layers} != {whole} else whole)
    return joined(parts)


def _seggpt(config: Fields) -> Encoding:
    """SegGPT's: as ViTDet's, of pictures that are not square."""
    rows, columns = patches_of(config, (896, 448), 16)
    keys = make("decomposed", window=rows, columns=columns)
    parts = [_pretrained(config, rows, columns)]
    on = config.get("use_relative_position_embeddings", default=True)
    return joined([*parts, *([keys] if on else [])])


def _pretrained(config: Fields, rows: int, columns: int) -> Encoding:
    """The table of the pictures of the pretraining, read for others."""
    table_rows, table_columns = patches_of(config, 224, 16, "pretrain_image_size")
    other = (rows, columns) != (table_rows, table_columns)
    read = {"image_rows": rows, "image_columns": columns} if other else {}
    return make("learned_grid", rows=table_rows, columns=table_columns, prefix=1, **read)


def points(image: int) -> Reader:
    """Segment Anything's points, in pixels of a picture of `image` a side."""

    def read(config: Fields) -> Encoding:
        rows, columns = config.sizes("image_size", image)
        return make("fourier_2d", rows=rows, columns=columns)

    return Reader(read)


def _spectrogram(config: Fields) -> Encoding:
    """The Audio Spectrogram Transformer's table: rows are frequencies, columns times."""
    patch = config.side("patch_size", 16)
    bands, frames = config.get("num_mel_bins", default=128), config.get("max_length", default=1024)
    steps = config.get("frequency_stride", default=10), config.get("time_stride", default=10)
    sizes = [(all_ - patch) // step + 1 for all_, step in zip((bands, frames), steps, strict=True)]
    return make("learned_grid", rows=sizes[0], columns=sizes[1], prefix=2)


def _aimv2(config: Fields) -> Encoding:
    """AIMv2's table, or sines, the column's half first."""
    if config.get("is_native", default=False):
        return on_axes(make("sinusoidal_2d"), TRANSPOSED)
    rows, columns = patches_of(config, 224, 14)
    return make("learned_grid", rows=rows, columns=columns)


def _vit_mae(config: Fields) -> Encoding:
    """ViT-MAE's sines, the column's half first."""
    return of_patches(on_axes(make("sinusoidal_2d"), TRANSPOSED))


def _vitpose(config: Fields) -> Encoding:
    rows, columns = patches_of(config, (256, 192), 16)
    return with_first_row(make("learned_grid", rows=rows, columns=columns, prefix=1))


def _vivit(config: Fields) -> Encoding:
    """ViViT's table of the tubes of a video, frame by frame, after a class token."""
    frames = config.get("num_frames", default=32)
    tube = config.sizes("tubelet_size", (2, 16, 16), 3)
    image = config.sizes("image_size", 224)
    count = frames // tube[0] * (image[0] // tube[1]) * (image[1] // tube[2])
    return make("learned", length=count + 1)


def videoprism(config: Fields) -> Encoding:
    """VideoPrism's table of a frame's patches; that of frames is added after the first layers."""
    image = config.sizes("image_size", 288)
    tube = config.sizes("tubelet_size", (1, 18, 18), 3)
    rows, columns = image[0] // tube[1], image[1] // tube[2]
    return make("learned_grid", rows=rows, columns=columns, resize="bilinear_antialiased")


def _timesformer(config: Fields) -> Encoding:
    """TimeSformer's table of patches and that of frames, of (time, row, column)."""
    rows, columns = patches_of(config, 224, 16)
    table = make("learned_grid", rows=rows, columns=columns, prefix=1, resize="nearest")
    patches = on_axes(table, (1, 2))
    if config.get("attention_type", default="divided_space_time") == "space_only":
        return patches
    frames = make("learned", length=config.get("num_frames", default=8))
    return chain(patches, of_patches(on_axes(frames, 0)))


def column_first(first: int = 0, pairing: str = "half") -> Reader:
    """Axial rope whose first pairs turn by the column; the first patch has the numbers `first`."""

    def read(config: Fields) -> Encoding:
        rope = on_axes(make("axial", base=_base(config), pairing=pairing), TRANSPOSED)
        return still_prefix(rope, first) if first else rope

    return Reader(read)


def _memory(config: Fields) -> Encoding:
    """Axial rope of SAM 2's attention to its memory and to itself, the column's pairs first; tokens
    of objects, which have rows below 0, do not turn.
    """
    config.get("memory_attention_rope_feat_sizes", "memory_attention_rope_k_sizes")
    rope = make("axial", base=_base(config), pairing="interleaved")
    return still_prefix(on_axes(rope, TRANSPOSED))


def _mlcd(config: Fields) -> Encoding:
    return learned_prefix(make("axial", base=_base(config)))


def _llama4(config: Fields) -> Encoding:
    """Llama 4's tower, whose class token is the last one: its row is the table's last, too."""
    rows, columns = patches_of(config, 448, 14)
    rope = make("axial", base=_base(config), pairing="interleaved")
    table = make("learned_grid", rows=rows, columns=columns, prefix=1)
    return chain(table, still_prefix(on_axes(rope, TRANSPOSED), 1))


def side(name: str, default: int, prefix: int = 0, resize: Resize = "bilinear") -> Reader:
    """A table of a square of patches whose side a field has."""

    def read(config: Fields) -> Encoding:
        count = config.get(name, default=default)
        return make("learned_grid", rows=count, columns=count, prefix=prefix, resize=resize)

    return Reader(read)


def _hunyuan(config: Fields) -> Encoding:
    """HunYuan-VL's table of the largest picture, resized to each; no token reads its first row."""
    count = config.get("max_image_size", default=2048) // config.side("patch_size", 16)
    resize = config.get("interpolate_mode", default="bilinear")
    return make("learned_grid", rows=count, columns=count, prefix=1, resize=resize)


def _sam3(config: Fields) -> Encoding:
    """SAM 3's tower: a table that is laid in tiles, and axial rope whose steps are those of a
    window also where a layer sees the whole picture.
    """
    rows, columns = patches_of(config, 1008, 14)
    table_rows, table_columns = patches_of(config, 336, 14, "pretrain_image_size")
    window = config.get("window_size", default=24)
    everywhere = config.get("global_attn_indexes", default=(7, 15, 23, 31))
    tiles = {"image_rows": rows, "image_columns": columns, "resize": "tiles"}
    table = make("learned_grid", rows=table_rows, columns=table_columns, **tiles)
    near = on_axes(make("axial", base=_base(config), pairing="interleaved"), TRANSPOSED)
    whole = still_prefix(near, step=window / rows)
    count = config.get("num_hidden_layers", default=32)
    return chain(table, per_layer([whole if n in everywhere else near for n in range(count)]))


def swin_v2(shrinks: bool, image: int, patch: int, window: int, depths: tuple[int, ...]) -> Reader:
    """Swin V2's biases by stage, whose window is at most the picture.

    shrinks: a stage has half of the patches of the one before it, along each axis.
    Others: sizes where the config does not say them.
    """

    def read(config: Fields) -> Encoding:
        rows, columns = patches_of(config, image, patch)
        most = config.get("window_size", default=window)
        stages = config.depths(depths)
        reaches = config.get("pretrained_window_sizes", default=(0,) * len(stages))
        if len(reaches) != len(stages):
            reason = f"{shown(reaches)} has not a number for each of {len(stages)} stages"
            raise FieldError((*config.path, "pretrained_window_sizes"), reason)
        layers = []
        for stage, depth in enumerate(stages):
            side = min(rows, columns) >> stage if shrinks else min(rows, columns)
            reach = reaches[stage] or min(most, side)
            layers += [make("swin_v2", window=reach)] * depth
        return layers[0] if len({*layers}) == 1 else per_layer(layers)

    return Reader(read)


def _tvp(config: Fields) -> Encoding:
    """TVP's tables of rows and of columns, whose vectors are summed; frames have none."""
    rows, columns = (
        config.get(f"max_grid_{axis}_position_embeddings", default=100) for axis in ("row", "col")
    )
    if rows != columns:
        reason = f"{columns} is not the {rows} of max_grid_row_position_embeddings"
        raise FieldError((*config.path, "max_grid_col_position_embeddings"), reason)
    return make("learned_2d", length=rows, join="sum")


def _minimax_m3(config: Fields) -> Encoding:
    """MiniMax M3's tower: time, row and column with int(C/6) pairs each; the rest does not turn."""
    width, heads = config.get("hidden_size", default=1280), config.get("num_attention_heads")
    head = width // (heads or 16)
    config.get("image_size", "temporal_patch_size")
    return make("nd_rope", sections=(head // 3 // 2,) * 3, bases=(_base(config),), pairing="half")


def _kimi_k25(config: Fields) -> Encoding:
    """Kimi K2.5's tower on pictures: a table of a grid, and axial rope whose pairs turn by the
    column and by the row in turn. Frames of a video have sines of their time, too.
    """
    rows = config.get("pos_emb_height", default=64)
    columns = config.get("pos_emb_width", default=64)
    config.get("pos_emb_time")
    rope = make("nd_rope", bases=(_base(config),), order="alternate", pairing="half")
    table = make("learned_grid", rows=rows, columns=columns, prefix=0, resize="bicubic")
    return chain(table, on_axes(rope, TRANSPOSED))


def _gemma4(config: Fields) -> Encoding:
    """Gemma 4's tower: tables of columns and of rows, and axial rope that pairs channels of an axis
    half of them apart.
    """
    length = config.get("position_embedding_size", default=10_240)
    rope = paired_by_axis(make("axial", base=_base(config, 100.0)))
    return on_axes(chain(make("learned_2d", length=length, join="sum"), rope), TRANSPOSED)


def _vjepa2(config: Fields) -> Encoding:
    return rope_3d_by_channel(10_000.0)


AIMV2, HUNYUAN, LLAMA4, MLCD = map(Reader, (_aimv2, _hunyuan, _llama4, _mlcd))
SAM3, SEGGPT, SPECTROGRAM, TIMESFORMER = map(Reader, (_sam3, _seggpt, _spectrogram, _timesformer))
VITDET, VITPOSE, VIT_MAE, VIVIT = map(Reader, (_vitdet, _vitpose, _vit_mae, _vivit))
MEMORY, TVP, VJEPA2 = map(Reader, (_memory, _tvp, _vjepa2))
GEMMA4, KIMI_K25, MINIMAX_M3 = map(Reader, (_gemma4, _kimi_k25, _minimax_m3))
