"""The config of an experiment on completing functions, and what it refuses."""

from experiments import checks, encoders
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(schema.TrainedConfig):
    """By default functions of the standard library; lengths are bytes of a window."""

    task: schema.TaskConfig = schema.TaskConfig(name="functions")
    eval: schema.EvalConfig


def encoding_of(config: Config, name: str) -> Encoding:
    """The encoding `name` with the options of the config that it takes."""
    return encodings.make(name, **encodings.taken_by(name, config.encoding.options))


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind not in ("decoder", "lstm"):
        reason = f"{config.model.kind!r} sees the bytes to complete; choices: decoder, lstm"
        raise FieldError("model.kind", reason)
    tasks.check(config.task.name, checks.sizes(config), "code", **config.task.options)
    encoders.control(config)
    names, options = config.encoding.names, config.encoding.options
    encodings.check_used(names, options)
    for name in names:
        own = encodings.taken_by(name, options)
        checks.sequence("encoding.name", name)
        checks.groups("encoding.name", name, config.task)
        checks.training("train.length", name, own, config.train.length)
        checks.reach("eval.lengths", name, own, max(config.eval.lengths))
        checks.width("model.width", name, encoding_of(config, name), config.model)
