"""Methods as rows of an experiment: fitted to a small model, with positions as each reads them."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.layout import Layout, layout


def fitted(name: str, options: Mapping[str, Any]) -> tuple[str, Encoding]:
    """A method under the name of its row, with its card's `example` options and those given.

    One that only moves positions is put before `rope`.
    """
    label = f"{name}+rope" if encodings.cards(name)[-1].kind == "positions" else name
    chosen: dict[str, Any] = {}
    for card in encodings.cards(label):
        chosen.update(card.example)
    chosen.update(encodings.taken_by(label, options))
    return label, encodings.make(label, **chosen)


def standing(segment_BT: jax.Array, axes: int = 1, pos_BT: jax.Array | None = None) -> Layout:
    """The layout of rows as a method of so many axes reads it.

    Positions of several axes lie on a near-square grid, ([time,] row, column); the tokens of a row
    are the digits of one number, for methods that read groups.
    """
    found = layout(segment_BT, pos_BT)
    pos_BT, columns = found.pos_BT, math.ceil(math.sqrt(segment_BT.shape[1]))
    group_BT = jnp.where(segment_BT > 0, pos_BT + 1, 0)
    if axes > 1:
        grid = [pos_BT, pos_BT // columns, pos_BT % columns]
        pos_BT = jnp.stack(grid[-axes:], axis=-1)
    return found.replace(pos_BT=pos_BT, group_BT=group_BT)


def largest(gap: jax.Array) -> jax.Array:
    """The largest entry, NaN where there is one: XLA's own maximum may pass over a NaN."""
    return jnp.where(jnp.isnan(gap).any(), jnp.nan, gap.max())
