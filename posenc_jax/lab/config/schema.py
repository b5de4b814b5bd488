"""The fields of a config: their types, their defaults, and the values that each may take.

`check` makes one of these frozen models of a config as nested dictionaries. An experiment builds
its own `Config` from these parts. The defaults are here; a config file has only the fields that
differ.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import pydantic
from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat

from posenc_jax.encoding import Dims
from posenc_jax.options import MOST, FieldError, choices_for


def distinct(values: Sequence) -> Sequence:
    """Returns the values. ValueError: the first value that is given twice."""
    for n, value in enumerate(values):
        if value in values[:n]:
            raise ValueError(f"{value!r} is given twice")
    return values


def check_distinct(field: str, values: Sequence) -> None:
    """Raises a FieldError if a value of the field is given twice."""
    try:
        distinct(values)
    except ValueError as error:
        raise FieldError(field, str(error)) from None


Count = Annotated[int, Field(gt=0, le=MOST)]
Whole = Annotated[int, Field(ge=0, le=MOST)]
# Larger values would not fit into memory as an array of bytes, or would overflow a count.
MOST_LENGTH = 2**24
Length = Annotated[int, Field(gt=0, le=MOST_LENGTH)]
Rows = Annotated[int, Field(gt=0, le=2**20)]
Few = Annotated[int, Field(gt=0, le=2**12)]
Distinct = AfterValidator(distinct)
Lengths = Annotated[tuple[Length, ...], Field(min_length=1), Distinct]


def lengths_in_order(config: Any) -> Any:
    """Returns the config. ValueError: its `min_length` is larger than its `length`."""
    if config.min_length > config.length:
        raise ValueError(f"min_length {config.min_length} is larger than length {config.length}")
    return config


class Part(pydantic.BaseModel):
    """A part of a config: frozen, strict about types, without unknown fields."""

    model_config = pydantic.ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False
    )


class NamedConfig(pydantic.BaseModel):
    """The `name` of an entry of a table, with the entry's options as further fields."""

    model_config = pydantic.ConfigDict(extra="allow", frozen=True, strict=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class TaskConfig(NamedConfig):
    """A task by name, with its options."""


def _several(name: str) -> str:
    if "" in re.split("[,+]", name):
        raise ValueError(f"{name!r} has an empty name")
    return ",".join(distinct(name.split(",")))


class EncodingConfig(NamedConfig):
    """A method by name, with its options.

    "a,b" is two methods, trained one after the other; "a+b" is one method, the chain of two.
    """

    name: Annotated[str, AfterValidator(_several)]

    @property
    def names(self) -> list[str]:
        return self.name.split(",")


BiasedPart = Literal["norm", "qkv", "out", "mlp", "read_out"]


class MaskConfig(Part):
    """Which masks of padding are used: on keys in attention, on outputs, on targets in the loss."""

    attention: bool = True
    output: bool = True
    loss: bool = True


class ModelConfig(Part):
    """The model; the MLP has `mlp_width` hidden channels, by default `mlp` times `width`.

    layers:    of an encoder-decoder so many on either side.
    head:      width of a head; None: the heads divide `width`.
    kv_heads:  heads of keys and values, which queries share; None: as many as of queries.
    norm:      rmsnorm has no mean and no bias (arXiv 1910.07467); `eps` is added to the variance.
    norm_at:   each part f, attention or MLP, makes of the hidden states x: "pre" x + f(norm(x)),
               "post" norm(x + f(x)) as BERT, "output" x + norm(f(x)) as OLMo 2, "both"
               x + norm(f(norm(x))) as Gemma 2.
    first_norm: the input of the first layer's attention is normalised, as that of the others;
               ModernBERT's is not, as its embeddings are.
    qk_norm:   RMSNorm of queries and keys: of each head as Qwen3, or of all heads as OLMo 2.
    parallel:  attention and MLP read the same x, and both are added to it, as in GPT-NeoX.
    gated:     the MLP is down(activation(gate(x)) up(x)) (arXiv 2002.05202).
    biases:    the parts whose affine maps, or norms, have a bias.
    tied:      the read-out's weights are those of the embedding.
    embedding: "scaled" multiplies embeddings by the square root of `width`, as Gemma does; "norm"
               normalises them, with positions added, as BERT and BLOOM do.
    transform: a dense layer, activation and norm before the read-out, as in BERT's head;
               transform_bias: the dense layer has a bias.
    sinks:     each layer and head has the logit of one more key, whose value is 0, as gpt-oss has.
    cap:       bound on the products of queries and keys, as Gemma 2 has; None: no bound.
    logit_scale: factor of the read-out's logits, as Cohere's models have.
    logit_cap: bound on the read-out's logits, as Gemma 2 has; None: no bound.
    """

    kind: Literal["decoder", "encoder", "encoder_decoder", "lstm"] = "decoder"
    width: Rows = 128
    heads: Rows = 4
    head: Rows | None = None
    kv_heads: Rows | None = None
    layers: Few = 2
    mlp: Few = 4
    mlp_width: Rows | None = None
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_at: Literal["pre", "post", "output", "both"] = "pre"
    first_norm: bool = True
    eps: PositiveFloat = 1e-6
    qk_norm: Literal["head", "heads"] | None = None
    parallel: bool = False
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu_tanh"
    gated: bool = False
    biases: Annotated[tuple[BiasedPart, ...], Distinct] = get_args(BiasedPart)
    tied: bool = False
    embedding: Literal["plain", "scaled", "norm"] = "plain"
    transform: bool = False
    transform_bias: bool = True
    sinks: bool = False
    cap: PositiveFloat | None = None
    logit_scale: PositiveFloat = 1.0
    logit_cap: PositiveFloat | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    masks: MaskConfig = MaskConfig()

    @property
    def dims(self) -> Dims:
        """The sizes as the library takes them."""
        return Dims(self.width, self.heads, self.head or self.width // self.heads, self.layers)

    @pydantic.model_validator(mode="after")
    def _heads_divide_width(self):
        if self.head is None and self.width % self.heads:
            fits = [h for h in range(1, self.width + 1) if self.width % h == 0]
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}; "
                             f"heads that divide it: {', '.join(map(str, fits))}")  # fmt: skip
        if self.kv_heads is not None and self.heads % self.kv_heads:
            fits = [h for h in range(1, self.heads + 1) if self.heads % h == 0]
            raise ValueError(f"heads {self.heads} are not divisible by kv_heads {self.kv_heads}; "
                             f"kv_heads that divide them: {', '.join(map(str, fits))}")  # fmt: skip
        return self

    @pydantic.model_validator(mode="after")
    def _parallel_is_pre_norm(self):
        if self.parallel and (self.norm_at != "pre" or self.kind == "encoder_decoder"):
            raise ValueError("parallel is known with norm_at pre, without cross-attention, only")
        return self

    @pydantic.model_validator(mode="after")
    def _first_norm_is_at_an_input(self):
        if not self.first_norm and self.norm_at not in ("pre", "both"):
            raise ValueError(f"first_norm False: with norm_at {self.norm_at} no input has a norm; "
                             "choices: pre, both")  # fmt: skip
        return self


