"""A method's card as text: what `describe` prints and the gallery shows."""

import inspect
import re
from typing import Any, Literal, get_args, get_origin

from posenc_jax.encodings.card import Card

ACTS = {
    "none": "nothing that tells positions",
    "input": "the embeddings at the model's input",
    "positions": "the positions that the methods to its right read",
    "rotary": "queries and keys",
    "by_layer": "queries and keys, not alike in all layers",
    "bias": "the logits, by position",
    "content": "the logits, by position and content",
}

BEYOND = {
    "unbounded": "defined at any position",
    "clamp": "positions past the range read its last entry",
    "interpolate": "positions past the range are squeezed into it",
    "error": "positions past the range are refused",
    "option": "set by the option `beyond`",
}


def summary(card: Card) -> str:
    """The first line of the method's docstring."""
    return (card.build.__doc__ or "").strip().splitlines()[0]


def facts(card: Card) -> dict[str, str]:
    """What the card says besides its options, by heading."""
    return {
        "formula": card.formula,
        "paper": card.paper,
        "acts on": ACTS[card.kind],
        "beyond": BEYOND[card.beyond],
        "invariant": "yes: scores depend on i - j alone" if card.shift_invariant else "no",
    }


def option_lines(card: Card) -> list[str]:
    """A line for each option: default, choices or bound, and its sentence in the docstring."""
    said, lines = _arguments(card.build.__doc__ or ""), []
    for name, option in card.options.items():
        sentence = f": {said[name]}" if name in said else ""
        lines.append(f"{name} = {option.default!r}{_allowed(option.annotation)}{sentence}")
    return lines


def _allowed(kind: Any) -> str:
    """The choices of a type of options, or its bound: " (1 or more)"."""
    if get_origin(kind) is Literal:
        return f" (of {', '.join(map(repr, get_args(kind)))})"
    kinds = kind, *get_args(kind)
    bounds = [bound for one in kinds for bound in getattr(one, "__metadata__", ())]
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
