"""Functions that the config files share."""

from typing import Any

from ml_collections import ConfigDict

import experiments
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.options import FieldError


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
    return ConfigDict(whole.model_dump())


def words(argument: str) -> tuple[list[str], bool]:
    """The words of "a,b,quick" without "quick", and whether "quick" is one of them."""
    found = [word.strip() for word in argument.split(",") if word.strip()]
    return [word for word in found if word != "quick"], "quick" in found


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
