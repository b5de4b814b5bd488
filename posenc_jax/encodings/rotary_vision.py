"""Further rotary methods of vision models; the plain ones are in `rotary_axes`.

`gta` and `prope` turn values too, so that a query reads them as they look from its place.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.backends.matrix_rotation import each_times
from posenc_jax.encoding import Encoding
from posenc_jax.encodings import rotary_axes, rotation
from posenc_jax.encodings.card import Count, Factor, Positive, Whole, register, require, three
from posenc_jax.encodings.positions_augmented import per_token, sequence_keys
from posenc_jax.encodings.rotation import TURN, Pairing, Turn
from posenc_jax.heads import by_head, tell_heads
from posenc_jax.options import FieldError


@register(
    kind="rotary",
    formula="q, k and v turn by 2 pi t / size 2^(n - N), n = 1 .. N, of row and column; "
    "a query's output turns back",
    paper="Miyato et al. 2024 (GTA), arXiv 2310.10375",
    axes=2,
)
def gta(size: Count = 16, pairing: Pairing = "interleaved") -> Encoding:
    """Geometric transform attention for pictures: values turn too, relative to the query.

    Positions are [B, T, 2], (row, column). A query reads keys and values as they look from its own
    place. This is the paper's SO(2) part; for cameras see `prope`.

    Args:
      size: patches along a side of an image; the fastest pairs make one turn over it.
      pairing: as in `rope`; the authors' code pairs "interleaved".
    """

    def frequencies(head):
        rotary_axes.check_quarters(head)
        count = head // 4
        return np.repeat(TURN / size * 2.0 ** (np.arange(1, count + 1) - count), 2)

    def table(params, pos_BTA, dims):
        pos_A, axis_F = rotary_axes.split_axes(pos_BTA, 2), np.tile((0, 1), dims.head // 4)
        return rotary_axes.turns_by_axis(pos_A, frequencies(dims.head), axis_F)

    return rotation.rotary(pairing, table, frequencies, turns_values=True)


def projection(intrinsics, world_to_camera, size: tuple[int, int]) -> np.ndarray:
    """The matrices [..., 4, 4] of cameras from the world to the image, in units of the image, from
    its middle.

    intrinsics [..., 3, 3] and size (width, height) are in pixels; world_to_camera is [..., 4, 4].
    """
    norm = np.array([[1 / size[0], 0, -0.5], [0, 1 / size[1], -0.5], [0, 0, 1]])
    world_to_camera = np.asarray(world_to_camera, np.float64)
    top = norm @ intrinsics @ world_to_camera[..., :3, :]
    return np.concatenate([top, world_to_camera[..., 3:, :]], axis=-2)


def inverse(m_BT11UV: jax.Array) -> jax.Array:
    """The inverse of 4 x 4 matrices, by cross products of their columns (Lengyel 2016).

    It is as exact as `jnp.linalg.inv`, which factors them: a TPU pads rows to 128 numbers for that.
    """
    a, b, c, d = (m_BT11UV[..., :3, n] for n in range(4))
    x, y, z, w = (m_BT11UV[..., 3, n, None] for n in range(4))
    dot = lambda a, b: (a * b).sum(axis=-1, keepdims=True)
    s, t, u, v = jnp.cross(a, b), jnp.cross(c, d), y * a - x * b, w * c - z * d
    rows = (
        (jnp.cross(b, v) + y * t, -dot(b, t)),
        (jnp.cross(v, a) - x * t, dot(a, t)),
        (jnp.cross(d, u) + w * s, -dot(d, s)),
        (jnp.cross(u, c) - z * s, dot(c, s)),
    )
    adjugate = jnp.stack([jnp.concatenate(row, axis=-1) for row in rows], axis=-2)
    return adjugate / (dot(s, v) + dot(t, u))[..., None]


@register(
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
        # The authors turn the other way than rope.
        return -np.tile(rotation.ladder(head // 4, 100.0), 2)

    def place(key, layout):
        if layout.pos_BT.shape[2:] != (18,):
            named = "[B, T, 18], (the 16 entries of a projection, row, column)"
            raise FieldError("positions", f"shape {layout.pos_BT.shape} is not {named}")
        nowhere_A = jnp.asarray([*np.eye(4).flat, 0, 0], float)
        return jnp.where(layout.segment_BT[..., None] > 0, layout.pos_BT.astype(float), nowhere_A)

    def table(params, pos_BTA, dims):
        freq_F, axis_F = frequencies(dims.head), np.repeat((1, 0), dims.head // 8)
        patch = rotary_axes.turns_by_axis([pos_BTA[..., 16], pos_BTA[..., 17]], freq_F, axis_F)
        p_BT11UV = pos_BTA[..., :16].reshape(*pos_BTA.shape[:2], 1, 1, 4, 4)
        back = inverse(p_BT11UV)
        return {"q": p_BT11UV.mT, "k": back, "v": back, "o": p_BT11UV, "patch": patch}

    def rotate(table, x_BTHC, side):
        rotation.check_width(table["patch"], len(frequencies(x_BTHC.shape[-1])), "pairs")
        seen_BTHC, at_BTHC = jnp.split(x_BTHC, 2, axis=-1)
        patch = table["patch"]._replace(sin=table["patch"].sin * (-1 if side == "o" else 1))
        # A quarter's pairs lie inside it; those of `turn` span both quarters.
        swap = lambda x: x.reshape(*x.shape[:-1], 2, 2, -1).swapaxes(-3, -2).reshape(x.shape)
        at_BTHC = swap(rotation.turn(patch, swap(at_BTHC), "half"))
        return jnp.concatenate([each_times(table[side], seen_BTHC), at_BTHC], axis=-1)

    hooks = {"place": place, "rotate": rotate, "turns_values": True}
    return rotation.rotary("half", table, frequencies, **hooks)


@register(
    kind="rotary",
    formula="as axial, at 2 pi times the patch's centre x in [-1, 1]; in training s m x, "
    "|ln m| <= ln jitter for each axis, |ln s| <= ln rescale",
    paper="Simeoni et al. 2025 (DINOv3), arXiv 2508.10104 and its released code",
    axes=2,
)
def dinov3(
    rows: Count = 14,
    columns: Count = 14,
    base: Positive = 100.0,
    pairing: Pairing = "half",
    jitter: Factor = 1.0,
    rescale: Factor = 2.0,
) -> Encoding:
    """DINOv3's rotary: an image goes from -1 to 1 along each axis, whatever its number of patches.

    Positions are [B, T, 2], (row, column), counted in patches. A token of the whole image, which
    DINOv3 does not turn, stands in its middle, ((rows - 1) / 2, (columns - 1) / 2). In training
    coordinates are stretched, each axis by its own m, and both by s; these are drawn for each
    image, their logarithms uniformly. The released code draws once for a batch. It can also shift
    all patches of an image, which changes no score among them and is left out.

    Args:
      rows, columns: patches of an image. Weights of one size serve all.
      jitter, rescale: the largest m and s; 1 for none. The defaults are Hugging Face's.
    """
    sizes = rows, columns

    def frequencies(head):
        rotary_axes.check_quarters(head)
        return np.tile(TURN * rotation.ladder(head // 2, base), 2)

    def place(key, layout):
        pos_A = rotary_axes.split_axes(layout.pos_BT, 2)
        if key is None:
            return pos_A, None
        uniform = lambda k: jax.random.uniform(k, (), float, -1.0, 1.0)
        stretch = lambda k, most: jnp.exp(
            np.log(most) * per_token(uniform, sequence_keys(k, layout))
        )
        *axis_keys, both = jax.random.split(key, 3)
        centre = lambda pos_BT, size: (2 * pos_BT.astype(float) + 1) / size - 1
        drawn = zip(pos_A, sizes, axis_keys, strict=True)
        moved_A = [stretch(k, jitter) * centre(pos_BT, size) for pos_BT, size, k in drawn]
        return pos_A, [stretch(both, rescale) * moved_BT for moved_BT in moved_A]

    def table(params, placed, dims):
        pos_A, moved_A = placed
        freq_F, axis_F = frequencies(dims.head), rotary_axes.axis_of_halves(dims.head // 2)
        if moved_A is not None:
            return rotary_axes.turns_by_axis(moved_A, freq_F, axis_F)
        size_F = np.array(sizes)[axis_F]
        freq_F, first_F = 2 / size_F * freq_F, (1 / size_F - 1) * freq_F
        angle = rotary_axes.angles_by_axis(pos_A, freq_F, axis_F)  # exact for whole positions
        return rotation.turns(angle + first_F[None, None, None].astype(angle.dtype))

    return rotation.rotary(pairing, table, frequencies, place=place)


@register(
    kind="rotary",
    formula="pairs d, d + K, .. of a half turn by row cos(90 d / K) + column sin(90 d / K), of the "
    "other by column cos - row sin, at base^(-2k/R), R = C / 2K",
    paper="Liu et al. 2026 (Spiral RoPE), arXiv 2602.03227, and its public code",
    axes=2,
)
def spiral(directions: Count = 2, base: Positive = 10_000.0, pairing: Pairing = "half") -> Encoding:
    """Spiral RoPE: groups of pairs turn by the projection on one of several directions.

    Positions are [B, T, 2], (row, column). The first half of the pairs has K directions between
    that of rows, included, and that of columns; the other half those at a right angle to them. With
    K = 1 it is `axial`. The authors' code turns the map of a picture's angles by reading it between
    its patches, which differs near the edges, where it reads the patch at the edge; this is the
    projection of the paper. In the code two neighbouring pairs have one direction, here one pair.

    Args:
      directions: K; a right angle has as many.

    FieldError, later: a width of a head that 4 K does not divide.
    """

    def frequencies(head):
        rule = f"directions need a head of a multiple of {4 * directions} channels, not {head}"
        require(head % (4 * directions) == 0, "directions", directions, rule)
        return np.tile(np.repeat(rotation.ladder(head // (2 * directions), base), directions), 2)

    def table(params, pos_BTA, dims):
        freq_F = frequencies(dims.head)
        tilt_F = np.arange(len(freq_F) // 2) % directions * np.pi / 2 / directions
        along_row = np.concatenate([np.cos(tilt_F), -np.sin(tilt_F)])
        along_column = np.concatenate([np.sin(tilt_F), np.cos(tilt_F)])
        row_BT, column_BT = rotary_axes.split_axes(pos_BTA, 2)
        row_angle = rotation.angles(row_BT, (freq_F * along_row)[None])
        return rotation.turns(row_angle + rotation.angles(column_BT, (freq_F * along_column)[None]))

    return rotation.rotary(pairing, table, frequencies)


@register(
    kind="rotary",
    formula="as rope, a head turning by time, height or width",
    paper="Huang et al. 2025, arXiv 2510.23095",
    axes=3,
)
def mhrope(
    base: Positive = 1_000_000.0, pairing: Pairing = "half", heads: tuple[int, ...] = ()
) -> Encoding:
    """Multi-Head RoPE: each head turns by one axis, with all frequencies of rope.

    Positions are [B, T, 3], (time, row, column). The paper makes them with rows and columns that
    begin at 0 in each image, `multimodal_ids.ids(parts, reset=True)`.

    Args:
      heads: numbers of heads for time, height and width, in this order; heads that are left over do
        not turn. () for shares of 2:3:3.

    FieldError: heads that are not three numbers; later, more heads than the model has.
    """
    three("heads", heads, unit="heads")

    def table(params, placed, dims):
        return by_head(partial(all_heads, placed), params, dims, axis=2)

    def all_heads(placed, dims):
        number_A = heads or rotary_axes.shares(dims.heads)
        unturned = dims.heads - sum(number_A)
        require(unturned >= 0, "heads", heads, f"are more than the model's {dims.heads}")
        freq_1F = rotation.ladder(dims.head, base)[None]
        turned = [rotation.turns(rotation.angles(pos_BT, freq_1F)) for pos_BT in placed]
        still = jnp.zeros_like(turned[0].cos)
        turned.append(Turn(still + 1, still))
        numbers = *number_A, unturned

        def repeat_heads(waves):  # each axis has its cosines, which its heads share
            return jnp.concatenate([*map(partial(jnp.repeat, axis=2), waves, numbers)], axis=2)

        return Turn(*map(repeat_heads, zip(*turned, strict=True)))

    return rotation.rotary(pairing, table, place=rotary_axes.split_three, of_heads=tell_heads)


@register(
    kind="rotary",
    formula="as rope, the slowest pairs turning by time, the others by height and width in turn",
    paper="Wei et al. 2025 (VideoRoPE), arXiv 2502.05173",
    axes=3,
)
def video_rope(
    base: Positive = 1_000_000.0,
    pairing: Pairing = "half",
    time: Whole | None = None,
    time_turns: bool = True,
) -> Encoding:
    """VideoRoPE: time turns the slowest pairs, so that far frames are told apart without repeats.

    Positions are [B, T, 3], (time, row, column). The paper places frames on a diagonal,
    `multimodal_ids.diagonal_ids`. `mrope` gives time the fastest pairs instead.

    Args:
      time: pairs for time; None: a quarter of them. Of the others, even ones turn by the row.
      time_turns: False: the pairs of time do not turn, and match content at any distance (HoPE, Li
        et al. 2025, arXiv 2505.20444). HoPE scales the distance between frames, by .5 to 1.5 drawn
        in training, which is `diagonal_ids(stride=)`.

    FieldError, later: more pairs than a head has.
    """

    def pair_axes(pairs):
        space = pairs - (max(pairs // 4, 1) if time is None else time)
        require(space >= 0, "time", time, f"is more than the {pairs} pairs of a head")
        pair_F = np.arange(pairs)
        return np.where(pair_F < space, 1 + pair_F % 2, 0)

    encoding = rotary_axes.pairs_by_axis(pair_axes, base, pairing)
    if time_turns:
        return encoding
    # At one moment for all tokens, pairs of time turn nothing.
    of_space = lambda key, at: (0 * at.pos_BT[..., 0], *rotary_axes.split_three(key, at)[1:])
    return encoding._replace(place=of_space)
