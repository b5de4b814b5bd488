"""The config of the published orderings, and what it refuses."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, PositiveFloat

from experiments.board.published.orderings import ORDERINGS, Ordering
from experiments.board.published.settings import SETTINGS, Setting
from posenc_jax.lab.config import schema
from posenc_jax.options import FieldError, choices_for

ALL = "all"


class Config(schema.ExperimentConfig):
    """The rows to measure, and how long.

    rows:   names of orderings, "a,b", or "all".
    budget: a multiple of the steps that each setting states.
    rates:  learning rates that the first seed tries up to half of the budget; the loss on
      validation examples chooses one for all seeds of a method.
    examples: of a test, and of validation; a text or a set of images has as many as it holds.
    """

    rows: str = ALL
    budget: PositiveFloat = 1.0
    rates: Annotated[tuple[PositiveFloat, ...], Field(min_length=1), schema.Distinct] = (3e-3, 1e-3)
    examples: schema.Rows = 512


def names(config: Config) -> list[str]:
    """The rows to measure."""
    return list(ORDERINGS) if config.rows == ALL else config.rows.split(",")


def orderings(config: Config) -> dict[str, Ordering]:
    """The orderings to measure, by name."""
    return {name: ORDERINGS[name] for name in names(config)}


def trainings(config: Config) -> Iterator[tuple[str, str]]:
    """The (setting, method) pairs to train; rows of one setting share them."""
    rows = orderings(config).values()
    yield from dict.fromkeys((row.setting, method) for row in rows for method in row.published)


def settings(config: Config) -> dict[str, Setting]:
    """The settings of the rows to measure, by name."""
    return {row.setting: SETTINGS[row.setting] for row in orderings(config).values()}


def check(config: Config) -> None:
    """Raises FieldError for what cannot run, before anything is compiled."""
    rows = names(config)
    for name in rows:
        if name not in ORDERINGS:
            raise FieldError("rows", f"no row {name!r}{choices_for(name, [*ORDERINGS, ALL])}")
    schema.check_distinct("rows", rows)
