"""Functions that the config files share."""

import difflib
from collections.abc import Collection
from typing import Any, Literal, get_args, get_origin

from ml_collections import ConfigDict, config_dict

import experiments
from posenc_jax import encodings
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.options import FieldError, choices_for


def config(experiment: str, **fields: Any) -> ConfigDict:
    """The whole config of an experiment: the fields given, and its schema's defaults for the rest.

    Every field is there, so that each can be set from the command line with its type.

    Args:
      experiment: its package in experiments/.
      fields: as in its `Config`; a field that has fields of its own is a dictionary.

    Raises:
      FieldError: a field that is wrong.
    """
    with inside("config"):
        model = experiments.config_class(experiment)
        whole = schema.check(model, {"experiment": experiment, **fields})
    return ConfigDict(_with_types(whole))


def _with_types(part: Any) -> dict[str, Any]:
    """The fields of a schema; one that is None keeps its type, so that it can be set."""
    fields = part.model_dump()
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if hasattr(value, "model_dump"):
            fields[name] = _with_types(value)
        elif value is None:
            fields[name] = config_dict.placeholder(_plain_type(field.annotation))
    return fields


def _plain_type(annotation: Any) -> type:
    """int of `Annotated[int, ...] | None`, str of `Literal["a", "b"] | None`."""
    while not isinstance(annotation, type):
        inner = next(choice for choice in get_args(annotation) if choice is not type(None))
        annotation = type(inner) if get_origin(annotation) is Literal else inner
    return annotation


def words(argument: str) -> tuple[list[str], bool]:
    """The words of "a,b,quick" without "quick", and whether "quick" is one of them."""
    split = [word.strip() for word in argument.split(",") if word.strip()]
    return [word for word in split if word != "quick"], "quick" in split


def pick(words: list[str], choices: Collection[str]) -> tuple[str, list[str]]:
    """The word that is one of the choices, or "", and the other words, which name methods.

    FieldError: two of the choices, or a word that is near one or cannot name a method; a method of
    a user's own may be registered later.
    """
    chosen = [word for word in words if word in choices]
    if len(chosen) > 1:
        raise FieldError("--config", f"one at a time, not {', '.join(chosen)}")
    rest = [word for word in words if word not in chosen]
    for word in rest:
        parts = [part for part in word.split("+") if part and part not in encodings.CATALOG]
        near = difflib.get_close_matches(word, choices)
        if parts and (near or not all(part.isidentifier() for part in parts)):
            known = [*choices, "quick", "names of methods"]
            reason = f"argument {word!r} is not known{choices_for(word, known)}"
            raise FieldError("--config", reason)
    return (chosen or [""])[0], rest


def only_quick(argument: str) -> bool:
    """Whether the argument is "quick". FieldError: it is another word."""
    rest, quick = words(argument)
    if rest:
        raise FieldError("--config", f"argument {rest[0]!r} is not known; choices: quick")
    return quick


def quick(config: ConfigDict) -> ConfigDict:
    """The config, now so small that its run ends in under 20 seconds on two cores."""
    config.model.update(width=32, heads=4, layers=1)
    config.train.update(length=32, min_length=32, batch=16, steps=60, warmup=10)
    config.eval.update(lengths=(32, 128), examples=32)
    config.seeds = 2
    return config
