"""Positions of the tokens of a vision tower: patches of pictures, and class and register tokens.

The functions run on the host, in NumPy.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from posenc_jax.options import FieldError


class Picture(NamedTuple):
    """Patches along the height and the width of a picture, or of each of the frames of a video."""

    rows: int
    columns: int
    frames: int = 1


class Tokens(NamedTuple):
    """The tokens of pictures, one after another.

    pos_T2:   (row, column) of each token, counted in patches: int32, or float32 if tokens stand in
              the middle.
    frame_T:  number of the token's frame, from 1 on. It is the `segment_BT` of a layout in which
              tokens attend within their frame.
    window_T: number of the token's window, from 1 on, for layers that attend within windows.
    """

    pos_T2: np.ndarray
    frame_T: np.ndarray
    window_T: np.ndarray


def tokens(
    pictures: Iterable[Picture | tuple[int, ...]],
    *,
    prefix: int = 0,
    prefix_at: Literal["before", "middle"] = "before",
    merge: int = 1,
    window: int = 0,
) -> Tokens:
    """The tokens of pictures, with their positions in the order in which a tower reads them.

    They are for `learned_grid`, whose options `image_rows` and `image_columns` say another size
    than that of its table, and for `axial`, `dinov3` and the other methods of (row, column).

    Args:
      pictures: (rows, columns) or (rows, columns, frames) of each.
      prefix: class and register tokens before the patches of each frame.
      prefix_at: "before": token n is at (-1, n), as `learned_grid` reads it; "middle": all are in
        the middle of the picture, where `dinov3` does not turn them.
      merge: patches along a side of a block that a tower merges into one token. Patches come block
        by block, as in Qwen2-VL, whose blocks have 2 x 2.
      window: patches along a side of a window, a multiple of `merge`; 0: none. Blocks come window
        by window, as in Qwen2.5-VL; those at the lower and right edges may be smaller.

    FieldError: a size that is not positive or that `merge` does not divide; windows with a prefix.

    Example:
      at = picture_positions.tokens([(32, 24)], merge=2)
      layout = posenc_jax.layout(at.frame_T[None], at.pos_T2[None])
    """
    _check(prefix, prefix_at, merge, window)
    positions, frames, windows, count = [], [], [], 0
    for picture in map(lambda sizes: Picture(*sizes), pictures):
        pos_P2, window_P = _patches(picture, merge, window)
        pos_P2 = np.concatenate([_prefix(picture, prefix, prefix_at), pos_P2])
        window_P = np.concatenate([np.zeros(prefix, np.int32), window_P])
        for _ in range(picture.frames):
            first = 1 + max((n.max() for n in windows[-1:]), default=0)
            count += 1
            positions.append(pos_P2)
            frames.append(np.full(len(pos_P2), count, np.int32))
            windows.append(window_P + np.int32(first))
    if not positions:
        raise FieldError("pictures", "there is none")
    return Tokens(*(np.concatenate(parts) for parts in (positions, frames, windows)))


def _check(prefix: int, prefix_at: str, merge: int, window: int) -> None:
    if prefix_at not in ("before", "middle"):
        raise FieldError("prefix_at", f"{prefix_at!r} is not one of: 'before', 'middle'")
    if prefix < 0:
        raise FieldError("prefix", f"{prefix} must be 0 or more")
    if merge < 1:
        raise FieldError("merge", f"{merge} must be 1 or more")
    if window < 0 or window % merge:
        raise FieldError("window", f"{window} is not a multiple of merge {merge}")
    if window and prefix:
        raise FieldError("prefix", f"{prefix} tokens belong to no window; give one of both")


def _patches(picture: Picture, merge: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) and the window, from 0 on, of a frame's patches, in the tower's order."""
    rows, columns, frames = picture
    if min(picture) < 1:
        raise FieldError("pictures", f"{rows} x {columns} patches, {frames} frames: not positive")
    if rows % merge or columns % merge:
        raise FieldError("pictures", f"merge {merge} does not divide {rows} x {columns} patches")
    row_P, column_P = (axis.ravel() for axis in np.indices((rows, columns), np.int32))
    side = window or max(rows, columns)
    # From the order that decides last to the one that decides first.
    order_P = np.lexsort(
        (column_P, row_P, column_P // merge, row_P // merge, column_P // side, row_P // side)
    )
    pos_P2 = np.stack([row_P, column_P], axis=-1)[order_P]
    across = -(-columns // side)
    return pos_P2, (pos_P2[:, 0] // side * across + pos_P2[:, 1] // side).astype(np.int32)


def _prefix(picture: Picture, count: int, at: str) -> np.ndarray:
    """Positions of the tokens before the patches, [count, 2]."""
    if at == "middle":
        middle = (picture.rows - 1) / 2, (picture.columns - 1) / 2
        return np.broadcast_to(np.array(middle, np.float32), (count, 2))
    return np.array([(-1, n) for n in range(count)], np.int32).reshape(count, 2)
