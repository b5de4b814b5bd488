"""The fields of a comparison, its encodings, and what does not suit them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from experiments import config_checks, method_options
from posenc_jax import encodings
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

_SHUFFLED = ", shuffled"


class Config(schema.TrainedConfig):
    """A row of the results is one encoding; the weights of each are evaluated as `eval` says."""

    several_processes = True
    mostly_compiles = True

    eval: schema.EvalConfig


class EncoderConfig(Config):
    """An encoder reads a whole sequence.

    pooling: what the label of a sequence is predicted from: the mean over the encoder's outputs, or
      its output at the first token, which is BOS.
    """

    model: schema.ModelConfig = schema.ModelConfig(kind="encoder")
    pooling: Literal["mean", "first"] = "mean"


def shuffled_row(name: str) -> str:
    """The label `encoding` of a method's records on shuffled examples."""
    return f"{name}{_SHUFFLED}"


def is_shuffled(label: str) -> bool:
    """Whether a label `encoding` is that of records on shuffled examples."""
    return label.endswith(_SHUFFLED)


def options_of(
    config: schema.TrainedConfig,
    name: str,
    causal: bool | None = None,
    others: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The options of the method: those of the config that it takes, and what suits the setting if
    the config says so.

    causal: whether tokens see only those before them; None: as the model's kind says.
    others: see `method_options.options`.
    """
    stated, others = config.encoding.options, others or {}
    if config.options == "library":
        return encodings.taken_by(name, {**others, **stated})
    task = config.task
    width = tasks.check(task.name, reads=tasks.input_of(task.name), **task.options).width
    longest = max([config.train.length, *getattr(getattr(config, "eval", None), "lengths", ())])
    causal = config.model.kind == "decoder" if causal is None else causal
    tokens = int(width(config.train.length)), int(width(longest))
    setting = method_options.Setting(*tokens, config.model.dims.head, causal)
    return method_options.options(name, setting, stated, others)


def encoding_of(config: schema.TrainedConfig, name: str, causal: bool | None = None) -> Encoding:
    """The encoding `name` with the options of `options_of`."""
    return encodings.make(name, **options_of(config, name, causal))


def check_method(
    config: Any,
    name: str,
    options: Mapping[str, Any],
    positions: Callable[[int], int],
    field: str = "encoding.name",
) -> None:
    """FieldError: the method does not suit the task, its sizes or the model.

    positions: a size of the task -> the positions of each axis.
    field: what names the method.
    """
    config_checks.groups(field, name, config.task)
    config_checks.training("train.length", name, options, positions(config.train.length))
    config_checks.reach("eval.lengths", name, options, positions(max(config.eval.lengths)))
    encoding = encodings.make(name, **options)
    config_checks.width("model.width", name, encoding, config.model)
    config_checks.undecayed(name, encoding, config)


def check_sequences(config: Config, positions: Callable[[int], int]) -> None:
    """FieldError: a method does not suit sequences of the task, or an option is unused."""
    encodings.check_used(config.encoding.names, config.encoding.options)
    for name in config.encoding.names:
        config_checks.sequence("encoding.name", name)
        check_method(config, name, options_of(config, name), positions)


def check_encoder(config: EncoderConfig, task: tasks.Task | tasks.Plan) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    labels = tasks.input_of(config.task.name) == "whole"
    labels &= isinstance(task, tasks.Plan) or task.metric == "accuracy"
    kinds = ("encoder", "lstm") if labels and config.pooling == "mean" else ("encoder",)
    if config.model.kind not in kinds:
        reason = f"{config.model.kind!r} does not read both sides of a token"
        raise FieldError("model.kind", f"{reason}; choices: {', '.join(kinds)}")
    check_control(config)
    check_sequences(config, task.width)


def check_control(config: Config) -> None:
    """FieldError: `eval` cannot be used beside the control, which is at the trained length."""
    if config.eval.variants:
        raise FieldError("eval.variants", "weights are read as they were trained; leave it empty")
    if config.train.length not in config.eval.lengths:
        raise FieldError("eval.lengths", f"must hold the trained one, {config.train.length}")
