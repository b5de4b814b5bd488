"""The config of an experiment on a released model."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from posenc_jax.lab.config import schema
from posenc_jax.lab.hosts.exit_status import Refused
from posenc_jax.lab.hosts.files import expanded
from posenc_jax.options import FieldError

OWN = Path(__file__).parent / "model"  # made by scripts/pretrained_model.py
OWN_RATE, PUBLISHED_RATE = 1e-3, 2e-5


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
    steps: schema.Whole = 200
    batch: schema.Rows = 2
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
    tokens: schema.Count = 4096


class Config(schema.ExperimentConfig):
    """By default the model of this repository on the bytes of the standard library.

    factor: times the trained length that an extension is made for.
    rows: the extensions besides "plain", which is always read; (): all that fit.
    prompts: names in experiments/pretrained/prompts, or paths of such files.
    task: a text; `stretch` is the number of bytes that are read.
    """

    several_processes = True
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
        """The folder of the checkpoint. FieldError: it is in the home folder of an unknown user."""
        try:
            return expanded(self.model.checkpoint) if self.model.checkpoint else OWN
        except Refused as error:
            raise FieldError("model.checkpoint", str(error)) from None

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.train.lr or (PUBLISHED_RATE if self.model.checkpoint else OWN_RATE)


def lengths(config: Config, trained: int) -> list[int]:
    """The lengths of windows in tokens, ascending."""
    return sorted(trained * times for times in config.eval.multiples)
