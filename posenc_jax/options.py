"""Options by name: checks of their types, and errors that name the field, value and choices."""

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import numpy as np

MOST = 2**31 - 1  # the largest whole number of an option: devices count in 32 bits


class FieldError(ValueError):
    """A field that is wrong, and why: `path` and `reason` as data, one line as text.

    path:   the field's name and those it lies in, ("train", "length"); a number is an index,
            ("tasks", 0, "name") is tasks[0].name.
    reason: the value, what is wrong with it, and the choices.
    """

    def __init__(self, path: Sequence[str | int] | str, reason: str):
        self.path = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
        self.reason = reason
        super().__init__(f"{field_name(self.path)}: {reason}")

    def inside(self, *path: str | int) -> "FieldError":
        """The same error of the field as part of a larger one."""
        return FieldError((*path, *self.path), self.reason)

    def __reduce__(self):
        return FieldError, (self.path, self.reason)


def field_name(path: Sequence[str | int]) -> str:
    """The path as text of one line: "tasks[0].name"; quoted if it has such as a new line."""
    parts = (f".{part}" if isinstance(part, str) else f"[{part!r}]" for part in path)
    name = "".join(parts).removeprefix(".")
    return name if name.isprintable() and len(name) < 200 else shown(name)


class Bound(NamedTuple):
    """Numbers that an option may be: those above 0, or those of `least` or more; up to `most`, or
    less than `below`.

    Annotated[int, Bound(1)] is the type of an option of 1 or more.
    """

    least: float | None = None
    most: float | None = None
    below: float | None = None

    def check(self, path: Sequence[str | int], value: float) -> None:
        """FieldError: the value is not such a number."""
        low = value > 0 if self.least is None else value >= self.least
        high = self.most is None or value <= self.most
        high &= self.below is None or value < self.below
        if not (low and high):
            raise FieldError(path, f"{value!r} must be {self}")

    def __str__(self) -> str:
        if self.most is not None:
            return f"{self.least} to {self.most}"
        low = "positive" if self.least is None else f"{self.least} or more"
        return low if self.below is None else f"{low}, and less than {self.below}"


Count = Annotated[int, Bound(1)]


def choices_for(word: str, names: Iterable[str], where: str = "") -> str:
    """The choices as text: "; did you mean rope? choices: nope, rope".

    A word with a colon, such as file:book.txt, is compared with what a name has before its own.

    where: what has all names, for those that are too many for a line.
    """
    names = [str(name) for name in names]
    compared = (lambda text: text.lower().partition(":")[0]) if ":" in word else str.lower
    # The first of equal ones, and before it one with a colon, if the word has one.
    by_text = {compared(name): name for name in sorted(reversed(names), key=lambda n: ":" in n)}
    near = [by_text[text] for text in difflib.get_close_matches(compared(word), by_text, n=3)]
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return f"; {hint}choices: {where or ', '.join(names) or 'none'}"


def checked(where: str, option: inspect.Parameter, value: Any) -> Any:
    """The value as a Python value of the option's annotation. FieldError: see `typed`."""
    return typed((where, option.name), option.annotation, value)


def typed(path: Sequence[str | int], annotation: Any, value: Any) -> Any:
    """The value of a field as a Python value of this type.

    An int given for a float becomes a float, and a NumPy scalar the Python number.

    FieldError: a value of another type, outside a Literal's choices or a `Bound`, not finite, or
    past MOST.
    """
    try:
        kinds, value = [annotation], _plain(value)
    except RecursionError:
        raise FieldError(path, f"{shown(value)} is nested too deeply") from None
    if get_origin(annotation) not in (None, Annotated, Literal, tuple):
        kinds = list(get_args(annotation))  # a union
    for n, kind in enumerate(kinds):
        kinds[n], *bounds = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        if _is(value, kinds[n]):
            value = _as(value, kinds[n])
            for bound in bounds:
                bound.check(path, value)
            return value
    wrong = f"is not {_allowed(kinds)}"
    if type(value) in kinds and isinstance(value, int | float):
        wrong = "is not finite" if isinstance(value, float) else f"is not in -{MOST} to {MOST}"
    raise FieldError(path, f"{shown(value)} {wrong}")


def shown(value: Any) -> str:
    """The value as text of one short line, or its type."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # lists in lists without end, an int of 5,000 digits
        text = ""
    return text if 0 < len(text) < 80 and "\n" not in text else f"<{type(value).__name__}>"


def checked_all(where: str, function: Callable, /, **values: Any) -> dict[str, Any]:
    """The values of these parameters of a function, each as `checked`. FieldError: see there."""
    options = parameters(function)
    return {name: checked(where, options[name], value) for name, value in values.items()}


def check_array(name: str, value: Any) -> None:
    """FieldError: the value is no array, of JAX or NumPy."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise FieldError(name, f"{type(value).__name__} is not an array")


@functools.cache
def parameters(function: Callable) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name, with types where the module postponed them to text."""
    return inspect.signature(function, eval_str=True).parameters


def _plain(value: Any) -> Any:
    if type(value) in (tuple, list):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        member_type = get_args(kind)[0]
        return isinstance(value, tuple | list) and all(_is(member, member_type) for member in value)
    if kind is float:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and abs(value) <= sys.float_info.max
    if kind is int:
        return type(value) is int and abs(value) <= MOST
    return isinstance(value, kind)


def _as(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_as(member, get_args(kind)[0]) for member in value)
    return float(value) if kind is float else value


def _allowed(kinds: Sequence[Any]) -> str:
    """What a value of these types is, as text: "one of: 'a', 'b'", "of type int or None"."""
    literals = [kind for kind in kinds if get_origin(kind) is Literal]
    choices = [repr(choice) for kind in literals for choice in get_args(kind)]
    types = [_named(kind) for kind in kinds if get_origin(kind) is not Literal]
    of_types = [f"of type {' or '.join(types)}"] if types else []
    return " or ".join(of_types + ([f"one of: {', '.join(choices)}"] if choices else []))


def _named(kind: Any) -> str:
    if kind is Mapping:
        return "dict"
    if get_origin(kind) is tuple:
        return f"tuple of {_named(get_args(kind)[0])}"
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))
