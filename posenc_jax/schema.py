"""The shape of a config: every field, its type and its choices.

A config file gives an `ml_collections.ConfigDict`; `check` turns it into one of these frozen models
or raises `ValueError` with one line for the first thing that is wrong. An experiment's own `Config`
is put together from these parts.
"""

from typing import Any, Literal, TypeVar

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from posenc_jax.choices import choices_for


class Part(pydantic.BaseModel):
    """Frozen, strict about types, and closed to unknown fields."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class EncodingConfig(pydantic.BaseModel):
    """`name` and, beside it, options of the method.

    "a,b" names several encodings to run one after another, "a+b" chains two.
    """

    model_config = pydantic.ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def names(self) -> list[str]:
        return self.name.split(",")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TaskConfig(EncodingConfig):
    """`name` and, beside it, options of the task."""


class MaskConfig(Part):
    """The three padding masks: keys in attention, outputs at pads, targets in the loss."""

    attention: bool = True
    output: bool = True
    loss: bool = True


class ModelConfig(Part):
    """The model; `mlp` is the hidden width as a multiple of `width`."""

    kind: Literal["decoder", "encoder", "lstm"] = "decoder"
    width: PositiveInt = 128
    heads: PositiveInt = 4
    layers: PositiveInt = 2
    mlp: PositiveInt = 4
    dtype: Literal["float32", "bfloat16"] = "float32"
    masks: MaskConfig = MaskConfig()

    @pydantic.model_validator(mode="after")
    def _heads_divide_width(self):
        if self.width % self.heads:
            fits = [h for h in range(1, self.width + 1) if self.width % h == 0]
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}; "
                             f"heads that divide it: {', '.join(map(str, fits))}")  # fmt: skip
        return self


class TrainConfig(Part):
    """Training; `length` is the task's size (tokens of a window, symbols of a string). `fsdp`
    spreads parameters and optimizer over the devices that share a batch.
    """

    length: PositiveInt
    min_length: PositiveInt
    batch: PositiveInt = 32
    steps: PositiveInt
    lr: PositiveFloat = 1e-3
    warmup: NonNegativeInt = 50
    decay: NonNegativeFloat = 0.01
    clip: PositiveFloat = 1.0
    chunk: PositiveInt = 50
    fsdp: bool = False

    @pydantic.model_validator(mode="after")
    def _lengths_in_order(self):
        if self.min_length > self.length:
            raise ValueError(f"min_length {self.min_length} is over length {self.length}")
        return self


class CheckpointConfig(Part):
    """How often training is saved, in seconds (0: after every chunk), and how many saves stay."""

    seconds: NonNegativeFloat = 60.0
    keep: PositiveInt = 2


class EvalConfig(Part):
    """Evaluation at every length; `tokens` bounds one forward pass, `examples` a generated test
    set. `variants` names encodings to read the trained weights under; empty: the trained one.
    """

    lengths: tuple[PositiveInt, ...] = Field(min_length=1)
    variants: tuple[str, ...] = ()
    examples: PositiveInt = 256
    tokens: PositiveInt = 8192


class WandbConfig(Part):
    """The mirror in Weights & Biases; `checkpoint` sends the checkpoints there too."""

    mode: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "posenc_jax"
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    checkpoint: bool = False


class ExperimentConfig(Part):
    """What every experiment has."""

    experiment: str
    seeds: PositiveInt = 3
    first_seed: NonNegativeInt = 0
    wandb: WandbConfig = WandbConfig()


C = TypeVar("C", bound=pydantic.BaseModel)


def check(model: type[C], config: dict[str, Any]) -> C:
    """The config as a `model`. ValueError: one line naming the field, the value and the choices."""
    try:
        return model.model_validate(config)
    except pydantic.ValidationError as error:
        raise ValueError(_one_line(model, error.errors()[0])) from None


def _one_line(model: type[pydantic.BaseModel], error: Any) -> str:
    path = [str(p) for p in error["loc"]]
    field = ".".join(["config", *path])
    if error["type"] == "extra_forbidden":
        return f"{field}: no such field" + choices_for(path[-1], _fields_at(model, path[:-1]))
    if error["type"] == "missing":
        return f"{field}: must be given"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return f"{field}: {message}"
    return f"{field}: {error['input']!r} is wrong: {message[0].lower()}{message[1:]}"


def _fields_at(model: Any, path: list[str]) -> list[str]:
    for name in path:
        model = model.model_fields[name].annotation
    return list(model.model_fields)
