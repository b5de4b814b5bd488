"""Encodings of the small models of `permutation` and `padding_leakage`, and their positions."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab.definitions.trial_options import SMALL
from posenc_jax.layout import Layout, layout


def small_encoding(name: str, options: Mapping[str, Any]) -> tuple[str, Encoding]:
    """The label and the encoding of a row: the method with the options of `small_options`."""
    label, chosen = small_options(name, options)
    return label, encodings.make(label, **chosen)


def small_options(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The label of a row, and its options for a small model with those given.

    A method that only changes positions is put before `rope`; the label says so.
    """
    label = f"{name}+rope" if encodings.cards(name)[-1].kind == "positions" else name
    chosen: dict[str, Any] = {}
    for card in encodings.cards(label):
        chosen |= SMALL.get(card.name, {})
    return label, chosen | encodings.taken_by(label, options)


def small_layout(segment_BT: jax.Array, axes: int = 1, pos_BT: jax.Array | None = None) -> Layout:
    """The layout of rows of tokens for a method whose positions have so many axes.

    Positions of several axes lie on a near-square grid, ([time,] row, column). All tokens of a row
    are the digits of one number, for methods that read groups of tokens.
    """
    found = layout(segment_BT, pos_BT)
    pos_BT, columns = found.pos_BT, math.ceil(math.sqrt(segment_BT.shape[1]))
    group_BT = jnp.where(segment_BT > 0, pos_BT + 1, 0)
    if axes > 1:
        from posenc_jax.lab.gallery.measure import on_axes  # loads matplotlib

        pos_BT = on_axes(axes, pos_BT, pos_BT // columns, pos_BT % columns)
    return found.replace(pos_BT=pos_BT, group_BT=group_BT)


def largest(gap: jax.Array) -> jax.Array:
    """The largest entry, NaN if any is NaN: XLA's own maximum may skip a NaN."""
    return jnp.where(jnp.isnan(gap).any(), jnp.nan, gap.max())
