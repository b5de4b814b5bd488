"""The config of an experiment on documents of many windows, and what it refuses."""

from experiments import config_checks
from experiments.compare import fields
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(fields.Config):
    """By default keys to look up, near and far; lengths are tokens of a document.

    window: tokens that are read at once.
    memory: tokens before a window whose hidden states it attends to, in training and in the way
      "memory".
    """

    task: schema.TaskConfig = schema.TaskConfig(name="lookup")
    window: schema.Length = 16
    memory: schema.Length = 48


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind != "decoder":
        reason = f"{config.model.kind!r} has no memory of earlier windows; use 'decoder'"
        raise FieldError("model.kind", reason)
    if config.train.remat:
        raise FieldError("train.remat", "True has no effect on windows with a memory; use False")
    task = tasks.check(config.task.name, config_checks.sizes(config), **config.task.options)
    config_checks.kind(config.model, config.task)
    fields.check_control(config)
    lengths = {"train.length": (config.train.length,), "eval.lengths": config.eval.lengths}
    for field, values in lengths.items():
        for length in values:
            if task.width(length) % config.window:
                reason = f"{length} reads {task.width(length)} tokens, not whole windows"
                raise FieldError(field, f"{reason} of {config.window}")
    for name in config.encoding.names:
        for card in encodings.cards(name):
            if card.kind == "positions":
                reason = f"{card.name} places whole sequences, not one window after the other"
                raise FieldError("encoding.name", reason)
    fields.check_sequences(config, task.width)
