"""The config of an experiment on DNA or protein, and what it refuses."""

from experiments import config_checks
from experiments.compare import fields
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(fields.EncoderConfig):
    """By default hidden bases that depend on the reading frame."""

    task: schema.TaskConfig = schema.TaskConfig(name="reading_frame")


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    name, reads = config.task.name, "whole"
    if tasks.input_of(name) == "tokens":
        reads = "tokens"
        options = tasks.options(name) | config.task.options
        if "masked" not in options:
            fits = ", ".join([*tasks.names("whole"), "labels:PATH", "file:PATH"])
            raise FieldError("task.name", f"{name} hides no letters; choices: {fits}")
        if not options["masked"]:
            raise FieldError("task.masked", "0 hides no letters; give a share such as 0.15")
    fields.check_encoder(
        config, tasks.check(name, config_checks.sizes(config), reads, **config.task.options)
    )
