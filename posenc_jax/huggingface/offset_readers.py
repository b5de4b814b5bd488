"""Models of pictures with several tables of patches, or with biases of offsets or sines that no
method of the catalogue has.

Positions are (row, column); the tokens before the patches have rows of -1.
"""

import jax
import jax.numpy as jnp

from posenc_jax.backends.table_lookup import look_up
from posenc_jax.combinators import chain, per_layer
from posenc_jax.encoding import Encoding, place
from posenc_jax.encodings import make
from posenc_jax.encodings.bias import clipped_row, layered, offsets, refusing, whole
from posenc_jax.encodings.card import with_axes
from posenc_jax.encodings.grids import Resize, resizing
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.own_readers import joined
from posenc_jax.huggingface.picture_readers import patches_of
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError, shown
from posenc_jax.recipes import recorded


def _drawn(key: jax.Array, rows: int, heads: int) -> dict[str, jax.Array]:
    """A table of a scalar for each row and head, as of `swin_2d`."""
    return {"table": 0.02 * jax.random.truncated_normal(key, -2.0, 2.0, (rows, heads))}


@recorded
def class_offsets(rows: int, columns: int, shared: bool = False) -> Encoding:
    """BEiT's learned scalar for each (row, column) offset in a picture and head, and three more for
    the class token as a query, as a key, and as both (Bao et al. 2021, arXiv 2106.08254).

    rows, columns: patches of the picture. Offsets outside of it, or with a fraction, give NaN.
    shared: whether all layers have the same.
    """
    last = (2 * rows - 1) * (2 * columns - 1)

    def bias(params, q_placed, k_placed, dims):
        q_class_BQ1, k_class_B1K = (
            jnp.expand_dims(with_axes(placed, 2)[..., 0] < 0, axis)
            for placed, axis in ((q_placed, 2), (k_placed, 1))
        )
        offset_BQK2 = offsets(jnp.maximum(q_placed, 0), jnp.maximum(k_placed, 0), axes=2)
        row_BQK = clipped_row(offset_BQK2[..., 0], rows - 1) * (2 * columns - 1)
        row_BQK = row_BQK + clipped_row(offset_BQK2[..., 1], columns - 1)
        row_BQK = jnp.where(k_class_B1K, last + 1, row_BQK)
        row_BQK = jnp.where(q_class_BQ1, jnp.where(k_class_B1K, last + 2, last), row_BQK)
        bias_BHQK = look_up(params["table"].astype(float), row_BQK)
        for axis, side in enumerate((rows, columns)):
            bias_BHQK = refusing(bias_BHQK, offset_BQK2[..., axis], most=side - 1)
        return bias_BHQK

    init = lambda key, dims: _drawn(key, last + 3, dims.heads)
    return layered(Encoding(init=init, bias=bias), shared)


@recorded
def absolute_offsets(side: int) -> Encoding:
    """LeViT's learned scalar for each distance in rows and columns, whatever its sign, and head, of
    each layer (Graham et al. 2021, arXiv 2104.01136).

    side: patches along a side of the picture. Distances of as many or more, or with a fraction,
      give NaN.
    """

    def bias(params, q_placed, k_placed, dims):
        apart_BQK2 = jnp.abs(offsets(q_placed, k_placed, axes=2))
        row_BQK2 = whole(apart_BQK2, 0, side - 1)
        flat_BQK = row_BQK2[..., 0] * side + row_BQK2[..., 1]
        bias_BHQK = look_up(params["table"].astype(float), flat_BQK)
        return refusing(bias_BHQK, apart_BQK2, most=side - 1)

    init = lambda key, dims: _drawn(key, side * side, dims.heads)
    return layered(Encoding(init=init, bias=bias, relative=True), shared=False)


@recorded
def moved_grid(
    rows: int, columns: int, image_rows: int, image_columns: int, excess: float, resize: Resize
) -> Encoding:
    """`learned_grid` with a prefix of 1 whose table is resized to a picture of another size as if
    that had `excess` more patches a side, so that each patch reads a little before its middle.

    At the table's own size it is read as it is, as PyTorch's `interpolate` does.
    """
    plain = make("learned_grid", rows=image_rows, columns=image_columns, prefix=1).embed
    assert plain is not None
    sizes = (image_rows, rows), (image_columns, columns)
    table = make("learned_grid", rows=rows, columns=columns, prefix=1)

    if (image_rows, image_columns) == (rows, columns):
        return table

    def embed(params, x_BTD, placed):
        first, table_RCW = params["table"][:1], params["table"][1:].reshape(rows, columns, -1)
        weights = (jnp.asarray(resizing(*pair_, resize, excess), float) for pair_ in sizes)
        resized_RCW = jnp.einsum(
            "ar,bc,rcw->abw", *weights, table_RCW.astype(float), precision="highest"
        )
        rows_LW = resized_RCW.reshape(-1, resized_RCW.shape[-1])
        return plain({"table": jnp.concatenate([first.astype(float), rows_LW])}, x_BTD, placed)

    return table._replace(embed=embed)


@recorded
def of_middles(encoding: Encoding) -> Encoding:
    """The `sinusoidal_2d` with normalized=True, of the middles of patches: a row is read as
    2 pi (row + 1/2) / (rows + 1e-6), and a column alike (Deformable DETR, arXiv 2010.04159).
    """

    def place_middles(key, at):
        pos_BT2 = with_axes(at.pos_BT, 2).astype(float)
        return place(encoding, key, at) * (pos_BT2 + 0.5) / (pos_BT2 + 1)

    return encoding._replace(place=place_middles)


