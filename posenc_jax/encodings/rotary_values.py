"""Rotary methods that turn values too, so that a query reads them as they look from its place."""

import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.card import Count, method
from posenc_jax.encodings.rotary_axes import angles_by_axis, check_quarters, split_axes
from posenc_jax.encodings.rotation import TURN, Pairing, check_width, ladder, rotary, turn, turns
from posenc_jax.options import FieldError
from posenc_jax.tuning import each_times


@method(
    kind="rotary",
    formula="q, k and v turn by 2 pi t / size 2^(n - N), n = 1 .. N, of row and column; "
    "a query's output turns back",
    paper="Miyato et al. 2024 (GTA), arXiv 2310.10375",
    axes=2,
    example={"size": 6},
)
def gta(size: Count = 16, pairing: Pairing = "interleaved") -> Encoding:
    """Geometric transform attention for pictures: values turn too, relative to the query.

    Positions are [B, T, 2], (row, column). A query reads keys and values as they look from its own
    place. This is the paper's SO(2) part; for cameras see `prope`.

    Args:
      size: patches along a side of an image; the fastest pairs make one turn over it.
      pairing: as in `rope`; the authors' code pairs "interleaved".

    FieldError, later: a width of a head that 4 does not divide.
    """

    def frequencies(head):
        check_quarters(head)
        count = head // 4
        return np.repeat(TURN / size * 2.0 ** (np.arange(1, count + 1) - count), 2)

    def table(params, pos_BTA, dims):
        axis_F = np.tile((0, 1), dims.head // 4)
        return turns(angles_by_axis(split_axes(pos_BTA, 2), frequencies(dims.head), axis_F))

    return rotary(pairing, table, frequencies, turns_values=True)


def projection(intrinsics, world_to_camera, size: tuple[int, int]) -> np.ndarray:
    """Cameras' matrices [..., 4, 4] from the world to the image, in whole images from its middle.

    intrinsics [..., 3, 3] and size (width, height) are in pixels; world_to_camera is [..., 4, 4].
    """
    norm = np.array([[1 / size[0], 0, -0.5], [0, 1 / size[1], -0.5], [0, 0, 1]])
    world_to_camera = np.asarray(world_to_camera, np.float64)
    top = norm @ intrinsics @ world_to_camera[..., :3, :]
    return np.concatenate([top, world_to_camera[..., 3:, :]], axis=-2)


@method(
    kind="rotary",
    formula="q^T M k / sqrt(C), and M v for values, M = diag(P(i) P(j)^-1, .., R(x_i - x_j), "
    "R(y_i - y_j)), P the token's camera",
    paper="Li et al. 2025 (PRoPE), arXiv 2507.10496",
    axes=18,
)
def prope() -> Encoding:
    """Projective encoding of cameras: q, k, v and outputs turn by the projections of their images.

    Positions are [B, T, 18]: a token's `projection`, row by row, then its patch's row y and column
    x. The first half of a head is blocks of 4 channels, each times P^T for queries, P^-1 for keys
    and values, and P for outputs. One quarter turns by x and the last one by y, its pairs
    (n, n + C/8) at frequencies 100^(-8n/C), as in the authors' code. Without intrinsics P is
    `world_to_camera`, which is GTA's SE(3) part. Padding may have any numbers.

    FieldError, later: positions of another shape; a width of a head that 8 does not divide.
    """

    def frequencies(head):
        if head % 8:
            raise FieldError("head", f"{head} channels; cameras need a width that 8 divides")
        return -np.tile(ladder(head // 4, 100.0), 2)  # the authors turn the other way than rope

    def place(key, layout):
        if layout.pos_BT.shape[2:] != (18,):
            named = "[B, T, 18], (the 16 entries of a projection, row, column)"
            raise FieldError("positions", f"shape {layout.pos_BT.shape} is not {named}")
        nowhere_A = jnp.asarray([*np.eye(4).flat, 0, 0], float)
        return jnp.where(layout.segment_BT[..., None] > 0, layout.pos_BT.astype(float), nowhere_A)

    def table(params, pos_BTA, dims):
        freq_F, axis_F = frequencies(dims.head), np.repeat((1, 0), dims.head // 8)
        patch = turns(angles_by_axis([pos_BTA[..., 16], pos_BTA[..., 17]], freq_F, axis_F))
        p_BT11UV = pos_BTA[..., :16].reshape(*pos_BTA.shape[:2], 1, 1, 4, 4)
        back = jnp.linalg.inv(p_BT11UV)
        return {"q": p_BT11UV.mT, "k": back, "v": back, "o": p_BT11UV, "patch": patch}

    def rotate(table, x_BTHC, side):
        check_width(table["patch"], len(frequencies(x_BTHC.shape[-1])), "pairs")
        seen_BTHC, at_BTHC = jnp.split(x_BTHC, 2, axis=-1)
        cut_BTHGV = seen_BTHC.reshape(*seen_BTHC.shape[:3], -1, 4).astype(table[side].dtype)
        seen_BTHC = each_times(table[side], cut_BTHGV).reshape(seen_BTHC.shape)
        patch = table["patch"]._replace(sin=table["patch"].sin * (-1 if side == "o" else 1))
        # A quarter's pairs lie inside it; those of `turn` span both quarters.
        swap = lambda x: x.reshape(*x.shape[:-1], 2, 2, -1).swapaxes(-3, -2).reshape(x.shape)
        at_BTHC = swap(turn(patch, swap(at_BTHC), "half"))
        return jnp.concatenate([seen_BTHC.astype(x_BTHC.dtype), at_BTHC], axis=-1)

    return rotary("half", table, frequencies, place=place, rotate=rotate, turns_values=True)
