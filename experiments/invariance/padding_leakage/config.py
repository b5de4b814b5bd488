"""The config of the padding experiment, and what it refuses."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from experiments import config_checks
from experiments.invariance import released_encoder
from experiments.invariance.released_encoder import EncoderConfig
from experiments.invariance.small_models import small_encoding, small_options
from posenc_jax import encodings
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

ALL = "all"
SEVERAL_AXES = "since positions of several axes lie on a grid, whose shape changes with the padding"
Side = Literal["left", "right"]


class Data(schema.Part):
    """Sequences of `min_length` to `length` tokens in training, each padded on a random one of the
    sides; in the measurement of `measured` tokens, with each amount of padding on each side.
    """

    symbols: schema.Rows = Field(ge=2)
    min_length: schema.Length
    length: schema.Length
    measured: schema.Rows
    amounts: schema.Lengths
    sides: Annotated[tuple[Side, ...], Field(min_length=1), schema.Distinct]
    examples: schema.Rows

    _in_order = model_validator(mode="after")(schema.lengths_in_order)


class Learning(schema.Part):
    """Training with Adam; the learning rate falls to 0."""

    steps: schema.Count
    batch: schema.Rows
    lr: PositiveFloat


class Config(schema.ExperimentConfig):
    """A row of the results is one encoding; "all" is the catalogue without those of `left_out`.

    With `model.checkpoint`, sentences are read by a released encoder instead, and nothing is
    trained: of the other fields only `measured`, `amounts`, `sides` and `examples` of `data`, and
    the seeds are read.
    """

    mostly_compiles = True

    encoding: schema.EncodingConfig
    model: EncoderConfig
    data: Data
    learning: Learning


def names(config: Config) -> list[str]:
    """The encodings to measure."""
    if config.encoding.name != ALL:
        return config.encoding.names
    return [name for name in encodings.CATALOG if name not in left_out(config)]


def left_out(config: Config) -> dict[str, str]:
    """The methods of the catalogue that "all" leaves out: name -> reason."""
    if config.encoding.name != ALL:
        return {}
    return {name: SEVERAL_AXES for name in encodings.CATALOG if encodings.axes(name) > 1}


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.checkpoint:
        return released_encoder.check(config.model)
    chosen = names(config)
    encodings.check_used(chosen, config.encoding.options)
    if config.model.kind not in ("encoder", "decoder"):
        has = "has no attention to mask" if config.model.kind == "lstm" else "reads two sequences"
        reason = f"{config.model.kind!r} {has}; choices: encoder, decoder"
        raise FieldError("model.kind", reason)
    if config.model.masks != schema.MaskConfig():
        raise FieldError("model.masks", "all subsets are measured; leave every mask True")
    longest = max(config.data.length, config.data.measured + max(config.data.amounts))
    for name in chosen:
        config_checks.sequence("encoding.name", name)
    rows = [small_encoding(name, config.encoding.options) for name in chosen]
    schema.check_distinct("encoding.name", [label for label, _ in rows])
    for name, (label, encoding) in zip(chosen, rows, strict=True):
        config_checks.width("model.width", label, encoding, config.model)
        _, options = small_options(name, config.encoding.options)
        config_checks.training("data.length", label, options, config.data.length)
        config_checks.reach("data.amounts", label, options, longest)
