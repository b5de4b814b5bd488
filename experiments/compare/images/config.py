"""The config of an image experiment, the encodings that it names, and what it refuses."""

from typing import Annotated

from pydantic import Field

from experiments import config_checks
from experiments.compare import fields, grids
from posenc_jax.lab import tasks
from posenc_jax.lab.config import schema
from posenc_jax.lab.tasks.images import VIEWS
from posenc_jax.options import FieldError


class EvalConfig(schema.Part):
    """Resolutions to test at, in patches a side; `tokens`: the most in one forward pass."""

    lengths: Annotated[tuple[schema.Few, ...], Field(min_length=1), schema.Distinct]
    tokens: schema.Count = 8192


class Config(fields.Config):
    """Lengths in `train` and `eval` are patches a side."""

    eval: EvalConfig  # type: ignore[assignment]


def row_of(name: str, view: str) -> str:
    """The label `encoding` of a method's records in one view of the images."""
    return name if view == VIEWS[0] else f"{name}, {view}"


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    if config.model.kind != "encoder":
        reason = f"{config.model.kind!r} reads patches in order; use 'encoder'"
        raise FieldError("model.kind", reason)
    grids.check_order(config)
    tasks.check(config.task.name, config_checks.sizes(config), "patches", **config.task.options)
    if config.train.length not in config.eval.lengths:
        raise FieldError("eval.lengths", f"must hold the trained one, {config.train.length}")
    grids.check_methods(config, "images have 2")
