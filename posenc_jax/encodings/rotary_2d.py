"""Rotary methods for images: positions are (row, column), [B, T, 2]."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding, each_layer
from posenc_jax.encodings import rotation
from posenc_jax.encodings.card import method
from posenc_jax.encodings.checks import positive, with_axes
from posenc_jax.encodings.rotation import Pairing, Turn
from posenc_jax.options import FieldError


def split_axes(pos_BTA: jax.Array, axes: int) -> list[jax.Array]:
    """Positions [B, T, axes] as one [B, T] for each axis. FieldError: another shape."""
    return [with_axes(pos_BTA, axes)[..., a] for a in range(axes)]


def angles_by_axis(pos_A: Sequence[jax.Array], freq_F: np.ndarray, axis_F: np.ndarray) -> jax.Array:
    """Angles [B, T, 1, F]: pair f turns by position axis_F[f] of those given, each [B, T]."""
    rows_A = [np.flatnonzero(axis_F == a) for a in range(len(pos_A))]
    found = [rotation.angles(pos_A[a], freq_F[rows_F][None]) for a, rows_F in enumerate(rows_A)]
    return jnp.concatenate(found, axis=-1)[..., np.argsort(np.concatenate(rows_A))]


def turns_2d(pos_BTA: jax.Array, freq_AHF: jax.Array) -> Turn:
    """The table of angles row * frequency + column * frequency, [B, T, H, F]."""
    pairs = zip(split_axes(pos_BTA, 2), freq_AHF, strict=True)
    row, column = (rotation.angles(pos_BT, freq_HF.astype(float)) for pos_BT, freq_HF in pairs)
    return rotation.turns(row + column)


def _axial_scores(o, params, q, k, pos, n):
    theta = rotation.powers(o.base, q.shape[-1] // 2)
    angle_QKHF = np.concatenate([rotation.offsets(p) * theta for p in pos.T], axis=-1)
    return rotation.turned_scores(q, k, angle_QKHF, o.pairing)


def _check_quarters(head: int) -> None:
    if head < 4 or head % 4:
        raise FieldError("head", f"{head} channels; two axes of pairs need a width that 4 divides")


@method(
    kind="rotary",
    formula="as rope: the first C/4 pairs turn by the row, the others by the column, base^(-4k/C)",
    paper="Heo et al. 2024, arXiv 2403.13298",
    axes=2,
    scores=_axial_scores,
    reference="timm, transformers",
)
def axial(base: float = 100.0, pairing: Pairing = "half") -> Encoding:
    """Two-dimensional rotary: half of the pairs turn by the row, half by the column.

    Positions are [B, T, 2], (row, column). The paper's formula alternates rows and columns; its
    code, and this method, put all pairs of the row first. Base 100 is that of the code, for images
    of dozens of patches a side.

    FieldError: base not positive, an unknown pairing; later, a width of a head that 4 does not
    divide, positions of another shape.
    """
    positive(base=base)

    def frequencies(head):
        _check_quarters(head)
        return np.tile(rotation.ladder(head // 2, base), 2)

    def table(params, pos_BTA, dims):
        freq_F, axis_F = frequencies(dims.head), np.repeat((0, 1), dims.head // 4)
        return rotation.turns(angles_by_axis(split_axes(pos_BTA, 2), freq_F, axis_F))

    return rotation.rotary(frequencies, pairing, table)


def crossed(key: jax.Array, heads: int, head: int, base: float) -> jax.Array:
    """First frequencies of `mixed`, [2, H, F] by row and by column: a random cross for each head.

    Pairs k and C/4 + k of a head turn along two directions at a right angle, at base^(-4k/C).
    FieldError: 4 does not divide the width of the head.
    """
    _check_quarters(head)
    tilt_H1 = jax.random.uniform(key, (heads, 1), float, 0, 2 * np.pi)
    size_1K = jnp.asarray(rotation.ladder(head // 2, base)[None], float)
    along = lambda wave: jnp.concatenate(
        [size_1K * wave(tilt_H1), size_1K * wave(tilt_H1 + np.pi / 2)], axis=-1
    )
    return jnp.stack([along(jnp.sin), along(jnp.cos)])


def _mixed_scores(o, params, q, k, pos, n):
    row_HF, column_HF = np.asarray(params["freq_AHF"], np.float64)
    angle_QKHF = rotation.offsets(pos[:, 0]) * row_HF + rotation.offsets(pos[:, 1]) * column_HF
    return rotation.turned_scores(q, k, angle_QKHF, o.pairing)


@method(
    kind="rotary",
    formula="each pair turns by row f + column g, its f and g learned for each head and layer",
    paper="Heo et al. 2024 (RoPE-Mixed), arXiv 2403.13298",
    axes=2,
    scores=_mixed_scores,
    reference="timm",
)
def mixed(base: float = 10.0, pairing: Pairing = "half") -> Encoding:
    """Two-dimensional rotary with learned frequencies, so that pairs can turn along diagonals.

    Positions are [B, T, 2], (row, column). Each layer has parameters freq_AHF [2, H, F], in radians
    per row and per column. They start as in the authors' code: of size base^(-4k/C) with base 10,
    along two directions at a right angle, which are turned by a random angle for each head.

    FieldError: base not positive, an unknown pairing; later, a width of a head that 4 does not
    divide, positions of another shape.
    """
    positive(base=base)
    frequencies = lambda head: rotation.ladder(head, base)

    def init(key, dims):
        return {"freq_AHF": crossed(key, dims.heads, dims.head, base)}

    def table(params, pos_BTA, dims):
        return turns_2d(pos_BTA, params["freq_AHF"])

    return each_layer(rotation.rotary(frequencies, pairing, table, init=init))