RematPolicy = Literal["nothing", "products"]


class TrainConfig(Part):
    """Training on sizes from `min_length` (by default `length`) to `length`.

    The task defines a size: tokens of a window, symbols of a string, patches along a side. `chunk`
    steps are one program. `fsdp` spreads parameters and optimizer state over the devices of a seed.
    `tensor` devices share the heads, the channels of the MLP and the vocabulary (arXiv 1909.08053).
    To save memory, `accumulate` equal parts of a batch are computed one after another and their
    gradients summed, and with `remat` the forward pass keeps only the input of each layer for the
    backward pass, which computes the rest again; with `remat_policy` "products" it also keeps what
    the weights give, so that no product with weights is computed twice.

    The learning rate rises to `lr` in `warmup` steps, then follows the `schedule`; gradients are
    clipped to a global norm of `clip`; `decay` is the weight decay of matrices, but for those
    under a name of `undecayed` in the tree of weights, such as "embed" or "encoding". Names and
    options of optimizers and schedules: `posenc_jax/lab/training/optimizers.py`.

    With `average` N weights are averaged over the last N steps, exponentially (Polyak and Juditsky
    1992), and the average is what is evaluated; 0: the weights themselves.
    """

    length: Length = 128
    min_length: Length = Field(default_factory=lambda fields: fields["length"])
    batch: Rows = 32
    steps: Count = 250
    lr: PositiveFloat = 3e-3
    warmup: Whole = 25
    decay: NonNegativeFloat = 0.01
    undecayed: Annotated[tuple[str, ...], Distinct] = ()
    clip: PositiveFloat = 1.0
    optimizer: NamedConfig = NamedConfig(name="adamw")
    schedule: NamedConfig = NamedConfig(name="cosine")
    average: Whole = 0
    chunk: Rows = 20
    fsdp: bool = False
    tensor: Rows = 1
    accumulate: Rows = 1
    remat: bool = False
    remat_policy: RematPolicy = "nothing"

    _in_order = pydantic.model_validator(mode="after")(lengths_in_order)

    @pydantic.model_validator(mode="after")
    def _parts_divide_batch(self):
        if self.batch % self.accumulate:
            fits = [n for n in range(1, self.batch + 1) if self.batch % n == 0]
            raise ValueError(f"batch {self.batch} is not divisible by accumulate "
                             f"{self.accumulate}; numbers that divide it: "
                             f"{', '.join(map(str, fits))}")  # fmt: skip
        return self

    @pydantic.model_validator(mode="after")
    def _policy_has_an_effect(self):
        if self.remat_policy != "nothing" and not self.remat:
            raise ValueError(f"remat_policy {self.remat_policy!r} has no effect without remat")
        return self


