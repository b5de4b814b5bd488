"""The config of an experiment on a canvas, its rows, and what it refuses."""

from collections.abc import Iterator

from experiments import config_checks
from experiments.compare import fields, grids
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

WINDOWED = "swin_2d"


class Config(fields.Config):
    """By default what is on the canvas; lengths are patches along its side, of `draw` pixels.

    window: patches along a side of a shifted window.
    """

    task: schema.TaskConfig = schema.TaskConfig(name="canvas")
    model: schema.ModelConfig = schema.ModelConfig(kind="encoder")
    window: schema.Few = 3

    @property
    def row_names(self) -> list[str]:
        return [label for name in self.encoding.names for label, _ in rows_of(self, name)]


def draws(config: Config) -> bool:
    """Whether the model draws, pixel after pixel."""
    return (tasks.options(config.task.name) | config.task.options)["question"] == "draw"


def rows_of(config: Config, name: str) -> Iterator[tuple[str, bool]]:
    """The label of each row of a method, and whether attention is in windows."""
    yield name, False
    if name == WINDOWED and not draws(config):
        yield f"{name} in windows", True


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    grids.check_order(config)
    tasks.check(config.task.name, config_checks.sizes(config), "canvas", **config.task.options)
    wanted = "decoder" if draws(config) else "encoder"
    if config.model.kind != wanted:
        reason = f"{config.model.kind!r} does not suit this question; use {wanted!r}"
        raise FieldError("model.kind", reason)
    fields.check_control(config)
    grids.check_methods(config, "a canvas has 2")
