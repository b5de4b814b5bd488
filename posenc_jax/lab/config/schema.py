"""The shape of a config: every field, its type and its choices.

A config file gives an `ml_collections.ConfigDict`; `check` turns it into one of these frozen models
or raises `ValueError` with one line for the first thing that is wrong. An experiment's own `Config`
is put together from these parts.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat

from posenc_jax.encoding import Dims
from posenc_jax.options import MOST, choices_for


def distinct(values: Sequence) -> Sequence:
    """The values, if none stands twice: what is done for each would be done twice."""
    for n, value in enumerate(values):
        if value in values[:n]:
            raise ValueError(f"{value!r} stands twice")
    return values


def distinct_in(field: str, values: Sequence) -> None:
    """ValueError: names the field, and the value that stands twice in it."""
    try:
        distinct(values)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


Count = Annotated[int, Field(gt=0, le=MOST)]
Whole = Annotated[int, Field(ge=0, le=MOST)]
# Past these an array of bytes alone would not fit in any memory, or what counts them overflows.
Length = Annotated[int, Field(gt=0, le=2**24)]
Rows = Annotated[int, Field(gt=0, le=2**20)]
Few = Annotated[int, Field(gt=0, le=2**12)]
Distinct = AfterValidator(distinct)


class Part(pydantic.BaseModel):
    """Frozen, strict about types, and closed to unknown fields."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class TaskConfig(pydantic.BaseModel):
    """`name` and, beside it, options of the task."""

    model_config = pydantic.ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def _several(name: str) -> str:
    if "" in re.split("[,+]", name):
        raise ValueError(f"{name!r} holds an empty name")
    return ",".join(distinct(name.split(",")))


class EncodingConfig(TaskConfig):
    """`name` and, beside it, options of the method.

    "a,b" names several encodings to run one after another, "a+b" chains two.
    """

    name: Annotated[str, AfterValidator(_several)]

    @property
    def names(self) -> list[str]:
        return self.name.split(",")


class MaskConfig(Part):
    """The three padding masks: keys in attention, outputs at pads, targets in the loss."""

    attention: bool = True
    output: bool = True
    loss: bool = True


class ModelConfig(Part):
    """The model; `mlp` is the hidden width as a multiple of `width`."""

    kind: Literal["decoder", "encoder", "lstm"] = "decoder"
    width: Rows = 128
    heads: Rows = 4
    layers: Few = 2
    mlp: Few = 4
    dtype: Literal["float32", "bfloat16"] = "float32"
    masks: MaskConfig = MaskConfig()

    @property
    def dims(self) -> Dims:
        """The sizes as the library takes them."""
        return Dims(self.width, self.heads, self.width // self.heads, self.layers)

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

    length: Length
    min_length: Length
    batch: Rows = 32
    steps: Count
    lr: PositiveFloat = 1e-3
    warmup: Whole = 50
    decay: NonNegativeFloat = 0.01
    clip: PositiveFloat = 1.0
    chunk: Rows = 50
    fsdp: bool = False

    @pydantic.model_validator(mode="after")
    def _lengths_in_order(self):
        if self.min_length > self.length:
            raise ValueError(f"min_length {self.min_length} is over length {self.length}")
        return self


class CheckpointConfig(Part):
    """How often training is saved, in seconds (0: after every chunk), and how many saves stay."""

    seconds: NonNegativeFloat = 60.0
    keep: Few = 2


class EvalConfig(Part):
    """Evaluation at every length; `tokens` bounds one forward pass, `examples` a generated test
    set. `variants` names encodings to read the trained weights under; empty: the trained one.
    """

    lengths: tuple[Length, ...] = Field(min_length=1)
    variants: tuple[str, ...] = ()
    examples: Rows = 256
    tokens: Count = 8192


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
    seeds: Few = 3
    first_seed: Whole = 0
    wandb: WandbConfig = WandbConfig()

    @pydantic.model_validator(mode="after")
    def _seeds_in_range(self):
        if self.first_seed + self.seeds > MOST:
            raise ValueError(f"first_seed {self.first_seed} and {self.seeds} seeds go past "
                             f"{MOST - 1}, the last")  # fmt: skip
        return self


class TrainedConfig(ExperimentConfig):
    """What an experiment has that trains each encoding on a task: see `experiments.stages`."""

    encoding: EncodingConfig
    task: TaskConfig
    model: ModelConfig
    train: TrainConfig
    checkpoint: CheckpointConfig = CheckpointConfig()


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
