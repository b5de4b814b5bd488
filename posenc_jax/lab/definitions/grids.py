"""Definitions of the methods in `posenc_jax.encodings.grids`."""

import math

import numpy as np

from posenc_jax.lab.definitions.shared import embeds_by


def _kernel(resize, apart):
    """The weight of an entry of a table at a distance, counted in entries."""
    if not resize.startswith("bicubic"):
        return max(1 - apart, 0.0)
    a = -0.75 if resize == "bicubic" else -0.5
    if apart < 1:
        return (a + 2) * apart**3 - (a + 3) * apart**2 + 1
    return a * (apart**3 - 5 * apart**2 + 8 * apart - 4) if apart < 2 else 0.0


def _entries(resize, point, size, entries):
    """(entry, weight) of a table of `entries` at a whole point of a line of `size` points."""
    if size == entries:
        return [(point, 1.0)]
    if resize == "nearest":
        return [(math.floor(point * entries / size), 1.0)]
    if resize == "tiles":
        return [(point % entries, 1.0)]
    place = (2 * point + 1) * entries / (2 * size) - 0.5
    if resize == "corners":
        place = point * (entries - 1) / (size - 1) if size > 1 else 0.0
    if resize.endswith("antialiased"):
        reach = max(entries / size, 1.0)
        weights = [_kernel(resize, abs(e - place) / reach) for e in range(entries)]
        return [(e, weight / sum(weights)) for e, weight in enumerate(weights)]
    if resize == "bilinear":
        place = max(place, 0.0)
    near = range(math.floor(place) - 1, math.floor(place) + 3)
    if resize == "zeros":
        return [(e, _kernel(resize, abs(e - place))) for e in near if 0 <= e < entries]
    return [(min(max(e, 0), entries - 1), _kernel(resize, abs(e - place))) for e in near]


def _ends(t, size, beyond):
    """(whole point, share) of the points around t; none for a position that is refused."""
    if beyond == "error" and not 0 <= t < size:
        return [(0, math.nan)]
    t = min(max(t, 0), size - 1)
    low = math.floor(t)
    return [(low, 1 - (t - low)), (min(low + 1, size - 1), t - low)]


def _patch_code(o, params, pos_T2, n, width):
    """The code of `learned_grid`, one patch at a time."""
    table = params["table"]
    sizes = (o.image_rows or o.rows, o.image_columns or o.columns), (o.rows, o.columns)
    same = sizes[0] == sizes[1]

    def patch(row, column):
        rows, columns = (
            [(at, 1.0)] if same else _entries(o.resize, at, size, entries)
            for at, size, entries in zip((row, column), *sizes, strict=True)
        )
        return sum(a * b * table[o.prefix + r * o.columns + c] for r, a in rows for c, b in columns)

    def code(row, column):
        if o.prefix and row == -1:
            ends = _ends(column, o.prefix, o.beyond)
            return sum(share * table[entry] for entry, share in ends)
        row_ends = _ends(row, sizes[0][0], o.beyond)
        column_ends = _ends(column, sizes[0][1], o.beyond)
        return sum(a * b * patch(r, c) for r, a in row_ends for c, b in column_ends)

    return np.array([code(*at) for at in pos_T2])


EMBEDS = {"learned_grid": embeds_by(_patch_code)}
