"""A check of what an encoding's hooks return: shapes and dtypes, known before anything runs."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from posenc_jax.options import FieldError

Size = int | tuple[int | None, ...] | None  # of an axis: that one, one of these, any
NUMBERS, FLOATS = "numbers of 32 bits or more", "float32 or wider"


def checked_result(
    name: str,
    hook: Callable,
    result: Any,
    letters: str,
    sizes: Sequence[Size],
    dtype: Any = NUMBERS,
) -> Any:
    """What a hook returned, a pytree of arrays, if all of them have the right shape and dtype.

    Args:
      name: the hook's.
      hook: the function that returned it.
      letters: the shape that each array must have, as text.
      sizes: the same as numbers, of the first axes if `letters` ends in "...".
      dtype: the one that each array must have, NUMBERS or FLOATS.

    FieldError: an array of another shape or dtype, in one line that names the hook.
    """
    hook_name = getattr(hook, "__qualname__", hook)
    if result is None and name in ("rotate", "bias", "temper", "embed"):
        raise FieldError(("encoding", name), f"{hook_name} returns None; it must return {letters}")
    more = letters.endswith("...]")
    for leaf in jax.tree.leaves(result):
        shape, kind = jnp.shape(leaf), jnp.result_type(leaf)
        fits = len(shape) >= len(sizes) if more else len(shape) == len(sizes)
        if not fits or not all(map(_is, sizes, shape)) or not _has_dtype(kind, dtype):
            here = ", ".join([*map(_text, sizes), *(["..."] if more else [])])
            raise FieldError(
                ("encoding", name),
                f"{hook_name} returns {kind}{list(shape)}; it must "
                f"return {letters}, here [{here}], of {dtype}",
            )
    return result


def _is(size: Size, length: int) -> bool:
    sizes = size if isinstance(size, tuple) else (size,)
    return None in sizes or length in sizes


def _text(size: Size) -> str:
    sizes = dict.fromkeys(size if isinstance(size, tuple) else (size,))
    return "any" if None in sizes else "|".join(map(str, sizes))


def _has_dtype(dtype: Any, wanted: Any) -> bool:
    if wanted not in (NUMBERS, FLOATS):
        return dtype == wanted
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.finfo(dtype).bits >= 32
    integer = jnp.issubdtype(dtype, jnp.integer)
    return wanted == NUMBERS and (not integer or jnp.iinfo(dtype).bits >= 32)
