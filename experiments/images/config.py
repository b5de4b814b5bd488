"""The config of an image experiment, the encodings that it names, and what it refuses."""

from typing import Annotated, Any

from pydantic import Field

from experiments import checks, named
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class EvalConfig(schema.Part):
    """Resolutions to test at, in patches a side; `tokens`: the most in one forward pass."""

    lengths: Annotated[tuple[schema.Few, ...], Field(min_length=1), schema.Distinct]
    tokens: schema.Count = 8192


class Config(schema.TrainedConfig):
    """Lengths in `train` and `eval` are patches a side."""

    mostly_compiles = True

    eval: EvalConfig


def options_of(config: Config, name: str) -> dict[str, Any]:
    """The options of a method, whose tables have the size of the trained grid."""
    side = config.train.length
    flat = encodings.axes(name) < 2
    fits = {"length": side * side if flat else side, "beyond": "clamp"}
    if not flat:
        fits["window"] = side
    return encodings.taken_by(name, fits | config.encoding.options)


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind != "encoder":
        reason = f"{config.model.kind!r} reads patches in order; use 'encoder'"
        raise FieldError("model.kind", reason)
    if "order" in config.task.options:
        raise FieldError("task.order", "each method gets its own order; leave it out")
    tasks.check(config.task.name, checks.sizes(config), "patches", **config.task.options)
    if config.train.length not in config.eval.lengths:
        raise FieldError("eval.lengths", f"must hold the trained one, {config.train.length}")
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        _check_method(config, name)


def _check_method(config: Config, name: str) -> None:
    if (axes := encodings.axes(name)) > 2:
        raise FieldError("encoding.name", f"{name} reads positions of {axes} axes; images have 2")
    positions = lambda size: size if axes == 2 else size * size
    named.check(config, name, options_of(config, name), positions)
