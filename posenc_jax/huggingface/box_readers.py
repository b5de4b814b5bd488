"""Models of documents, whose tokens have boxes on a page."""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp

from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings import make
from posenc_jax.huggingface.fields import Fields
from posenc_jax.huggingface.own_readers import from_row, inside_scale
from posenc_jax.huggingface.picture_readers import on_axes
from posenc_jax.huggingface.rows import Reader
from posenc_jax.options import FieldError
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


LAYOUTLM = Reader(_layoutlm)
LAYOUTLM_2, LAYOUTLM_3 = (Reader(partial(_layoutlm_buckets, version=v)) for v in (2, 3))
