"""The card of a method: its kind, formula, source and limits; types of options; a card as text.

`@register(kind="rotary", ...)` puts a card on the function that builds an encoding, and the
function into `CATALOG`: a method is one decorated function. The test battery, `facts` and the error
messages read the card.

An option whose type is one of those here is checked when a method is made, see `Card.values`. An
error names the option as a field of the encoding: "encoding.base: -1.0 must be positive".
"""

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import jax

from posenc_jax import registry
from posenc_jax.encoding import Encoding
from posenc_jax.options import Bound, FieldError, checked_all, parameters, shown
from posenc_jax.options import Count as Count
from posenc_jax.recipes import Recipe, with_recipe

Positive = Annotated[float, Bound()]
NotNegative = Annotated[float, Bound(0)]
Factor = Annotated[float, Bound(1)]
Whole = Annotated[int, Bound(0)]
Several = Annotated[int, Bound(2)]
Kind = Literal["none", "input", "positions", "rotary", "by_layer", "bias", "content"]
Policy = Literal["unbounded", "clamp", "interpolate", "error", "option"]
Edge = Literal["clamp", "error"]  # range policies of methods that cannot interpolate


class Range(NamedTuple):
    """Positions p with low <= p < below, on every axis."""

    low: float
    below: float


ANYWHERE = Range(-math.inf, math.inf)
_CHOSEN = ("beyond", "in_chain", "groups")  # fields of a card with a few choices


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """The declaration of a method: what it acts on, its formula, source and limits.

    In the functions below, `o` has the method's options as attributes, and n is the number of
    tokens in the sequence.

    kind:     what it acts on, see `ACTS`.
    formula:  one line of plain text.
    paper:    authors, year and arXiv id, or "textbook".
    beyond:   what happens to positions past its range; "option" if the user chooses it by the
              option `beyond`.
    shift_invariant: whether scores depend on positions through i - j alone, for all weights; never
              for kinds "input" and "positions", for which it is False.
    axes:     position axes that it reads: 1 for sequences, 2 for (row, column); 0 if it reads no
              positions but sums along storage, from a key up to a causal query.
    reads:    (o, n) -> the `Range` of positions that it can read; it makes NaN of others.
    moves:    for kind "positions": (o, n, span, training) -> the `Range` of the positions that it
              places, if the positions that it reads are in the `Range` span.
    in_chain: its place among the parts of a chain that act on queries, keys and logits: "first" if
              it is not linear in queries and keys, "last" if it adds channels that no other part
              may turn, "alone" if it makes their products itself; None: any.
    groups:   what `Layout.group_BT` must hold, for a method that reads it: a digit's place in its
              number in the order of writing, or its significance, or a token's place in its unit;
              None: it reads no groups.
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

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        return dict(parameters(self.build))

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: option.default for name, option in self.options.items()}

    def values(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """All options with their values, those of `chosen` checked. FieldError: see `checked`."""
        read = checked_all("encoding", self.build, **chosen)
        return self.defaults | read


# Every registered method by its name: those of this package, then those of users.
CATALOG: dict[str, Callable[..., Encoding]] = {}


def register(*, kind: Kind, formula: str, paper: str, **fields: Any) -> Callable[[Any], Any]:
    """Decorator: makes a method of the function below it, which builds an encoding from its
    options.

    The method has the function's name, by which everything finds it: `make`, `describe`, chains,
    configs, sweeps, reports. Its module must have been imported; a config names it in `imports`.

        @posenc_jax.register(kind="bias", formula="-slope sqrt|i - j|", paper="an example")
        def root(slope: float = 0.5) -> Encoding:
            ...

    Each option needs a type and a default. A call of the function checks the options first: their
    types, choices and bounds, which stand in its annotations (`Positive`, `Count`).

    Args:
      kind, formula, paper: see `Card`.
      fields: the other fields of a `Card`, such as `shift_invariant=False`.

    Raises:
      ValueError: a kind that does not exist, or a name or option that cannot be, see
        `registry.add`.
      TypeError: a field that a card does not have, or a method that places positions without
        `moves`. On a call: the function returns no Encoding.
    """
    checked_all("register", Card, kind=kind, **{f: v for f, v in fields.items() if f in _CHOSEN})

    def decorate(function):
        # Equal options give the same functions as hooks, also in the encodings of layers, so that
        # nothing is compiled twice. Arrays made here are no tracers, as they outlive a trace.
        @functools.lru_cache(maxsize=256, typed=True)
        def remembered(**options):
            with jax.ensure_compile_time_eval():
                return function(**options)

        @functools.wraps(function)
        def build(*args, **options):
            arguments = inspect.signature(function).bind(*args, **options).arguments
            values = card.values(arguments)
            recipe = Recipe(build, tuple(values.items()))
            encoding = remembered(**values)
            if not isinstance(encoding, Encoding):
                got = type(encoding).__name__
                raise TypeError(f"{card.name}: the function returns {got}; return an Encoding")
            return with_recipe(encoding, recipe)

        invariant = {} if kind not in ("input", "positions") else {"shift_invariant": False}
        declared = {"kind": kind, "formula": formula, "paper": paper, **fields, **invariant}
        card = Card(name=function.__name__, build=build, **declared)
        build.card = card  # type: ignore[attr-defined]
        if (card.kind == "positions") != (card.moves is not None):
            raise TypeError(f"{card.name}: `moves` is for kind 'positions', which needs it")
        registry.add(CATALOG, card.name, function, build)
        return build

    return decorate


def require(ok: bool, option: str, value: Any, rule: str) -> None:
    """Raises a FieldError that names the option, its value and the rule, unless `ok`."""
    if not ok:
        raise FieldError(("encoding", option), f"{shown(value)} {rule}")


def three(option: str, numbers: tuple[int, ...], unit: str) -> None:
    """Raises a FieldError unless there are no numbers, or three of 0 or more: for time, height,
    width.
    """
    good = len(numbers) in (0, 3) and all(number >= 0 for number in numbers)
    rule = f"is not three whole numbers: {unit} for time, height and width"
    require(good, option, numbers, rule)


def with_axes(placed: jax.Array, axes: int = 1) -> jax.Array:
    """Returns the positions. FieldError: not [B, T], or [B, T, axes] for several axes."""
    if placed.ndim < 2 or placed.shape[2:] != (() if axes == 1 else (axes,)):
        named = f", ({', '.join(('time', 'row', 'column')[-axes:])})" if axes <= 3 else ""
        wanted = "[B, T]" if axes == 1 else f"[B, T, {axes}]{named}"
        raise FieldError("positions", f"shape {placed.shape} is not {wanted}")
    return placed


ACTS = {
    "none": "nothing that tells positions",
    "input": "the embeddings at the model's input",
    "positions": "the positions that the methods to its right read",
    "rotary": "queries and keys",
    "by_layer": "queries and keys, not alike in all layers",
    "bias": "the logits, by position",
    "content": "the logits, by position and content",
}

# Options that mean the same in every method that has them and says nothing else of them.
ALIKE = {
    "base": "frequencies fall by nearly this factor from the fastest pair to the slowest",
    "pairing": "which two channels turn together: k and k + C/2, or neighbours",
    "shared": "all layers have the same parameters; the default is the paper's, or its code's",
    "how": "the code c is added to the embedding x, x + c, or read beside it, [x, c] P",
    "width": "the code's own width; None is the model's",
    "beyond": "positions past the range read its last entry ('clamp'), are squeezed into it with "
    "their sequence ('interpolate'), or give NaN ('error')",
}

BEYOND = {
    "unbounded": "defined at any position",
    "clamp": "positions past the range read its last entry",
    "interpolate": "positions past the range are squeezed into it",
    "error": "positions past the range are refused",
    "option": "set by the option `beyond`",
}


def summary(card: Card) -> str:
    """The first line of the method's docstring; its formula if there is no docstring."""
    return (card.build.__doc__ or card.formula).strip().splitlines()[0]


