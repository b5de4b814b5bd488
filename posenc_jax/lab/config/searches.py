"""Searches as plain data: trials whose values are drawn, and the metric that they make best.

A config file's `get_sweep` may return a search in place of points:

    def get_sweep(argument=""):
        return Search(
            {"train.lr": Range(1e-4, 1e-2, log=True), "encoding.name": ("rope", "alibi")},
            objective="extrapolation/mean", goal="minimize", trials=20,
        )
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from posenc_jax.options import FieldError, choices_for

Goal = Literal["minimize", "maximize"]
Method = Literal["bayes", "random"]
KEPT = 3  # one of so many trials goes on at each comparison of early stopping


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included: integers if both bounds are, else floats, drawn
    uniformly, or with `log` uniformly in the logarithm.
    """

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        return type(self.low) is int and type(self.high) is int


class Search(NamedTuple):
    """Trials, one run each, that look for the best value of a metric.

    fields: {dotted field of the config: a Range, or a sequence of choices}.
    objective: a metric by its name in W&B, such as "valid/loss", "test/bits_per_byte/256" or
      "extrapolation/mean".
    trials: how many runs, those stopped early included.
    method: "bayes" draws a trial with regard to the results of those before it, "random" without.
    compare_at: early stopping by successive halving (arXiv 1810.05934). When a trial has so many
      values of the objective, and at 3, 9, 27, ... times as many, it goes on only if it is in the
      best third of the trials that came so far. Needs an objective that is measured during
      training. 0: no trial is stopped.
    """

    fields: Mapping[str, Range | Sequence]
    objective: str
    goal: Goal
    trials: int
    method: Method = "bayes"
    compare_at: int = 0


def check(search: Search) -> Search:
    """Returns the search. FieldError: the part that is wrong, its value and the choices."""
    for name, choices in (("goal", get_args(Goal)), ("method", get_args(Method))):
        if (value := getattr(search, name)) not in choices:
            raise FieldError(f"search.{name}", f"no {name} {value!r}{choices_for(value, choices)}")
    for name, least in (("trials", 1), ("compare_at", 0)):
        if type(value := getattr(search, name)) is not int or value < least:
            raise FieldError(f"search.{name}", f"{value!r} is not a whole number from {least} on")
    measured = search.objective.startswith(("train/", "valid/"))
    if search.compare_at and not measured:
        raise FieldError("search.objective", f"{search.objective} is measured at the end, which "
                         "compare_at cannot wait for; take one of train/ or valid/")  # fmt: skip
    if not search.fields:
        raise FieldError("search.fields", "no fields to search")
    for field, values in search.fields.items():
        _check_values(field, values)
    return search


def _check_values(field: str, values: Range | Sequence) -> None:
    if not isinstance(values, Range):
        if isinstance(values, str) or not len(values):
            raise FieldError(field, f"a search needs a Range or choices, not {values!r}")
        return
    if not values.low < values.high:
        raise FieldError(field, f"{values.low} to {values.high} is no range; low is below high")
    if values.log and (values.whole or values.low <= 0):
        raise FieldError(field, "a logarithmic range needs numbers above 0 with a decimal point")


def extremes(search: Search) -> Iterator[dict[str, Any]]:
    """Yields the overrides that a config must take: each end of each range, and each choice."""
    for field, values in search.fields.items():
        ends = (values.low, values.high) if isinstance(values, Range) else values
        yield from ({field: value} for value in ends)
