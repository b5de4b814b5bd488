"""The config of the permutation experiment, and what it refuses."""

from typing import Annotated

from pydantic import Field, PositiveFloat

from experiments import config_checks
from experiments.compare.length_extrapolation import config as length_extrapolation
from experiments.invariance.encoder_config import EncoderConfig
from experiments.invariance.small_models import small_encoding
from posenc_jax import encodings
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.options import FieldError

CAUSAL, LSTM = "nope, causal mask", "lstm"  # the rows without an encoding
LENGTHS = (2, 3)  # of the order tasks


class OrderConfig(schema.Part):
    """The order tasks: the number of symbols, and training on all examples at every step."""

    symbols: schema.Count = Field(ge=LENGTHS[-1], le=64)
    steps: schema.Count
    lr: PositiveFloat


class EquivarianceConfig(schema.Part):
    """Lengths and permutations of the equivariance test; `float64`: rows measured in it as well."""

    lengths: Annotated[tuple[schema.Few, ...], Field(min_length=1), schema.Distinct]
    permutations: schema.Rows
    float64: Annotated[tuple[str, ...], schema.Distinct]


class TextConfig(schema.Part):
    """The part on real text, as in `length_extrapolation`; its task must have `masked`."""

    encoding: schema.EncodingConfig
    task: schema.TaskConfig
    model: schema.ModelConfig
    train: schema.TrainConfig
    eval: schema.EvalConfig


class Config(schema.ExperimentConfig):
    """A row of the results is one encoding, or one of the models without.

    With `model.checkpoint`, sentences are read by a released encoder instead, as it is and without
    its positions, and nothing is trained: of the other fields only `equivariance.permutations` and
    the seeds are read.
    """

    mostly_compiles = True

    encoding: schema.EncodingConfig
    model: EncoderConfig
    order: OrderConfig
    equivariance: EquivarianceConfig
    text: TextConfig


def text_config(config: Config) -> length_extrapolation.Config:
    """The config of the part on real text, with the seeds of this config."""
    return length_extrapolation.Config(
        experiment="length_extrapolation",
        seeds=config.seeds,
        first_seed=config.first_seed,
        **{field: getattr(config.text, field) for field in TextConfig.model_fields},
    )


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before data is read or anything compiled."""
    if config.model.checkpoint:
        from experiments.invariance import released_encoder  # loads Flax, which a config does not

        return released_encoder.check(config.model)
    encodings.check_used(config.encoding.names, config.encoding.options)
    rows = [small_encoding(name, config.encoding.options) for name in config.encoding.names]
    labels = [*(label for label, _ in rows), CAUSAL, LSTM]
    schema.check_distinct("encoding.name", labels)
    for label, encoding in rows:
        config_checks.width("model.width", label, encoding, config.model)
    for name in config.equivariance.float64:
        if name not in labels:
            reason = f"no row {name!r}; choices: {', '.join(labels)}"
            raise FieldError("equivariance.float64", reason)
    for field, kind in {"": config.model.kind, "text.": config.text.model.kind}.items():
        if kind != "encoder":
            reason = f"{kind!r} sees order by itself; use 'encoder'"
            raise FieldError(f"{field}model.kind", reason)
    if not config.text.task.options.get("masked"):
        raise FieldError("text.task.masked", "must be given, the share of bytes that are hidden")
    with inside("text"):
        length_extrapolation.check(text_config(config))
