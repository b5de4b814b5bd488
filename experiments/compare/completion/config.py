"""The config of an experiment on Python code, and what it refuses."""

from experiments import config_checks
from experiments.compare import fields
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(fields.Config):
    """By default functions of the standard library to complete; lengths are bytes of a window."""

    mostly_compiles = False

    task: schema.TaskConfig = schema.TaskConfig(name="functions")


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind not in ("decoder", "lstm"):
        reason = f"{config.model.kind!r} sees the bytes after each one; choices: decoder, lstm"
        raise FieldError("model.kind", reason)
    tasks.check(config.task.name, config_checks.sizes(config), "code", **config.task.options)
    fields.check_control(config)
    fields.check_sequences(config, int)