class CheckpointConfig(Part):
    """Checkpoints: the seconds between two (0: one after each chunk), and how many are kept.

    at: steps, each the last of a chunk, whose checkpoints are kept as well, and never deleted. The
      last of these before a rate that was constant falls is kept anyway, see `wsd`.
    """

    seconds: NonNegativeFloat = 60.0
    keep: Few = 2
    at: Annotated[tuple[Count, ...], Distinct] = ()


class StartConfig(Part):
    """What a training starts from: a run, or a model of Hugging Face with `what` "weights".

    run:      its folder; "": initial weights.
    what:     "state" goes on with the run's training, from its weights, optimizer and step; all
              that changes an update stays as it was. "weights" begins a new training.
    step:     of the run's checkpoint; None: the last.
    encoding: the row of the run; "": that of the same name, or the only one.
    """

    run: str = ""
    what: Literal["state", "weights"] = "state"
    step: Count | None = None
    encoding: str = ""


class EvalConfig(Part):
    """Evaluation at every length.

    variants: encodings under which the trained weights are evaluated; empty: the trained one.
    examples: size of a generated test set.
    tokens: the most tokens in one forward pass.
    """

    lengths: Lengths = (128, 256, 512, 1024, 2048)
    variants: Annotated[tuple[str, ...], Distinct] = ()
    examples: Rows = 256
    tokens: Count = 8192


class WandbConfig(Part):
    """Logging to Weights & Biases, where each training is a run, and our run their group.

    group:      the groups of our runs begin with it, such as the name of a sweep.
    job_type:   of the trainings; that of the run with tables and figures is "report".
    checkpoint: the checkpoints are uploaded as well.
    """

    mode: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "posenc_jax"
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    checkpoint: bool = False


class ExperimentConfig(Part):
    """The fields of every experiment, and two facts about it that its `Config` may change.

    several_processes: several processes may make one run together.
    mostly_compiles: a run takes about as long to compile as to compute.

    imports: modules of your own that register methods or tasks, such as ("my_methods",); they are
      in the folder of the config file, or on Python's path.
    """

    several_processes: ClassVar[bool] = False
    mostly_compiles: ClassVar[bool] = False

    experiment: str
    imports: Annotated[tuple[str, ...], Distinct] = ()
    seeds: Few = 3
    first_seed: Whole = 0
    wandb: WandbConfig = WandbConfig()

    @property
    def seed_range(self) -> range:
        """The numbers of the seeds: `seeds` of them, from `first_seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @pydantic.model_validator(mode="after")
    def _seeds_in_range(self):
        if self.first_seed + self.seeds > MOST:
            raise ValueError(f"first_seed {self.first_seed} and {self.seeds} seeds go past "
                             f"{MOST - 1}, the last")  # fmt: skip
        return self


class TrainedConfig(ExperimentConfig):
    """The fields of an experiment that trains each encoding on a task, as those of comparisons.

    options: what an option of a method is that `encoding` does not give: "library", its default;
      "setting", what suits the trained window, the longest test, the width of a head and the kind
      of model.
    profile: trace some steps of each training; the report then has a table of where time goes.
    """

    encoding: EncodingConfig
    options: Literal["library", "setting"] = "library"
    task: TaskConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    start: StartConfig = StartConfig()
    profile: bool = False

    @property
    def row_names(self) -> list[str]:
        """The names of what is trained, each with every seed."""
        return self.encoding.names

    @property
    def is_evaluation(self) -> bool:
        """Whether it says that the training that it goes on with has all its steps already."""
        start = self.start
        return bool(start.run) and start.what == "state" and start.step == self.train.steps

    @pydantic.model_validator(mode="after")
    def _devices_divide_heads(self):
        for name, heads in (("heads", self.model.heads), ("kv_heads", self.model.kv_heads)):
            if heads is not None and heads % self.train.tensor:
                fits = [n for n in range(1, heads + 1) if heads % n == 0]
                raise ValueError(f"train.tensor {self.train.tensor} does not divide model.{name} "
                                 f"{heads}; numbers that divide it: "
                                 f"{', '.join(map(str, fits))}")  # fmt: skip
        return self


C = TypeVar("C", bound=pydantic.BaseModel)


def check(model: type[C], config: dict[str, Any]) -> C:
    """The config as a `model`. FieldError: the first wrong field, its value and the choices."""
    try:
        return model.model_validate(config)
    except pydantic.ValidationError as error:
        first: Any = error.errors()[0]
        raise FieldError(first["loc"], _reason(model, first)) from None


def _reason(model: Any, error: Any) -> str:
    if error["type"] == "extra_forbidden":
        *path, name = error["loc"]
        for part in path:
            model = model.model_fields[part].annotation
        return "no such field" + choices_for(name, model.model_fields)
    if error["type"] == "missing":
        return "must be given"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    message = error["msg"]
    return f"{error['input']!r} is wrong: {message[0].lower()}{message[1:]}"
