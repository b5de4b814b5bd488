"""The config of an experiment on a released model, and what it refuses."""

import re
from pathlib import Path
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from pydantic import Field, PositiveFloat

from experiments.pretrained import prompts
from experiments.pretrained.extensions import Extended, extended
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.lab.model import pretrained
from posenc_jax.lab.model.pretrained.tensors import read_json
from posenc_jax.lab.model.transformer import build
from posenc_jax.layout import full
from posenc_jax.options import FieldError, choices_for

OWN = Path(__file__).parent / "model"  # made by scripts/pretrained_model.py
OWN_RATE, PUBLISHED_RATE = 1e-3, 2e-5
TEXTS = "stdlib$|prose$|file:|tfds:"


class CheckpointedConfig(schema.Part):
    """The model.

    checkpoint: a folder of Hugging Face; "": the small model of this repository.
    length: tokens that it was trained on; None: as its config.json says.
    dtype: of the forward pass, and of the matrices if nothing is fine-tuned. Weights that are
      fine-tuned are float32, because bfloat16 rounds small updates away.
    """

    checkpoint: str = ""
    length: schema.Length | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"


class TuningConfig(schema.Part):
    """Fine-tuning at `factor` times the trained length.

    AdamW with betas 0.9 and 0.95, without weight decay; the learning rate rises for `warmup` steps
    from a tenth, as for PI. Published are 1000 steps of 64 windows (PI, arXiv 2306.15595), 400 of
    64 (YaRN, 2309.00071), and 400 of 32 with a rate that falls to 0 (LongRoPE, 2402.13753).

    rows: the rows that are fine-tuned, each from the released weights.
    steps: 0 for none.
    lr: None: 2e-5, as all three have for 7B parameters; 1e-3 for the model of this repository.
    falls: whether the learning rate falls to 0, on a line.
    accumulate, remat: as in `schema.TrainConfig`.
    """

    rows: Annotated[tuple[str, ...], schema.Distinct] = ("plain", "pi", "ntk", "yarn")
    steps: schema.Whole = 100
    batch: schema.Rows = 8
    lr: PositiveFloat | None = None
    warmup: schema.Whole = 20
    falls: bool = False
    accumulate: schema.Rows = 1
    remat: bool = False


class ReadingConfig(schema.Part):
    """What is measured.

    multiples: lengths of windows and prompts, in trained lengths; 1 must be among them.
    depths: places of the key in a prompt, evenly spread from its beginning to its end.
    examples: prompts of each length and depth.
    tokens: the most tokens in one forward pass, unless one window has more.
    """

    multiples: Annotated[tuple[schema.Few, ...], schema.Distinct] = (1, 2, 4, 8)
    depths: Annotated[int, Field(ge=2, le=101)] = 5
    examples: schema.Few = 2
    tokens: schema.Count = 8192


class Config(schema.ExperimentConfig):
    """By default the model of this repository on the bytes of the standard library.

    factor: times the trained length that an extension is made for.
    rows: the extensions besides "plain", which is always read; (): all that fit.
    prompts: names in experiments/pretrained/prompts, or paths of such files.
    task: a text; `stretch` is the number of bytes that are read.
    """

    mostly_compiles = True

    seeds: schema.Few = 1
    model: CheckpointedConfig = CheckpointedConfig()
    factor: Annotated[float, Field(ge=1)] = 4.0
    rows: Annotated[tuple[str, ...], schema.Distinct] = ()
    task: schema.TaskConfig = schema.TaskConfig.model_validate({"name": "stdlib", "stretch": 16384})
    prompts: Annotated[tuple[str, ...], schema.Distinct] = ("passkey", "needle")
    train: TuningConfig = TuningConfig()
    eval: ReadingConfig = ReadingConfig()

    @property
    def folder(self) -> Path:
        """The folder of the checkpoint."""
        return Path(self.model.checkpoint).expanduser() if self.model.checkpoint else OWN

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.train.lr or (PUBLISHED_RATE if self.model.checkpoint else OWN_RATE)


def extensions(config: Config) -> Extended:
    """The encodings that the model is read under. Refused, FieldError: as `check`."""
    released = read_json(config.folder / "config.json")
    with inside("model.checkpoint"):
        found = extended(released, config.factor, config.model.length)
    _check_rows("rows", config.rows, found)
    wanted = {"plain", *config.rows} if config.rows else {*found.encodings}
    chosen = {name: made for name, made in found.encodings.items() if name in wanted}
    return found._replace(encodings=chosen)


def _check_rows(field: str, names: tuple[str, ...], found: Extended) -> None:
    """FieldError: a row that is not among the encodings."""
    for name in names:
        if name not in found.encodings:
            raise FieldError(field, f"{name!r} does not fit{choices_for(name, found.encodings)}")


def lengths(config: Config, trained: int) -> list[int]:
    """The lengths of windows in tokens, ascending."""
    return sorted(trained * times for times in config.eval.multiples)


def check(config: Config) -> None:
    """Raises FieldError or Refused for what cannot run, before weights are read."""
    found = extensions(config)
    pretrained.tokenizer(config.folder)
    for name in config.prompts:
        prompts.read(name)
    if config.train.batch % config.train.accumulate:
        reason = f"{config.train.batch} is not divisible by accumulate {config.train.accumulate}"
        raise FieldError("train.batch", reason)
    if config.train.steps:
        _check_rows("train.rows", config.train.rows, found)
    if 1 not in config.eval.multiples:
        reason = "1 must be among them: rows are compared with plain at the trained length"
        raise FieldError("eval.multiples", reason)
    if config.task.options.get("masked") or not re.match(TEXTS, config.task.name):
        reason = (
            f"{config.task.name} is no text to read; choices: stdlib, prose, file:PATH, tfds:NAME"
        )
        raise FieldError("task.name", reason)
    tasks.check(config.task.name, {}, **config.task.options)
    _check_reach(found, max(lengths(config, found.length)))


def _check_reach(found: Extended, length: int) -> None:
    """FieldError: the model's own positions do not reach so far, such as those of a table."""
    model = build(found.released.config, found.released.encoding, found.released.vocab)
    params = jax.eval_shape(model.init, jax.random.key(0))
    try:
        jax.eval_shape(model.apply, params, jnp.zeros((1, length), jnp.int32), full(1, length))
    except ValueError as error:
        raise FieldError("eval.multiples", f"{length} tokens: {error}") from None
