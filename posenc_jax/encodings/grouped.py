"""Positions that say which tokens belong together: the layout's groups, moved in training.

The task, or `layout.digit_places`, states the groups; a token of none is shown 0. What stands
beside these methods in a chain, on their left, sees plain positions: `make("fire+abacus+learned")`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from posenc_jax.encoding import Encoding
from posenc_jax.encodings.augmented import each, sequence_keys
from posenc_jax.encodings.card import method
from posenc_jax.encodings.inputs import one_of, require
from posenc_jax.encodings.positions import Per
from posenc_jax.layout import Layout


def moved(group_BT: jax.Array, offset_BT, limit: int) -> jax.Array:
    """group + offset where there is a group, else 0; NaN from `limit` on."""
    shown_BT = jnp.where(group_BT > 0, group_BT + offset_BT, 0)
    return jnp.where(shown_BT < limit, shown_BT.astype(float), jnp.nan)


def largest(layout: Layout) -> jax.Array:
    """The largest group in each token's sequence, int32 [B, T]."""
    before_BT = jnp.pad(layout.segment_BT, ((0, 0), (1, 0)), constant_values=-1)[:, :-1]
    run_BT = jnp.cumsum(layout.segment_BT != before_BT, axis=1, dtype=jnp.int32)
    runs = layout.segment_BT.shape[1] + 1
    most = lambda group_T, run_T: jax.ops.segment_max(group_T, run_T, runs)[run_T]
    return jax.vmap(most)(layout.group_BT, run_BT)


def _grouped_shows(o, group_T, n):
    return np.array([g if g < o.limit else np.nan for g in group_T], np.float64)


@method(
    kind="positions",
    formula="a digit -> its place in its number from 1, in training + k, uniform over 0 .. offset; "
    "another token -> 0",
    paper="McLeish et al. 2024, arXiv 2405.17399",
    beyond="error",
    groups="place",
    shows=_grouped_shows,
    example={"limit": 64, "offset": 20},
    vary={"limit": 100_000},
)
def abacus(offset: int = 99, limit: int = 512, per: Per = "example") -> Encoding:
    """Abacus: digits at the same place of their numbers are shown one position.

    Places count in the order of writing; the paper writes numbers least significant digit first.

    Args:
      offset: the largest k. Numbers of up to `offset` digits more than in training are then shown
        positions known from there.
      limit: positions are below this, the rows of the paper's table; NaN from there on.
      per: "example": each sequence draws its k; "batch": one k for all, as in the public code.

    ValueError: limit is not positive, or offset is not in 0 .. limit - 1.
    """
    require(limit > 0, "limit", limit, "must be positive")
    require(0 <= offset < limit, "offset", offset, f"must be 0 or more and below limit, {limit}")
    one_of("per", per, Per)

    def place(key, layout):
        if key is None:
            return moved(layout.group_BT, 0, limit)
        key_BT = sequence_keys(key, layout, per == "example")
        draw = lambda k: jax.random.randint(k, (), 0, offset + 1, jnp.int32)
        return moved(layout.group_BT, each(draw, key_BT), limit)

    return Encoding(place=place)


@method(
    kind="positions",
    formula="a token of group g -> g, in training + k, uniform over what keeps all below limit; "
    "of no group -> 0",
    paper="Cho et al. 2024, arXiv 2405.20671",
    beyond="error",
    groups="significance",
    shows=_grouped_shows,
    example={"limit": 64},
    vary={"limit": 3},
)
def coupled(limit: int = 512) -> Encoding:
    """Position coupling: tokens that play one part in the task are shown one position.

    For addition, digits of the same significance in all numbers. Each training sequence begins at
    a random position, such that its largest is below `limit`.

    Args:
      limit: positions are below this: the public code's `max_position` + 1; NaN from there on.

    ValueError: limit is not positive.
    """
    require(limit > 0, "limit", limit, "must be positive")

    def place(key, layout):
        if key is None:
            return moved(layout.group_BT, 0, limit)
        room_BT = jnp.maximum(limit - largest(layout), 1)
        draw = lambda k, room: jax.random.randint(k, (), 0, room, jnp.int32)
        return moved(layout.group_BT, each(draw, sequence_keys(key, layout), room_BT), limit)

    return Encoding(place=place)
