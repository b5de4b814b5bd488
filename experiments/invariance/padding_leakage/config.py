"""The config of the padding experiment, and what it refuses."""

from experiments import config_checks
from experiments.invariance.encoder_config import EncoderConfig
from experiments.invariance.padding_leakage import fields
from experiments.invariance.small_models import small_encoding, small_options
from posenc_jax import encodings
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError

ALL = "all"
SEVERAL_AXES = "since positions of several axes lie on a grid, whose shape changes with the padding"


class Config(fields.Config):
    """The fields of small models; with `model.checkpoint`, sentences are read by a released encoder
    instead, and nothing is trained: of the other fields only `measured`, `amounts`, `sides` and
    `examples` of `data`, and the seeds are read.
    """

    model: EncoderConfig  # pyright: ignore[reportIncompatibleVariableOverride]


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
        from experiments.invariance import released_encoder  # loads Flax, which a config does not

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
