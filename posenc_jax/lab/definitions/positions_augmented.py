"""Definitions of the methods in `posenc_jax.encodings.positions_augmented`."""

import numpy as np


def _group_places(o, group_T, n):
    return np.where(group_T < o.limit, group_T, np.nan)


def _units_before(o, group_T, n):
    return np.array([sum(group_T[1 : t + 1] == 1) for t in range(n)])


PLACES = {
    "shifted": lambda o, pos_T, n: pos_T + o.still,
    "cape": lambda o, pos_T, n: pos_T - (n - 1) / 2 if o.normalize else pos_T,
    "pose": lambda o, pos_T, n: pos_T,
    "abacus": _group_places,
    "coupled": _group_places,
    "bipe_inner": lambda o, group_T, n: np.maximum(group_T - 1, 0),
    "bipe_outer": _units_before,
}
