"""Checks of options and of positions' shapes; each refuses in one line.

An option whose type is one of those here is checked when a method is made, see `Card.values`. An
error names the option as a field of the encoding: "encoding.base: -1.0 must be positive".
"""

from typing import Annotated, Any

import jax

from posenc_jax.options import Bound, FieldError

Positive = Annotated[float, Bound()]
NotNegative = Annotated[float, Bound(0)]
Factor = Annotated[float, Bound(1)]
Whole = Annotated[int, Bound(0)]
Count = Annotated[int, Bound(1)]
Several = Annotated[int, Bound(2)]


def require(ok: bool, option: str, value: Any, rule: str) -> None:
    """FieldError that names the option, its value and the rule, unless `ok`."""
    if not ok:
        raise FieldError(("encoding", option), f"{value!r} {rule}")


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
