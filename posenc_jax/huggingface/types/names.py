"""Names of types that share a row."""

from typing import Any


def each(names: str, row: Any) -> dict[str, Any]:
    """The row of each of the names, which are words of one text."""
    return dict.fromkeys(names.split(), row)