def _dab_detr(config: Fields) -> Encoding:
    """DAB-DETR's sines, whose rows and columns have the same base here."""
    base = config.get("temperature_height", default=20.0)
    config.check("temperature_width", base)
    if (scale := config.get("sine_position_embedding_scale")) is not None:
        reason = f"{scale} is not known; the sines go round once, which null says"
        raise FieldError((*config.path, "sine_position_embedding_scale"), reason)
    return make("sinusoidal_2d", base=base, pairing="interleaved", normalized=True)


def _hy_v4(config: Fields) -> Encoding:
    """HunYuan 4's table of the largest picture; no token reads its first row."""
    side = config.get("max_image_size", default=2048) // config.side("patch_size", 16)
    resize = config.get("interpolate_mode", default="bilinear")
    if resize not in ("bilinear", "bicubic"):
        reason = f"{shown(resize)} is not one of: 'bilinear', 'bicubic'"
        raise FieldError((*config.path, "interpolate_mode"), reason)
    return moved_grid(side, side, side, side, 0.1, resize)


def _beit(config: Fields) -> Encoding:
    """BEiT's table and biases, by flags that are all off where the config does not have them."""
    rows, columns = patches_of(config, 224, 16)
    flag = lambda name: config.get(f"use_{name}", default=False)
    parts = []
    if flag("absolute_position_embeddings"):
        parts.append(make("learned_grid", rows=rows, columns=columns, prefix=1))
    for name in ("shared_relative_position_bias", "relative_position_bias"):
        if not flag(name):
            continue
        if rows != columns:
            reason = f"{rows} x {columns} patches are no square, and the code exchanges their sides"
            raise FieldError((*config.path, "image_size"), reason)
        parts.append(class_offsets(rows, columns, shared=name.startswith("shared")))
    return joined(parts)


def _levit(config: Fields) -> Encoding:
    """LeViT's biases by layer. The last layer of each stage but the last has the queries of every
    second row and column, whose positions are those of its keys.
    """
    side = min(patches_of(config, 224, 16))
    depths = config.depths((4, 4, 4))
    layers = []
    for stage, depth in enumerate(depths):
        layers += [absolute_offsets(side)] * (depth + (stage < len(depths) - 1))
        side = (side - 1) // 2 + 1
    return per_layer(layers)


def pvt(stage: int) -> Reader:
    """The Pyramid Vision Transformer's table of a stage, from 0 to 3, which has a row for a class
    token in the last.
    """

    def read(config: Fields) -> Encoding:
        config.check("num_encoder_blocks", 4)
        height, width = config.sizes("image_size", 224)
        patch = config.sizes("patch_sizes", (4, 2, 2, 2), 4)[stage]
        shrunk = 2 ** (stage + 1) if stage else 1
        rows, columns = height // shrunk // patch, width // shrunk // patch
        return make("learned_grid", rows=rows, columns=columns, prefix=int(stage == 3))

    return Reader(read)


def _sam2_hiera(config: Fields) -> Encoding:
    """Hiera's table of a small grid that is resized, and one of a window that is repeated."""
    image = config.sizes("image_size", 1024)
    stride = config.sizes("patch_stride", 4)
    rows, columns = (size // step for size, step in zip(image, stride, strict=True))
    read = {"image_rows": rows, "image_columns": columns}
    name = "window_positional_embedding_background_size"
    table_rows, table_columns = config.sizes(name, (7, 7))
    window = config.sizes("window_size_per_stage", (8, 4, 14, 7), 4)[0]
    for size in (rows, columns):
        if size % window:
            reason = f"{window} does not divide a picture of {rows} x {columns} patches"
            raise FieldError((*config.path, "window_size_per_stage"), reason)
    whole_picture = make("learned_grid", rows=table_rows, columns=table_columns, **read)
    return chain(
        whole_picture,
        make("learned_grid", rows=window, columns=window, resize="tiles", **read),
    )


def _radio(config: Fields) -> Encoding:
    """RADIO's table of the largest picture, resized to a square of the picture's longer side, of
    which a picture that is not square reads a part; tokens before the patches have no position.
    """
    patch = config.side("patch_size", 16)
    side = config.get("max_img_size", default=2048) // patch
    longer = max(config.sizes("image_size", 224)) // patch
    read = {"image_rows": longer, "image_columns": longer} if longer != side else {}
    return make("learned_grid", rows=side, columns=side, resize="bilinear", **read)


def _yolos(config: Fields) -> Encoding:
    """YOLOS's table, whose rows of detection tokens stand before those of patches here."""
    rows, columns = patches_of(config, (512, 864), 16)
    prefix = 1 + config.get("num_detection_tokens", default=100)
    return make("learned_grid", rows=rows, columns=columns, prefix=prefix)


BEIT, DAB_DETR, HY_V4, LEVIT = map(Reader, (_beit, _dab_detr, _hy_v4, _levit))
MIDDLES = Reader(
    lambda config: of_middles(make("sinusoidal_2d", pairing="interleaved", normalized=True))
)
RADIO = Reader(_radio)
SAM2_HIERA, YOLOS = map(Reader, (_sam2_hiera, _yolos))
