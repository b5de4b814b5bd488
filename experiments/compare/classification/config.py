"""The config of a text classification, and what it refuses."""

from experiments import config_checks
from experiments.compare import fields
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(fields.EncoderConfig):
    """By default reviews whose verdict turns on the place of "not"."""

    task: schema.TaskConfig = schema.TaskConfig(name="negation")


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    name = config.task.name
    task = tasks.check(name, config_checks.sizes(config), "whole", **config.task.options)
    if isinstance(task, tasks.Task) and task.metric != "accuracy":
        reason = f"{name} hides tokens and has no labels; use configs/dna.py"
        raise FieldError("task.name", reason)
    fields.check_encoder(config, task)
