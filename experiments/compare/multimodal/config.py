"""The config of an experiment on clips, its rows, and what it refuses."""

from collections.abc import Iterator

from experiments import config_checks
from experiments.compare import fields
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.tasks.clips import Ids
from posenc_jax.options import FieldError


class Config(fields.EncoderConfig):
    """By default the tone that sounds with the digit."""

    task: schema.TaskConfig = schema.TaskConfig(name="clips")

    @property
    def row_names(self) -> list[str]:
        return [label for name in self.encoding.names for label, _ in rows_of(name)]


OWN_IDS: dict[str, Ids] = {"mhrope": "reset", "video_rope": "diagonal"}


def rows_of(name: str) -> Iterator[tuple[str, Ids]]:
    """The label of each row of a method, and the positions that it reads."""
    axes = encodings.axes(name)
    yield name, OWN_IDS.get(name, "all") if axes == 3 else "index"
    if axes == 1 and name != "nope":
        yield f"{name} on time", "time"


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    name = config.task.name
    if "ids" in config.task.options:
        raise FieldError("task.ids", "each row has its own positions; leave it out")
    if config.model.kind != "encoder":
        raise FieldError("model.kind", f"{config.model.kind!r} reads one side; use 'encoder'")
    fields.check_control(config)
    task = tasks.check(name, config_checks.sizes(config), "clips", **config.task.options)
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        if encodings.axes(name) == 2:
            raise FieldError("encoding.name", f"{name} reads 2 axes; clips have 1 or 3")
        fields.check_method(config, name, fields.options_of(config, name), task.width)
