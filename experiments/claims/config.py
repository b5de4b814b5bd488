"""The config of the claims ledger, and what it refuses."""

from typing import Annotated, Literal

from pydantic import Field

from experiments import config_checks
from posenc_jax import make
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.config.errors import inside
from posenc_jax.options import FieldError, choices_for


class TextConfig(schema.Part):
    """The text, and the models trained on it that claims share."""

    task: schema.TaskConfig
    model: schema.ModelConfig
    train: schema.TrainConfig


class Config(schema.ExperimentConfig):
    """The fields of the config.

    claims: "all", or ids separated by commas.
    scale: the sizes of models and measurements; at "quick" no claim on trained models is decided.
    budgets: each claim on trained models is measured once for each, with the steps of all its
      trainings multiplied by it.
    """

    mostly_compiles = True

    claims: str
    scale: Literal["quick", "full"]
    budgets: Annotated[tuple[schema.Few, ...], Field(min_length=1), schema.Distinct]
    text: TextConfig


def claim_ids(config: Config) -> list[str]:
    """The ids of the claims to measure."""
    from experiments.claims.register import LEDGER  # the claims load Matplotlib, SciPy and Optax

    return list(LEDGER) if config.claims == "all" else config.claims.split(",")


def check(config: Config) -> None:
    """Raises FieldError for an unknown claim, and for a text or model that does not suit them."""
    from experiments.claims.register import LEDGER

    chosen = claim_ids(config)
    schema.check_distinct("claims", chosen)
    for id in chosen:
        if id not in LEDGER:
            raise FieldError("claims", f"no claim {id!r}{choices_for(id, ['all', *LEDGER])}")
    text, model = config.text, config.text.model
    with inside("text"):
        if model.kind != "decoder":
            raise FieldError("model.kind", f"{model.kind!r}: the shared models are 'decoder'")
        config_checks.width("model.width", "rope", make("rope"), model)
        config_checks.text_of_bytes(text.task)
        tasks.check(text.task.name, {"train.length": (text.train.length,)}, **text.task.options)
        if "rope-4" in chosen and model.heads != 4:
            raise FieldError("model.heads", f"{model.heads}: rope-4 compares the four of 4")
