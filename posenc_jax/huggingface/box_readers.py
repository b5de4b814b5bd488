"""Models of documents, whose tokens have boxes on a page."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding, Walk
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings import make
from posenc_jax.encodings.bias import offsets
from posenc_jax.encodings.rotation import angles, ladder
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.own_readers import from_row, inside_scale, unscaled
from posenc_jax.huggingface.picture_readers import on_axes
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError, shown
from posenc_jax.recipes import recorded

BOX = 1, 2, 3, 4  # axes of (left, top, right, bottom), after that of the token's number


@recorded
def box_tables(length: int, widths: tuple[int, int] | None = None) -> Encoding:
    """Learned vectors of a box (left, top, right, bottom): of its four sides, which share a table
    for x and one for y, of its height and of its width.

    Args:
      length: rows of each of the four tables; LayoutLM has 1024 for pages of 0 to 1000. A box with
        a side outside of them, or with its right or bottom before its left or top, has NaN.
      widths: None: the vectors are summed (Xu et al. 2019, LayoutLM, arXiv 1912.13318). Otherwise
        the channels of each side's vector and of those of height and width, which stand beside each
        other (Xu et al. 2020, LayoutLMv2, arXiv 2012.14740).
    """
    tables = "x", "y", "height", "width"

    def init(key, width):
        side, shape = widths or (width, width)
        if widths and 4 * side + 2 * shape != width:
            reason = f"{width} channels are not the 4 * {side} + 2 * {shape} of a box's vectors"
            raise FieldError("model", reason)
        keys = zip(tables, (side, side, shape, shape), jax.random.split(key, 4), strict=True)
        return {name: codes.normal(k, (length, channels)) for name, channels, k in keys}

    def code(params, pos_BT4, width):
        left, top, right, bottom = (pos_BT4[..., n] for n in range(4))
        places = [
            ("x", left), ("y", top), ("x", right), ("y", bottom),
            ("height", bottom - top), ("width", right - left),
        ]  # fmt: skip
        rows = lambda name, at: codes.read(lambda n: params[name][n], at, length, "error")
        vectors = [rows(name, at) for name, at in places]
        return jnp.concatenate(vectors, axis=-1) if widths else sum(vectors[1:], vectors[0])

    return codes.coded("add", None, code, init, axes=4)


def _layoutlm(config: Fields) -> Encoding:
    """LayoutLM's tables of the token's number and of its box, for positions [B, T, 5]."""
    numbers = make("learned", length=config.get("max_position_embeddings", default=512))
    boxes = box_tables(config.get("max_2d_position_embeddings", default=1024))
    return chain(on_axes(numbers, 0), on_axes(boxes, BOX))


def _layoutlm_buckets(config: Fields, version: Literal[2, 3]) -> Encoding:
    """LayoutLMv2's and v3's tables, with T5's buckets of the numbers, of the left and of the bottom
    of boxes. Of version 3 buckets are divided by the root of the head's width, as products are, and
    those of boxes need those of numbers. It is for tokens of text; pictures have tables of theirs.
    """
    numbers = make("learned", length=config.get("max_position_embeddings", default=512))
    if version == 3:
        numbers = from_row(numbers, config.get("pad_token_id", default=1) + 1)
    widths = tuple(config.get(f"{name}_size", default=128) for name in ("coordinate", "shape"))
    boxes = box_tables(config.get("max_2d_position_embeddings", default=1024), widths)
    parts = [on_axes(numbers, 0), on_axes(boxes, BOX)]

    def buckets(name: str, axis: int, bins: int, most: int) -> Encoding:
        count = config.get(f"{name}_bins", default=bins)
        bias = make("t5", buckets=count, distance=config.get(f"max_{name}", default=most))
        return on_axes(inside_scale(bias) if version == 3 else bias, axis)

    of_numbers = config.get("has_relative_attention_bias", default=True)
    of_boxes = config.get("has_spatial_attention_bias", default=True)
    if of_numbers:
        parts.append(buckets("rel_pos", 0, 32, 128))
    if of_boxes and (of_numbers or version == 2):
        parts += [buckets("rel_2d_pos", axis, 64, 256) for axis in (BOX[0], BOX[3])]
    return chain(*parts)


@recorded
def side_tables(length: int) -> Encoding:
    """UDOP's learned vectors of the four sides of a box (left, top, right, bottom), summed; two
    tables, of x and of y.

    length: rows of each; the sides are shares of the page, cut to 0 .. 1, of which row
      floor((length - 1) side) is read.
    """

    def init(key, width):
        keys = zip("xy", jax.random.split(key), strict=True)
        return {name: codes.normal(k, (length, width)) for name, k in keys}

    def code(params, pos_BT4, width):
        row_BT4 = (jnp.clip(pos_BT4.astype(float), 0, 1) * (length - 1)).astype(jnp.int32)
        read = lambda name, n: params[name][row_BT4[..., n]].astype(float)
        return read("x", 0) + read("y", 1) + read("x", 2) + read("y", 3)

    return codes.coded("add", None, code, init, axes=4)


@recorded
def middle_buckets(low: int, high: int, scale: float, buckets: int, distance: int) -> Encoding:
    """T5's buckets of the distance between the middles of two boxes, rounded towards 0.

    Args:
      low, high: axes of a position with the sides whose mean is the middle.
      scale: what distances are multiplied by first; the boxes are shares of the page.
      buckets, distance: as in `t5`.
    """
    plain = make("t5", buckets=buckets, distance=distance)
    by_offset = plain.bias
    assert by_offset is not None

    def bias(params, q_placed, k_placed, dims):
        offset_BQK = jnp.trunc(offsets(q_placed, k_placed) * scale)
        # The bias of any offset is that of a query there, and of a key at 0.
        flat = by_offset(params, offset_BQK.reshape(1, -1), jnp.zeros((1, 1), float), dims)
        return jnp.moveaxis(flat.reshape(dims.heads, *offset_BQK.shape), 0, 1)

    side = lambda at, axis: at.pos_BT[..., axis].astype(float)
    middle = lambda key, at: (side(at, low) + side(at, high)) / 2
    return plain._replace(bias=bias, place=middle)


@recorded
def box_waves(scale: float) -> Encoding:
    """BROS's scores of boxes: a query times sines and cosines of where a key's corners are, seen
    from its own, through a matrix `projection` that all layers and heads share.

    Positions have the sides of a box (left, top, right, bottom) on the axes of `BOX`. The numbers
    are those of its corners, clockwise from the top left, x and y of each; a thirty-second of the
    model's channels are waves of each, half of them sines.

    scale: what the sides are multiplied by first.
    """
    corners = [BOX[n] for n in (0, 1, 2, 1, 2, 3, 0, 3)]
    waves = lambda model: ladder(model // 4 // len(corners), 10_000.0)

    def init(key, dims):
        rows = 2 * len(corners) * len(waves(dims.model))
        return {"projection": dims.head**-0.5 * jax.random.normal(key, (rows, dims.head))}

    def score(params, s_BHQK, q, k, visible_BHQK, carry):
        wide, count = s_BHQK.dtype, len(corners)
        w_NSFC = params["projection"].astype(wide)
        w_NSFC = w_NSFC.reshape(count, 2, -1, w_NSFC.shape[-1])
        of_q = jnp.einsum("bqhc,nsfc->sbhqnf", q.x_BTHC.astype(wide), w_NSFC, precision="highest")
        freq_F = 10_000.0 ** (-np.arange(w_NSFC.shape[2]) / w_NSFC.shape[2])

        def turned(pos_BT8):  # cosines and sines of each number, [B, 1, T, N, F]
            every = [angles(pos_BT8[..., n], freq_F[None])[:, :, 0] for n in range(count)]
            angle_BTNF = jnp.stack(every, axis=2)[:, None].astype(wide)
            return jnp.cos(angle_BTNF), jnp.sin(angle_BTNF)

        (cos_q, sin_q), (cos_k, sin_k) = turned(q.placed), turned(k.placed)
        by_sine, by_cosine = of_q
        dots = partial(jnp.einsum, "bhqnf,bhknf->bhqk", precision="highest")
        every_head = lambda x: jnp.broadcast_to(x, (x.shape[0], s_BHQK.shape[1], *x.shape[2:]))
        added = dots(by_sine * cos_q + by_cosine * sin_q, every_head(sin_k))
        added = added + dots(by_cosine * cos_q - by_sine * sin_q, every_head(cos_k))
        return s_BHQK + added * q.factor, carry

    sides = lambda key, at: at.pos_BT[..., corners].astype(float) * scale
    return Encoding(init=init, place=sides, walk=Walk(score=score))


def _bros(config: Fields) -> Encoding:
    """BROS's table of numbers, and its waves of boxes, for positions [B, T, 5]."""
    config.check("dim_bbox", 8)
    numbers = make("learned", length=config.get("max_position_embeddings", default=512))
    return chain(on_axes(numbers, 0), box_waves(config.get("bbox_scale", default=100.0)))


