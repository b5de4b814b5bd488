"""Checks of options and of positions' shapes; each refuses in one line.

An error names the option as a field of the encoding: "encoding.base: -1.0 must be positive".
"""

from typing import Any

import jax
import numpy as np

from posenc_jax.options import FieldError


def require(ok: bool, option: str, value: Any, rule: str) -> None:
    """FieldError that names the option, its value and the rule, unless `ok`."""
    if not ok:
        raise FieldError(("encoding", option), f"{value!r} {rule}")


def positive(**options: float | None) -> None:
    """FieldError unless every value that is not None is above 0 and finite."""
    for option, value in options.items():
        ok = value is None or 0 < value < np.inf
        require(ok, option, value, "must be positive and finite")


def at_least(least: float, **options: float | None) -> None:
    """FieldError unless every value that is not None is `least` or more, and finite."""
    for option, value in options.items():
        finite = ", and finite" if isinstance(value, float) else ""
        ok = value is None or least <= value < np.inf
        require(ok, option, value, f"must be {least} or more{finite}")


def three(option: str, numbers: tuple[int, ...], of: str) -> None:
    """FieldError unless there are no numbers, or three of 0 or more: for time, height and width."""
    good = len(numbers) in (0, 3) and all(number >= 0 for number in numbers)
    rule = f"is not three whole numbers: {of} for time, height and width"
    require(good, option, numbers, rule)


def with_axes(placed: jax.Array, axes: int = 1) -> jax.Array:
    """The positions as they are. FieldError: not [B, T], or [B, T, axes] for several axes."""
    if placed.ndim < 2 or placed.shape[2:] != (() if axes == 1 else (axes,)):
        named = ", ".join(("time", "row", "column")[-axes:])
        wanted = "[B, T]" if axes == 1 else f"[B, T, {axes}], ({named})"
        raise FieldError("positions", f"shape {placed.shape} is not {wanted}")
    return placed
