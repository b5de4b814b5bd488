"""The methods that a config names: their encodings, and what does not suit them."""

from collections.abc import Callable, Mapping
from typing import Any

from experiments import checks
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab.config import schema


def options_of(config: schema.TrainedConfig, name: str) -> dict[str, Any]:
    """The options of the config that the method takes."""
    return encodings.taken_by(name, config.encoding.options)


def encoding_of(config: schema.TrainedConfig, name: str) -> Encoding:
    """The encoding `name` with the options of the config that it takes."""
    return encodings.make(name, **options_of(config, name))


def check(
    config: Any,
    name: str,
    options: Mapping[str, Any],
    positions: Callable[[int], int],
    field: str = "encoding.name",
) -> None:
    """FieldError: the method does not suit the task, its sizes or the model.

    positions: a size of the task -> the positions of each axis.
    field: what names the method.
    """
    checks.groups(field, name, config.task)
    checks.training("train.length", name, options, positions(config.train.length))
    checks.reach("eval.lengths", name, options, positions(max(config.eval.lengths)))
    checks.width("model.width", name, encodings.make(name, **options), config.model)
