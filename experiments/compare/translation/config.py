"""The config of a translation, the encodings that it names, and what it refuses."""

from typing import Literal

from experiments import config_checks
from experiments.compare import fields
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class SidesConfig(schema.Part):
    """Encodings of the encoder, the decoder and cross-attention; "": that of the row."""

    encoder: str = ""
    decoder: str = ""
    cross: Literal["nope", "t5", "rope"] = "nope"


class Config(fields.Config):
    """By default translation, one encoding on both sides; a task's answer is the target."""

    task: schema.TaskConfig = schema.TaskConfig(name="translation")
    sides: SidesConfig = SidesConfig()
    model: schema.ModelConfig = schema.ModelConfig(kind="encoder_decoder")


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind != "encoder_decoder":
        reason = f"{config.model.kind!r} reads one sequence; use 'encoder_decoder'"
        raise FieldError("model.kind", reason)
    if not config.model.masks.loss:
        raise FieldError("model.masks.loss", "False would count the source in the loss; use True")
    fields.check_control(config)
    task = tasks.check(config.task.name, config_checks.sizes(config), **config.task.options)
    if not isinstance(task, tasks.Task) or task.metric != "exact_match":
        reason = f"{config.task.name} has no questions and answers to make pairs of"
        raise FieldError("task.name", reason)
    names, sides = config.encoding.names, config.sides
    by_field = {"encoding.name": names} | {
        f"sides.{side}": [name]
        for side, name in {"encoder": sides.encoder, "decoder": sides.decoder}.items()
        if name
    }
    if len(by_field) == 3:
        raise FieldError("sides", "both sides are named, so encoding.name has no effect; name one")
    for field, methods in by_field.items():
        for name in methods:
            _check_method(config, field, name, task)
    others = [name for name in (sides.encoder, sides.decoder, sides.cross) if name]
    encodings.check_used([*names, *others], config.encoding.options)


def _check_method(config: Config, field: str, name: str, task: tasks.Task) -> None:
    try:
        fields.encoding_of(config, name)
    except FieldError as error:
        path = field if error.path == ("encoding", "name") else error.path
        raise FieldError(path, error.reason) from None
    config_checks.sequence(field, name)
    fields.check_method(config, name, fields.options_of(config, name), task.width, field)