def facts(card: Card) -> dict[str, str]:
    """What the card says besides its options, as {heading: text}."""
    return {
        "formula": card.formula,
        "paper": card.paper,
        "acts on": ACTS[card.kind],
        "beyond": BEYOND[card.beyond],
        "invariant": "yes: scores depend on i - j alone" if card.shift_invariant else "no",
    }


def option_lines(card: Card) -> list[str]:
    """A line for each option: default, choices or bound, and its sentence in the docstring."""
    lines = []
    for name, option in card.options.items():
        sentence = f": {said}" if (said := option_text(card, name)) else ""
        lines.append(f"{name} = {option.default!r}{_allowed(option.annotation)}{sentence}")
    return lines


def option_text(card: Card, option: str) -> str:
    """The docstring's sentence on an option, or that of all methods alike; "" if there is none.

    "as in `pi`" at its beginning becomes what the docstring of `pi` says.
    """
    said = (ALIKE | _arguments(card.build.__doc__ or "")).get(option, "")
    other = re.match(r"as in `(\w+)`", said)
    if other is None or other[1] not in CATALOG:
        return said
    other_card: Card = CATALOG[other[1]].card  # type: ignore[attr-defined]
    return option_text(other_card, option) + said[other.end() :]


def _allowed(kind: Any) -> str:
    """The choices of a type of options, or its bound: " (1 or more)"."""
    if get_origin(kind) is Literal:
        return f" (of {', '.join(map(repr, get_args(kind)))})"
    kinds = kind, *get_args(kind)
    bounds = [bound for option_type in kinds for bound in getattr(option_type, "__metadata__", ())]
    return f" ({bounds[0]})" if bounds else ""


def _arguments(docstring: str) -> dict[str, str]:
    """The first sentence on each argument under Args; "a, b: text" is on both."""
    _, _, listed = inspect.cleandoc(docstring).partition("\nArgs:\n")
    listed = re.split(r"\n\n|\n(?=\S)", listed)[0]
    said = {}
    for entry in re.split(r"\n(?=  \S)", listed):
        names, colon, text = entry.strip().partition(":")
        sentence = re.split(r"(?<=[.])\s", re.sub(r"\s+", " ", text.strip()))[0]
        if colon:
            said |= dict.fromkeys(names.split(", "), sentence.rstrip("."))
    return said
