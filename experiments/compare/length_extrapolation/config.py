"""The config of a length extrapolation, the encodings that it names, and what it refuses."""

import itertools
from collections.abc import Iterator
from typing import Any

from experiments import config_checks
from experiments.compare import fields
from posenc_jax import encodings
from posenc_jax.combinators import chain
from posenc_jax.encoding import Encoding
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError


class Config(fields.Config):
    """By default RoPE on the bytes of the standard library."""

    mostly_compiles = False

    encoding: schema.EncodingConfig = schema.EncodingConfig(name="rope")
    task: schema.TaskConfig = schema.TaskConfig.model_validate({"name": "stdlib", "stretch": 32768})
    eval: schema.EvalConfig = schema.EvalConfig()


def variants(config: Config, name: str, length: int) -> Iterator[tuple[str, Encoding]]:
    """(label, encoding) of all that the weights trained with `name` are evaluated under."""
    for label in config.eval.variants or (name,):
        yield label, variant(config, name, label, length)


def variant(config: Config, name: str, label: str, length: int) -> Encoding:
    """The encoding `label` for the weights trained with `name`, evaluated at one length.

    FieldError: there is no such encoding, or its parts do not compose.
    """
    encodings.make(label, **_shared_options(config, name, label, length))
    options = _part_options(config, name, label, length)
    parts = [encodings.make(part, **options[part]) for part in label.split("+")]
    return parts[0] if len(parts) == 1 else chain(*parts)


def _part_options(config: Config, name: str, label: str, length: int) -> dict[str, dict[str, Any]]:
    """The options of each part of `label`. A part of `name` keeps those that it was trained with,
    such as the length of its table; one that moves positions, such as `clamped`, has the length of
    the trained window.
    """
    extension = {}
    if label != name:
        tokens = tasks.check(config.task.name, **config.task.options).width
        trained, tested = tokens(config.train.length), tokens(length)
        extension = {"factor": max(1.0, tested / trained), "length": trained}
    others = fields.options_of(config, label, others=extension)
    trained_options = fields.options_of(config, name)
    options = {}
    for part in label.split("+"):
        moves = encodings.cards(part)[0].kind == "positions"
        untrained = others | extension if moves else others
        chosen = trained_options if part in name.split("+") else untrained
        options[part] = encodings.taken_by(part, chosen)
    return options


def _shared_options(config: Config, name: str, label: str, length: int) -> dict[str, Any]:
    """The options of `label` where each goes to every part that takes it: those of a trained part
    before those of others.
    """
    options = _part_options(config, name, label, length)
    trained_last = sorted(options, key=lambda part: part in name.split("+"))
    return {option: value for part in trained_last for option, value in options[part].items()}


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before data is read or anything compiled."""
    width = tasks.check(config.task.name, config_checks.sizes(config), **config.task.options).width
    config_checks.kind(config.model, config.task)
    names = config.encoding.names
    encodings.check_used(names, config.encoding.options)
    if config.eval.variants and len(names) > 1:
        shown = ", ".join(config.eval.variants)
        reason = f"{shown} read the weights of one encoding, not of {', '.join(names)}; train one"
        raise FieldError("eval.variants", reason)
    for name in names:
        trained = fields.encoding_of(config, name)
        _check_method(config, name, trained)
        config_checks.undecayed(name, trained, config)
        for label in config.eval.variants:
            _check_variant(config, name, label)
        options = fields.options_of(config, name)
        config_checks.training("train.length", name, options, width(config.train.length))
        labels = config.eval.variants or (name,)
        for length, label in itertools.product(config.eval.lengths, labels):
            options = _shared_options(config, name, label, length)
            config_checks.reach("eval.lengths", label, options, width(length), variants=True)


def _check_method(config: Config, name: str, encoding: Encoding, field: str = "") -> None:
    """`field` is the one to change; if "", the one that each check names by default."""
    config_checks.sequence(field or "encoding.name", name)
    config_checks.groups(field or "task.groups", name, config.task)
    config_checks.width(field or "model.width", name, encoding, config.model)


def _check_variant(config: Config, name: str, label: str) -> None:
    field = "eval.variants"
    try:
        encoding = variant(config, name, label, max(config.eval.lengths))
    except FieldError as error:
        reason = error.reason if error.path == ("encoding", "name") else str(error)
        raise FieldError(field, f"{label}: {reason}") from None
    _check_method(config, label, encoding, field)
    trained = (name, fields.encoding_of(config, name))
    config_checks.weights(field, (label, encoding), trained, config.model)
