"""The config of language models on tokens, and what it refuses."""

from experiments import config_checks
from experiments.compare import fields
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

OURS = ("test", "context")  # options of the task that this experiment sets


class Config(fields.Config):
    """By default RoPE on the tokens of the standard library; lengths are tokens of a window.

    documents: the most documents of each test of context.
    """

    mostly_compiles = False

    encoding: schema.EncodingConfig = schema.EncodingConfig(name="rope")
    task: schema.TaskConfig = schema.TaskConfig(name="stdlib_tokens")
    eval: schema.EvalConfig = schema.EvalConfig()
    documents: schema.Rows = 64


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before data is read or anything compiled."""
    if config.model.kind != "decoder":
        reason = f"{config.model.kind!r} is no language model with attention; use 'decoder'"
        raise FieldError("model.kind", reason)
    if not set(OURS) <= tasks.options(config.task.name).keys():
        reason = (
            f"{config.task.name} has no documents of tokens; choices: stdlib_tokens, tokens:PATH"
        )
        raise FieldError("task.name", reason)
    for option in OURS:
        if option in config.task.options:
            reason = "every test is part of this experiment, as long as eval.lengths; leave it out"
            raise FieldError(("task", option), reason)
    task = tasks.check(config.task.name, config_checks.sizes(config), **config.task.options)
    fields.check_control(config)
    fields.check_sequences(config, task.width)