def _udop(config: Fields) -> Encoding:
    """UDOP's encoder: tables of the sides of boxes, and T5's buckets of the tokens' numbers and of
    the middles of boxes along x and along y, for positions [B, T, 5].
    """
    parts = [
        on_axes(side_tables(config.get("max_2d_position_embeddings", default=1024)), BOX),
        unscaled(),
    ]
    kinds = [{"type": kind} for kind in ("1d", "horizontal", "vertical")]
    for n, fields in enumerate(config.get("relative_bias_args", default=kinds)):
        parts.append(_udop_bias(Fields(fields, *config.path, f"relative_bias_args[{n}]")))
    return chain(*parts)


def _udop_bias(fields: Fields) -> Encoding:
    """One of the biases of UDOP's encoder."""
    kind = fields.get("type")
    sides = {"horizontal": (BOX[0], BOX[2]), "vertical": (BOX[1], BOX[3])}
    if kind not in ("1d", *sides):
        choices = ", ".join(map(repr, ("1d", *sides)))
        raise FieldError((*fields.path, "type"), f"{shown(kind)} is not one of: {choices}")
    fields.get("num_heads", "augmentation", "level")
    fields.check("bidirectional", True)
    options = {
        "buckets": fields.get("relative_attention_num_buckets", default=32),
        "distance": fields.get("max_distance", default=128 if kind == "1d" else 100),
    }
    if kind == "1d":
        return on_axes(make("t5", **options), 0)
    scale = fields.get("scaling_factor", default=100)
    return middle_buckets(*sides[kind], scale=float(scale), **options)


