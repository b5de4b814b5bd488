"""The card of a method: what it declares, and its source.

`@method(...)` puts a card on the function that builds an encoding. The test battery
(`tests/test_catalogue.py`), `describe` and the error messages read the card, and the catalogue
finds it: a method is one decorated function.
"""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from posenc_jax.options import checked

Kind = Literal["none", "input", "positions", "rotary", "by_layer", "bias", "content"]
Policy = Literal["unbounded", "clamp", "interpolate", "error", "option"]
Edge = Literal["clamp", "error"]  # range policies of methods that cannot interpolate


class Range(NamedTuple):
    """Positions p with low <= p < below, on every axis."""

    low: float
    below: float


ANYWHERE = Range(-math.inf, math.inf)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """What a method declares about itself.

    In the functions below, `o` has the method's options as attributes, and n is the number of
    tokens in the sequence.

    kind:     what it acts on, see `describe.ACTS`.
    formula:  one line of plain text.
    paper:    authors, year and arXiv id, or "textbook".
    beyond:   what happens to positions past its range; "option" if the user chooses it by the
              option `beyond`.
    shift_invariant: whether scores depend on positions through i - j alone, for all weights; never
              for kinds "input" and "positions", for which it is False.
    axes:     position axes that it reads: 1 for sequences, 2 for (row, column); 0 if it reads no
              positions but sums along storage, from a key up to a causal query.
    reads:    (o, n) -> the `Range` of positions that it can read; it makes NaN of others.
    moves:    for kind "positions": (o, n, given, training) -> the `Range` of the positions that it
              places, if its own are in the `Range` given.
    in_chain: its place among the parts of a chain that act on queries, keys and logits: "first" if
              it is not linear in queries and keys, "last" if it adds channels that no other part
              may turn, "alone" if it makes their products itself; None: any.
    groups:   what `Layout.group_BT` must hold, for a method that reads it: a digit's place in its
              number in the order of writing, or its significance, or a token's place in its unit;
              None: it reads no groups.
    example:  options for a small model of 24 tokens, if the defaults do not fit one.
    vary:     for the tests, another value of an option that must change the output; needed if no
              such value follows from the option's type.
    reference: the public packages whose frozen values it is tested against, see tests/goldens;
              None: no package has it, and `posenc_jax.lab.definitions` is its only test.
    """

    name: str
    build: Callable[..., Any]
    kind: Kind
    formula: str
    paper: str
    beyond: Policy = "unbounded"
    shift_invariant: bool = True
    axes: int = 1
    reads: Callable[[Any, int], Range] = lambda o, n: ANYWHERE
    moves: Callable[[Any, int, Range, bool], Range] | None = None
    in_chain: Literal["first", "last", "alone"] | None = None
    groups: Literal["place", "significance", "unit"] | None = None
    example: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    vary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reference: str | None = None

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.build).parameters)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: option.default for name, option in self.options.items()}

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All options, those given checked. FieldError: see `checked`."""
        read = {name: checked("encoding", self.options[name], given[name]) for name in given}
        return self.defaults | read


def method(**fields: Any) -> Callable[[Any], Any]:
    """Puts a `Card` with these fields on a function that builds an encoding from its options.

    A call of the function checks the options first: their types, choices and bounds, which stand in
    its annotations (`checks.Positive`, `checks.Count`).

    Raises:
      TypeError: a field that a card does not have, or a method that places positions without
        `moves`.
    """

    def decorate(function):
        @functools.wraps(function)
        def build(*args, **options):
            given = inspect.signature(function).bind(*args, **options).arguments
            return function(**card.values(given))

        if fields.get("kind") in ("input", "positions"):
            fields["shift_invariant"] = False
        card = Card(name=function.__name__, build=build, **fields)
        build.card = card  # type: ignore[attr-defined]
        if (card.kind == "positions") != (card.moves is not None):
            raise TypeError(f"{card.name}: `moves` is for kind 'positions', which needs it")
        return build

    return decorate
