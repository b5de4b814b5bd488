"""Which positions a chain gives to each of its parts, and whether the part can read them.

A position that a part cannot read makes NaN. This module finds such chains from their cards alone,
before anything is compiled.
"""

import bisect
import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, get_args

from posenc_jax.encodings.card import Card, Range
from posenc_jax.options import MOST, FieldError

Parts = Sequence[tuple[Card, Mapping[str, Any]]]  # each part's card, and all of its options


def reach(parts: Parts) -> int | None:
    """The most tokens that a sequence may have in evaluation; None: any number."""
    refused = lambda tokens: refusal(parts, tokens, training=False) is not None
    return bisect.bisect_left(range(1, MOST), True, key=refused) if refused(MOST) else None


def check(parts: Parts, tokens: int, training: bool) -> None:
    """FieldError if a part cannot read what it is given in sequences of so many tokens."""
    if error := refusal(parts, tokens, training):
        raise error


def refusal(parts: Parts, tokens: int, training: bool) -> FieldError | None:
    """The error that `check` raises, or None."""
    given, mover = Range(0, tokens), None
    for card, options in parts:
        o = SimpleNamespace(**options)
        reads = card.reads(o, tokens)
        if given.low < reads.low or given.below > reads.below:
            when = "training" if training else "evaluation"
            when += f" on {tokens} tokens" if tokens > 1 else ""
            source = f"{mover.name} gives it those" if mover else "it is given those"
            return FieldError(
                ("encoding", "name"),
                f"{' + '.join(part.name for part, _ in parts)}: {card.name} reads positions "
                f"{_text(reads)}, and in {when} {source} {_text(given)}; "
                f"{_remedy(card, mover, reads, given)}",
            )
        if card.moves:
            given, mover = card.moves(o, tokens, given, training), card
    return None


def _remedy(card: Card, mover: Card | None, reads: Range, given: Range) -> str:
    ways = []
    size = "length" if mover else next((o for o in ("length", "limit") if o in card.options), "")
    if size in card.options and given.low >= reads.low:
        ways.append(f"raise encoding.{size} to {math.ceil(given.below)}")
    policy = card.options.get("beyond")
    if policy and "clamp" in get_args(policy.annotation):
        ways.append("set encoding.beyond to 'clamp'")
    return ", or ".join(ways) or f"leave out {(mover or card).name}"


def _text(span: Range) -> str:
    return f"in [{span.low:.10g}, {span.below:.10g})"
