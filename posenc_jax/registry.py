"""Adds functions to tables by name: registers methods, tasks and optimizers, ours and users'."""

import inspect
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from posenc_jax.options import FieldError, checked, parameters


def add(
    table: dict[str, Any],
    name: str,
    function: Callable,
    entry: Any,
    leading: Sequence[str] = (),
) -> None:
    """Puts `entry` into the table under a name, for the function that makes the method, task or
    optimizer.

    A function that is defined again, as when a cell of a notebook runs twice or a module is
    reloaded, replaces itself.

    leading: names of the function's first arguments, which callers pass; the others are options.

    ValueError: a name that is no identifier, or that another function has; first arguments of
    other names; an option without a type, without a default, or with a default of another type.
    """
    place = source(function)
    if not name.isidentifier():
        raise ValueError(f"register: {name!r} of {place} is no name; give a function with `def`")
    if name in table and not same(table[name], function):
        raise ValueError(
            f"register: {name!r} of {place} has the name of {source(table[name])}; choose another"
        )
    try:
        options = parameters(function)
    except NameError as error:  # a type that was postponed to text
        raise ValueError(f"register: {name}: the type of an option: {error}") from None
    if tuple(options)[: len(leading)] != tuple(leading):
        raise ValueError(f"register: {name}: its first arguments must be {', '.join(leading)}")
    for option in list(options.values())[len(leading) :]:
        _check(name, option)
    table[name] = entry


def _check(name: str, option: inspect.Parameter) -> None:
    """Raises a ValueError for an option without a type or a default, or with a type that cannot be
    checked.
    """
    where = f"register: {name}: option {option.name!r}"
    named = option.kind in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY)
    if not named or option.empty in (option.annotation, option.default):
        raise ValueError(f"{where} needs a type and a default, such as {option.name}: float = 1.0")
    if not _checkable(option.annotation):
        raise ValueError(
            f"{where}: {inspect.formatannotation(option.annotation)} is no type of options; they "
            "are int, float, bool, str, None, Literal, and tuples and unions of these"
        )
    try:
        checked("", option, option.default)
    except FieldError as error:
        raise ValueError(f"{where}: its default {error.reason}") from None


def _checkable(kind: Any) -> bool:
    """Whether `checked` can check values of the type."""
    origin = get_origin(kind)
    if origin in (Annotated, Union, UnionType, tuple):
        args = get_args(kind)[:1] if origin in (Annotated, tuple) else get_args(kind)
        return all(map(_checkable, args))
    return origin is Literal or kind in (int, float, bool, str, type(None))


def source(function: Callable) -> str:
    """The place where a function is defined: "my_methods.root"."""
    function = inspect.unwrap(function)
    return f"{function.__module__}.{function.__qualname__}"


def same(before: Any, now: Callable) -> bool:
    """Whether two functions are one function that was defined twice: by module and name, or file
    and name.

    A file that runs as `__main__` and is imported as well has two modules.
    """
    before, now = inspect.unwrap(before), inspect.unwrap(now)
    file = lambda function: function.__code__.co_filename
    return before.__qualname__ == now.__qualname__ and (
        before.__module__ == now.__module__ or file(before) == file(now)
    )
