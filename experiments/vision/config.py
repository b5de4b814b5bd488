"""The config of an experiment on a canvas, its rows, and what it refuses."""

from collections.abc import Iterator
from typing import Any

from experiments import checks, encoders, named
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

WINDOWED = "swin_2d"


class Config(schema.TrainedConfig):
    """By default what is on the canvas; lengths are patches along its side, of `draw` pixels.

    window: patches along a side of a shifted window.
    """

    mostly_compiles = True

    task: schema.TaskConfig = schema.TaskConfig(name="canvas")
    model: schema.ModelConfig = schema.ModelConfig(kind="encoder")
    eval: schema.EvalConfig
    window: schema.Few = 3


def draws(config: Config) -> bool:
    """Whether the model draws, pixel after pixel."""
    return (tasks.options(config.task.name) | config.task.options)["question"] == "draw"


def rows(config: Config, name: str) -> Iterator[tuple[str, bool]]:
    """The label of each row of a method, and whether attention is in windows."""
    yield name, False
    if name == WINDOWED and not draws(config):
        yield f"{name} in windows", True


def options_of(config: Config, name: str, windowed: bool = False) -> dict[str, Any]:
    """The options of a method, whose tables have the size of the trained canvas, or of a window."""
    side = config.window if windowed else config.train.length
    length = side if encodings.axes(name) == 2 else side * side
    fits = {"length": length, "window": side, "beyond": "clamp"}
    if encodings.axes(name) < 2:
        del fits["window"]
    return encodings.taken_by(name, fits | config.encoding.options)


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if "order" in config.task.options:
        raise FieldError("task.order", "each method gets its own order; leave it out")
    tasks.check(config.task.name, checks.sizes(config), "canvas", **config.task.options)
    wanted = "decoder" if draws(config) else "encoder"
    if config.model.kind != wanted:
        reason = f"{config.model.kind!r} does not suit this question; use {wanted!r}"
        raise FieldError("model.kind", reason)
    encoders.control(config)
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        _check_method(config, name)


def _check_method(config: Config, name: str) -> None:
    if (axes := encodings.axes(name)) > 2:
        raise FieldError("encoding.name", f"{name} reads positions of {axes} axes; a canvas has 2")
    positions = lambda size: size if axes == 2 else size * size
    named.check(config, name, options_of(config, name), positions)
