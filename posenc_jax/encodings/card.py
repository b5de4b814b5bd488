"""The card of a method: what it claims, where it comes from, and the formula as code.

`@method(...)` puts a card on the function that builds an encoding. The battery in
`tests/test_catalogue.py`, `describe` and the error messages all read it, so one decorated function
and one line in the registry are a whole method.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

Kind = Literal["none", "input", "positions", "rotary", "layout", "bias", "content"]
Policy = Literal["unbounded", "clamp", "interpolate", "error", "option"]
Groups = Literal["place", "significance"]
Order = Literal["first", "last"]


@dataclasses.dataclass(frozen=True)
class Card:
    """What a method declares about itself.

    kind:     where it acts: at the input, on positions, on q and k, in some layers otherwise than
              in others, on the logits; "none" where no position is told.
    formula:  one line of plain text.
    paper:    authors, year and arXiv id, or "textbook".
    beyond:   the range policy; "option" where the user chooses it by an option named `beyond`.
    relative: the scores depend on positions through i - j alone, whatever the weights.
    axes:     position axes it reads: 1 for sequences, 2 for (row, column); 0 where it reads none
              but counts along storage, from a key up to a causal query.
    embeds:   definition in float64 NumPy, (o, params, x_TD, pos_T, n) -> x_TD.
    scores:   definition in float64 NumPy, (o, params, q_THC, k_THC, pos_T, n) -> logits [H, T, T]
              before the mask, 1/sqrt(C) included; logarithms of weights where its walk weighs. A
              method that reads the attention's input is given q, its heads side by side. `o` has
              the options, and as o.layer the layer whose logits are asked.
    shows:    definition in float64 NumPy, (o, pos_T, n) -> positions shown in evaluation; a method
              that reads groups has group_T for pos_T.
    order:    where it stands in a chain among what acts on queries and keys: "first", as it is not
              linear in them, or "last", behind what turns them, as it adds channels; None: either.
    groups:   what `Layout.group_BT` must hold, for a method that reads it: a digit's place in its
              number in the order of writing, or its significance; None: it reads none.
    example:  options for a small model of 24 tokens, where the defaults do not fit one.
    vary:     for an option, another value that must change the output, and for which a value of
              the same type is not enough.
    reference: the public package whose frozen values it is also held to, see tests/goldens; None:
              no package has it, and the definition alone is its proof.
    """

    name: str
    build: Callable[..., Any]
    kind: Kind
    formula: str
    paper: str
    beyond: Policy
    relative: bool
    axes: int
    embeds: Callable[..., Any] | None
    scores: Callable[..., Any] | None
    shows: Callable[..., Any] | None
    order: Order | None
    groups: Groups | None
    example: Mapping[str, Any]
    vary: Mapping[str, Any]
    reference: str | None

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.build).parameters)

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: option.default for name, option in self.options.items()}


def method(
    *,
    kind: Kind,
    formula: str,
    paper: str,
    beyond: Policy = "unbounded",
    relative: bool = False,
    axes: int = 1,
    embeds: Callable[..., Any] | None = None,
    scores: Callable[..., Any] | None = None,
    shows: Callable[..., Any] | None = None,
    order: Order | None = None,
    groups: Groups | None = None,
    example: Mapping[str, Any] | None = None,
    vary: Mapping[str, Any] | None = None,
    reference: str | None = None,
):
    """Puts a `Card` on a function that builds an encoding from keyword options."""

    def decorate(build):
        if not (embeds or scores or shows):
            raise TypeError(f"{build.__name__}: a method needs its definition in float64")
        build.card = Card(
            build.__name__, build, kind, formula, paper, beyond, relative, axes,
            embeds, scores, shows, order, groups, example or {}, vary or {}, reference,
        )  # fmt: skip
        return build

    return decorate
