"""Checks of options and of positions' shapes; each refuses in one line.

An error names the option as a field of the encoding: "encoding.base: -1.0 must be positive".
"""

from typing import Any, get_args

import jax
import numpy as np

from posenc_jax.options import FieldError


def require(ok: bool, option: str, value: Any, rule: str) -> None:
    """FieldError that names the option, its value and the rule, unless `ok`."""
    if not ok:
        raise FieldError(("encoding", option), f"{value!r} {rule}")


def one_of(option: str, value: Any, choices: Any) -> None:
    """FieldError unless the value is among the choices of a Literal type."""
    listed = ", ".join(repr(choice) for choice in get_args(choices))
    require(value in get_args(choices), option, value, f"is not one of: {listed}")


def positive(**options: float) -> None:
    """FieldError unless every value is above 0 and finite."""
    for option, value in options.items():
        require(0 < value < np.inf, option, value, "must be positive and finite")


def at_least(least: float, **options: float) -> None:
    """FieldError unless every value is `least` or more, and finite."""
    for option, value in options.items():
        finite = ", and finite" if isinstance(value, float) else ""
        require(least <= value < np.inf, option, value, f"must be {least} or more{finite}")


def with_axes(placed: jax.Array, axes: int = 1) -> jax.Array:
    """The positions as they are. FieldError: not [B, T], or [B, T, axes] for several axes."""
    if placed.ndim < 2 or placed.shape[2:] != (() if axes == 1 else (axes,)):
        named = ", ".join(("time", "row", "column")[-axes:])
        wanted = "[B, T]" if axes == 1 else f"[B, T, {axes}], ({named})"
        raise FieldError("positions", f"shape {placed.shape} is not {wanted}")
    return placed
