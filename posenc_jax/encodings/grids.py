"""Learned tables of the patches of a picture, as of vision transformers: a row for each patch.

Positions are (row, column), [B, T, 2], counted in patches. A table made for one number of patches
is resized to another, as PyTorch's `interpolate` resizes it.
"""

from typing import Literal

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings import input_codes as codes
from posenc_jax.encodings.card import ANYWHERE, Count, Edge, Range, Whole, register
from posenc_jax.encodings.input_codes import How

Resize = Literal[
    "bicubic", "bilinear", "zeros", "corners", "nearest", "tiles", "bicubic_antialiased",
    "bilinear_antialiased",
]  # fmt: skip
CUBIC, CUBIC_ANTIALIASED = -0.75, -0.5  # the parameters of PyTorch's cubic kernels


def resizing(size: int, entries: int, resize: Resize, excess: float = 0.0) -> np.ndarray:
    """The weights of `entries` points of a line at each of `size` points, float64 [size, entries].

    Points are middles of equal parts of the line, and an end's point stands for those past it, or
    with "zeros" nothing does; with "corners" the first and the last points of both lie at its ends.
    Antialiased, a point of a smaller line is a mean over all that it stands for. "tiles" repeats
    the entries.

    excess: points that the line is longer than `size`, but for "tiles", "corners", "nearest" and
      antialiased.
    """
    if resize == "tiles":
        return np.eye(entries)[np.arange(size) % entries]
    place_S = (np.arange(size) + 0.5) * entries / (size + excess) - 0.5
    if resize == "corners":
        place_S = np.arange(size) * (entries - 1) / max(size - 1, 1)
    if resize.endswith("antialiased"):
        width = max(entries / size, 1.0)
        apart_SE = np.abs(np.arange(entries) - place_S[:, None]) / width
        weight_SE = np.maximum(1 - apart_SE, 0)
        if resize.startswith("bicubic"):
            weight_SE = _cubic(apart_SE, CUBIC_ANTIALIASED)
        return weight_SE / weight_SE.sum(axis=1, keepdims=True)
    if resize == "nearest":
        return np.eye(entries)[np.arange(size) * entries // size]
    if resize == "bilinear":
        place_S = np.maximum(place_S, 0)
    low_S = np.floor(place_S).astype(int)
    weight_SE = np.zeros((size, entries))
    for step in (-1, 0, 1, 2) if resize == "bicubic" else (0, 1):
        apart_S = np.abs(place_S - low_S - step)
        share_S = _cubic(apart_S, CUBIC) if resize == "bicubic" else 1 - apart_S
        entry_S = np.clip(low_S + step, 0, entries - 1)
        share_S = share_S * (entry_S == low_S + step) if resize == "zeros" else share_S
        np.add.at(weight_SE, (np.arange(size), entry_S), share_S)
    return weight_SE


def _cubic(apart: np.ndarray, a: float) -> np.ndarray:
    """The cubic kernel with parameter a at these distances (Keys 1981)."""
    near = ((a + 2) * apart - (a + 3)) * apart**2 + 1
    far = ((a * apart - 5 * a) * apart + 8 * a) * apart - 4 * a
    return np.where(apart <= 1, near, np.where(apart < 2, far, 0.0))


def _reads(o, n) -> Range:
    sizes = o.image_rows or o.rows, o.image_columns or o.columns
    return ANYWHERE if o.beyond == "clamp" else Range(0, min(sizes))


@register(
    kind="input",
    formula="c(row, column) = E[prefix + row columns + column]; of a picture of another size "
    "sum_rc a_row(r) b_column(c) E[prefix + r columns + c], a and b the weights of resizing",
    paper="Dosovitskiy et al. 2020 (ViT), arXiv 2010.11929",
    axes=2,
    beyond="option",
    reads=_reads,
)
def learned_grid(
    rows: Count = 14,
    columns: Count = 14,
    prefix: Whole = 0,
    image_rows: Count | None = None,
    image_columns: Count | None = None,
    resize: Resize = "bicubic",
    beyond: Edge = "error",
    how: How = "add",
    width: Count | None = None,
) -> Encoding:
    """A learned vector for each patch of a picture, and for tokens before them.

    Positions are (row, column) of a patch; (-1, n) is the n-th token of the prefix, such as a class
    token. Between patches the code is linear along rows and columns.

    Args:
      rows, columns: patches of the pictures that the table was made for.
      prefix: rows of the table before those of patches.
      image_rows, image_columns: patches of the pictures that are read; None: those of the table.
        The table is resized to them; its prefix is not.
      resize: how, as PyTorch does: "bicubic" (ViT, CLIP, DINOv2) or "bilinear" by the middles of
        patches, "zeros", bilinear with zeros around the table (Muse Spark), "corners", bilinear by
        the middles of the corner patches (Qwen3-VL), "nearest" (Idefics 2), "tiles", where the
        table is repeated (SAM 3), or antialiased (SigLIP 2), where a patch of a smaller picture
        reads all that it stands for.
    """
    sizes = image_rows or rows, image_columns or columns
    resized = sizes != (rows, columns)

    def init(key, width):
        return {"table": codes.normal(key, (prefix + rows * columns, width))}

    def code(params, pos_BT2, width):
        table_RCW = params["table"][prefix:].reshape(rows, columns, width)
        if resized:
            pairs = zip(sizes, (rows, columns), strict=True)
            weights = (jnp.asarray(resizing(*pair, resize), float) for pair in pairs)
            table_RCW = jnp.einsum(
                "ar,bc,rcw->abw", *weights, table_RCW.astype(float), precision="highest"
            )
        row_BT, column_BT = pos_BT2[..., 0], pos_BT2[..., 1]

        def of_row(row_BT):
            read = lambda i: table_RCW[row_BT, i]
            return codes.read(read, column_BT, sizes[1], beyond)

        code_BTW = codes.read(of_row, row_BT, sizes[0], beyond)
        if not prefix:
            return code_BTW
        before_BTW = codes.read(lambda i: params["table"][i], column_BT, prefix, beyond)
        return jnp.where((row_BT == -1)[..., None], before_BTW, code_BTW)

    return codes.coded(how, width, code, init, axes=2)
