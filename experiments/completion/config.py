"""The config of an experiment on Python code, and what it refuses."""

from experiments import checks, encoders, named
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(schema.TrainedConfig):
    """By default functions of the standard library to complete; lengths are bytes of a window."""

    task: schema.TaskConfig = schema.TaskConfig(name="functions")
    eval: schema.EvalConfig


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind not in ("decoder", "lstm"):
        reason = f"{config.model.kind!r} sees the bytes after each one; choices: decoder, lstm"
        raise FieldError("model.kind", reason)
    tasks.check(config.task.name, checks.sizes(config), "code", **config.task.options)
    encoders.control(config)
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        checks.sequence("encoding.name", name)
        named.check(config, name, named.options_of(config, name), int)
