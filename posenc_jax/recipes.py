"""Records the calls that made encodings, so that encodings are values: equal, printable,
picklable.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")  # an Encoding


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A call: a function and all of its arguments by name, including defaults."""

    function: Callable[..., Any]
    arguments: tuple[tuple[str, Any], ...]

    @property
    def hashes(self) -> bool:
        """Whether all arguments are hashable; arrays are not."""
        try:
            hash(self)
        except TypeError:
            return False
        return True

    def __repr__(self) -> str:
        """The call as text, without arguments that are the function's defaults."""
        parameters, texts = inspect.signature(self.function).parameters, []
        for name, value in self.arguments:
            parameter = parameters[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                texts += map(repr, value)
            elif parameter.default is parameter.empty:
                texts.append(repr(value))
            elif value != parameter.default:
                texts.append(f"{name}={value!r}")
        return f"{self.function.__name__}({', '.join(texts)})"


def call(recipe: Recipe) -> Any:
    """Calls the function of a recipe, and returns its result."""
    signature = inspect.signature(recipe.function)
    bound = inspect.BoundArguments(signature, dict(recipe.arguments))  # type: ignore[arg-type]
    return recipe.function(*bound.args, **bound.kwargs)


def with_recipe(encoding: Made, recipe: Recipe) -> Made:
    """Returns the encoding as a value: equal to others of an equal recipe, by which it pickles.

    It stays as it is if an argument of the recipe has no hash.
    """
    if not recipe.hashes:
        return encoding
    encoding = dataclasses.replace(encoding)  # type: ignore[type-var]
    object.__setattr__(encoding, "recipe", recipe)
    return encoding


def recorded(function: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Decorator: the encodings that the function returns become values, see `with_recipe`."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def record(*args: Arguments.args, **options: Arguments.kwargs) -> Made:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        recipe = Recipe(record, tuple(bound.arguments.items()))
        return with_recipe(function(*args, **options), recipe)

    return record
