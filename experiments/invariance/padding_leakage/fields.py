"""The fields of the padding experiment with small models, which claims measure too."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, model_validator

from posenc_jax.lab.config import schema

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
    """A row of the results is one encoding; "all" is the catalogue without those of `left_out`."""

    mostly_compiles = True

    encoding: schema.EncodingConfig
    model: schema.ModelConfig
    data: Data
    learning: Learning