@recorded
def segment_buckets(segments: int, buckets: int, distance: int) -> Encoding:
    """CPM-Ant's bias: T5's buckets of the offset of two tokens of one segment, a learned number of
    the two kinds of segment otherwise.

    Positions are [B, T, 2], (number, kind of segment). The table's first rows are the buckets'.

    Args:
      segments: kinds of segments.
      buckets, distance: as in `t5`.
    """
    plain = make("t5", buckets=buckets, distance=distance)
    near = plain.bias
    assert near is not None

    def init(key, dims):
        shape = buckets + segments**2, dims.heads
        return {"table": 0.02 * jax.random.normal(key, shape)}

    def bias(params, q_placed, k_placed, dims):
        table_RH = params["table"].astype(float)
        (q_BQ, q_kind_BQ), (k_BK, k_kind_BK) = (
            (placed[..., 0], placed[..., 1]) for placed in (q_placed, k_placed)
        )
        near_BHQK = near({"table": table_RH[:buckets]}, q_BQ, k_BK, dims)
        kinds_BQK = q_kind_BQ[:, :, None] * segments + k_kind_BK[:, None]
        row_BQK = jnp.clip(kinds_BQK, 0, segments**2 - 1).astype(jnp.int32)
        apart_BHQK = jnp.moveaxis(table_RH[buckets:][row_BQK], -1, 1)
        same_BQK = q_kind_BQ[:, :, None] == k_kind_BK[:, None]
        return jnp.where(same_BQK[:, None], near_BHQK, apart_BHQK)

    return Encoding(init=init, bias=bias)


def _cpmant(config: Fields) -> Encoding:
    return segment_buckets(
        config.get("segment_types", default=32),
        config.get("position_bias_num_buckets", default=512),
        config.get("position_bias_max_distance", default=2048),
    )


BROS, CPMANT, UDOP = map(Reader, (_bros, _cpmant, _udop))
LAYOUTLM = Reader(_layoutlm)
LAYOUTLM_2, LAYOUTLM_3 = (Reader(partial(_layoutlm_buckets, version=v)) for v in (2, 3))
