"""What differs between the default configs of two versions of transformers."""

import json
from collections.abc import Iterator
from typing import Any

COMMON = {"num", "size", "dim", "max", "use"}  # words that tell nothing of what a field is


def changes(before: dict[str, Any], now: dict[str, Any], inside: str = "") -> Iterator[str]:
    """What differs in the fields of two configs: those that are gone, new, or have another value.

    A field that is gone and a new one are one that was renamed where they have the same value and a
    word of their names in common.
    """
    gone = {name: before[name] for name in before if name not in now}
    new = {name: now[name] for name in now if name not in before}
    for name, value in list(gone.items()):
        alike = lambda other, words: {*other.split("_")} & words
        words = {*name.split("_")} - COMMON
        same = [other for other, its in new.items() if its == value and alike(other, words)]
        if len(same) == 1:
            yield f"{inside}{name} is now {inside}{same[0]}"
            del gone[name], new[same[0]]
    yield from (f"{inside}{name} is gone, {shown(value)}" for name, value in gone.items())
    yield from (f"{inside}{name} is new, {shown(value)}" for name, value in new.items())
    for name in (name for name in before if name in now and before[name] != now[name]):
        if isinstance(before[name], dict) and isinstance(now[name], dict):
            yield from changes(before[name], now[name], f"{inside}{name}.")
        else:
            yield f"{inside}{name} is {shown(now[name])}, was {shown(before[name])}"


def shown(value: Any) -> str:
    """A value as JSON, cut to a line."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
