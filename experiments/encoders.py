"""Configs of experiments in which an encoder reads a whole sequence, and what they refuse."""

from typing import Literal

from experiments import checks, named
from posenc_jax import encodings
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class EncoderConfig(schema.TrainedConfig):
    """A row of the results is one encoding.

    pooling: what the label of a sequence is predicted from: the mean over the encoder's outputs, or
      its output at the first token, which is BOS.
    """

    mostly_compiles = True

    model: schema.ModelConfig = schema.ModelConfig(kind="encoder")
    eval: schema.EvalConfig
    pooling: Literal["mean", "first"] = "mean"


def check(config: EncoderConfig, task: tasks.Task | tasks.Plan) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    labels = tasks.input_of(config.task.name) == "whole"
    labels &= isinstance(task, tasks.Plan) or task.metric == "accuracy"
    kinds = ("encoder", "lstm") if labels and config.pooling == "mean" else ("encoder",)
    if config.model.kind not in kinds:
        reason = f"{config.model.kind!r} does not read both sides of a token"
        raise FieldError("model.kind", f"{reason}; choices: {', '.join(kinds)}")
    control(config)
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        checks.sequence("encoding.name", name)
        named.check(config, name, named.options_of(config, name), task.width)


def control(config: schema.TrainedConfig) -> None:
    """FieldError: `eval` cannot be used beside the control, which is at the trained length."""
    evaluated = config.eval  # type: ignore[attr-defined]
    if evaluated.variants:
        raise FieldError("eval.variants", "weights are read as they were trained; leave it empty")
    if config.train.length not in evaluated.lengths:
        raise FieldError("eval.lengths", f"must hold the trained one, {config.train.length}")
